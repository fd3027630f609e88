//! How passes end: places are shown, and what is empty goes back.
#![forbid(unsafe_code)]
use super::book::TOGETHER;
use super::ledger::{Moved, Outcome};
use super::trip::{Copied, Fate, Trip, Verdict};
use crate::pool::{Ending, Lane, Patience};
use crate::{Backend, Result};
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
            state.notes.set_ending(trip.slot.index, Ending::Never);
        }
        state.let_go(trip.slot);
    }
}

impl<B: Backend> Lane<B> {
    /// Returns what is empty, and adds it to the sums.
    pub(crate) fn give_back_empty(&self, moved: &mut Moved) -> Result<()> {
        self.settle(Patience::Look)?;
        let blocks = self.shared.device.blocks();
        let bytes = self.trim_blocks();
        moved.returned_blocks += blocks.saturating_sub(self.shared.device.blocks());
        let pages = self.trim_pages()?;
        moved.returned_bytes += bytes + pages;
        moved.remapped_bytes += pages;
        Ok(())
    }
}
