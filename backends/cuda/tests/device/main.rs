//! The backend on a real device, and over the stand-in for the driver. Without a device every case is *ignored*;
//! `OMNIHEAP_REQUIRE=cuda` turns that into failure.
#[macro_use]
#[path = "../../../stream/tests/device/mod.rs"]
mod shared;

mod kernels;
mod own;
mod standin;

use libtest_mimic::Arguments;
use omniheap_cuda::Cuda;
use shared::{is_required, process, trial};
use std::process::ExitCode;

/// Cases that the stand-in's compiler, which reads names only, has no answer for.
const NEEDS_A_COMPILER: &[(&str, &str)] = &[
    ("broken_source_gives_the_log", "it compiles everything"),
    ("broken_images_give_the_log", "it loads everything that looks like PTX"),
    ("own_kernels_read_the_constant_bank", "it runs no device code"),
];

fn main() -> ExitCode {
    if let Some(done) = process::other() {
        return done;
    }
    let mut arguments = Arguments::from_args();
    // One device, and budgets that are read from it: one case at a time.
    arguments.test_threads.get_or_insert(1);
    let is_absent = Cuda::count() == 0 && !is_required();
    let cases = shared::cases().chain(kernels::CASES.iter().chain(own::CASES).copied());
    let mut trials: Vec<_> = cases.map(|case| trial(case).with_ignored_flag(is_absent)).collect();
    trials.extend(standin::trial(standin::Job { skip: NEEDS_A_COMPILER, variables: &[] }));
    libtest_mimic::run(&arguments, trials).exit_code()
}
