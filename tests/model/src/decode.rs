//! Any bytes, read as operations.
use crate::{Driver, Op, Outcome, Subject};
use omniheap_core::{Align, Class, Layout};

/// The world that a byte string is read in.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Distance at which unlike neighbours are kept apart.
    pub granularity: Align,
    /// The blocks to begin with, and the sizes of those that are added later; not empty.
    pub blocks: Vec<u64>,
    /// The classes that requests have; not empty.
    pub classes: Vec<Class>,
}

/// Reads operations from any bytes; equal bytes give equal operations.
#[must_use]
pub fn decode(geometry: &Geometry, bytes: &[u8]) -> Vec<Op> {
    let mut bytes = bytes.iter().copied();
    let mut ops = Vec::new();
    while let Some(first) = bytes.next() {
        let mut next = || usize::from(bytes.next().unwrap_or(0));
        ops.push(match first % 16 {
            0..=6 => Op::Allocate(layout(geometry, next(), next(), next()), class(geometry, first)),
            7..=9 => Op::Free(next()),
            10 | 11 => Op::FreeNewest,
            12 => Op::Free(0),
            13 => Op::FreeStale(next()),
            14 => Op::AddBlock(block(geometry, next())),
            _ => Op::RemoveBlock(next()),
        });
    }
    ops
}

fn class(geometry: &Geometry, byte: u8) -> Class {
    geometry.classes[usize::from(byte / 16) % geometry.classes.len()]
}

fn block(geometry: &Geometry, pick: usize) -> u64 {
    match pick {
        0 => 0,
        1 => u64::MAX,
        2 => 1,
        _ => geometry.blocks[pick % geometry.blocks.len()],
    }
}

/// Sizes near nothing, near fractions of a block, near the block, and near the end of 64 bits.
fn layout(geometry: &Geometry, kind: usize, fine: usize, align: usize) -> Layout {
    let block = geometry.blocks[fine % geometry.blocks.len()];
    let small = fine as u64 + 1;
    let size = match kind % 16 {
        0..=4 => small,
        5..=7 => small * (block >> 9).max(1),
        8..=10 => (block >> (1 + fine % 8)).max(1),
        11 => (block >> (1 + fine % 4)) + 1,
        12 => (block >> (fine % 4)).saturating_sub(1).max(1),
        13 => block,
        14 => small.next_power_of_two(),
        _ => [0, u64::MAX, u64::MAX / 2 + 2, block + 1, 1, 2, 3, block][fine % 8],
    };
    let align = if align < 96 { 0 } else { align % 22 };
    Layout::new(size).align(Align::of(1 << align))
}

/// Runs a byte string on a subject, checks every promise after every operation, and says what came of each.
///
/// # Panics
///
/// Panics when a promise is broken.
#[must_use]
pub fn run(subject: Subject, geometry: &Geometry, bytes: &[u8]) -> Vec<Outcome> {
    let mut driver = Driver::new(subject, geometry.granularity);
    let blocks = geometry.blocks.iter().map(|&size| Op::AddBlock(size));
    let outcomes = blocks.chain(decode(geometry, bytes)).map(|op| driver.apply(op)).collect();
    driver.drain();
    outcomes
}
