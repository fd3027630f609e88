//! A block that carries bytes which cannot go to their place directly.
#![forbid(unsafe_code)]
use crate::device::{Block, Device};
use crate::{Backend, HeapId, Move, Place, Result, TimelineId, Transfer};
use alloc::{sync::Arc, vec::Vec};

/// The largest bounce block, and the smallest.
pub(super) const SIZES: [u64; 2] = [8 << 20, 64 << 10];

/// A bounce block for moves of so many bytes, or a smaller one; `None` where there is no memory.
pub(super) fn take<B: Backend>(
    device: &Arc<Device<B>>,
    heap: HeapId,
    bytes: u64,
) -> Option<Block<B>> {
    let granule = device.heap(heap).ok()?.granule;
    let mut size = granule.up(bytes.clamp(1, SIZES[0]))?;
    loop {
        match device.allocate(heap, size) {
            Ok(block) => return Some(block),
            Err(_) if size / 2 >= SIZES[1] => size = granule.up(size / 2)?,
            Err(_) => return None,
        }
    }
}

/// Submits moves through a bounce block: as many as it holds go in, and then out, until all did.
///
/// Moves may go over their own bytes where each is alone.
pub(super) fn carry<B: Backend>(
    transfer: &dyn Transfer<Block = B::Block>,
    on: TimelineId,
    bounce: &Block<B>,
    moves: &[Move<'_, B::Block>],
) -> Result<()> {
    let (mut inward, mut outward, mut used) = (Vec::new(), Vec::new(), 0);
    for one in moves {
        let mut done = 0;
        while done < one.size {
            if used == bounce.size() {
                transfer.copy(on, &inward)?;
                transfer.copy(on, &outward)?;
                inward.clear();
                outward.clear();
                used = 0;
            }
            let size = (one.size - done).min(bounce.size() - used);
            let (mut from, mut to) = (one.from, one.to);
            (from.offset, to.offset) = (from.offset + done, to.offset + done);
            let between = Place { block: bounce.raw(), offset: used };
            inward.push(Move { from, to: between, size });
            outward.push(Move { from: between, to, size });
            (done, used) = (done + size, used + size);
        }
    }
    if !inward.is_empty() {
        transfer.copy(on, &inward)?;
        transfer.copy(on, &outward)?;
    }
    Ok(())
}
