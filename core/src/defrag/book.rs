//! Choosing places: each allocation of a region that is to be emptied gets a hole elsewhere, or none of them does.
#![forbid(unsafe_code)]
use super::budget::Purse;
use super::cost::Cost;
use super::plan::{Resident, largest_first, sources};
use super::survey::{Scan, Seen, Survey};
use super::trip::{Copied, Trip, Verdict};
use crate::pool::{Consent, Divider, Lane, LaneState};
use crate::strategy::{Grant, Key, Strategy, Tlsf};
use crate::{Backend, Class, HeapId, InsideBlock, Layout};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Acquire;

/// Allocations that are booked or published while a lock is held: a few microseconds.
pub(super) const TOGETHER: usize = 32;
/// Holes in the wrong place that are looked at for one allocation.
const TRIES: usize = 64;

/// What a pass is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Regions worth this many bytes are enough.
    pub(crate) wanted: u64,
    /// Whether owners are asked.
    pub(crate) asks: Consent,
    /// Of the pool's unsettled requests, those of the caller itself.
    pub(crate) own: u64,
}

impl Goal {
    /// Everything, without asking owners.
    pub(crate) const ALL: Self = Self { wanted: u64::MAX, asks: Consent::Given, own: 0 };
}

/// A lane being emptied region by region. It can go on in a later pass: what it knows is checked when it is used.
pub(crate) struct Booking<B: Backend> {
    lane: Arc<Lane<B>>,
    survey: Survey,
    /// What of the lane is still to be looked at; `None` when all was.
    scan: Option<Scan>,
    /// Regions still to empty, the next one last.
    order: Vec<usize>,
    /// Where in the region that is being emptied.
    next: usize,
    /// What each region is to this booking.
    roles: Vec<Role>,
    /// Whether the region that is being emptied must be emptied in this pass, or left alone.
    only_whole: bool,
    own: u64,
}

/// What a region is to a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It can be a source or a destination.
    Open,
    /// It is being emptied: nothing goes there.
    Source,
    /// Something goes there, so it is not emptied.
    Destination,
}

/// How booking a few allocations ended.
enum Booked {
    All,
    /// The purse is empty.
    Enough,
    /// One of them has no place to go.
    NoRoom,
}

impl<B: Backend> Booking<B> {
    /// A booking of a lane, which is looked at when it is used. Where nothing can be copied there is nothing to book.
    pub(crate) fn new(lane: &Arc<Lane<B>>, goal: &Goal) -> Self {
        let backend = lane.shared.device.backend();
        // Every page of a lane is in one block, so emptying one copies inside it.
        let inside = lane.shared.page().is_none()
            || backend.caps().copy.inside_block == InsideBlock::Allowed;
        let can = backend.as_transfer().is_some() && inside;
        let (survey, scan) = (lane.survey(), can.then(Scan::default));
        let (order, roles) = (Vec::new(), Vec::new());
        let (lane, own) = (Arc::clone(lane), goal.own);
        Self { lane, survey, scan, order, next: 0, roles, only_whole: false, own }
    }

    /// Looks at the lane until all was seen or the time is up; whether all was.
    fn look(&mut self, goal: &Goal, purse: &Purse) -> bool {
        let Some(scan) = &mut self.scan else { return true };
        while self.lane.scan(scan, &mut self.survey, goal.asks) == Seen::Part {
            if purse.is_late() {
                return false;
            }
        }
        self.scan = None;
        self.order = sources(&self.survey.regions);
        self.order.reverse();
        self.roles = self.survey.regions.iter().map(|_| Role::Open).collect();
        true
    }

    pub(super) fn heap(&self) -> HeapId {
        self.lane.shared.heap
    }

    pub(crate) fn is_done(&self) -> bool {
        self.scan.is_none() && self.order.is_empty()
    }

