//! The backend on a real device. Without one every case is *ignored*; `OMNIHEAP_REQUIRE=cuda` turns that into failure.
#[macro_use]
#[path = "../../../stream/tests/device/mod.rs"]
mod shared;

mod kernels;
mod own;

use libtest_mimic::Arguments;
use omniheap_cuda::Cuda;
use shared::{is_required, process, trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(done) = process::other() {
        return done;
    }
    let mut arguments = Arguments::from_args();
    // One device, and budgets that are read from it: one case at a time.
    arguments.test_threads.get_or_insert(1);
    let is_absent = Cuda::count() == 0 && !is_required();
    let cases = shared::cases().chain(kernels::CASES.iter().chain(own::CASES).copied());
    let trials = cases.map(|case| trial(case).with_ignored_flag(is_absent)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
