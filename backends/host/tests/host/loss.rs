//! A lost device answers at once, and gives back what is freed.
use crate::common::{HEAP, MAIN, MIB, at, free, host, kind};
use omniheap_core::{Backend, DriverBudget, ErrorKind, Map, Point, Timelines, Transfer};
use std::thread;

#[test]
fn everything_says_lost_and_frees_still_release() {
    let host = host(MIB);
    let line = host.open().expect("opens");
    let block = host.allocate(HEAP, 4096).expect("fits");
    let before = format!("{host:?}");
    host.lose();
    let point = Point { timeline: MAIN, epoch: omniheap_core::Epoch::START };
    let answers = [
        kind(host.allocate(HEAP, 1)),
        kind(host.wait_idle()),
        kind(host.map(&block)),
        kind(host.flush(&block, 0, 64)),
        kind(host.write(MAIN, at(&block, 0), b"x")),
        kind(host.read(MAIN, at(&block, 0), &mut [0])),
        kind(host.fill(MAIN, at(&block, 0), 1, 1)),
        kind(host.copy(MAIN, &[])),
        kind(host.open()),
        kind(host.mark(line)),
        kind(host.reached(line)),
        kind(host.wait(point)),
        kind(host.order(MAIN, point)),
        kind(host.budget(HEAP)),
        kind(host.hold(MAIN)),
        kind(host.close(line)),
        kind(free(&host, block)),
    ];
    assert_eq!(answers, [ErrorKind::DeviceLost; 17]);
    assert!(before.contains("used: 4096"), "the block was counted");
    assert!(!format!("{host:?}").contains("used: 4096"), "and is no more");
}

#[test]
fn loss_wakes_who_waits_for_a_held_timeline() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    let hold = host.hold(MAIN).expect("alive");
    host.fill(MAIN, at(&block, 0), 4096, 1).expect("checked");
    let point = Point { timeline: MAIN, epoch: host.mark(MAIN).expect("alive") };
    // Gives the worker every chance to arrive at the hold, where only the loss can free it.
    (0..10_000).for_each(|_| thread::yield_now());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| kind(host.wait(point)));
        host.lose();
        assert_eq!(waiter.join().expect("no panic"), ErrorKind::DeviceLost);
    });
    assert_eq!(kind(host.wait_idle()), ErrorKind::DeviceLost, "the timeline itself is let go");
    drop(hold);
    assert_eq!(kind(free(&host, block)), ErrorKind::DeviceLost);
}

#[cfg(target_os = "linux")]
#[test]
fn pages_of_a_lost_device_are_given_back() {
    use omniheap_core::Remap;
    use omniheap_layers::{Live, Record};
    let record = Record::new(host(16 * MIB));
    let remap = record.as_remap().expect("forwarded");
    let spare = remap.reserve(HEAP, 2 * MIB).expect("addresses");
    let mut mapped = Vec::new();
    remap.create(HEAP, 1, &mut mapped).expect("fits");
    crate::remap::map_on(remap, &spare, 0, &mapped).expect("empty");
    let host = record.inner();
    let mut pages = Vec::new();
    let block = host.reserve(HEAP, 4 * MIB).expect("addresses");
    host.create(HEAP, 2, &mut pages).expect("fits");
    crate::remap::map(host, &block, 0, &pages).expect("empty");
    host.lose();
    assert_eq!(kind(crate::remap::unmap(host, &block, 0, 2)), ErrorKind::DeviceLost);
    assert_eq!(kind(crate::remap::destroy(host, &pages)), ErrorKind::DeviceLost);
    assert_eq!(kind(free(host, block)), ErrorKind::DeviceLost);
    assert!(!format!("{host:?}").contains("used: 4194304"), "nothing is counted any more");
    assert_eq!(record.live().mapped, 1);
    crate::remap::destroy_on(remap, &mapped).expect_err("lost");
    free(&record, spare).expect_err("lost");
    assert_eq!(
        record.live(),
        Live::default(),
        "the ledger knows that positions go with their block"
    );
}
