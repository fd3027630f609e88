//! Emptying whole blocks: their allocations move into holes of other blocks, then the driver gets the blocks back.
#![forbid(unsafe_code)]
use super::window::Piece;
use crate::device::Block;
use crate::pool::{Divider, Lane, LaneState, Owner, SlotId};
use crate::strategy::{BlockId, Grant, Key, Strategy, Tlsf};
use crate::{Align, Backend, Move, Place, Result, Sharing, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::ops::ControlFlow;

/// One allocation on its way to another block; its destination is held.
struct Journey<B: Backend> {
    what: SlotId,
    from: (Arc<Block<B>>, Span),
    to: (Arc<Block<B>>, Grant),
}

impl<B: Backend> Lane<B> {
    /// Empties blocks worth `wanted` bytes, or as many as it can; says how many bytes moved.
    ///
    /// Waits for the device first, so nothing in flight reads or writes what moves. The empty blocks stay in the pool
    /// until it is trimmed.
    ///
    /// # Errors
    ///
    /// What the driver says; everything is then where it was.
    pub(crate) fn empty_blocks_by_moving(&self, wanted: u64) -> Result<u64> {
        let backend = self.shared.device.backend();
        let Some(transfer) = backend.as_transfer() else { return Ok(0) };
        backend.wait_idle()?;
        let journeys = self.depart(wanted);
        if journeys.is_empty() {
            return Ok(0);
        }
        let moves: Vec<_> = journeys.iter().map(Journey::as_move).collect();
        let on = self.timeline.unwrap_or(TimelineId::MAIN);
        let copied = transfer.copy(on, &moves).and_then(|()| backend.wait_idle());
        let bytes = journeys.iter().map(|journey| journey.from.1.size).sum();
        self.arrive(journeys, copied.is_ok());
        copied.map(|()| bytes)
    }

    /// Chooses blocks to empty, the least used first, and holds a destination for everything in them.
    fn depart(&self, wanted: u64) -> Vec<Journey<B>> {
        let mut state = self.state.lock();
        let (mut journeys, mut sources, mut released) = (Vec::new(), Vec::new(), 0u64);
        if state.pager.is_some() {
            return journeys;
        }
        for (id, size, pieces) in state.by_use(self.shared.unit) {
            if released >= wanted {
                break;
            }
            if journeys.iter().any(|journey: &Journey<B>| journey.to.1.block == id) {
                continue; // What arrives in a block keeps it from being emptied.
            }
            sources.push(id);
            match state.find_room(&pieces, &sources) {
                Some(room) => {
                    released = released.saturating_add(size);
                    journeys.extend(state.book(id, &pieces, room));
                }
                None => {
                    sources.pop();
                }
            }
        }
        journeys.iter().for_each(|journey| state.slots.set_moving(journey.what));
        state.held_bytes += journeys.iter().map(|journey| journey.to.1.span.size).sum::<u64>();
        journeys
    }

    /// Publishes the new places, or gives the destinations back.
    fn arrive(&self, journeys: Vec<Journey<B>>, copied: bool) {
        let mut state = self.state.lock();
        for journey in &journeys {
            let old =
                state.slots.moving_key(journey.what).expect("moving slots stay until they arrive");
            let new = journey.to.1.key;
            let left = if copied { old } else { new };
            if copied {
                state.slots.set_key(journey.what, new);
            }
            state.held_bytes -= journey.to.1.span.size;
            let freed = state.divider.as_strategy_mut().free(left);
            debug_assert!(freed.is_ok(), "both ends of a journey are held");
            if state.slots.end_move(journey.what) == Owner::Gone {
                // Freed by its owner on the way; what moves has no block of its own to return.
                let _ = state.free(journey.what);
            }
        }
        drop(state);
        self.moved.raise();
    }
}

impl<B: Backend> Journey<B> {
    fn as_move(&self) -> Move<'_, B::Block> {
        let from = Place { block: self.from.0.raw(), offset: self.from.1.offset };
        let to = Place { block: self.to.0.raw(), offset: self.to.1.span.offset };
        Move { from, to, size: self.from.1.size }
    }
}

/// What a block holds, in the planner's words.
type Used = (BlockId, u64, Vec<(Span, Align, SlotId)>);

impl<B: Backend> LaneState<B> {
    /// Blocks in which everything may move, the least used first. Empty blocks need no moves.
    fn by_use(&self, unit: Align) -> Vec<Used> {
        let mut blocks: Vec<Used> = Vec::new();
        for (id, pieces) in self.pieces(unit) {
            let held = self.blocks[id.0 as usize].as_ref();
            let Some(held) = held.filter(|held| held.sharing == Sharing::Shared) else { continue };
            let fixed = pieces.iter().any(|piece| matches!(piece, Piece::Fixed));
            let live: Vec<_> = pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Movable(span, align, what) => Some((*span, *align, *what)),
                    Piece::Hole(_) | Piece::Fixed => None,
                })
                .collect();
            if !fixed && !live.is_empty() {
                blocks.push((id, held.block.size(), live));
            }
        }
        let used = |block: &Used| block.2.iter().map(|(span, ..)| span.size).sum::<u64>();
        blocks.sort_by_key(|block| (used(block), block.0));
        blocks
    }

    /// Holds a place outside `sources` for every piece, largest first; all or none.
    fn find_room(
        &mut self,
        pieces: &[(Span, Align, SlotId)],
        sources: &[BlockId],
    ) -> Option<Vec<(usize, Grant)>> {
        let Divider::General(tlsf) = &mut self.divider else { return None };
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|at| core::cmp::Reverse(pieces[*at].0.size));
        let mut room = Vec::with_capacity(pieces.len());
        for at in order {
            let (span, align, _) = pieces[at];
            match take_best(tlsf, span.size, align, sources) {
                Some(grant) => room.push((at, grant)),
                None => {
                    for (_, grant) in room {
                        let freed = tlsf.free(grant.key);
                        debug_assert!(freed.is_ok(), "held just above");
                    }
                    return None;
                }
            }
        }
        Some(room)
    }

    fn book(
        &self,
        from: BlockId,
        pieces: &[(Span, Align, SlotId)],
        room: Vec<(usize, Grant)>,
    ) -> Vec<Journey<B>> {
        let block = |id: BlockId| {
            Arc::clone(&self.blocks[id.0 as usize].as_ref().expect("a span's block is held").block)
        };
        let journey = |(at, grant): (usize, Grant)| {
            let (span, _, what) = pieces[at];
            Journey { what, from: (block(from), span), to: (block(grant.block), grant) }
        };
        room.into_iter().map(journey).collect()
    }
}

/// Takes the smallest hole outside `sources` that fits.
fn take_best(tlsf: &mut Tlsf, size: u64, align: Align, sources: &[BlockId]) -> Option<Grant> {
    let mut best: Option<(Key, u64, u64)> = None;
    tlsf.holes_from_largest(size, |key, block, hole| {
        let start = align.up(hole.offset);
        let fits =
            start.is_some_and(|start| start.checked_add(size).is_some_and(|end| end <= hole.end()));
        let smaller = best.is_none_or(|(_, _, known)| hole.size < known);
        if let Some(start) = start.filter(|_| fits && smaller && !sources.contains(&block)) {
            best = Some((key, start, hole.size));
        }
        ControlFlow::Continue(())
    });
    let (key, offset, _) = best?;
    tlsf.carve_in(key, Span { offset, size }).ok()
}
