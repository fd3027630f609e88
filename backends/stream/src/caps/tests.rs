use super::*;
use omniheap_seam::Mapper;

fn facts() -> Facts {
    let device = DeviceInfo {
        backend: "stream",
        name: "a device".into(),
        driver: "a driver".into(),
        uuid: Some([7; 16]),
    };
    Facts {
        device,
        total_memory: 80 << 30,
        host_memory: Some(128 << 30),
        device_align: Align::of(512),
        device_granule: Align::of(2 << 20),
        managed_granule: Align::of(64 << 10),
        constant: Some(ConstantHeap {
            name: "bank",
            size: 65_536,
            align: Align::of(256),
            granule: Align::of(256),
            physical: 2,
        }),
        shared: SharedCaps {
            per_group: 49_152,
            per_group_opt_in: 232_448,
            per_multiprocessor: 233_472,
            banks: 32,
            bank_width: 4,
        },
    }
}

fn all() -> Usable {
    Usable {
        page: Some(Align::of(2 << 20)),
        managed: Some(Source::Managed),
        exportable: Some(Align::of(2 << 20)),
    }
}

#[test]
fn a_data_centre_device_has_five_heaps_in_order() {
    let (caps, sources) = facts().translate(all());
    let kinds: Vec<_> = caps.heaps.iter().map(|heap| heap.kind).collect();
    use HeapKind::{Constant, Device, Staging, Unified};
    assert_eq!(kinds, [Device, Staging, Staging, Unified, Constant]);
    use Source as S;
    assert_eq!(sources, [S::Device, S::Combined, S::Cached, S::Managed, S::Constant]);
    assert_eq!(
        (caps.heaps[0].page, caps.heaps[0].mapper),
        (Some(Align::of(2 << 20)), Mapper::Host)
    );
    assert!(caps.heaps[1..].iter().all(|heap| heap.page.is_none()));
    assert_eq!(caps.heaps[1].host, HostAccess::Combined);
    assert_eq!(caps.heaps[2].host, HostAccess::Cached);
}

#[test]
fn managed_and_device_share_one_memory() {
    let (caps, _) = facts().translate(all());
    assert_eq!(caps.heaps[0].physical, caps.heaps[3].physical);
    assert_ne!(caps.heaps[0].physical, caps.heaps[1].physical);
    assert_eq!(caps.heaps[1].physical, caps.heaps[2].physical);
}

#[test]
fn quarantined_features_leave_no_trace_in_the_caps() {
    let (caps, sources) = facts().translate(Usable::default());
    assert!(caps.heaps.iter().all(|heap| heap.page.is_none()));
    assert!(caps.heaps.iter().all(|heap| heap.kind != HeapKind::Unified));
    assert!(!sources.contains(&Source::Managed));
}

#[test]
fn what_the_device_or_the_host_does_not_have_is_left_out() {
    let silent = Facts { host_memory: None, constant: None, ..facts() };
    let (caps, sources) = silent.translate(all());
    assert_eq!(caps.heaps[1].size, 80 << 30, "the host's size is guessed with care");
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
