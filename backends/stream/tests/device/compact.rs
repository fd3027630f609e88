//! Batches of copies that go in one launch, against a model on the host.
use super::support::{
    DEVICE, Gate, MAIN, allocate, assert_same, at, free, pattern, read, timeline, write,
};
use crate::own::{Block, Device};
use omniheap_core::{Backend, Move, Transfer};

cases! {
    Compiler: moves_of_any_size_and_alignment_match_a_model, a_batch_may_take_several_launches,
        moves_inside_a_block_match_a_model, large_and_small_moves_go_together,
        held_batches_keep_their_tables;
}

/// A move of a case: offsets and bytes.
#[derive(Clone, Copy)]
struct Step {
    from: usize,
    to: usize,
    size: usize,
}

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % bound as u64).expect("below a length")
    }
}

/// Moves to places that do not overlap, with gaps, from anywhere: sizes around what the kernel treats apart.
fn steps(random: &mut Random, count: usize, length: usize, sizes: &[usize]) -> Vec<Step> {
    let (mut steps, mut end) = (Vec::new(), 0);
    while steps.len() < count {
        let size = sizes[random.below(sizes.len())] + random.below(3);
        let to = end + random.below(40);
        end = to + size;
        if end > length {
            break;
        }
        steps.push(Step { from: random.below(length - size), to, size });
    }
    steps
}

fn copy(device: &Device, from: &Block, to: &Block, steps: &[Step]) {
    let moves: Vec<_> = steps
        .iter()
        .map(|step| Move {
            from: at(from, step.from as u64),
            to: at(to, step.to as u64),
            size: step.size as u64,
        })
        .collect();
    device.copy(MAIN, &moves).expect("in range");
}

/// Does the same on the host.
fn model(from: &[u8], to: &mut [u8], steps: &[Step]) {
    for &Step { from: start, to: at, size } in steps {
        to[at..at + size].copy_from_slice(&from[start..start + size]);
    }
}

/// Copies between two blocks of `length` bytes, and compares every byte of both.
fn check(device: &Device, length: usize, steps: &[Step], what: &str) {
    device.prepare_batches().expect("our own kernel loads");
    let (from, to) =
        (allocate(device, DEVICE, length as u64), allocate(device, DEVICE, length as u64));
    let (source, mut expected) = (pattern(length, 3), pattern(length, 4));
    write(device, &from, 0, &source);
    write(device, &to, 0, &expected);
    copy(device, &from, &to, steps);
    model(&source, &mut expected, steps);
    assert_same(&read(device, &to, 0, length), &expected, what);
    assert_same(&read(device, &from, 0, length), &source, "the source stays");
    free(device, from);
    free(device, to);
}

fn moves_of_any_size_and_alignment_match_a_model(device: &Device) {
    let sizes = [1, 3, 15, 16, 17, 31, 64, 500, 2047, 4095, 8191, 16_383, 32_767, 65_535, 200_000];
    for seed in 0..3 {
        let steps = steps(&mut Random(seed), 3000, 4 << 20, &sizes);
        assert!(steps.len() > 100, "{}", steps.len());
        check(device, 4 << 20, &steps, "mixed");
    }
    // Every pair of alignments.
    let one = |pair: usize| Step { from: pair % 16, to: 400 * pair + pair / 16, size: 300 };
    check(device, 1 << 20, &(0..256).map(one).collect::<Vec<_>>(), "alignments");
}

fn a_batch_may_take_several_launches(device: &Device) {
    let steps = steps(&mut Random(9), 50_000, 4 << 20, &[1, 16, 80]);
    assert_eq!(steps.len(), 50_000, "more than one table holds");
    check(device, 4 << 20, &steps, "several launches");
}

fn moves_inside_a_block_match_a_model(device: &Device) {
    let (length, half) = (8 << 20, 4 << 20);
    let block = allocate(device, DEVICE, length as u64);
    let mut expected = pattern(length, 5);
    write(device, &block, 0, &expected);
    let mut steps = steps(&mut Random(2), 1000, half, &[256, 4096, 5000]);
    steps.iter_mut().for_each(|step| step.to += half);
    copy(device, &block, &block, &steps);
    let source = expected[..half].to_vec();
    model(&source, &mut expected, &steps);
    assert_same(&read(device, &block, 0, length), &expected, "inside");
    free(device, block);
}

fn large_and_small_moves_go_together(device: &Device) {
    let large = 9 << 20;
    let mut steps = vec![Step { from: 1, to: 0, size: large }];
    let small = |index: usize| Step { from: 77 * index, to: large + 4097 * index, size: 4096 };
    steps.extend((0..64).map(small));
    check(device, 10 << 20, &steps, "large and small");
}

/// Tables wait in pinned memory until their turn: later batches must not take their place.
fn held_batches_keep_their_tables(device: &Device) {
    let length = 4 << 20;
    let on = timeline(device);
    let (from, to) =
        (allocate(device, DEVICE, length as u64), allocate(device, DEVICE, length as u64));
    let (source, mut expected) = (pattern(length, 7), vec![0; length]);
    write(device, &from, 0, &source);
    write(device, &to, 0, &expected);
    let gate = Gate::close(device, on);
    let part = length / 8;
    for batch in 0..8 {
        let mut steps = steps(&mut Random(batch as u64), 20_000, part, &[20]);
        steps.iter_mut().for_each(|step| step.to += batch * part);
        let moves: Vec<_> = steps
            .iter()
            .map(|step| Move {
                from: at(&from, step.from as u64),
                to: at(&to, step.to as u64),
                size: step.size as u64,
            })
            .collect();
        device.copy(on, &moves).expect("in range");
        model(&source, &mut expected, &steps);
    }
    assert_eq!(read(device, &to, 0, length), vec![0; length], "held");
    gate.open();
    device.wait_idle().expect("the device works");
    assert_same(&read(device, &to, 0, length), &expected, "after the gate opened");
    drop(gate);
    [from, to].into_iter().for_each(|block| free(device, block));
}
