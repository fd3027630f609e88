use super::*;
use omniheap_seam::{Kernel, Slot};

fn tables() -> impl Iterator<Item = Placed> {
    [CONVOLUTION, BILATERAL].into_iter()
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
