//! Pools that reuse bytes across timelines in order: what is pending reads what it should, whatever is asked for meanwhile.
use omniheap_core::{
    Allocation, Copy, HeapId, HeapKind, Manager, ManagerConfig, Request, Rung, TimelineId,
    Timelines, Waiting,
};
use omniheap_host::{Host, heap};

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;

fn thrifty() -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, 4 << 30)).open().expect("a host device");
    let mut config = ManagerConfig::default();
    config.pool.waiting = Waiting::Thrift;
    Manager::with_config(host, config)
}

fn ask(manager: &Manager<Host>, on: TimelineId, size: u64) -> Allocation<Host> {
    manager.allocate(&Request::new(size).on(on)).expect("there is room")
}

/// Copies the first bytes of one allocation to another, when its timeline comes to it.
fn keep(manager: &Manager<Host>, on: TimelineId, from: &Allocation<Host>, to: &Allocation<Host>) {
    let one = Copy { from, from_offset: 0, to, to_offset: 0, size: MIB };
    manager.copy(on, &[one]).expect("both are long enough");
}

fn first_byte(of: &Allocation<Host>) -> u8 {
    let mut seen = vec![0; usize::try_from(MIB).expect("small")];
    of.read(0, &mut seen).expect("in range");
    assert!(seen.iter().all(|byte| *byte == seen[0]), "the bytes are of several writers");
    seen[0]
}

/// Lets a third timeline work for a while, in which the others could have run too early.
fn work_elsewhere(manager: &Manager<Host>) {
    let third = manager.backend().open().expect("another timeline");
    let busy = ask(manager, third, 32 * MIB);
    for value in 0..8 {
        busy.fill(0, 32 * MIB, value).expect("in range");
    }
    assert_eq!(first_byte(&busy), 7);
}

fn held(manager: &Manager<Host>) -> u64 {
    manager.heap_use(HeapId(0)).expect("the heap is there").reserved
}

fn climbs(manager: &Manager<Host>, rung: Rung) -> u64 {
    manager.report().rungs[rung as usize]
}

#[test]
fn a_borrower_writes_only_after_the_lender_has_read() {
    let manager = thrifty();
    let other = manager.backend().open().expect("another timeline");
    let kept = ask(&manager, MAIN, MIB);
    let old = ask(&manager, MAIN, 160 * MIB);
    old.fill(0, MIB, 0xaa).expect("in range");
    let before = held(&manager);
    let hold = manager.backend().hold(MAIN).expect("open");
    keep(&manager, MAIN, &old, &kept);
    drop(old);
    let new = ask(&manager, other, 160 * MIB);
    assert_eq!((held(&manager), climbs(&manager, Rung::Lend)), (before, 1), "it was lent");
    new.fill(0, MIB, 0xbb).expect("in range");
    work_elsewhere(&manager);
    drop(hold);
    assert_eq!((first_byte(&new), first_byte(&kept)), (0xbb, 0xaa));
}

#[test]
fn an_owner_writes_only_after_others_have_read() {
    let manager = thrifty();
    let other = manager.backend().open().expect("another timeline");
    let kept = ask(&manager, other, MIB);
    let old = ask(&manager, MAIN, 160 * MIB);
    old.fill(0, MIB, 0xaa).expect("in range");
    let before = held(&manager);
    // What the other timeline reads was written: the program orders that itself.
    let epoch = manager.backend().mark(MAIN).expect("open");
    let point = omniheap_core::Point { timeline: MAIN, epoch };
    manager.backend().order(other, point).expect("both are open");
    let hold = manager.backend().hold(other).expect("open");
    old.use_on(other).expect("open");
    keep(&manager, other, &old, &kept);
    drop(old);
    let new = ask(&manager, MAIN, 160 * MIB);
    assert_eq!((held(&manager), climbs(&manager, Rung::Retire)), (before, 1), "it was taken back");
    new.fill(0, MIB, 0xbb).expect("in range");
    work_elsewhere(&manager);
    drop(hold);
    assert_eq!((first_byte(&new), first_byte(&kept)), (0xbb, 0xaa));
}
