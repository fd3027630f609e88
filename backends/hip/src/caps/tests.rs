use super::*;
use omniheap_core::HeapId;

fn mi300x() -> Attributes {
    Attributes {
        name: "AMD Instinct MI300X".into(),
        arch: "gfx942:sramecc+:xnack-".into(),
        version: 70_253_211,
        uuid: Some([7; 16]),
        total_memory: 206_141_652_992,
        host_memory: Some(128 << 30),
        constant_memory: 2_147_483_647,
        shared_per_group: 65_536,
        shared_opt_in: 0,
        shared_per_multiprocessor: 65_536,
        has_virtual_memory: true,
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
    let (caps, sources) = translate(&mi300x(), all());
    let kinds: Vec<_> = caps.heaps.iter().map(|heap| heap.kind).collect();
    use HeapKind::{Constant, Device, Staging, Unified};
    assert_eq!(kinds, [Device, Staging, Staging, Unified, Constant]);
    assert_eq!(sources.len(), caps.heaps.len());
    assert_eq!(caps.heaps[0].page, Some(Align::of(2 << 20)));
    assert!(caps.heaps[1..].iter().all(|heap| heap.page.is_none()));
    assert_eq!(caps.heaps[1].host, HostAccess::Combined);
    assert_eq!(caps.heaps[2].host, HostAccess::Cached);
    assert_eq!(caps.heap(HeapId(4)).expect("constant").max_block, 2_147_483_647);
    assert_eq!(caps.device.driver, "HIP runtime 7.2.53211");
    assert_eq!(caps.device.name, "AMD Instinct MI300X (gfx942:sramecc+:xnack-)");
}

#[test]
fn managed_and_device_share_one_memory() {
    let (caps, _) = translate(&mi300x(), all());
    assert_eq!(caps.heaps[0].physical, caps.heaps[3].physical);
    assert_eq!(caps.heaps[0].physical, caps.heaps[4].physical, "constants are device memory");
    assert_ne!(caps.heaps[0].physical, caps.heaps[1].physical);
    assert_eq!(caps.heaps[1].physical, caps.heaps[2].physical);
}

#[test]
fn quarantined_features_leave_no_trace_in_the_caps() {
    let (caps, sources) = translate(&mi300x(), Usable::default());
    assert!(caps.heaps.iter().all(|heap| heap.page.is_none()));
    assert!(caps.heaps.iter().all(|heap| heap.kind != HeapKind::Unified));
    assert!(!sources.contains(&Source::Managed));
}

#[test]
fn limits_are_the_devices_own() {
    let (caps, _) = translate(&mi300x(), all());
    let constant = caps.constant.expect("a bank");
    assert_eq!((constant.bank, constant.max_bind), (2_147_483_647, 2_147_483_647));
    let shared = caps.shared.expect("shared memory");
    assert_eq!((shared.per_group, shared.per_group_opt_in), (65_536, 65_536));
    assert_eq!((shared.banks, shared.bank_width), (32, 4));
}

#[test]
fn a_small_device_and_a_silent_host() {
    let small = Attributes { total_memory: 1 << 30, host_memory: None, ..mi300x() };
    let (caps, _) = translate(&small, all());
    assert_eq!(caps.heaps[1].size, small.total_memory);
    assert_eq!(caps.heaps[4].size, 1 << 30, "no more constants than memory");
    let none = Attributes { constant_memory: 0, ..mi300x() };
    let (caps, sources) = translate(&none, all());
    assert_eq!((caps.constant, sources.len()), (None, 4));
}

#[test]
fn the_host_tells_its_memory_in_kibibytes() {
    let text = "MemFree: 1 kB\nMemTotal:       131072 kB\n";
    assert_eq!(parse_host_memory(text), Some(128 << 20));
    assert_eq!(parse_host_memory("MemTotal: much"), None);
    assert_eq!(parse_host_memory("MemTotal: 18446744073709551615 kB"), None);
    assert_eq!(parse_host_memory(""), None);
}
