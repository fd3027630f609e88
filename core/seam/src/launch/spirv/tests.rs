use super::check;
use crate::{KernelText, Slot};
use alloc::vec::Vec;

const BUFFER_BLOCK: u32 = 3;
const BLOCK: u32 = 2;
const UNIFORM: u32 = 2;
const STORAGE_BUFFER: u32 = 12;

/// A module that writes one word of a buffer, without the places of the buffer; a group has 4 x 2 x 1 threads.
const WORDS: [u32; 82] = [
    0x7230203, 0x10000, 0, 12, 0, 0x20011, 1, 0x3000e, 0, 1, 0x5000f, 5, 1, 0x6e69616d, 0, 0x60010,
    1, 17, 4, 2, 1, 0x30047, 7, 0, 0x50048, 7, 0, 35, 0, 0x40047, 9, 34, 0, 0x40047, 9, 33, 0,
    0x20013, 2, 0x30021, 3, 2, 0x40015, 5, 32, 0, 0x4002b, 5, 6, 0, 0x3001e, 7, 5, 0x40020, 8, 0,
    7, 0x4003b, 8, 9, 0, 0x40020, 10, 0, 5, 0x50036, 2, 1, 0, 3, 0x200f8, 4, 0x50041, 10, 11, 9, 6,
    0x3003e, 11, 6, 0x100fd, 0x10038,
];

/// Makes a module whose buffer is bound at this place, with this decoration and storage class.
const fn module(set: u32, binding: u32, block: u32, class: u32) -> [u32; 82] {
    let mut words = WORDS;
    (words[23], words[32], words[36]) = (block, set, binding);
    // The type of the buffer, the buffer, and the type of its word.
    (words[55], words[60], words[63]) = (class, class, class);
    words
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
