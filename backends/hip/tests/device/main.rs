//! The backend on a device. Without one every case is *ignored*; `OMNIHEAP_REQUIRE=hip` turns that into failure
//! where `OMNIHEAP_HIP_LIBRARY` names a library.
//!
//! All cases run again over AMD's own runtimes and the HSA stand-in where the machine has AMD's packages within reach.
#[macro_use]
#[path = "../../../stream/tests/device/mod.rs"]
mod shared;

mod emulate;
mod faults;
mod kernels;
mod own;
mod rig;

use libtest_mimic::Arguments;
use omniheap_hip::Hip;
use rig::Job;
use shared::{Case, process, trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(done) = process::other() {
        return done;
    }
    let mut arguments = Arguments::from_args();
    // One device, and budgets that are read from it: one case at a time.
    arguments.test_threads.get_or_insert(1);
    let is_absent = Hip::count() == 0 && !rig::is_device_required();
    emulate::register();
    let mut trials: Vec<_> = match std::env::var_os("OMNIHEAP_HSA_FAIL") {
        Some(_) => faults::FAULTS.iter().map(|&(_, case)| trial(case)).collect(),
        None => {
            let cases = shared::cases().chain(kernels::CASES.iter().chain(own::CASES).copied());
            cases.map(|case| trial(case).with_ignored_flag(is_absent)).collect()
        }
    };
    trials.extend(rig::trials(&jobs()));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns the jobs for each of AMD's runtimes: all cases with two devices, and each fault in its own process.
fn jobs() -> Vec<Job> {
    let all = Job {
        name: "device",
        case: None,
        variables: &[("OMNIHEAP_HSA_DEVICES", "2"), ("GPU_MAX_HW_QUEUES", "16")],
        fault: None,
        skip: &[],
    };
    let fault = |&(fault, (name, ..)): &(&'static str, Case)| Job {
        name,
        case: Some(name),
        variables: &[],
        fault: Some(fault),
        skip: &[],
    };
    core::iter::once(all).chain(faults::FAULTS.iter().map(fault)).collect()
}
