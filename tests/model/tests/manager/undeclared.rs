//! Pools whose bytes any timeline may use unannounced.
use omniheap_core::{
    HeapKind, Manager, ManagerConfig, Move, Point, Request, TimelineId, Timelines, Transfer, Uses,
};
use omniheap_host::{Host, heap};

/// The zeros that end a secret come in the order of its own timeline, which need not run after the other use yet.
#[test]
fn an_undeclared_use_comes_before_a_secret_is_zeroed() {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).open().expect("a device");
    let mut config = ManagerConfig::default().plain();
    config.pool.uses = Uses::Undeclared;
    let manager = Manager::with_config(host, config);
    let host = manager.backend();
    let [home, other] = [(); 2].map(|()| host.open().expect("another timeline"));
    let kept = manager.allocate(&Request::new(4096).on(other)).expect("fits");
    let secret = manager.allocate(&Request::new(4096).on(home).secret()).expect("fits");
    secret.fill(0, 4096, 7).expect("in range");
    let wait = |timeline: TimelineId| {
        let epoch = host.mark(timeline).expect("open");
        host.wait(Point { timeline, epoch }).expect("open");
    };
    wait(home);
    let held = host.hold(other).expect("open");
    let (from, to) = (secret.binding(), kept.binding());
    let (from_place, to_place) = (from.place(0, 4096), to.place(0, 4096));
    let copy =
        Move { from: from_place.expect("inside"), to: to_place.expect("inside"), size: 4096 };
    host.copy(other, &[copy]).expect("open");
    drop((from, to));
    drop(secret);
    // From here on its own timeline runs after the other use, as the rule asks.
    let epoch = host.mark(other).expect("open");
    host.order(home, Point { timeline: other, epoch }).expect("open");
    drop(held);
    wait(other);
    let mut seen = [0; 4096];
    kept.read(0, &mut seen).expect("in range");
    assert_eq!(seen, [7; 4096]);
}
