//! Random operations against a copy in host memory. `OMNIHEAP_OPS` sets their number, `OMNIHEAP_SEED` the seed.
use crate::{
    Check, Target,
    blocks::{HEAPS, free},
    bytes::{MAIN, at, bytes_of},
};
use omniheap_core::{Backend, Move, TimelineId, Timelines, Transfer};
use omniheap_wgpu::{Block, Wgpu};

pub(crate) const CASES: &[(&str, Check)] =
    &[("random_operations_keep_every_byte", random_operations_keep_every_byte)];

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small generator (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A block and what it must hold.
struct Shadowed {
    block: Block,
    bytes: Vec<u8>,
}

impl Shadowed {
    /// Offset and size of a range of whole words, perhaps empty.
    fn range(&self, random: &mut Random) -> (usize, usize) {
        let words = self.bytes.len() as u64 / 4;
        let start = random.below(words);
        let size = random.below((words - start).min(1024) + 1);
        (start as usize * 4, size as usize * 4)
    }
}

struct World {
    backend: Wgpu,
    timelines: Vec<TimelineId>,
    blocks: Vec<Shadowed>,
    random: Random,
}

fn random_operations_keep_every_byte(target: &Target) {
    let seed = setting("OMNIHEAP_SEED", 1);
    let operations = setting("OMNIHEAP_OPS", 3000);
    eprintln!("[{}] OMNIHEAP_SEED={seed} OMNIHEAP_OPS={operations}", target.label);
    let backend = (target.open)();
    let second = backend.open().expect("there");
    let timelines = vec![MAIN, second];
    let mut world = World { backend, timelines, blocks: Vec::new(), random: Random(seed) };
    for operation in 0..operations {
        if operation > 0 && operation.is_multiple_of(100_000) {
            eprintln!("[{}] {operation} operations", target.label);
        }
        world.step(operation);
    }
    for shadowed in world.blocks {
        assert!(bytes_of(&world.backend, &shadowed.block) == shadowed.bytes, "at the end");
        free(&world.backend, shadowed.block);
    }
}

impl World {
    fn step(&mut self, operation: u64) {
        let on = self.timelines[self.random.below(2) as usize];
        match self.random.below(100) {
            _ if self.blocks.len() < 4 => self.allocate(),
            0..=1 if self.blocks.len() < 32 => self.allocate(),
            2..=3 => self.free(operation),
            4..=39 => self.write(on),
            40..=54 => self.fill(on),
            55..=64 => self.read(on, operation),
            _ => self.copy(on),
        }
    }

    fn pick(&mut self) -> usize {
        self.random.below(self.blocks.len() as u64) as usize
    }

    fn allocate(&mut self) {
        // Staging blocks are mapped for every touch, which waits for the device: a few of them are enough.
        let heap = HEAPS[[0, 0, 0, 1, 1, 1, 2, 3][self.random.below(8) as usize]];
        let block = self.backend.allocate(heap, 1 + self.random.below(1 << 16)).expect("small");
        let bytes = vec![0; block.size() as usize];
        self.blocks.push(Shadowed { block, bytes });
    }

    fn free(&mut self, operation: u64) {
        let at = self.pick();
        let shadowed = self.blocks.swap_remove(at);
        let found = bytes_of(&self.backend, &shadowed.block);
        assert!(found == shadowed.bytes, "freed by operation {operation}");
        free(&self.backend, shadowed.block);
    }

    fn write(&mut self, on: TimelineId) {
        let index = self.pick();
        let (offset, size) = self.blocks[index].range(&mut self.random);
        let bytes: Vec<u8> = (0..size).map(|_| self.random.next() as u8).collect();
        let shadowed = &mut self.blocks[index];
        let place = at(&shadowed.block, offset as u64);
        self.backend.write(on, place, &bytes).expect("in range");
        shadowed.bytes[offset..offset + size].copy_from_slice(&bytes);
    }

    fn fill(&mut self, on: TimelineId) {
        let index = self.pick();
        let (offset, size) = self.blocks[index].range(&mut self.random);
        let value = self.random.below(4) as u8 * 85;
        let shadowed = &mut self.blocks[index];
        let place = at(&shadowed.block, offset as u64);
        self.backend.fill(on, place, size as u64, value).expect("in range");
        shadowed.bytes[offset..offset + size].fill(value);
    }

    fn read(&mut self, on: TimelineId, operation: u64) {
        let index = self.pick();
        let (offset, size) = self.blocks[index].range(&mut self.random);
        let mut found = vec![0xEE; size];
        let shadowed = &self.blocks[index];
        self.backend.read(on, at(&shadowed.block, offset as u64), &mut found).expect("in range");
        assert!(found == shadowed.bytes[offset..offset + size], "read by operation {operation}");
    }

    /// From one block to others, so that no byte is both source and destination.
    fn copy(&mut self, on: TimelineId) {
        let from = self.pick();
        let (offset, size) = self.blocks[from].range(&mut self.random);
        let bytes = self.blocks[from].bytes[offset..offset + size].to_vec();
        let mut to: Vec<usize> = (0..3).map(|_| self.pick()).filter(|&to| to != from).collect();
        to.sort_unstable();
        to.dedup();
        to.retain(|&to| self.blocks[to].bytes.len() >= size);
        let source = &self.blocks[from].block;
        let moves = to.iter().map(|&to| Move {
            from: at(source, offset as u64),
            to: at(&self.blocks[to].block, 0),
            size: size as u64,
        });
        self.backend.copy(on, &moves.collect::<Vec<_>>()).expect("in range");
        for to in to {
            self.blocks[to].bytes[..size].copy_from_slice(&bytes);
        }
    }
}
