//! Batches of copies that go in one launch, against a model on the host.
#![expect(unsafe_code, reason = "launches a kernel")]
use crate::support::{
    DEVICE, Gate, MAIN, allocate, assert_same, at, free, pattern, pinned, read, timeline, write,
};
use omniheap_core::{Backend, Map, Move, Transfer};
use omniheap_cuda::{Argument, Block, Cuda, Launch};

const PREPARED: &str = include_str!("../../../../shaders/compact/compact.ptx");

crate::cases! {
    Nothing: moves_of_any_size_and_alignment_match_a_model, a_batch_may_take_several_launches,
        moves_inside_a_block_match_a_model, large_and_small_moves_go_together,
        the_prepared_image_copies;
    Compiler: held_batches_keep_their_tables;
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

fn copy(cuda: &Cuda, from: &Block, to: &Block, steps: &[Step]) {
    let moves: Vec<_> = steps
        .iter()
        .map(|step| Move {
            from: at(from, step.from as u64),
            to: at(to, step.to as u64),
            size: step.size as u64,
        })
        .collect();
    cuda.copy(MAIN, &moves).expect("in range");
}

/// Does the same on the host.
fn model(from: &[u8], to: &mut [u8], steps: &[Step]) {
    for &Step { from: start, to: at, size } in steps {
        to[at..at + size].copy_from_slice(&from[start..start + size]);
    }
}

/// Copies between two blocks of `length` bytes, and compares every byte of both.
fn check(cuda: &Cuda, length: usize, steps: &[Step], what: &str) {
    cuda.prepare_batches().expect("our own kernel loads");
    let (from, to) = (allocate(cuda, DEVICE, length as u64), allocate(cuda, DEVICE, length as u64));
    let (source, mut expected) = (pattern(length, 3), pattern(length, 4));
    write(cuda, &from, 0, &source);
    write(cuda, &to, 0, &expected);
    copy(cuda, &from, &to, steps);
    model(&source, &mut expected, steps);
    assert_same(&read(cuda, &to, 0, length), &expected, what);
    assert_same(&read(cuda, &from, 0, length), &source, "the source stays");
    free(cuda, from);
    free(cuda, to);
}

fn moves_of_any_size_and_alignment_match_a_model(cuda: &Cuda) {
    let sizes = [1, 3, 15, 16, 17, 31, 64, 500, 2047, 4095, 8191, 16_383, 32_767, 65_535, 200_000];
    for seed in 0..3 {
        let steps = steps(&mut Random(seed), 3000, 4 << 20, &sizes);
        assert!(steps.len() > 100, "{}", steps.len());
        check(cuda, 4 << 20, &steps, "mixed");
    }
    // Every pair of alignments.
    let one = |pair: usize| Step { from: pair % 16, to: 400 * pair + pair / 16, size: 300 };
    check(cuda, 1 << 20, &(0..256).map(one).collect::<Vec<_>>(), "alignments");
}

fn a_batch_may_take_several_launches(cuda: &Cuda) {
    let steps = steps(&mut Random(9), 50_000, 4 << 20, &[1, 16, 80]);
    assert_eq!(steps.len(), 50_000, "more than one table holds");
    check(cuda, 4 << 20, &steps, "several launches");
}

fn moves_inside_a_block_match_a_model(cuda: &Cuda) {
    let (length, half) = (8 << 20, 4 << 20);
    let block = allocate(cuda, DEVICE, length as u64);
    let mut expected = pattern(length, 5);
    write(cuda, &block, 0, &expected);
    let mut steps = steps(&mut Random(2), 1000, half, &[256, 4096, 5000]);
    steps.iter_mut().for_each(|step| step.to += half);
    copy(cuda, &block, &block, &steps);
    let source = expected[..half].to_vec();
    model(&source, &mut expected, &steps);
    assert_same(&read(cuda, &block, 0, length), &expected, "inside");
    free(cuda, block);
}

fn large_and_small_moves_go_together(cuda: &Cuda) {
    let large = 9 << 20;
    let mut steps = vec![Step { from: 1, to: 0, size: large }];
    let small = |index: usize| Step { from: 77 * index, to: large + 4097 * index, size: 4096 };
    steps.extend((0..64).map(small));
    check(cuda, 10 << 20, &steps, "large and small");
}

fn the_prepared_image_copies(cuda: &Cuda) {
    let kernel = cuda.load_ptx(PREPARED).expect("every driver reads it");
    let kernel = kernel.kernel("omniheap_compact").expect("it is in the image");
    let (from, to) = (allocate(cuda, DEVICE, 4096), allocate(cuda, DEVICE, 4096));
    let bytes = pattern(4096, 6);
    write(cuda, &from, 0, &bytes);
    let table = allocate(cuda, pinned(cuda), 24 * 9);
    let host = cuda.map(&table).expect("pinned memory is host-visible").cast::<u64>();
    // Nine pieces, so that a second group runs: from one to nine bytes apart, each of 100 bytes.
    for piece in 0..9 {
        let (to, from) = (to.address() + 400 * piece, from.address() + 401 * piece);
        let first = usize::try_from(3 * piece).expect("small");
        for (index, number) in (first..).zip([to, from, 100]) {
            // SAFETY: the block holds 27 numbers, and no kernel reads it yet.
            unsafe { host.as_ptr().wrapping_add(index).write(number) };
        }
    }
    let arguments = [Argument::U64(table.address()), Argument::U32(9)];
    // SAFETY: the table names bytes of two live blocks.
    unsafe { cuda.launch(MAIN, &kernel, Launch::linear(2, 256), &arguments) }.expect("small");
    for piece in 0..9usize {
        let seen = read(cuda, &to, 400 * piece as u64, 100);
        assert_same(&seen, &bytes[401 * piece..401 * piece + 100], "a piece");
    }
    [from, to, table].into_iter().for_each(|block| free(cuda, block));
}

/// Tables wait in pinned memory until their turn: later batches must not take their place.
fn held_batches_keep_their_tables(cuda: &Cuda) {
    let length = 4 << 20;
    let on = timeline(cuda);
    let (from, to) = (allocate(cuda, DEVICE, length as u64), allocate(cuda, DEVICE, length as u64));
    let (source, mut expected) = (pattern(length, 7), vec![0; length]);
    write(cuda, &from, 0, &source);
    write(cuda, &to, 0, &expected);
    let gate = Gate::close(cuda, on);
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
        cuda.copy(on, &moves).expect("in range");
        model(&source, &mut expected, &steps);
    }
    assert_eq!(read(cuda, &to, 0, length), vec![0; length], "held");
    gate.open();
    cuda.wait_idle().expect("the device works");
    assert_same(&read(cuda, &to, 0, length), &expected, "after the gate opened");
    drop(gate);
    [from, to].into_iter().for_each(|block| free(cuda, block));
}
