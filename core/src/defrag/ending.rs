//! How passes end: places are shown, and what is empty goes back.
#![forbid(unsafe_code)]
use super::book::TOGETHER;
use super::ledger::{Moved, Outcome};
use super::trip::{Copied, Fate, Trip, Verdict};
use crate::Backend;
use crate::pool::{Ending, Lane, Patience};
use alloc::{sync::Arc, vec::Vec};

/// Shows the new places, a few at a time.
pub(super) fn publish<B: Backend>(trips: &[Trip<B>]) -> Outcome {
    let mut outcome = Outcome { fates: Vec::with_capacity(trips.len()), moved: Moved::default() };
    for few in trips.chunk_by(|a, b| Arc::ptr_eq(&a.lane, &b.lane)) {
        for few in few.chunks(TOGETHER) {
            let mut state = few[0].lane.state.lock();
            for trip in few {
                let copied = if trip.verdict == Verdict::Ignore { Copied::No } else { Copied::Yes };
                let fate = state.end_trip(trip, copied);
                outcome.fates.push((trip.id(), fate));
                if fate == Fate::Moved {
                    outcome.moved.moves += 1;
                    outcome.moved.bytes += trip.bytes();
                }
            }
        }
    }
    outcome
}

pub(super) fn lanes_of<B: Backend>(trips: &[Trip<B>]) -> Vec<Arc<Lane<B>>> {
    let groups = trips.chunk_by(|a, b| Arc::ptr_eq(&a.lane, &b.lane));
    groups.map(|group| Arc::clone(&group[0].lane)).collect()
}

/// Leaves the new places held for ever, because something may still write there.
pub(super) fn forsake<B: Backend>(trips: &[Trip<B>]) {
    for trip in trips {
        let mut state = trip.lane.state.lock();
        if !state.slots.is_in_pass(trip.slot) {
            state.notes.of(trip.slot.index).ending = Some(Ending::Never);
        }
        state.let_go(&trip.lane, trip.slot);
    }
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
