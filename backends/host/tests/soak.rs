//! Random work on host memory, with timelines that are held back: `cargo test --release` runs five million operations.
use omniheap_conformance::soak::{soak, soak_threads};
use omniheap_conformance::{Account, Mode, Rig, seed};
use omniheap_core::{HeapKind, Result};
use omniheap_host::{Host, heap};
use std::sync::Arc;

fn open() -> Result<Rig<Arc<Host>>> {
    let host = Arc::new(Host::builder().heap(heap(HeapKind::Device, 1 << 30)).open()?);
    let held = Arc::clone(&host);
    let rig = Rig::new(host).with_hold(move |timeline| Ok(Box::new(held.hold(timeline)?)));
    Ok(rig.with_account(Account::Exact))
}

/// Operations of all single-threaded runs together.
fn operations() -> u64 {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(if cfg!(debug_assertions) { 30_000 } else { 5_000_000 })
}

fn run(mode: Mode, seed: u64, operations: u64) {
    let done = soak(open().expect("host memory is here"), mode, seed, operations);
    let done = done.expect("no oracle objects");
    println!("{mode:?}, seed {seed}: {done:?}");
    assert!(done.checked > 0 && done.held > 0, "{done:?}");
}

#[test]
fn blocks_soak() {
    run(Mode::Plain, seed(), operations() / 2);
}

#[test]
fn pages_soak() {
    run(Mode::Paged, seed() ^ 1, operations() / 2);
}

#[test]
fn several_threads_soak() {
    for (threads, mode) in [(2, Mode::Plain), (4, Mode::Paged), (8, Mode::Plain)] {
        let rig = open().expect("host memory is here");
        let checked = soak_threads(rig, mode, seed(), threads, operations() / 20);
        assert!(checked.expect("no oracle objects") > 0);
    }
}

#[test]
fn guards_soak() {
    for mode in [Mode::Plain, Mode::Paged] {
        let rig = || open().expect("host memory is here").with_guards();
        let done = soak(rig(), mode, seed() ^ 2, operations() / 20);
        assert!(done.expect("no oracle objects, and no guard is overwritten").checked > 0);
        let checked = soak_threads(rig(), mode, seed() ^ 3, 4, operations() / 20);
        assert!(checked.expect("no oracle objects, and no guard is overwritten") > 0);
    }
}
