//! Random work with checked contents over several held timelines of whatever HIP device is here, and over AMD's own runtimes
//! and the HSA stand-in; `OMNIHEAP_OPERATIONS` says how much.
#[path = "device/rig.rs"]
mod amd;
#[path = "device/emulate.rs"]
mod emulate;
#[path = "../../stream/tests/device/hold.rs"]
mod hold;
mod own {
    pub(crate) use omniheap_hip::{Argument, Block, Hip as Device, Kernel, Launch};
}

use amd::Job;
use core::time::Duration;
use hold::rig;
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_conformance::{Mode, seed, soak::soak};
use omniheap_hip::Hip;
use std::process::ExitCode;

/// Operations of all runs together.
fn operations() -> u64 {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(4_000)
}

/// Longest time that a timeline is held: memory that is given back meanwhile waits for it.
const HOLD: Duration = Duration::from_millis(1);

fn run(mode: Mode, seed: u64) -> Result<(), Failed> {
    let done = soak(rig(HOLD)?, mode, seed, operations() / 2)?;
    println!("{mode:?}, seed {seed}: {done:?}");
    let has_checked = done.checked > 0 && done.held > 0;
    if has_checked { Ok(()) } else { Err(format!("nothing was held or checked: {done:?}").into()) }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A held timeline of one case and a runtime call of another could wait for each other.
    arguments.test_threads.get_or_insert(1);
    // Loads the runtime, and with it the stand-in where there is one.
    let is_absent = Hip::count() == 0 && !amd::is_device_required();
    emulate::register();
    let modes = [("blocks_soak", Mode::Plain), ("pages_soak", Mode::Paged)];
    let mut trials: Vec<_> = modes
        .map(|(name, mode)| {
            Trial::test(name, move || run(mode, seed())).with_ignored_flag(is_absent)
        })
        .into();
    // A hardware queue for every stream: those that share one wait for each other's holds.
    let variables = &[("GPU_MAX_HW_QUEUES", "16")];
    let all = Job { name: "soak", case: None, variables, fault: None, skip: &[] };
    trials.extend(amd::trials(&[all]));
    libtest_mimic::run(&arguments, trials).exit_code()
}
