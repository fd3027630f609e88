//! Programs of many shapes, made by arithmetic alone: the same on every machine.
use crate::Step;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Every shape: its name, and the program.
#[must_use]
pub fn all() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        ("training", training()),
        ("serving", serving()),
        ("churn_small", churn(0x51, 6_000, 400, |r| 256 + r.below(16 * KIB))),
        ("churn_mixed", churn(0x52, 5_000, 200, |r| 1 << (8 + r.below(14)))),
        ("churn_large", churn(0x53, 3_000, 48, |r| 256 * KIB + r.below(6 * MIB))),
        ("first_in_first_out", queue(0x54, Order::FirstInFirstOut)),
        ("last_in_first_out", queue(0x55, Order::LastInFirstOut)),
        ("phases", phases()),
        ("checkerboard", checkerboard()),
        ("growing", growing()),
        ("huge_and_small", huge_and_small()),
        ("aligned", aligned()),
        ("frames", frames()),
        ("sawtooth", sawtooth()),
    ]
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    const fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }
}

/// A program under construction.
struct Program {
    steps: Vec<Step>,
    next: u32,
}

impl Program {
    const fn new() -> Self {
        Self { steps: Vec::new(), next: 0 }
    }

    fn allocate(&mut self, size: u64) -> u32 {
        self.allocate_on(size, 8, u16::try_from(self.next % 8).expect("below eight"))
    }

    fn allocate_on(&mut self, size: u64, align_log2: u8, stream: u16) -> u32 {
        let id = self.next;
        self.next += 1;
        self.steps.push(Step::Allocate { id, size, align_log2, stream });
        id
    }

    fn free(&mut self, id: u32) {
        self.steps.push(Step::Free { id });
    }

    fn free_all(&mut self, ids: &mut Vec<u32>) {
        ids.drain(..).for_each(|id| self.steps.push(Step::Free { id }));
    }
}

/// Keeps about `live` allocations and replaces a random one each time.
fn churn(seed: u64, count: u32, live: usize, size: impl Fn(&mut Random) -> u64) -> Vec<Step> {
    let (mut random, mut program, mut held) = (Random(seed), Program::new(), Vec::new());
    for turn in 0..count {
        if held.len() >= live {
            let at = random.index(held.len());
            program.free(held.swap_remove(at));
        }
        let bytes = size(&mut random);
        held.push(program.allocate(bytes));
        if turn % 1500 == 1499 {
            program.steps.push(if turn % 3000 == 1499 { Step::Defragment } else { Step::Trim });
        }
    }
    program.free_all(&mut held);
    program.steps
}

/// Weights that stay, activations that grow forward and die backward, a few sizes.
fn training() -> Vec<Step> {
    let (mut random, mut program) = (Random(1), Program::new());
    let mut weights: Vec<u32> =
        (0..60).map(|at| program.allocate((at % 7 + 1) * 512 * KIB)).collect();
    for _ in 0..12 {
        let mut activations = Vec::new();
        for layer in 0..40_u64 {
            let scratch = program.allocate(64 * KIB + random.below(8) * 96 * KIB);
            activations.push(program.allocate(256 * KIB + (layer % 5) * 300 * KIB));
            program.free(scratch);
        }
        while let Some(last) = activations.pop() {
            let gradient = program.allocate(512 * KIB);
            program.free(last);
            program.free(gradient);
        }
    }
    program.free_all(&mut weights);
    program.steps
}

/// Sequences of random length whose blocks grow by doubling.
fn serving() -> Vec<Step> {
    let (mut random, mut program) = (Random(2), Program::new());
    let mut sequences: Vec<(u32, u64)> = Vec::new();
    for _ in 0..4000 {
        if sequences.len() < 24 {
            let size = 32 * KIB;
            sequences.push((program.allocate(size), size));
            continue;
        }
        let at = random.index(sequences.len());
        let (id, size) = sequences[at];
        if size >= 4 * MIB || random.below(12) == 0 {
            program.free(id);
            sequences.swap_remove(at);
        } else {
            let grown = program.allocate(size * 2);
            program.free(id);
            sequences[at] = (grown, size * 2);
        }
    }
    sequences.into_iter().for_each(|(id, _)| program.free(id));
    program.steps
}

enum Order {
    FirstInFirstOut,
    LastInFirstOut,
}

fn queue(seed: u64, order: Order) -> Vec<Step> {
    let (mut random, mut program) = (Random(seed), Program::new());
    let mut held = std::collections::VecDeque::new();
    for _ in 0..4000 {
        let grow = held.len() < 20 || (held.len() < 120 && random.below(2) == 0);
        if grow {
            let size = 4 * KIB + random.below(900 * KIB);
            held.push_back(program.allocate(size));
        } else {
            let next = match order {
                Order::FirstInFirstOut => held.pop_front(),
                Order::LastInFirstOut => held.pop_back(),
            };
            next.into_iter().for_each(|id| program.free(id));
        }
    }
    held.into_iter().for_each(|id| program.free(id));
    program.steps
}