    /// Books as much as the purse allows; says how many bytes of regions will be empty.
    pub(super) fn book(
        &mut self,
        goal: &Goal,
        purse: &mut Purse,
        cost: &Cost,
        trips: &mut Vec<Trip<B>>,
    ) -> u64 {
        let mut released = 0;
        if !self.look(goal, purse) {
            return 0;
        }
        while released < goal.wanted
            && !purse.is_empty()
            && !purse.is_late()
            && let Some(at) = self.order.last().copied()
        {
            if self.roles[at] == Role::Destination {
                self.skip();
                continue;
            }
            self.roles[at] = Role::Source;
            self.only_whole = self.survey.is_paged();
            let (first, began) = (trips.len(), self.next);
            match self.book_region(at, purse, cost, trips) {
                Booked::All => {
                    released += self.survey.regions[at].size;
                    self.skip();
                }
                Booked::Enough if trips.len() > first && !self.only_whole => break,
                // The rest of a budget is not enough for it; the next one may be.
                Booked::Enough if first > 0 => {
                    self.unbook(at, trips.split_off(first), purse, cost);
                    self.next = began;
                    break;
                }
                // What a whole budget is not enough for, or what has no place to go, stays.
                Booked::Enough | Booked::NoRoom => {
                    self.unbook(at, trips.split_off(first), purse, cost);
                    self.roles[at] = Role::Open;
                    self.skip();
                }
            }
        }
        released
    }

    /// Gives back the places of trips out of a region that are not made.
    fn unbook(&mut self, at: usize, trips: Vec<Trip<B>>, purse: &mut Purse, cost: &Cost) {
        for trip in &trips {
            purse.refund(trip.bytes(), cost);
            let to = &trip.to.1;
            let touched: Vec<_> = self.survey.touched(to.block, to.span).flatten().collect();
            for to in touched {
                self.survey.regions[to].live -= trip.bytes();
            }
            self.survey.regions[at].live += trip.bytes();
        }
        undo(trips);
    }

    fn skip(&mut self) {
        self.order.pop();
        self.next = 0;
    }

    fn book_region(
        &mut self,
        at: usize,
        purse: &mut Purse,
        cost: &Cost,
        trips: &mut Vec<Trip<B>>,
    ) -> Booked {
        let mut residents = core::mem::take(&mut self.survey.regions[at].residents);
        if self.next == 0 {
            largest_first(&mut residents);
        }
        let mut ended = Booked::All;
        while self.next < residents.len() && matches!(ended, Booked::All) {
            if purse.is_late() {
                ended = Booked::Enough;
                break;
            }
            let few = &residents[self.next..residents.len().min(self.next + TOGETHER)];
            let dealt_with;
            (dealt_with, ended) = self.book_few(at, few, purse, cost, trips);
            self.next += dealt_with;
        }
        self.survey.regions[at].residents = residents;
        ended
    }

    /// Books a few allocations under the lock; says how many were dealt with.
    fn book_few(
        &mut self,
        at: usize,
        few: &[Resident],
        purse: &mut Purse,
        cost: &Cost,
        trips: &mut Vec<Trip<B>>,
    ) -> (usize, Booked) {
        let lane = Arc::clone(&self.lane);
        let mut state = lane.state.lock();
        if lane.shared.unsettled.load(Acquire) > self.own {
            return (0, Booked::NoRoom);
        }
        let (mut kept_out, mut dealt_with, mut ended) = (Vec::new(), 0, Booked::All);
        for resident in few {
            ended = match state.look_at(resident) {
                Presence::Gone => Booked::All,
                Presence::Held => Booked::NoRoom,
                Presence::Free if !purse.pay(resident.span.size, cost) => Booked::Enough,
                Presence::Free => match self.place(at, &mut state, resident, &mut kept_out) {
                    Some(to) => {
                        trips.push(state.set_out(&lane, resident, to));
                        Booked::All
                    }
                    None => {
                        purse.refund(resident.span.size, cost);
                        Booked::NoRoom
                    }
                },
            };
            if !matches!(ended, Booked::All) {
                break;
            }
            dealt_with += 1;
        }
        for key in kept_out {
            let freed = state.divider.as_strategy_mut().free(key);
            debug_assert!(freed.is_ok(), "kept out of the search just above");
        }
        (dealt_with, ended)
    }

