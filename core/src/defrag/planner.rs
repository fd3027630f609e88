//! Plans the moves of a pass, lane by lane: first regions that can be evacuated, then the holes of blocks that stay.
#![forbid(unsafe_code)]
use super::budget::Purse;
use super::compact::scattered;
use super::evacuate::sources;
use super::moves::{Trip, Trips};
use super::snapshot::{Inside, Scan, Seen, SlotsByBlock, Survey};
use super::stats::Ledger;
use crate::pool::{Consent, Lane};
use crate::strategy::BlockId;
use crate::sync::Mutex;
use crate::{Backend, HeapId};
use alloc::{sync::Arc, vec::Vec};

/// What a pass is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Regions worth this many bytes are enough.
    pub(crate) wanted: u64,
    /// Whether owners are asked.
    pub(crate) asks: Consent,
    /// Of the pool's unsettled requests, those of the caller itself.
    pub(crate) own: u64,
    /// What is done where nothing can be emptied.
    pub(crate) holes: Holes,
}

/// What is done about the holes of blocks that cannot be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// They are closed: what lies high goes into them.
    Close,
    /// So they are, and pages whose holes add up are packed into fresh ones.
    Pack,
    /// They are left.
    Leave,
}

impl Goal {
    /// Everything, without asking owners.
    pub(crate) const ALL: Self =
        Self { wanted: u64::MAX, asks: Consent::Given, own: 0, holes: Holes::Close };
}

/// A lane being defragmented region by region. It can go on in a later pass: what it knows is checked when it is used.
pub(crate) struct Booking<B: Backend> {
    pub(super) lane: Arc<Lane<B>>,
    ledger: Arc<Ledger>,
    pub(super) survey: Survey,
    /// What of the lane is still to be looked at; `None` when all was.
    scan: Option<Scan>,
    slots: SlotsByBlock,
    stage: Stage,
    /// Regions still to deal with, the next one last.
    pub(super) order: Vec<usize>,
    /// Where in the region that is being emptied.
    pub(super) next: usize,
    /// What each region is to this booking.
    pub(super) roles: Vec<Role>,
    /// Whether the region that is being emptied must be emptied in this pass, or left alone.
    pub(super) only_whole: bool,
    goal: Goal,
}

/// What a booking does with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It empties regions.
    Empty,
    /// It closes the holes of blocks.
    Close,
}

/// What a region is to a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It can be a source or a destination.
    Open,
    /// It is being emptied: nothing goes there.
    Source,
    /// Something goes there, so it is not emptied.
    Destination,
}

/// How booking a few allocations ended.
pub(super) enum Booked {
    All,
    /// The purse is empty.
    Enough,
    /// One of them has no place to go.
    NoRoom,
}

impl<B: Backend> Booking<B> {
    /// A booking of a lane, which is looked at when it is used. Where nothing can be copied there is nothing to book.
    pub(crate) fn new(lane: &Arc<Lane<B>>, ledger: &Arc<Ledger>, goal: &Goal) -> Self {
        let can = lane.shared.device.backend().as_transfer().is_some();
        Self {
            lane: Arc::clone(lane),
            ledger: Arc::clone(ledger),
            survey: lane.survey(),
            scan: can.then(Scan::default),
            slots: SlotsByBlock::default(),
            stage: if can { Stage::Empty } else { Stage::Close },
            order: Vec::new(),
            next: 0,
            roles: Vec::new(),
            only_whole: false,
            goal: *goal,
        }
    }

    /// Looks at the lane until all was seen or the time is up; whether all was.
    fn look(&mut self, purse: &Purse) -> bool {
        let Some(scan) = &mut self.scan else { return true };
        if scan.is_first() {
            self.slots = self.ledger.shelf.take_slots();
        }
        let (survey, slots) = (&mut self.survey, &mut self.slots);
        while self.lane.scan(scan, survey, slots, self.goal.asks) == Seen::Part {
            if purse.is_late() {
                return false;
            }
        }
        self.scan = None;
        self.set_order();
        true
    }

