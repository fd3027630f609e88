use super::check;
use crate::{KernelText, Slot};
use alloc::vec::Vec;

const BUFFER_BLOCK: u32 = 3;
const BLOCK: u32 = 2;
const UNIFORM: u32 = 2;
const STORAGE_BUFFER: u32 = 12;

/// Makes a module that writes one word of a buffer at this place; a group has 4 x 2 x 1 threads.
const fn module(set: u32, binding: u32, block: u32, class: u32) -> [u32; 82] {
    [
        0x0723_0203,
        0x0001_0000,
        0,
        12,
        0,
        2 << 16 | 17,
        1,
        3 << 16 | 14,
        0,
        1,
        5 << 16 | 15,
        5,
        1,
        0x6E69_616D,
        0,
        6 << 16 | 16,
        1,
        17,
        4,
        2,
        1,
        3 << 16 | 71,
        7,
        block,
        5 << 16 | 72,
        7,
        0,
        35,
        0,
        4 << 16 | 71,
        9,
        34,
        set,
        4 << 16 | 71,
        9,
        33,
        binding,
        2 << 16 | 19,
        2,
        3 << 16 | 33,
        3,
        2,
        4 << 16 | 21,
        5,
        32,
        0,
        4 << 16 | 43,
        5,
        6,
        0,
        3 << 16 | 30,
        7,
        5,
        4 << 16 | 32,
        8,
        class,
        7,
        4 << 16 | 59,
        8,
        9,
        class,
        4 << 16 | 32,
        10,
        class,
        5,
        5 << 16 | 54,
        2,
        1,
        0,
        3,
        2 << 16 | 248,
        4,
        5 << 16 | 65,
        10,
        11,
        9,
        6,
        3 << 16 | 62,
        11,
        6,
        1 << 16 | 253,
        1 << 16 | 56,
    ]
}

const STORAGE: [u32; 82] = module(0, 1, BUFFER_BLOCK, UNIFORM);
const FINE: KernelText = KernelText {
    name: "main",
    group: [4, 2, 1],
    slots: &[Slot::Read, Slot::Write],
    parameters: 0,
    wgsl: "",
    spirv: &STORAGE,
    cpp: "",
    host: |_| {},
};

/// Returns what is wrong; empty if nothing is.
fn detail(kernel: KernelText) -> &'static str {
    check(&kernel).err().map_or("", |error| error.detail())
}

fn with(words: &'static [u32], slots: &'static [Slot]) -> &'static str {
    detail(KernelText { spirv: words, slots, ..FINE })
}

#[test]
fn modules_that_are_as_declared_pass() {
    const NEWER: [u32; 82] = module(0, 0, BLOCK, STORAGE_BUFFER);
    const CONSTANT: [u32; 82] = module(0, 0, BLOCK, UNIFORM);
    assert_eq!(detail(FINE), "");
    assert_eq!(detail(KernelText { spirv: &[], name: "none", ..FINE }), "", "another language");
    assert_eq!(with(&NEWER, &[Slot::Read]), "");
    assert_eq!(with(&CONSTANT, &[Slot::Constant, Slot::Write]), "");
}

#[test]
fn slips_of_the_author_are_named() {
    const SET: [u32; 82] = module(5, 1, BUFFER_BLOCK, UNIFORM);
    const FAR: [u32; 82] = module(0, 1_000_000, BUFFER_BLOCK, UNIFORM);
    const IMAGE: [u32; 82] = module(0, 1, BLOCK, 0);
    const CONSTANT: [u32; 82] = module(0, 1, BLOCK, UNIFORM);
    let slots = FINE.slots;
    for (found, words) in [
        (with(&SET, slots), "binds what is not in `slots`"),
        (with(&FAR, slots), "binds what is not in `slots`"),
        (with(&STORAGE, &[Slot::Read]), "binds what is not in `slots`"),
        (with(&STORAGE, &[]), "binds what is not in `slots`"),
        (with(&STORAGE, &[Slot::Read, Slot::Constant]), "as something else"),
        (with(&CONSTANT, slots), "as something else"),
        (with(&IMAGE, slots), "as something else"),
        (detail(KernelText { name: "mai", ..FINE }), "entry point"),
        (detail(KernelText { name: "main2", ..FINE }), "entry point"),
        (detail(KernelText { name: "", ..FINE }), "entry point"),
        (detail(KernelText { group: [4, 2, 2], ..FINE }), "group size"),
        (with(&STORAGE[..78], slots), "cut short"),
        (with(&STORAGE[..3], slots), "cut short"),
        (with(&[1, 2, 3, 4, 5, 6], slots), "cut short"),
    ] {
        assert!(found.contains(words), "{words}: {found:?}");
    }
}

/// Whatever the words are, they are read inside their bounds and to their end.
#[test]
fn any_words_are_read_safely() {
    let mut state = 0x9E37_79B9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    for round in 0..2_000 {
        let mut words: Vec<u32> = STORAGE.to_vec();
        for _ in 0..=round % 5 {
            let at = next() as usize % words.len();
            words[at] = if next() % 2 == 0 { next() } else { words[at] ^ (1 << (next() % 32)) };
        }
        words.truncate(next() as usize % (words.len() * 4));
        let _ = check(&KernelText { spirv: words.leak(), ..FINE });
    }
}