    /// Takes a hole in a region that is not being emptied and not empty. Others that the search shows are kept out of
    /// it until the lock is given back.
    fn place(
        &mut self,
        from: usize,
        state: &mut LaneState<B>,
        resident: &Resident,
        kept_out: &mut Vec<Key>,
    ) -> Option<Grant> {
        let Divider::General(tlsf) = &mut state.divider else { return None };
        for _ in 0..TRIES {
            let grant = take(tlsf, resident)?;
            if self.is_usable(&grant) {
                self.note_arrival(from, &grant);
                return Some(grant);
            }
            kept_out.push(tlsf.widen(grant.key).ok()?.key);
        }
        None
    }
}

impl<B: Backend> Booking<B> {
    /// Whether a hole lies in regions that hold something and are not being emptied.
    fn is_usable(&self, grant: &Grant) -> bool {
        let mut touched = self.survey.touched(grant.block, grant.span);
        touched.all(|at| at.is_some_and(|at| self.roles[at] != Role::Source))
    }

    /// Notes what a move does to its regions.
    ///
    /// A move into a region that is then fuller than the one it leaves brings both nearer to full and empty: such moves
    /// end, however few a pass makes. Others may only be made together with all that empty their region.
    fn note_arrival(&mut self, from: usize, grant: &Grant) {
        let (size, left) = (grant.span.size, self.survey.regions[from].live);
        let touched: Vec<_> = self.survey.touched(grant.block, grant.span).flatten().collect();
        for at in touched {
            self.roles[at] = Role::Destination;
            let region = &mut self.survey.regions[at];
            region.live += size;
            self.only_whole |= !region.stays && region.live <= left;
        }
        self.survey.regions[from].live = left.saturating_sub(size);
    }
}

fn take(tlsf: &mut Tlsf, resident: &Resident) -> Option<Grant> {
    let layout = Layout { size: resident.span.size, align: resident.align };
    tlsf.allocate(layout, resident.class).ok()
}

/// What became of an allocation since the survey.
enum Presence {
    /// It is where it was and may move.
    Free,
    /// It is somewhere, and may not move.
    Held,
    /// It was freed, or moved away.
    Gone,
}

impl<B: Backend> LaneState<B> {
    fn look_at(&self, resident: &Resident) -> Presence {
        let grant = |key: Key| self.divider.as_strategy().grant(key);
        let here = self.slots.get(resident.slot).and_then(|slot| grant(slot.key));
        match here {
            Ok(grant) if grant.block == resident.block && grant.span == resident.span => {
                if self.slots.may_move(resident.slot) {
                    Presence::Free
                } else if self.slots.is_copying(resident.slot) {
                    // On its way out already, for another page that it touches.
                    Presence::Gone
                } else {
                    Presence::Held
                }
            }
            _ => Presence::Gone,
        }
    }

    /// Marks an allocation as being copied to a place that is held for it.
    fn set_out(&mut self, lane: &Arc<Lane<B>>, resident: &Resident, to: Grant) -> Trip<B> {
        let marked = self.slots.set_copying(resident.slot);
        debug_assert!(marked, "looked at under the same lock");
        self.held_bytes += to.span.size;
        let block = |id: crate::strategy::BlockId| {
            Arc::clone(&self.blocks[id.0 as usize].as_ref().expect("a span's block is held").block)
        };
        let note = self.notes.get(resident.slot.index);
        let needed = resident.class == Class::Tiled
            || note.is_some_and(|note| note.consent == Consent::Needed);
        Trip {
            lane: Arc::clone(lane),
            slot: resident.slot,
            size: self.slots.get(resident.slot).map_or(0, |slot| slot.size),
            from: (block(resident.block), resident.span),
            to: (block(to.block), to),
            name: note.and_then(|note| note.name.clone()),
            consent: if needed { Consent::Needed } else { Consent::Given },
            verdict: if needed { Verdict::Ignore } else { Verdict::Copy },
        }
    }
}

/// Gives back the places of trips that are not made.
pub(super) fn undo<B: Backend>(trips: Vec<Trip<B>>) {
    for few in trips.chunk_by(|a, b| Arc::ptr_eq(&a.lane, &b.lane)) {
        for few in few.chunks(TOGETHER) {
            let mut state = few[0].lane.state.lock();
            for trip in few {
                state.end_trip(trip, Copied::No);
            }
        }
    }
}
