//! One allocation on its way to another place, which is held for it.
#![forbid(unsafe_code)]
use super::recall::end_abroad;
use super::trips::Trips;
use crate::pool::{Consent, Ending, Lane, LaneState, Owner, SlotId};
use crate::strategy::Grant;
use crate::{Backend, Span, TimelineId};
use alloc::{boxed::Box, vec::Vec};

/// What became of a planned move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The allocation is at its new place.
    Moved,
    /// It is where it was: its owner said so, or somebody asked for its place meanwhile.
    Stayed,
    /// Its owner freed it meanwhile; both places are free.
    Freed,
}

impl Fate {
    pub(super) const fn of(owner: Owner, arrives: bool) -> Self {
        match (owner, arrives) {
            (Owner::Gone, _) => Self::Freed,
            (Owner::Present, true) => Self::Moved,
            (Owner::Present, false) => Self::Stayed,
        }
    }
}

/// A place that a pass shows: a native block and a span of it.
#[derive(Debug)]
pub struct Spot<'a, T> {
    /// The native block.
    pub block: &'a T,
    /// The bytes inside it.
    pub span: Span,
}

/// One allocation on its way. Its lane and blocks are in the tables of its [`Trips`].
#[derive(Debug)]
pub(super) struct Trip {
    pub(super) slot: SlotId,
    /// Bytes asked for.
    pub(super) size: u64,
    pub(super) from: Span,
    pub(super) to: Grant,
    pub(super) name: Option<Box<str>>,
    pub(super) lane: u32,
    /// The lane that it goes to: the same, unless it is called back to its heap.
    pub(super) to_lane: u32,
    pub(super) from_block: u32,
    pub(super) to_block: u32,
    pub(super) consent: Consent,
    pub(super) verdict: Verdict,
}

/// What is done about a trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pass copies the bytes.
    Copy,
    /// The owner copies them, and says when that is done by committing.
    OwnerCopies,
    /// Nothing.
    Ignore,
}

impl Trip {
    /// Bytes that a copy carries.
    pub(super) const fn bytes(&self) -> u64 {
        self.from.size
    }

    /// Whether another trip has the same lane, and goes to the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.lane, self.to_lane) == (other.lane, other.to_lane)
    }
}

impl<B: Backend> LaneState<B> {
    /// Timelines that may still use an allocation's bytes, or those of the hole that it goes to.
    pub(super) fn timelines_of_trip(&self, trip: &Trip, timelines: &mut Vec<TimelineId>) {
        let mut add = |timeline: TimelineId| {
            if !timelines.contains(&timeline) {
                timelines.push(timeline);
            }
        };
        // Transfers of allocations without a timeline run on the main one.
        add(self.home_of(trip.slot).unwrap_or(TimelineId::MAIN));
        if let Some(note) = self.notes.get(trip.slot.index) {
            note.used_on.iter().copied().for_each(&mut add);
        }
        self.users.busy().chain(self.users.unannounced()).for_each(add);
    }

    /// Ends a trip at the new place, if its bytes are there and nobody asked for the old one; else at the old one.
    ///
    /// This is the locked state of `lane`.
    pub(super) fn end_trip(&mut self, lane: &Lane<B>, trip: &Trip, copied: Copied) -> Fate {
        let old = self.slots.moving_key(trip.slot).expect("a pass keeps the slots that it moves");
        let arrives = copied == Copied::Yes && self.slots.is_copying(trip.slot);
        let new = trip.to.key;
        if arrives {
            if trip.verdict == Verdict::OwnerCopies {
                self.give_up_sanitized(lane, trip.slot);
            }
            self.slots.set_key(trip.slot, new);
            lane.tell_move(self, trip.slot);
        }
        let left = if arrives { old } else { new };
        self.held_bytes -= trip.to.span.size;
        let freed = self.divider.free(left);
        debug_assert!(freed.is_ok(), "both ends of a trip are held");
        Fate::of(self.let_go(lane, trip.slot), arrives)
    }

    /// Ends a pass's hold on an allocation, and the allocation if its owner let go of it meanwhile.
    /// This is the locked state of `lane`.
    pub(super) fn let_go(&mut self, lane: &Lane<B>, slot: SlotId) -> Owner {
        let owner = self.slots.end_move(slot);
        if owner == Owner::Gone {
            match self.notes.take_ending(slot.index) {
                // The sanitizer looks at it first, without the lock.
                None if self.is_sanitized(slot) => self.defer(slot, Ending::NOW),
                None => {
                    // What moves has no block of its own to return.
                    lane.tell_free(self, slot);
                    let _ = self.free(slot);
                }
                Some(ending) => self.defer(slot, ending),
            }
        }
        owner
    }

    /// Ends an allocation when its points have passed, or never.
    pub(crate) fn defer(&mut self, slot: SlotId, ending: Ending) {
        let Ok(bytes) = self.slots.get(slot).map(|slot| slot.size) else { return };
        if self.slots.defer(slot).is_ok()
            && let Ending::After(points, origin) = ending
        {
            self.deferred.push(slot, bytes, points, origin);
        }
    }
}

/// Gives back the places of trips that are not made, from a position on.
pub(super) fn undo<B: Backend>(trips: &mut Trips<B>, first: usize) {
    trips.each_few(first, |lane, few| {
        if let Some(there) = trips.abroad(&few[0]) {
            for trip in few {
                end_abroad(lane, there, trip, Copied::No);
            }
            return;
        }
        let mut state = lane.state.lock();
        for trip in few {
            state.end_trip(lane, trip, Copied::No);
        }
    });
    trips.truncate(first);
}

/// Whether the bytes of a trip are at its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Yes,
    No,
}
