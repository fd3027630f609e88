//! Random work with checked contents over several held timelines; the backend's own test includes it with `#[path]`.
use crate::Device;
use core::time::Duration;
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_conformance::{Mode, Rig, seed, soak::soak};
use std::sync::Arc;

/// Longest time that a timeline is held: memory that is given back meanwhile waits for it.
const HOLD: Duration = Duration::from_millis(1);

/// Returns the arguments, with one case at a time: a held timeline of one and a driver call of another could wait for each other.
pub(crate) fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    arguments
}

/// One trial for each way of managing memory; `OMNIHEAP_OPERATIONS` says how much they do together, or `usual`.
pub(crate) fn trials(usual: u64) -> Vec<Trial> {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let operations = set.unwrap_or(usual) / 2;
    let modes = [("blocks_soak", Mode::Plain), ("pages_soak", Mode::Paged)];
    modes.map(|(name, mode)| Trial::test(name, move || run(mode, seed(), operations))).into()
}

fn run(mode: Mode, seed: u64, operations: u64) -> Result<(), Failed> {
    let device = Arc::new(Device::open(0)?);
    let done = soak(Rig::new(device).with_gates(HOLD), mode, seed, operations)?;
    println!("{mode:?}, seed {seed}: {done:?}");
    let has_checked = done.checked > 0 && done.held > 0;
    if has_checked { Ok(()) } else { Err(format!("nothing was held or checked: {done:?}").into()) }
}
