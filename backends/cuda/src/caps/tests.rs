use super::*;
use omniheap_core::HeapId;

fn h200() -> Attributes {
    Attributes {
        name: "NVIDIA H200".into(),
        driver_version: 13_000,
        uuid: Some([7; 16]),
        total_memory: 150_754_820_096,
        host_memory: Some(128 << 30),
        compute: (9, 0),
        constant_memory: 65_536,
        shared_per_group: 49_152,
        shared_opt_in: 232_448,
        shared_per_multiprocessor: 233_472,
        max_threads: 1024,
        max_pitch: 2_147_483_647,
        has_virtual_memory: true,
        has_fd_handles: true,
        has_managed: true,
        has_concurrent_managed: true,
        has_pools: true,
    }
}

fn all() -> Usable {
    Usable { page: Some(Align::of(2 << 20)), managed: Some(Source::Managed) }
}

#[test]
fn a_data_centre_device_has_five_heaps_in_order() {
    let (caps, sources) = translate(&h200(), all());
    let kinds: Vec<_> = caps.heaps.iter().map(|heap| heap.kind).collect();
    use HeapKind::{Constant, Device, Staging, Unified};
    assert_eq!(kinds, [Device, Staging, Staging, Unified, Constant]);
    assert_eq!(sources.len(), caps.heaps.len());
    assert_eq!(caps.heaps[0].page, Some(Align::of(2 << 20)));
    assert!(caps.heaps[1..].iter().all(|heap| heap.page.is_none()));
    assert_eq!(caps.heaps[1].host, HostAccess::Combined);
    assert_eq!(caps.heaps[2].host, HostAccess::Cached);
    assert_eq!(caps.heap(HeapId(4)).expect("constant").max_block, 65_536);
    assert_eq!(caps.device.driver, "CUDA driver 13.0");
}

#[test]
fn managed_and_device_share_one_memory() {
    let (caps, _) = translate(&h200(), all());
    assert_eq!(caps.heaps[0].physical, caps.heaps[3].physical);
    assert_ne!(caps.heaps[0].physical, caps.heaps[1].physical);
    assert_eq!(caps.heaps[1].physical, caps.heaps[2].physical);
}

#[test]
fn quarantined_features_leave_no_trace_in_the_caps() {
    let (caps, sources) = translate(&h200(), Usable::default());
    assert!(caps.heaps.iter().all(|heap| heap.page.is_none()));
    assert!(caps.heaps.iter().all(|heap| heap.kind != HeapKind::Unified));
    assert!(!sources.contains(&Source::Managed));
}

#[test]
fn limits_are_the_devices_own() {
    let (caps, _) = translate(&h200(), all());
    let constant = caps.constant.expect("a bank");
    assert_eq!((constant.bank, constant.max_bind), (65_536, 65_536));
    let shared = caps.shared.expect("shared memory");
    assert_eq!((shared.per_group, shared.per_group_opt_in), (49_152, 232_448));
    assert_eq!((shared.banks, shared.bank_width), (32, 4));
}

#[test]
fn an_older_device_has_no_opt_in_and_maybe_no_host_size() {
    let old = Attributes { shared_opt_in: 0, host_memory: None, ..h200() };
    let (caps, _) = translate(&old, all());
    assert_eq!(caps.shared.expect("shared memory").per_group_opt_in, 49_152);
    assert_eq!(caps.heaps[1].size, old.total_memory);
}

#[test]
fn the_host_tells_its_memory_in_kibibytes() {
    let text = "MemFree: 1 kB\nMemTotal:       131072 kB\n";
    assert_eq!(parse_host_memory(text), Some(128 << 20));
    assert_eq!(parse_host_memory("MemTotal: much"), None);
    assert_eq!(parse_host_memory("MemTotal: 18446744073709551615 kB"), None);
    assert_eq!(parse_host_memory(""), None);
}
