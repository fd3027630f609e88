//! Requests that name their heap: held holes of that heap serve them, and of no other.
use omniheap_core::{Align, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig, Request};
use omniheap_host::{Host, heap};

const DEVICE: HeapId = HeapId(0);
const STAGING: HeapId = HeapId(1);

#[test]
fn a_named_heap_serves_its_requests() {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 64 << 20))
        .heap(heap(HeapKind::Staging, 64 << 20))
        .open()
        .expect("a host device");
    let manager = Manager::with_config(host, ManagerConfig::default().plain());
    let ask = |request: Request<'_>| manager.allocate(&request).expect("fits");
    let mut live = Vec::new();
    for n in 1..=200 {
        let size = 256 * (1 + n % 7);
        live.push((DEVICE, ask(Request::new(size))));
        live.push((DEVICE, ask(Request::new(size).heap(DEVICE))));
        live.push((STAGING, ask(Request::new(size).heap(STAGING))));
        live.push((STAGING, ask(Request::new(size).heap(STAGING).name("named"))));
        let at = usize::try_from(n).expect("small") * 7 % live.len();
        drop(live.swap_remove(at));
    }
    assert!(live.iter().all(|(heap, one)| one.heap() == *heap));
    let calls = manager.report().driver_calls;
    drop(ask(Request::new(4096).heap(STAGING)));
    assert_eq!(manager.report().driver_calls, calls, "a held hole served it");
    let refused = |request: Request<'_>| manager.allocate(&request).expect_err("refused").kind();
    assert_eq!(refused(Request::new(64).heap(HeapId(9))), ErrorKind::NoSuchHeap);
    let most = manager.caps().heap(STAGING).expect("a heap").align.get();
    let wide = Request::new(64).heap(STAGING).align(Align::of(most * 2));
    assert_eq!(refused(wide), ErrorKind::InvalidAlignment);
    manager.validate().expect("consistent");
}
