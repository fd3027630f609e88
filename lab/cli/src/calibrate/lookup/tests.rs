use super::*;
use omniheap::placement::{Keyword as _, Probe, TableSize};
use omniheap::seam::Slot;

#[test]
fn every_kernel_exists_in_every_language_with_the_slots_of_its_place() {
    for template in PROBES.iter().chain(JUDGED) {
        let Placed { constant, device, shared, .. } = template.with(72).table;
        let shared = shared.expect("72 rows are few");
        for kernel in [constant, device, shared] {
            assert!(kernel.cpp.contains(&format!("void {}(", kernel.name)), "{}", kernel.name);
            assert!(!kernel.wgsl.contains('$') && !kernel.cpp.contains('$'), "{}", kernel.name);
            assert_eq!(kernel.check(), Ok(()), "{}", kernel.name);
        }
        assert_eq!(constant.slots, [Slot::Constant, Slot::Read, Slot::Write]);
        assert_eq!(device.slots, [Slot::Read, Slot::Read, Slot::Write]);
        assert_eq!(shared.slots, device.slots);
        assert!(constant.cpp.contains("omniheap_constant_0"));
        assert!(!device.cpp.contains("omniheap_constant_0"));
    }
    let large = PROBES[0].with(65_536).table;
    assert!(large.shared.is_none() && large.constant.check().is_ok());
}

#[test]
fn every_probe_is_there_in_every_size_and_of_its_pattern() {
    for (name, probe) in Probe::WORDS {
        let found: Vec<_> = PROBES.iter().filter(|template| template.name == *name).collect();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].access.0, probe.pattern(), "{name}");
    }
    assert_eq!(PROBES.len(), Probe::WORDS.len());
    let sizes: Vec<u64> = PROBE_ROWS.iter().map(|rows| 16 * u64::from(*rows)).collect();
    assert_eq!(sizes, TableSize::ALL.map(TableSize::most));
}

#[test]
fn nothing_is_judged_with_what_calibration_measured() {
    for judged in JUDGED {
        for probe in PROBES {
            assert_ne!(judged.name, probe.name);
        }
    }
    assert!(JUDGED_ROWS.iter().all(|rows| !PROBE_ROWS.contains(rows)));
}

#[test]
fn reuse_is_bytes_read_by_a_group_over_bytes_of_the_table() {
    let find = |name, rows| {
        PROBES.iter().find(|template| template.name == name).expect("a probe").with(rows)
    };
    assert_eq!(find("whole", 64).request(1).reuse, 256, "every item reads the whole table");
    assert_eq!(find("codes", 64).request(1).reuse, 16, "16 numbers of 4 bytes, 1 KiB");
    assert_eq!(find("codes", 65_536).request(1).reuse, 0, "less than once");
}
