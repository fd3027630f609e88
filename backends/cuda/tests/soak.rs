//! Random work with checked contents over several held timelines of a device; `OMNIHEAP_OPERATIONS` says how much.
//!
//! Without a device every case is *ignored*; `OMNIHEAP_REQUIRE=cuda` turns that into failure.
#[path = "../../stream/tests/device/soak.rs"]
mod soak;

use omniheap_cuda::Cuda as Device;
use std::process::ExitCode;

fn main() -> ExitCode {
    let is_required = std::env::var("OMNIHEAP_REQUIRE")
        .is_ok_and(|names| names.split(',').any(|name| name.trim() == "cuda"));
    let is_absent = Device::count() == 0 && !is_required;
    let trials = soak::trials(20_000).into_iter().map(|trial| trial.with_ignored_flag(is_absent));
    libtest_mimic::run(&soak::arguments(), trials.collect()).exit_code()
}
