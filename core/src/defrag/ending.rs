//! How passes end: places are shown, and what is empty goes back.
#![forbid(unsafe_code)]
use super::ledger::{Moved, Outcome};
use super::recall::end_abroad;
use super::trip::{Copied, Fate, Trip, Verdict};
use super::trips::Trips;
use crate::Backend;
use crate::pool::{Ending, Lane, Patience};
use alloc::vec::Vec;

/// Shows the new places, a few at a time.
pub(super) fn publish<B: Backend>(trips: &Trips<B>) -> Outcome {
    let moved = Moved { taken_bytes: trips.taken_bytes, ..Moved::default() };
    let mut outcome = Outcome { fates: Vec::with_capacity(trips.len()), moved };
    let mut note = |id, trip: &Trip, fate| {
        outcome.fates.push((id, fate));
        if fate == Fate::Moved {
            outcome.moved.moves += 1;
            outcome.moved.bytes += trip.bytes();
        }
    };
    trips.each_few(0, |lane, few| {
        let copied = |trip: &Trip| {
            if trip.verdict == Verdict::Ignore { Copied::No } else { Copied::Yes }
        };
        if let Some(there) = trips.abroad(&few[0]) {
            for trip in few {
                let fate = end_abroad(lane, there, trip, copied(trip));
                note(lane.id_of(trip.slot), trip, fate);
            }
            return;
        }
        let mut state = lane.state.lock();
        for trip in few {
            let fate = state.end_trip(lane, trip, copied(trip));
            note(lane.id_of(trip.slot), trip, fate);
        }
    });
    outcome
}

/// Leaves the new places held for ever, because something may still write there.
pub(super) fn forsake<B: Backend>(trips: &Trips<B>) {
    trips.each_few(0, |lane, few| {
        let mut state = lane.state.lock();
        for trip in few {
            if !state.slots.is_in_pass(trip.slot) {
                state.notes.of(trip.slot.index).ending = Some(Ending::Never);
            }
            state.let_go(lane, trip.slot);
        }
    });
}

/// How much goes back to the driver at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    All,
    /// What one driver call takes: a block, or pages of [`LITTLE`] bytes.
    Little,
}

/// Bytes of pages that go back in one portion of a step.
const LITTLE: u64 = 16 << 20;

impl<B: Backend> Lane<B> {
    /// Returns what is empty, and adds it to the sums. What cannot go back now stays in the pool.
    pub(crate) fn give_back_empty(&self, portion: Portion, moved: &mut Moved) {
        let (blocks, bytes) = match portion {
            Portion::All => (usize::MAX, u64::MAX),
            Portion::Little => (1, LITTLE),
        };
        if self.shared.watch.is_some() {
            // What was freed while the pass had it waits only for the sanitizer.
            let _ = self.retire(Patience::Look);
        }
        if self.settle(Patience::Look).is_err() {
            return;
        }
        let (of_blocks, count) = self.trim_some_blocks(blocks);
        let of_pages = self.trim_some_pages(bytes).unwrap_or(0);
        moved.returned_blocks += count;
        moved.returned_bytes += of_blocks + of_pages;
        moved.remapped_bytes += of_pages;
    }
}
