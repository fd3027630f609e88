//! The numbers for a display agree with the report, and cost no driver call.
use omniheap_core::{HeapKind, Manager, ManagerConfig, Request, Usage};
use omniheap_host::{Host, heap};

#[test]
fn an_overlay_says_what_the_report_says() {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 64 << 20))
        .heap(heap(HeapKind::Staging, 64 << 20))
        .open()
        .expect("a host device");
    let manager = Manager::with_config(host, ManagerConfig::default().plain());
    assert!(manager.overlay().heaps.is_empty(), "nothing was ever held");
    let mut live: Vec<_> =
        (1..=40).map(|n| manager.allocate(&Request::new(n << 12)).expect("fits")).collect();
    live.extend(
        (1..=10)
            .map(|n| manager.allocate(&Request::new(n << 12).usage(Usage::Upload)).expect("fits")),
    );
    let mut at = 0;
    live.retain(|_| {
        at += 1;
        at % 3 != 0
    });
    let (overlay, report) = (manager.overlay(), manager.report());
    assert_eq!((overlay.totals, overlay.blocks), (report.totals, report.blocks));
    assert_eq!(overlay.driver_calls, report.driver_calls);
    for shown in &overlay.heaps {
        let pools = report.pools.iter().filter(|pool| pool.heap == shown.heap);
        let totals: omniheap_core::Totals = pools.map(|pool| pool.totals).sum();
        assert_eq!((shown.live_bytes, shown.holes), (totals.live_bytes, totals.holes));
        assert_eq!(
            (shown.free_bytes, shown.largest_hole),
            (totals.free_bytes, totals.largest_hole)
        );
        let held = manager.heap_use(shown.heap).expect("a heap");
        assert_eq!((shown.reserved_bytes, shown.hard_limit), (held.reserved, held.hard_limit));
        assert_eq!(shown.name, manager.caps().heap(shown.heap).expect("a heap").name);
    }
    assert!(
        overlay.heaps.iter().map(|heap| heap.live_bytes).sum::<u64>() == overlay.totals.live_bytes
    );
}