/// Each phase has sizes of its own and leaves a few survivors behind.
fn phases() -> Vec<Step> {
    let (mut random, mut program) = (Random(3), Program::new());
    let mut survivors = Vec::new();
    for phase in 0..8_u64 {
        let size = (96 * KIB) << (phase % 5);
        let mut here: Vec<u32> = (0..(64 >> (phase % 4)) + 8)
            .map(|_| program.allocate(size + random.below(size)))
            .collect();
        survivors.push(here.swap_remove(3));
        program.free_all(&mut here);
        program.steps.push(if phase == 5 { Step::Defragment } else { Step::Trim });
    }
    program.free_all(&mut survivors);
    program.steps
}

/// Frees every other allocation, then asks for twice the size.
fn checkerboard() -> Vec<Step> {
    let mut program = Program::new();
    let mut size = 16 * KIB;
    let mut held: Vec<u32> = (0..1024).map(|_| program.allocate(size)).collect();
    for _ in 0..6 {
        let kept: Vec<u32> = held
            .iter()
            .enumerate()
            .filter_map(|(at, id)| {
                if at % 2 == 0 {
                    Some(*id)
                } else {
                    program.free(*id);
                    None
                }
            })
            .collect();
        size *= 2;
        held = kept;
        let more = held.len() / 2;
        held.extend((0..more).map(|_| program.allocate(size)));
    }
    program.steps.push(Step::Defragment);
    program.free_all(&mut held);
    program.steps
}

/// Buffers that are replaced by slightly larger ones.
fn growing() -> Vec<Step> {
    let mut program = Program::new();
    let mut held: Vec<(u32, u64)> =
        (0..16).map(|at| (program.allocate(64 * KIB + at * KIB), 64 * KIB + at * KIB)).collect();
    for round in 0..40_u64 {
        for (id, size) in &mut held {
            let larger = *size + *size / 8 + round * KIB;
            let next = program.allocate(larger);
            program.free(*id);
            (*id, *size) = (next, larger.min(6 * MIB));
        }
    }
    held.into_iter().for_each(|(id, _)| program.free(id));
    program.steps
}

/// One huge allocation comes and goes between many small ones.
fn huge_and_small() -> Vec<Step> {
    let (mut random, mut program) = (Random(4), Program::new());
    let mut small = Vec::new();
    for _ in 0..12 {
        let huge = program.allocate(96 * MIB);
        for _ in 0..80 {
            small.push(program.allocate(KIB + random.below(60 * KIB)));
        }
        program.free(huge);
        for _ in 0..60 {
            let at = random.index(small.len());
            program.free(small.swap_remove(at));
        }
    }
    program.free_all(&mut small);
    program.steps
}

/// Alignments from 256 bytes to 4 KiB.
fn aligned() -> Vec<Step> {
    let (mut random, mut program, mut held) = (Random(5), Program::new(), Vec::new());
    for turn in 0..2500_u32 {
        if held.len() > 90 {
            let at = random.index(held.len());
            program.free(held.swap_remove(at));
        }
        let align_log2 = u8::try_from(8 + random.below(5)).expect("small");
        let size = 512 + random.below(400 * KIB);
        let stream = u16::try_from(turn % 8).expect("below eight");
        held.push(program.allocate_on(size, align_log2, stream));
    }
    program.free_all(&mut held);
    program.steps
}

/// Three frames in flight, each with its own uploads and targets.
fn frames() -> Vec<Step> {
    let (mut random, mut program) = (Random(6), Program::new());
    let mut flight = std::collections::VecDeque::new();
    let mut textures: Vec<u32> = (0..40).map(|at| program.allocate((at % 4 + 1) * MIB)).collect();
    for frame in 0..200_u64 {
        if flight.len() == 3 {
            let oldest: Option<Vec<u32>> = flight.pop_front();
            oldest.into_iter().flatten().for_each(|id| program.free(id));
        }
        let mut uploads: Vec<u32> =
            (0..12).map(|_| program.allocate(KIB + random.below(64 * KIB))).collect();
        uploads.push(program.allocate(2 * MIB + frame % 3 * MIB));
        flight.push_back(uploads);
        if frame % 10 == 9 {
            let at = random.index(textures.len());
            program.free(textures.swap_remove(at));
            textures.push(program.allocate(MIB + random.below(4) * MIB));
        }
    }
    flight.into_iter().flatten().for_each(|id| program.free(id));
    program.free_all(&mut textures);
    program.steps
}

/// Fills up, empties to a fifth, again and again.
fn sawtooth() -> Vec<Step> {
    let (mut random, mut program, mut held) = (Random(7), Program::new(), Vec::new());
    for _ in 0..10 {
        while held.len() < 300 {
            held.push(program.allocate(2 * KIB + random.below(200 * KIB)));
        }
        while held.len() > 60 {
            let at = random.index(held.len());
            program.free(held.swap_remove(at));
        }
    }
    program.free_all(&mut held);
    program.steps
}
