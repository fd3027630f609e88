//! Copies inside a block, and through a bounce block where the device cannot copy there directly.
#![forbid(unsafe_code)]
use crate::device::{Block, Device, insist};
use crate::lane::SlotId;
use crate::{
    Backend, ErrorKind, HeapId, InsideBlock, Move as CopyRegion, Result, TimelineId, Transfer,
};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::moves::{MoveDown, room_for};

/// Limit of the slides in one batch, so that the list stays small when host memory is short.
const BATCH: usize = 1024;

/// Bytes that are copied through the host at once.
const PIECE: u64 = 1 << 20;

/// A copy inside one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: u64,
    to: u64,
    size: u64,
}

impl Step {
    const fn of(slide: &MoveDown<SlotId>) -> Self {
        Self { from: slide.from.offset, to: slide.to, size: slide.from.size }
    }

    const fn back(&self) -> Self {
        Self { from: self.to, to: self.from, size: self.size }
    }
}

/// Copies inside a block whose source and destination may overlap.
pub(super) struct OverlapCopier<'a, B: Backend> {
    pub(super) transfer: &'a dyn Transfer<Block = B::Block>,
    pub(super) on: TimelineId,
    pub(super) block: &'a Block<B>,
    /// The bounce block for copies that overlap, or for all where copies inside a block are forbidden.
    pub(super) bounce: Option<&'a Block<B>>,
    pub(super) inside: InsideBlock,
}

impl<B: Backend> OverlapCopier<'_, B> {
    /// Makes all slides, lowest first; `made` counts the finished ones.
    pub(super) fn go(&self, slides: &[MoveDown<SlotId>], made: &mut usize) -> Result<()> {
        let mut rest = slides;
        while let Some(first) = rest.first() {
            // Slides that end below the first source overlap no source, so one batch can hold them.
            let apart = |slide: &MoveDown<SlotId>| slide.to + slide.from.size <= first.from.offset;
            let together = rest.iter().take(BATCH).take_while(|slide| apart(slide)).count();
            if together == 0 || self.inside == InsideBlock::Forbidden {
                self.go_in_steps(first)?;
                (*made, rest) = (*made + 1, &rest[1..]);
            } else {
                let steps: Vec<_> = rest[..together].iter().map(Step::of).collect();
                self.copy(&steps)?;
                (*made, rest) = (*made + together, &rest[together..]);
            }
        }
        Ok(())
    }

    /// Makes one slide, all or nothing: through the bounce block, or in steps as long as the distance, so that no step
    /// overlaps itself.
    fn go_in_steps(&self, slide: &MoveDown<SlotId>) -> Result<()> {
        let longest = match self.bounce {
            Some(bounce) => bounce.size(),
            None => slide.from.offset - slide.to,
        };
        let (mut done, mut gone) = (0, Vec::new());
        while done < slide.from.size {
            let size = longest.min(slide.from.size - done);
            let step = Step { from: slide.from.offset + done, to: slide.to + done, size };
            if let Err(error) = self.step(&step) {
                // The overwritten bytes are at their new place: copy them back, the last step first.
                return gone.iter().rev().try_for_each(|gone| self.undo(gone)).and(Err(error));
            }
            gone.push(step);
            done += size;
        }
        Ok(())
    }

    /// Copies the bytes of a step back, through the host where the driver copies nothing on the device any more.
    ///
    /// # Errors
    ///
    /// `DeviceLost` where that does not work either: the bytes are at two places for ever, so they are lost.
    fn undo(&self, step: &Step) -> Result<()> {
        let back = step.back();
        let copied = insist(|| self.step(&back)).or_else(|_| self.copy_by_host(&back));
        copied.map_err(|error| {
            tracing::error!(%error, "the driver copies nothing any more; bytes are lost");
            ErrorKind::DeviceLost.into()
        })
    }

    /// Copies bytes up, from the last on: what is overwritten was copied before.
    fn copy_by_host(&self, step: &Step) -> Result<()> {
        let mut bytes = room_for(step.size.min(PIECE) as usize)?;
        let mut left = step.size;
        while left > 0 {
            let size = left.min(PIECE);
            left -= size;
            bytes.resize(size as usize, 0);
            let at = |offset: u64| self.block.at(offset + left);
            insist(|| self.transfer.read(self.on, at(step.from), &mut bytes))?;
            insist(|| self.transfer.write(self.on, at(step.to), &bytes))?;
        }
        Ok(())
    }

    fn step(&self, step: &Step) -> Result<()> {
        let apart = step.from.abs_diff(step.to) >= step.size;
        let Some(bounce) = self.bounce.filter(|_| !apart || self.inside == InsideBlock::Forbidden)
        else {
            return self.copy(core::slice::from_ref(step));
        };
        carry(self.transfer, self.on, bounce, &[self.region(step)])
    }

    fn copy(&self, steps: &[Step]) -> Result<()> {
        let moves: Vec<_> = steps.iter().map(|step| self.region(step)).collect();
        self.transfer.copy(self.on, &moves)
    }

    fn region(&self, &Step { from, to, size }: &Step) -> CopyRegion<'_, B::Block> {
        CopyRegion { from: self.block.at(from), to: self.block.at(to), size }
    }
}

/// The largest and the smallest size of a bounce block.
pub(super) const SIZES: [u64; 2] = [8 << 20, 64 << 10];

/// Allocates a bounce block for `bytes` bytes, or a smaller one; `None` where there is no memory.
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

/// Submits copies through a bounce block: it is filled and emptied until all are made.
///
/// A single copy may overlap itself.
pub(super) fn carry<B: Backend>(
    transfer: &dyn Transfer<Block = B::Block>,
    on: TimelineId,
    bounce: &Block<B>,
    moves: &[CopyRegion<'_, B::Block>],
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
            let between = bounce.at(used);
            inward.push(CopyRegion { from, to: between, size });
            outward.push(CopyRegion { from: between, to, size });
            (done, used) = (done + size, used + size);
        }
    }
    if !inward.is_empty() {
        transfer.copy(on, &inward)?;
        transfer.copy(on, &outward)?;
    }
    Ok(())
}
