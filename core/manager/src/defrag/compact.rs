//! Compacting blocks that stay: allocations high in a block move into its lower holes, so that one long hole is left.
//!
//! No allocation moves over its own bytes or over those of another, so every old place stays valid until all copies are
//! made, as a pass promises. An allocation that fits no hole below it stays, and bounds the long hole.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::{MoveList, Started, TOGETHER};
use super::planner::LanePlanner;
use crate::lane::{Inside, Resident};
use crate::{Backend, Span};
use alloc::vec::Vec;
use omniheap_strategy::Key;
use omniheap_strategy::moves::{MoveDown, Piece, move_down};

impl<B: Backend> LanePlanner<B> {
    /// Plans moves inside blocks, the most scattered first.
    pub(super) fn compact_blocks(&mut self, meter: &mut BudgetMeter, moves: &mut MoveList<B>) {
        while !meter.is_empty()
            && !meter.is_late()
            && let Some(at) = self.order.pop()
        {
            let Inside { mut residents, holes, .. } = self.look_into(at, true);
            residents.sort_unstable_by_key(|resident| resident.span.offset);
            let granularity = self.lane.shared.device.backend().caps().neighbour_granularity;
            let down = move_down(&pieces(&residents, &holes), granularity);
            for few in down.chunks(TOGETHER) {
                let goes_on = self.plan_moves_down(few, &residents, &holes, meter, moves);
                if !goes_on || meter.is_late() {
                    return;
                }
            }
        }
    }

    /// Plans a few moves under the lock; returns whether the budget allows more. Allocations that changed since the
    /// snapshot stay where they are.
    fn plan_moves_down(
        &self,
        few: &[MoveDown<usize>],
        residents: &[Resident],
        holes: &[(Key, Span)],
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) -> bool {
        let Some(mut guard) = self.lock(&self.lane) else { return false };
        few.iter().all(|one| {
            // Holes are in order, and the last one that begins at or before the target contains it.
            let hole = holes.partition_point(|(_, hole)| hole.offset <= one.to) - 1;
            let to = Span { offset: one.to, size: one.from.size };
            let started = moves.try_start(&mut guard, &residents[one.what], meter, |guard| {
                guard.reserve_in(holes[hole].0, to, residents[one.what].class)
            });
            started != Started::OverBudget
        })
    }
}

/// The pieces of a block. Everything that is neither a hole nor a movable allocation is fixed.
fn pieces(residents: &[Resident], holes: &[(Key, Span)]) -> Vec<Piece<usize>> {
    let mut pieces = Vec::with_capacity(residents.len() + holes.len());
    let (mut end, mut next_hole) = (0, 0);
    let mut add = |piece: Piece<usize>, span: Span| {
        if span.offset > end {
            pieces.push(Piece::Fixed);
        }
        pieces.push(piece);
        end = span.end();
    };
    for (at, resident) in residents.iter().enumerate() {
        while let Some((_, hole)) =
            holes.get(next_hole).filter(|(_, hole)| hole.offset < resident.span.offset)
        {
            add(Piece::Hole(*hole), *hole);
            next_hole += 1;
        }
        add(Piece::Movable(resident.span, resident.align, at), resident.span);
    }
    holes[next_hole..].iter().for_each(|(_, hole)| add(Piece::Hole(*hole), *hole));
    pieces
}
