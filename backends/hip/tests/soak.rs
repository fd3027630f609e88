//! Random work with checked contents over several held timelines of whatever HIP device is here, and over AMD's own runtimes
//! and the HSA stand-in; `OMNIHEAP_OPERATIONS` says how much.
#[path = "device/rig.rs"]
mod amd;
#[path = "device/emulate.rs"]
mod emulate;
#[path = "../../stream/tests/device/soak.rs"]
mod soak;

use amd::Job;
use omniheap_hip::Hip as Device;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Loads the runtime, and with it the stand-in where there is one.
    let is_absent = Device::count() == 0 && !amd::is_device_required();
    emulate::register();
    let trials = soak::trials(4_000).into_iter().map(|trial| trial.with_ignored_flag(is_absent));
    // A hardware queue for every stream: those that share one wait for each other's holds.
    let variables = &[("GPU_MAX_HW_QUEUES", "16")];
    let all = Job { name: "soak", case: None, variables, fault: None, skip: &[] };
    let trials = trials.chain(amd::trials(&[all])).collect();
    libtest_mimic::run(&soak::arguments(), trials).exit_code()
}