    fn set_order(&mut self) {
        let regions = &self.survey.regions;
        self.order = match self.stage {
            Stage::Empty => sources(regions),
            Stage::Close => scattered(regions),
        };
        self.order.reverse();
        self.roles = regions.iter().map(|_| Role::Open).collect();
    }

    pub(super) fn heap(&self) -> HeapId {
        self.lane.shared.heap
    }

    pub(crate) fn is_done(&self) -> bool {
        let last = self.stage == Stage::Close || self.goal.holes == Holes::Leave;
        last && self.scan.is_none() && self.order.is_empty()
    }

    /// Requests of the pool, besides the caller's own, whose alignment is not noted yet.
    pub(super) const fn own(&self) -> u64 {
        self.goal.own
    }

    /// Books as much as the purse allows; says how many bytes of regions will be empty.
    ///
    /// Holes are closed in a pass that finds nothing to empty: what an earlier pass emptied is gone by then.
    pub(super) fn book(&mut self, wanted: u64, purse: &mut Purse, trips: &mut Trips<B>) -> u64 {
        let first = trips.len();
        trips.enter(&self.lane);
        if !self.look(purse) {
            return 0;
        }
        if self.stage == Stage::Empty {
            let surveyed_now = self.roles.iter().all(|role| *role == Role::Open);
            let released = self.empty_regions(wanted, purse, trips);
            let left = !self.order.is_empty() || self.goal.holes == Holes::Leave;
            if left || trips.len() > first {
                return released;
            }
            self.stage = Stage::Close;
            if surveyed_now && self.goal.holes != Holes::Pack {
                self.scan = Some(Scan::holes_only());
            } else {
                // What moved since is not in the survey, and what was tried in vain no longer.
                self.survey = self.lane.survey();
                self.slots.clear();
                self.scan = Some(Scan::with_holes());
            }
            if !self.look(purse) {
                return 0;
            }
        }
        self.close_holes(purse, trips);
        if self.goal.holes == Holes::Pack && trips.len() == first {
            self.pack_pages(purse, trips);
        }
        0
    }

    /// What is in the block of a region now; with its holes, where they are to be closed.
    pub(super) fn look_into(&self, at: usize, holes: Holes) -> Inside {
        let number = u32::try_from(self.survey.regions[at].number);
        let block = BlockId(number.expect("blocks have numbers of 31 bits"));
        self.lane.look_into(block, &self.slots, self.goal.asks, holes)
    }

    /// Has done with the next region.
    pub(super) fn skip(&mut self) {
        if let Some(at) = self.order.pop() {
            self.survey.regions[at].residents = Vec::new();
        }
        self.next = 0;
    }
}

impl<B: Backend> Drop for Booking<B> {
    fn drop(&mut self) {
        self.ledger.shelf.put_slots(core::mem::take(&mut self.slots));
    }
}

/// Trips, and slots, for which memory is kept.
const MOST_TRIPS: usize = 1 << 14;
const MOST_SLOTS: usize = 1 << 17;

/// What one pass may leave for the next.
#[derive(Debug)]
pub(super) struct Shelf {
    trips: Mutex<Vec<Trip>>,
    slots: Mutex<SlotsByBlock>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { trips: Mutex::new(Vec::new()), slots: Mutex::new(SlotsByBlock::default()) }
    }
}

impl Shelf {
    /// An empty list, with room where a pass has left some.
    pub(super) fn take_trips(&self) -> Vec<Trip> {
        core::mem::take(&mut *self.trips.lock())
    }

    /// Keeps the memory of a list.
    pub(super) fn put_trips(&self, mut list: Vec<Trip>) {
        list.clear();
        if list.capacity() <= MOST_TRIPS {
            *self.trips.lock() = list;
        }
    }

    /// An empty table, with room where a booking has left some.
    pub(super) fn take_slots(&self) -> SlotsByBlock {
        core::mem::take(&mut *self.slots.lock())
    }

    /// Keeps the memory of a table.
    pub(super) fn put_slots(&self, mut table: SlotsByBlock) {
        table.clear();
        if table.capacity() <= MOST_SLOTS {
            *self.slots.lock() = table;
        }
    }
}
