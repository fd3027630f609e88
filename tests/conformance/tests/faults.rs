//! Every driver call of every scenario fails, with every legal answer, over blocks and over pages.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_conformance::faults::{Depth, sweep, sweep_until};
use omniheap_conformance::{Mode, Rig};
use omniheap_core::{HeapKind, HostAccess, Result};
use omniheap_host::{Host, heap};
use omniheap_layers::CallKind;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn open() -> Result<Rig<Arc<Host>>> {
    let constant = heap(HeapKind::Constant, 64 << 10).physical(1);
    let mut incoherent = heap(HeapKind::Unified, 512 * MIB);
    (incoherent.host, incoherent.page) = (HostAccess::Incoherent, None);
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 512 * MIB))
        .heap(heap(HeapKind::Staging, 512 * MIB))
        .heap(incoherent)
        .heap(constant)
        .open()?;
    let host = Arc::new(host);
    let held = Arc::clone(&host);
    Ok(Rig::new(host).with_hold(move |timeline| Ok(Box::new(held.hold(timeline)?))))
}

fn all(mode: Mode, depth: Depth) {
    let tally = sweep(open, mode, depth, 1).expect("the host is here");
    println!("{mode:?}, {depth:?}: {tally}");
    let shown: Vec<_> = tally.wrong.iter().take(40).map(String::as_str).collect();
    assert!(tally.wrong.is_empty(), "{tally}\n{}", shown.join("\n"));
    assert!(tally.scenarios >= 48 && tally.injections >= 500, "{tally}");
    let pages =
        |kind: &CallKind| kind.is_memory() && !kind.makes_block() && *kind != CallKind::Free;
    let missed = CallKind::ALL.iter().filter(|kind| !tally.kinds.contains(kind));
    let missed: Vec<_> = missed.filter(|kind| mode == Mode::Paged || !pages(kind)).collect();
    assert!(missed.is_empty(), "never failed: {missed:?}");
}

#[test]
fn a_sweep_ends_before_the_injection_that_is_not_wanted() {
    let asked = AtomicU64::new(0);
    let stop = || asked.fetch_add(1, Relaxed) >= 100;
    let part = sweep_until(open, Mode::Plain, Depth::Single, 1, &stop).expect("the host is here");
    assert!(part.wrong.is_empty() && part.injections > 0, "{part}");
    assert_eq!(asked.into_inner(), 101, "nothing is asked for after the end");
    assert!(part.injections + part.scenarios <= 100, "{part}");
}

#[test]
fn every_single_fault_over_blocks() {
    all(Mode::Plain, Depth::Single);
}

#[test]
fn every_single_fault_over_pages() {
    all(Mode::Paged, Depth::Single);
}

#[test]
fn longer_plans_over_blocks() {
    all(Mode::Plain, Depth::Plans);
}

#[test]
fn longer_plans_over_pages() {
    all(Mode::Paged, Depth::Plans);
}
