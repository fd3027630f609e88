use super::*;
use omniheap_stream::BlockSource;

fn h200() -> Attributes {
    Attributes {
        name: "NVIDIA H200".into(),
        driver_version: 13_000,
        uuid: Some([7; 16]),
        total_memory: 150_754_820_096,
        host_memory: Some(128 << 30),
        constant_memory: 65_536,
        shared_per_group: 49_152,
        shared_opt_in: 232_448,
        shared_per_multiprocessor: 233_472,
        max_pitch: 2_147_483_647,
        has_fd_handles: true,
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
    let facts = h200().facts();
    assert_eq!(facts.device.driver, "CUDA driver 13.0");
    assert_eq!(facts.constant.map(|bank| (bank.size, bank.physical)), Some((65_536, 2)));
    let shared = facts.shared;
    assert_eq!((shared.per_group, shared.per_group_opt_in), (49_152, 232_448));
    assert_eq!((shared.banks, shared.bank_width), (32, 4));
}

#[test]
fn an_older_device_has_no_opt_in_and_maybe_no_bank() {
    let old = Attributes { shared_opt_in: 0, constant_memory: 0, ..h200() };
    assert_eq!(old.facts().shared.per_group_opt_in, 49_152);
    assert!(old.facts().constant.is_none());
    let large = Attributes { constant_memory: 1 << 20, ..h200() };
    assert_eq!(large.facts().constant.map(|bank| bank.size), Some(65_536), "our symbol's size");
}
