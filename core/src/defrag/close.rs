//! Closing the holes of blocks that stay: what lies high goes into the holes below it.
#![forbid(unsafe_code)]
use super::book::{Booking, Holes, Presence};
use super::budget::Purse;
use super::lower::{Lowering, lower};
use super::plan::Resident;
use super::survey::Inside;
use super::trips::{TOGETHER, Trips};
use super::window::Piece;
use crate::pool::Divider;
use crate::strategy::Key;
use crate::{Backend, Class, Span};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Acquire;

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    On,
    Enough,
}

impl<B: Backend> Booking<B> {
    /// Books moves inside blocks, the most scattered first.
    pub(super) fn close_holes(&mut self, purse: &mut Purse, trips: &mut Trips<B>) {
        while !purse.is_empty()
            && !purse.is_late()
            && let Some(at) = self.order.pop()
        {
            let Inside { mut residents, holes, .. } = self.look_into(at, Holes::Close);
            residents.retain(|resident| resident.class == Class::Linear);
            residents.sort_unstable_by_key(|resident| resident.span.offset);
            let granularity = self.lane.shared.device.backend().caps().neighbour_granularity;
            let moves = lower(&pieces(&residents, &holes), granularity);
            for few in moves.chunks(TOGETHER) {
                let ended = self.book_lowerings(few, &residents, &holes, purse, trips);
                if ended == Progress::Enough || purse.is_late() {
                    return;
                }
            }
        }
    }

    /// Books a few moves under the lock. What changed since the plan was made stays where it is.
    fn book_lowerings(
        &self,
        few: &[Lowering<usize>],
        residents: &[Resident],
        holes: &[(Key, Span)],
        purse: &mut Purse,
        trips: &mut Trips<B>,
    ) -> Progress {
        let mut state = self.lane.state.lock();
        if self.lane.shared.unsettled.load(Acquire) > self.own() {
            return Progress::Enough;
        }
        for one in few {
            let resident = &residents[one.what];
            if !matches!(state.look_at(resident), Presence::Free) {
                continue;
            }
            if !purse.pay(resident.span.size) {
                return Progress::Enough;
            }
            let Divider::General(tlsf) = &mut state.divider else { return Progress::Enough };
            match tlsf.carve_in(holes[one.hole].0, one.to) {
                Ok(to) => trips.set_out(&mut state, resident, to),
                Err(_) => purse.refund(resident.span.size),
            }
        }
        Progress::On
    }
}

/// A block as the planner sees it: what is neither a hole nor may move is fixed.
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
