//! Memory of passes that have ended, for the next ones: to have it made anew takes longer than to plan in it.
#![forbid(unsafe_code)]
use super::survey::SlotsByBlock;
use super::trip::Trip;
use crate::sync::Mutex;
use alloc::vec::Vec;

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
