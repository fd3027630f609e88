//! Runs a window of slides on a lane: begin under the lock, copies without it, commit under it again.
#![forbid(unsafe_code)]
use super::window::{Piece, Slide, Window, cheapest};
use crate::device::Block;
use crate::pool::{Ask, Divider, Lane, LaneState, Owner, SlotId};
use crate::strategy::{BlockId, Key, PieceState, Strategy};
use crate::{Align, Backend, Class, InsideBlock, Move, Place, Result, TimelineId, Transfer};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

/// A window whose allocations are marked as moving and whose holes are held.
struct Begun<B: Backend> {
    block: Arc<Block<B>>,
    window: Window<SlotId>,
    held: Vec<Key>,
}

impl<B: Backend> Lane<B> {
    /// Makes a hole for a request by sliding live data together; says how many bytes moved, or `None` where it cannot.
    ///
    /// Waits for the device first, so nothing in flight reads or writes what moves.
    ///
    /// # Errors
    ///
    /// What the driver says; everything is then where it was.
    pub(crate) fn make_hole(&self, ask: Ask) -> Result<Option<u64>> {
        let backend = self.shared.device.backend();
        let Some(transfer) = backend.as_transfer() else { return Ok(None) };
        if backend.caps().copy.inside_block == InsideBlock::Forbidden {
            return Ok(None);
        }
        backend.wait_idle()?;
        let slack = ask.layout.align.get().saturating_sub(self.shared.unit.get());
        let Some(begun) = self.begin(ask.layout.size.saturating_add(slack)) else {
            return Ok(None);
        };
        let done = self.copy(transfer, &begun).and_then(|()| backend.wait_idle());
        let bytes = begun.window.bytes;
        self.end(begun, done.is_ok());
        done.map(|()| Some(bytes))
    }

    /// Plans over every block, and takes the cheapest window.
    fn begin(&self, size: u64) -> Option<Begun<B>> {
        let mut state = self.state.lock();
        if state.pager.is_some() {
            return None;
        }
        let blocks = state.pieces(self.shared.unit);
        let windows = blocks.iter().filter_map(|(id, pieces)| Some((*id, cheapest(pieces, size)?)));
        let (id, window) = windows.min_by_key(|(_, window)| window.bytes)?;
        let block = Arc::clone(&state.blocks[id.0 as usize].as_ref()?.block);
        let Divider::General(tlsf) = &mut state.divider else { return None };
        let mut held = Vec::new();
        for hole in &window.holes {
            match tlsf.carve(id, *hole, Class::Linear) {
                Ok(grant) => held.push(grant.key),
                Err(_) => {
                    held.into_iter().for_each(|key| {
                        let _ = tlsf.free(key);
                    });
                    return None;
                }
            }
        }
        state.held_bytes += window.holes.iter().map(|hole| hole.size).sum::<u64>();
        window.slides.iter().for_each(|slide| state.slots.set_moving(slide.what));
        Some(Begun { block, window, held })
    }

    fn copy(&self, transfer: &dyn Transfer<Block = B::Block>, begun: &Begun<B>) -> Result<()> {
        let on = self.timeline.unwrap_or(TimelineId::MAIN);
        begun
            .window
            .slides
            .iter()
            .try_for_each(|slide| copy_down(transfer, on, begun.block.raw(), slide))
    }

    /// Publishes the new places, or the old ones.
    fn end(&self, begun: Begun<B>, copied: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.held_bytes -= begun.window.holes.iter().map(|hole| hole.size).sum::<u64>();
        if let Divider::General(tlsf) = &mut state.divider {
            for key in begun.held {
                let freed = tlsf.free(key);
                debug_assert!(freed.is_ok(), "the pass holds its holes");
            }
            for slide in begun.window.slides.iter().filter(|_| copied) {
                let key = state
                    .slots
                    .moving_key(slide.what)
                    .expect("moving slots stay until the pass ends");
                let slid = tlsf.slide_to(key, slide.to);
                debug_assert!(slid.is_ok(), "the hole before a slide is free");
            }
        }
        for slide in &begun.window.slides {
            if state.slots.end_move(slide.what) == Owner::Gone {
                // Freed by its owner while it moved; general lanes have no dedicated block to return.
                let _ = state.free(slide.what);
            }
        }
        self.moved.raise();
    }
}

/// Copies a span towards the start of its block. Where source and destination overlap, in steps of their distance:
/// each step ends where the one before it was read.
fn copy_down<T>(
    transfer: &dyn Transfer<Block = T>,
    on: TimelineId,
    block: &T,
    slide: &Slide<SlotId>,
) -> Result<()>
where
    T: Send + Sync + 'static,
{
    let step = slide.from.offset - slide.to;
    let mut done = 0;
    while done < slide.from.size {
        let size = step.min(slide.from.size - done);
        let from = Place { block, offset: slide.from.offset + done };
        let to = Place { block, offset: slide.to + done };
        transfer.copy(on, &[Move { from, to, size }])?;
        done += size;
    }
    Ok(())
}

impl<B: Backend> LaneState<B> {
    /// Every block as the planner sees it.
    pub(super) fn pieces(&self, unit: Align) -> Vec<(BlockId, Vec<Piece<SlotId>>)> {
        let slots: BTreeMap<_, _> = self.slots.iter().map(|(id, slot)| (slot.key, id)).collect();
        let mut blocks: Vec<(BlockId, Vec<Piece<SlotId>>)> = Vec::new();
        self.divider.as_strategy().for_each(&mut |piece| {
            let movable = |key: Key| {
                let id = *slots.get(&key)?;
                let note = self.notes.get(id.index);
                let align = note.and_then(|note| note.align).unwrap_or(unit);
                self.slots.may_move(id).then_some((id, align))
            };
            let seen = match piece.state {
                PieceState::Hole => Piece::Hole(piece.span),
                PieceState::Padding => Piece::Fixed,
                PieceState::Live(key) => movable(key)
                    .map_or(Piece::Fixed, |(id, align)| Piece::Movable(piece.span, align, id)),
            };
            match blocks.last_mut() {
                Some((id, pieces)) if *id == piece.block => pieces.push(seen),
                _ => blocks.push((piece.block, Vec::from([seen]))),
            }
        });
        blocks
    }
}
