//! The choices as rows: bytes of each moment and of the copy engines, and how each option changes them.

use super::segments::{Segments, room, signed};
use super::{Case, Choice};
use crate::Interval;
use crate::model::Model;
use alloc::vec::Vec;

/// Bytes that an option adds to rows `start..end`; negative for those that it frees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) bytes: i64,
}

/// One choice for an activation.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub(super) choice: Choice,
    pub(super) cost: u64,
    pub(super) parts: Vec<Part>,
}

impl Pick {
    /// Returns what it adds to a row.
    pub(super) fn at(&self, row: usize) -> i64 {
        let here = |part: &&Part| part.start <= row && row < part.end;
        self.parts.iter().filter(here).map(|part| part.bytes).sum()
    }
}

/// Independent choices under limits: what is added to each row may not pass its room.
pub(super) struct Rows {
    /// Per activation: keeping it, which adds nothing and costs nothing, and then what else there is.
    pub(super) picks: Vec<Vec<Pick>>,
    /// Negative where what is kept passes the capacity.
    pub(super) room: Vec<i64>,
    /// The first rows are sections of time; these are their first ticks.
    ticks: Vec<u64>,
    /// The fullest tick of each section.
    fullest: Vec<u64>,
}

/// Moments at which each copy engine is looked at, at most.
const MOMENTS: usize = 24;

impl Rows {
    /// Makes the rows for one way to cut the forward pass.
    pub(super) fn new(case: &Case<'_>, model: &Model, segments: &Segments, capacity: u64) -> Self {
        let spans = segments.recomputed.iter().chain(&segments.moved).flatten();
        let mut ticks: Vec<u64> = spans.flat_map(|span| [span.start, span.end]).collect();
        ticks.push(0);
        ticks.sort_unstable();
        ticks.dedup();
        let (room, fullest) = room(model, &ticks, capacity);
        let mut rows = Self { picks: Vec::new(), room, ticks, fullest };
        let engines = Engines::new(case, segments, &mut rows.room);
        for index in 0..case.activations.len() {
            let picks = rows.picks_of(case, segments, &engines, index);
            rows.picks.push(picks);
        }
        rows
    }

    /// Rows for given picks and capacities, for tests.
    #[cfg(test)]
    pub(super) fn of(picks: Vec<Vec<Pick>>, room: Vec<i64>) -> Self {
        Self {
            picks,
            ticks: (0..room.len() as u64).collect(),
            fullest: alloc::vec![0; room.len()],
            room,
        }
    }

    fn picks_of(
        &self,
        case: &Case<'_>,
        segments: &Segments,
        engines: &Engines,
        index: usize,
    ) -> Vec<Pick> {
        let (each, bytes) = (&case.activations[index], signed(case.size(index)));
        let mut picks = alloc::vec![Pick { choice: Choice::Keep, cost: 0, parts: Vec::new() }];
        if let (Some(span), Some(made)) = (segments.recomputed[index], &each.recompute) {
            let parts = alloc::vec![self.freed(span, bytes)];
            picks.push(Pick { choice: Choice::Recompute, cost: made.cost, parts });
        }
        if let (Some(span), Some(cost)) = (segments.moved[index], each.move_cost) {
            let mut parts = alloc::vec![self.freed(span, bytes)];
            parts.extend(engines.parts(copied(case, index, span), bytes));
            picks.push(Pick { choice: Choice::Move, cost, parts });
        }
        picks
    }

    fn freed(&self, span: Interval, bytes: i64) -> Part {
        let row = |tick: u64| self.ticks.partition_point(|&t| t < tick);
        Part { start: row(span.start), end: row(span.end), bytes: -bytes }
    }

