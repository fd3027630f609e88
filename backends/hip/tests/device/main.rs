//! The backend on a device. Without one every case is *ignored*; `OMNIHEAP_REQUIRE=hip` turns that into failure
//! where `OMNIHEAP_HIP_LIBRARY` names a library.
//!
//! Where the machine has AMD's packages within reach, all cases run again over AMD's own runtimes and the HSA stand-in.
mod compact;
mod emulate;
mod export;
mod faults;
mod kernels;
mod memory;
mod misuse;
mod pages;
mod process;
mod rig;
mod support;
mod teardown;
mod time;
mod transfer;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use omniheap_hip::Hip;
use rig::Job;
use std::process::ExitCode;
use support::Need;

/// One promise: its name, what it needs, and how it is checked.
pub(crate) type Case = (&'static str, Need, fn(&Hip));

/// Names each function once, so that name and check cannot drift apart.
macro_rules! cases {
    ($($need:ident: $($name:ident),* $(,)?;)*) => {
        pub(crate) const CASES: &[crate::Case] =
            &[$($((stringify!($name), crate::support::Need::$need, $name)),*),*];
    };
}
pub(crate) use cases;

fn run((name, need, check): Case) -> Result<Completion, Failed> {
    let hip = match Hip::open(0) {
        Ok(hip) => hip,
        Err(error) => return Err(format!("{name}: no device: {error}").into()),
    };
    if let Some(reason) = need.missing(&hip) {
        if rig::is_required() {
            return Err(format!("{name}: {reason}").into());
        }
        return Ok(Completion::ignored_with(reason));
    }
    check(&hip);
    Ok(Completion::Completed)
}

fn main() -> ExitCode {
    if let Some(done) = process::other() {
        return done;
    }
    let mut arguments = Arguments::from_args();
    // One device, and budgets that are read from it: one case at a time.
    arguments.test_threads.get_or_insert(1);
    let is_absent = Hip::count() == 0 && !rig::is_device_required();
    emulate::register();
    let all = [
        memory::CASES,
        transfer::CASES,
        compact::CASES,
        time::CASES,
        pages::CASES,
        export::CASES,
        process::CASES,
        kernels::CASES,
        misuse::CASES,
        teardown::CASES,
    ];
    let trial = |case: Case| Trial::ignorable_test(case.0, move || run(case));
    let mut trials: Vec<_> = match std::env::var_os("OMNIHEAP_HSA_FAIL") {
        Some(_) => faults::FAULTS.iter().map(|&(_, case)| trial(case)).collect(),
        None => {
            let cases = all.into_iter().flatten();
            cases.map(|&case| trial(case).with_ignored_flag(is_absent)).collect()
        }
    };
    trials.extend(rig::trials(&jobs()));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What is run over each of AMD's runtimes: everything with two devices, and each fault in a process of its own.
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
