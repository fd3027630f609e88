//! Random work with checked contents over several held timelines of a device; `OMNIHEAP_OPERATIONS` says how much.
//!
//! Without a device every case is *ignored*; `OMNIHEAP_REQUIRE=cuda` turns that into failure.
#[path = "../../stream/tests/device/hold.rs"]
mod hold;
mod own {
    pub(crate) use omniheap_cuda::{Argument, Block, Cuda as Device, Kernel, Launch};
}

use core::time::Duration;
use hold::rig;
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_conformance::{Mode, seed, soak::soak};
use omniheap_cuda::Cuda;
use std::process::ExitCode;

/// Operations of all runs together.
fn operations() -> u64 {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(20_000)
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
    // A held timeline of one case and a driver call of another could wait for each other.
    arguments.test_threads.get_or_insert(1);
    let is_required = std::env::var("OMNIHEAP_REQUIRE")
        .is_ok_and(|names| names.split(',').any(|name| name.trim() == "cuda"));
    let is_absent = Cuda::count() == 0 && !is_required;
    let trials = [("blocks_soak", Mode::Plain), ("pages_soak", Mode::Paged)].map(|(name, mode)| {
        Trial::test(name, move || run(mode, seed())).with_ignored_flag(is_absent)
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