    /// Returns a tick at which nothing fits, and by how many bytes: each activation takes what frees most there.
    pub(super) fn floor(&self) -> Option<(u64, u64)> {
        let mut change = alloc::vec![0i64; self.room.len() + 1];
        for picks in &self.picks {
            // One span lies inside of the other or is equal: together they are what can be freed.
            let freed = picks.iter().flat_map(|pick| &pick.parts).filter(|part| part.bytes < 0);
            let hull = freed.clone().map(|p| p.start).min().zip(freed.clone().map(|p| p.end).max());
            if let (Some((start, end)), Some(part)) = (hull, freed.clone().next()) {
                change[start] -= part.bytes;
                change[end] += part.bytes;
            }
        }
        let mut freed = 0;
        let lacking = (0..self.ticks.len()).map(|row| {
            freed += change[row];
            (-(self.room[row] + freed), row)
        });
        let (lack, row) = lacking.max()?;
        u64::try_from(lack).ok().filter(|&lack| lack > 0).map(|lack| (self.fullest[row], lack))
    }

    /// Lets moves cost nothing.
    pub(super) fn free_moves(&mut self) {
        let picks = self.picks.iter_mut().flatten();
        picks.filter(|pick| pick.choice == Choice::Move).for_each(|pick| pick.cost = 0);
    }

    /// Returns the choices that stand for some picks.
    pub(super) fn choices(&self, picked: &[usize]) -> Vec<Choice> {
        self.picks.iter().zip(picked).map(|(picks, &pick)| picks[pick].choice).collect()
    }

    /// Returns the room that some picks leave in each row.
    pub(super) fn slack(&self, picked: &[usize]) -> Vec<i64> {
        let mut change = alloc::vec![0i64; self.room.len() + 1];
        for (picks, &pick) in self.picks.iter().zip(picked) {
            for part in &picks[pick].parts {
                change[part.start] += part.bytes;
                change[part.end] -= part.bytes;
            }
        }
        let mut sum = 0;
        let mut slack = Vec::with_capacity(self.room.len());
        for (room, change) in self.room.iter().zip(&change) {
            sum += change;
            slack.push(room - sum);
        }
        slack
    }
}

/// The rows of the copy engines: by the turn all that began to leave after a moment has left; by a moment all that is needed
/// then has returned.
///
/// Copies are late by a part of the pass at most: only some moments have a row.
struct Engines {
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// The first row.
    base: usize,
}

impl Engines {
    fn new(case: &Case<'_>, segments: &Segments, room: &mut Vec<i64>) -> Self {
        let base = room.len();
        let copies = (0..segments.moved.len())
            .filter_map(|index| segments.moved[index].map(|span| copied(case, index, span)));
        let (mut starts, mut ends): (Vec<u64>, Vec<u64>) =
            copies.map(|copied| (copied.start, copied.end)).unzip();
        for ticks in [&mut starts, &mut ends] {
            ticks.sort_unstable();
            ticks.dedup();
            let step = ticks.len().div_ceil(MOMENTS).max(1);
            *ticks = ticks.iter().copied().step_by(step).collect();
        }
        if let Some(copies) = case.copies {
            let bytes = |ticks: u64| signed(ticks.saturating_mul(copies.bytes_per_tick));
            room.extend(starts.iter().map(|&start| bytes(copies.turn.saturating_sub(start))));
            room.extend(ends.iter().map(|&end| bytes(end.saturating_sub(copies.turn))));
        }
        Self { starts, ends, base }
    }

    /// Returns what a copy out and a copy back add, for the span from the beginning of one to the end of the other.
    fn parts(&self, copied: Interval, bytes: i64) -> [Part; 2] {
        // All moments up to the start of the copy count it: what leaves later has less time.
        let start = self.starts.partition_point(|&t| t <= copied.start);
        let end = self.ends.partition_point(|&t| t < copied.end);
        let returns = self.base + self.starts.len();
        [
            Part { start: self.base, end: self.base + start, bytes },
            Part { start: returns + end, end: returns + self.ends.len(), bytes },
        ]
    }
}

/// Returns the time from the beginning of the copy out to the end of the copy back.
fn copied(case: &Case<'_>, index: usize, away: Interval) -> Interval {
    let copy = case.copy_ticks(index);
    Interval::new(away.start - copy, away.end + copy)
}

#[cfg(test)]
mod tests;
