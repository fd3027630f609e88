//! What a pass shows its caller, and what the caller answers.
#![forbid(unsafe_code)]
use super::trip::{Spot, Trip};
use super::trips::Trips;
use crate::event::AllocationId;
use crate::pool::Consent;
use crate::{Allocation, Backend, HeapId};
use core::fmt;

/// What the owner of an allocation says to its move.
#[derive(Debug)]
pub enum Decision<B: Backend> {
    /// Copy the bytes, and show the new place from the commit on.
    Copy,
    /// The owner copies: whatever it submits for that has finished before it commits the pass.
    OwnerCopies,
    /// Leave the allocation where it is.
    Ignore,
    /// Free the allocation, at its old place and at its new one.
    Destroy(Allocation<B>),
}

/// One move of a pass, before it is made.
pub struct PlannedMove<'a, B: Backend> {
    pub(super) trips: &'a Trips<B>,
    pub(super) trip: &'a Trip,
}

impl<B: Backend> fmt::Debug for PlannedMove<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedMove")
            .field("allocation", &self.allocation())
            .field("from", &self.trip.from)
            .field("to", &self.to().span)
            .finish()
    }
}

impl<'a, B: Backend> PlannedMove<'a, B> {
    /// Which allocation.
    #[must_use]
    pub fn allocation(&self) -> AllocationId {
        self.trips.id(self.trip)
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&'a str> {
        self.trip.name.as_deref()
    }

    /// Its bytes, as asked for.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.trip.size
    }

    /// The heap that it is in.
    #[must_use]
    pub fn heap(&self) -> HeapId {
        self.trips.lane(self.trip).shared.heap
    }

    /// The heap that it goes to: the same, unless the pass is a [recall](crate::Manager::begin_recall).
    #[must_use]
    pub fn to_heap(&self) -> HeapId {
        self.trips.abroad(self.trip).unwrap_or_else(|| self.trips.lane(self.trip)).shared.heap
    }

    /// Whether it stays unless its owner decides otherwise.
    #[must_use]
    pub fn needs_consent(&self) -> bool {
        self.trip.consent == Consent::Needed
    }

    /// Where it is.
    #[must_use]
    pub fn from(&self) -> Spot<'a, B::Block> {
        self.trips.from(self.trip)
    }

    /// Where it goes: nobody else gets these bytes while the pass lives.
    #[must_use]
    pub fn to(&self) -> Spot<'a, B::Block> {
        self.trips.to(self.trip)
    }
}
