use super::*;
use omniheap_placement::{Keyword as _, Probe, TableSize};
use omniheap_seam::{Kernel, Slot};

fn tables() -> impl Iterator<Item = Placed> {
    let lookups = PROBES.iter().chain(JUDGED).map(|lookup| lookup.table);
    [CONVOLUTION, BILATERAL].into_iter().chain(lookups)
}

fn all() -> Vec<Kernel> {
    let placed = tables().flat_map(|k| [Some(k.constant), Some(k.device), k.shared]).flatten();
    [SCALE, MATMUL, REDUCTION, RESIDUE].into_iter().chain(placed).collect()
}

#[test]
fn every_kernel_exists_in_every_language() {
    for kernel in all() {
        assert!(kernel.cpp.contains(&format!("void {}(", kernel.name)), "{}", kernel.name);
        assert!(kernel.wgsl.contains(&format!("fn {}(", kernel.name)), "{}", kernel.name);
        assert_eq!(kernel.spirv[0], 0x0723_0203, "the magic number of SPIR-V");
        assert!(!kernel.wgsl.contains('$'), "{}: every token is filled in", kernel.name);
        assert_eq!(kernel.parameters % 4, 0);
    }
}

#[test]
fn the_place_of_a_table_is_in_the_slots() {
    for kernel in tables() {
        assert_eq!(kernel.constant.slots, [Slot::Constant, Slot::Read, Slot::Write]);
        assert_eq!(kernel.device.slots, [Slot::Read, Slot::Read, Slot::Write]);
        assert!(kernel.shared.is_none_or(|shared| shared.slots == kernel.device.slots));
        assert!(kernel.constant.cpp.contains("omniheap_constant_0"));
        assert!(!kernel.device.cpp.contains("omniheap_constant_0"));
    }
}

/// Returns the instructions of a module: code and operands.
fn instructions(words: &[u32]) -> Vec<(u32, Vec<u32>)> {
    let (mut at, mut found) = (5, Vec::new());
    while at < words.len() {
        let length = (words[at] >> 16) as usize;
        found.push((words[at] & 0xffff, words[at + 1..at + length].to_vec()));
        at += length;
    }
    found
}

#[test]
fn shared_words_are_constant_number_zero() {
    for kernel in [MATMUL, REDUCTION, RESIDUE] {
        let code = instructions(kernel.spirv);
        let id =
            code.iter().find(|(code, rest)| *code == 71 && rest[1] == 1).expect("decorated").1[0];
        let constant =
            code.iter().find(|(code, _)| *code == 50).expect("a specialization constant");
        assert_eq!(constant.1[1], id);
        assert!(
            code.iter().any(|(code, rest)| *code == 28 && rest[2] == id),
            "an array is that long"
        );
    }
    assert!(!instructions(SCALE.spirv).iter().any(|(code, _)| *code == 50));
}

#[test]
fn every_probe_is_there_in_every_size_and_of_its_pattern() {
    for (name, probe) in Probe::WORDS {
        let found: Vec<_> = PROBES.iter().filter(|lookup| lookup.table.name() == *name).collect();
        let sizes: Vec<_> = found.iter().map(|lookup| lookup.table.bytes()).collect();
        assert_eq!(sizes, TableSize::ALL.map(TableSize::most), "{name}");
        assert!(found.iter().all(|lookup| lookup.pattern == probe.pattern()), "{name}");
    }
    assert_eq!(PROBES.len(), Probe::WORDS.len() * TableSize::ALL.len());
}

#[test]
fn nothing_is_judged_with_what_calibration_measured() {
    for judged in JUDGED {
        for probe in PROBES {
            assert_ne!(judged.table.name(), probe.table.name());
            assert_ne!(judged.table.rows, probe.table.rows, "{}", judged.table.name());
        }
    }
}

#[test]
fn reuse_is_bytes_read_by_a_group_over_bytes_of_the_table() {
    let find = |name, rows| {
        let is = |lookup: &&Lookup| lookup.table.name() == name && lookup.table.rows == rows;
        *PROBES.iter().find(is).expect("a probe")
    };
    assert_eq!(find("whole", 64).request(1).reuse, 256, "every item reads the whole table");
    assert_eq!(find("codes", 64).request(1).reuse, 16, "16 numbers of 4 bytes, 1 KiB");
    assert_eq!(find("codes", 65_536).request(1).reuse, 0, "less than once");
}
