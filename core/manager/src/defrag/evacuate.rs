//! Evacuating extents: every allocation of an extent gets a hole elsewhere, or none of them moves.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::{MoveList, Started, TOGETHER};
use super::planner::{Evacuation, LanePlanner, Role};
use crate::lane::{MoveGuard, Resident};
use crate::{Backend, Layout};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::{Grant, Key};

/// Limit of the room that is reserved for moves before the first is planned.
const MOST_ROOM: usize = 1 << 14;
/// Holes in unusable extents that are tried for one allocation.
const TRIES: usize = 64;

impl<B: Backend> LanePlanner<B> {
    /// Plans moves out of the extents in order; returns the bytes of extents that will be empty.
    pub(super) fn evacuate_extents(
        &mut self,
        wanted: u64,
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) -> u64 {
        let mut released = 0;
        let sources = self.order.iter().map(|at| self.snapshot.extents[*at].movable);
        let movable = usize::try_from(sources.sum::<u64>()).unwrap_or(usize::MAX);
        moves.reserve(meter.moves_of(movable).min(MOST_ROOM));
        while released < wanted
            && !meter.is_empty()
            && !meter.is_late()
            && let Some(at) = self.order.last().copied()
        {
            if self.roles[at] == Role::Destination {
                self.skip();
                continue;
            }
            self.roles[at] = Role::Source;
            self.only_whole = self.snapshot.is_paged();
            let (first, began) = (moves.len(), self.next);
            match self.plan_extent(at, meter, moves) {
                Evacuation::All => {
                    released += self.snapshot.extents[at].size;
                    self.skip();
                }
                Evacuation::OverBudget if moves.len() > first && !self.only_whole => break,
                // The rest of the budget is too small for this extent; the next budget may not be.
                Evacuation::OverBudget if first > 0 => {
                    self.cancel_moves(at, moves, first, meter);
                    self.next = began;
                    break;
                }
                // A whole budget is too small for it, or there is no room: the extent stays.
                Evacuation::OverBudget | Evacuation::NoRoom => {
                    self.cancel_moves(at, moves, first, meter);
                    self.roles[at] = Role::Open;
                    self.skip();
                }
            }
        }
        released
    }

    /// Cancels moves out of an extent, from a position in the list on.
    fn cancel_moves(
        &mut self,
        at: usize,
        moves: &mut MoveList<B>,
        first: usize,
        meter: &mut BudgetMeter,
    ) {
        for planned in &moves.list()[first..] {
            meter.refund(planned.bytes());
            let mut touched = self.snapshot.touched(planned.to.block, planned.to.span);
            while let Some(to) = self.snapshot.next(&mut touched) {
                if let Some(to) = to {
                    self.snapshot.extents[to].live -= planned.bytes();
                }
            }
            self.snapshot.extents[at].live += planned.bytes();
        }
        moves.undo(first);
    }

    fn plan_extent(
        &mut self,
        at: usize,
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) -> Evacuation {
        let mut residents = core::mem::take(&mut self.snapshot.extents[at].residents);
        if self.next == 0 {
            if !self.snapshot.is_paged() {
                let inside = self.look_into(at, false);
                if inside.held {
                    return Evacuation::NoRoom;
                }
                residents = inside.residents;
            }
            largest_first(&mut residents);
        }
        moves.reserve(meter.moves_of(residents.len() - self.next));
        let mut ended = Evacuation::All;
        while self.next < residents.len() && matches!(ended, Evacuation::All) {
            if meter.is_late() {
                ended = Evacuation::OverBudget;
                break;
            }
            let few = &residents[self.next..residents.len().min(self.next + TOGETHER)];
            let dealt_with;
            (dealt_with, ended) = self.plan_few(at, few, meter, moves);
            self.next += dealt_with;
        }
        self.snapshot.extents[at].residents = residents;
        ended
    }

    /// Plans a few moves under the lock; returns how many allocations were dealt with.
    fn plan_few(
        &mut self,
        at: usize,
        few: &[Resident],
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) -> (usize, Evacuation) {
        let lane = Arc::clone(&self.lane);
        let Some(mut guard) = self.lock(&lane) else { return (0, Evacuation::NoRoom) };
        let (mut kept_out, mut dealt_with, mut ended) = (Vec::new(), 0, Evacuation::All);
        for resident in few {
            let started = moves.try_start(&mut guard, resident, meter, |guard| {
                self.place(at, guard, resident, &mut kept_out)
            });
            ended = match started {
                Started::Yes | Started::Gone => Evacuation::All,
                Started::Held | Started::NoRoom => Evacuation::NoRoom,
                Started::OverBudget => Evacuation::OverBudget,
            };
            if !matches!(ended, Evacuation::All) {
                break;
            }
            dealt_with += 1;
        }
        kept_out.into_iter().for_each(|key| guard.unreserve(key));
        (dealt_with, ended)
    }

    /// Takes a hole in an extent that is neither empty nor being evacuated. Other holes that the search finds are kept
    /// out of it until the lock is released.
    fn place(
        &mut self,
        from: usize,
        guard: &mut MoveGuard<'_, B>,
        resident: &Resident,
        kept_out: &mut Vec<Key>,
    ) -> Option<Grant> {
        let layout = Layout { size: resident.span.size, align: resident.align };
        for _ in 0..TRIES {
            let grant = guard.reserve(layout, resident.class)?;
            if self.is_usable(&grant) {
                self.note_arrival(from, &grant);
                return Some(grant);
            }
            kept_out.push(guard.keep_out(grant.key)?);
        }
        None
    }

    /// Returns true if a hole lies in extents that are neither empty nor being evacuated.
    fn is_usable(&self, grant: &Grant) -> bool {
        let mut touched = self.snapshot.touched(grant.block, grant.span);
        while let Some(at) = self.snapshot.next(&mut touched) {
            if at.is_none_or(|at| self.roles[at] == Role::Source) {
                return false;
            }
        }
        true
    }

    /// Accounts for a move in its extents.
    ///
    /// Moves into a fuller extent end after finitely many, however few a pass makes. Other moves are only made together
    /// with all moves that evacuate their extent.
    fn note_arrival(&mut self, from: usize, grant: &Grant) {
        let (size, left) = (grant.span.size, self.snapshot.extents[from].live);
        let mut touched = self.snapshot.touched(grant.block, grant.span);
        while let Some(at) = self.snapshot.next(&mut touched) {
            let Some(at) = at else { continue };
            self.roles[at] = Role::Destination;
            let extent = &mut self.snapshot.extents[at];
            extent.live += size;
            self.only_whole |= !extent.stays && extent.live <= left;
        }
        self.snapshot.extents[from].live = left.saturating_sub(size);
    }
}

/// Sorts the allocations of an extent, the largest first: it is the hardest to place. Where it finds no room, nothing was
/// planned in vain.
pub(super) fn largest_first(residents: &mut [Resident]) {
    // Often all have one size; a stable sort is then fast.
    residents.sort_by_key(|one| u64::MAX - one.span.size);
}
