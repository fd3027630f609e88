//! Hand-over by descriptor.
use crate::common::{HEAP, MAIN, MIB, at, free, host, kind, read, used};
use omniheap_core::{
    Align, Backend, DeviceInfo, ErrorKind, Export, Exported, HeapKind, Transfer, erase,
};
use omniheap_host::{Host, heap};

#[test]
fn exporter_and_importer_see_the_same_bytes_and_either_may_leave_first() {
    let (one, two) = (host(MIB), host(MIB));
    let block = one.allocate_exportable(HEAP, 5000).expect("fits");
    let exported = one.export(&block).expect("exportable");
    assert_eq!((exported.size, used(&one)), (8192, 8192));
    let other = two.import(HEAP, &exported).expect("same kind of device");
    one.write(MAIN, at(&block, 8000), b"hello").expect("inside");
    one.wait_idle().expect("alive");
    free(&one, block).expect("idle");
    assert_eq!(read(&two, MAIN, &other, 8000, 5), b"hello");
    free(&two, other).expect("idle");
    assert_eq!((used(&one), used(&two)), (0, 0));
}

#[test]
fn what_cannot_be_handed_over_is_refused() {
    let host = host(MIB);
    let plain = host.allocate(HEAP, 4096).expect("fits");
    assert_eq!(kind(host.export(&plain)), ErrorKind::Unsupported);
    free(&host, plain).expect("idle");
    let block = host.allocate_exportable(HEAP, 4096).expect("fits");
    let exported = host.export(&block).expect("exportable");
    let other = DeviceInfo { uuid: Some([1; 16]), ..DeviceInfo::default() };
    let far =
        Host::builder().heap(heap(HeapKind::Device, MIB)).device(other).open().expect("valid");
    assert_eq!(kind(far.import(HEAP, &exported)), ErrorKind::Foreign);
    let long = Exported { size: 8192, ..exported };
    assert_eq!(kind(host.import(HEAP, &long)), ErrorKind::ExceedsLimit);
    let null = std::fs::File::open("/dev/null").expect("Unix");
    let unsealed = Exported { fd: null.into(), size: 0, uuid: None };
    assert_eq!(kind(host.import(HEAP, &unsealed)), ErrorKind::Foreign);
    assert_eq!(used(&host), 4096, "refusals count nothing");
    free(&host, block).expect("idle");
}

#[test]
fn exportable_blocks_are_aligned_like_others() {
    let shape = heap(HeapKind::Device, 8 * MIB).align(Align::of(MIB));
    let host = Host::builder().heap(shape).open().expect("valid");
    let block = host.allocate_exportable(HEAP, 4096).expect("fits");
    let address = host.as_address().expect("has addresses").address(&block);
    assert!(Align::of(MIB).divides(address));
    free(&host, block).expect("idle");
}

#[test]
fn an_erased_device_has_every_capability_of_its_own() {
    let (plain, erased) = (host(MIB), erase(host(MIB)));
    let own = [
        plain.as_map().is_some(),
        plain.as_transfer().is_some(),
        plain.as_address().is_some(),
        plain.as_timelines().is_some(),
        plain.as_remap().is_some(),
        plain.as_budget().is_some(),
        plain.as_export().is_some(),
        plain.as_launch().is_some(),
    ];
    let shown = [
        erased.as_map().is_some(),
        erased.as_transfer().is_some(),
        erased.as_address().is_some(),
        erased.as_timelines().is_some(),
        erased.as_remap().is_some(),
        erased.as_budget().is_some(),
        erased.as_export().is_some(),
        erased.as_launch().is_some(),
    ];
    assert_eq!(shown, own);
    assert!(own[6], "host memory can be handed over");
}
