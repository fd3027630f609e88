use super::*;

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
        claims: Claims {
            has_pages: true,
            has_managed: true,
            has_concurrent_managed: true,
            wants_managed: true,
            has_pools: true,
            block_source: BlockSource::Plain,
        },
    }
}

#[test]
fn limits_are_the_devices_own() {
    let facts = mi300x().facts();
    assert_eq!(facts.device.driver, "HIP runtime 7.2.53211");
    assert_eq!(facts.device.name, "AMD Instinct MI300X (gfx942:sramecc+:xnack-)");
    let constant = facts.constant.expect("read-only memory");
    assert_eq!((constant.size, constant.physical), (2_147_483_647, 0), "it is device memory");
    let shared = facts.shared;
    assert_eq!((shared.per_group, shared.per_group_opt_in), (65_536, 65_536));
    assert_eq!((shared.banks, shared.bank_width), (32, 4));
}

#[test]
fn a_small_device_has_no_more_constants_than_memory() {
    let small = Attributes { total_memory: 1 << 30, ..mi300x() };
    assert_eq!(small.facts().constant.map(|constant| constant.size), Some(1 << 30));
    let none = Attributes { constant_memory: 0, ..mi300x() };
    assert!(none.facts().constant.is_none());
}
