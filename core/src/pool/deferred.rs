//! Allocations that were freed but whose bytes other timelines still use.
#![forbid(unsafe_code)]
use super::slots::SlotId;
use crate::{Epoch, Point, TimelineId};
use alloc::vec::Vec;

/// One freed allocation, and the points that must pass before its bytes are reused.
#[derive(Debug)]
struct Waiting {
    id: SlotId,
    bytes: u64,
    points: Vec<Point>,
}

/// Freed allocations that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Deferred(Vec<Waiting>);

impl Deferred {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, id: SlotId, bytes: u64, points: Vec<Point>) {
        self.0.push(Waiting { id, bytes, points });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|waiting| waiting.bytes).sum()
    }

    /// Every point that something waits for, the latest of each timeline.
    pub(crate) fn latest(&self) -> Vec<Point> {
        let mut latest: Vec<Point> = Vec::new();
        for point in self.0.iter().flat_map(|waiting| &waiting.points) {
            match latest.iter_mut().find(|known| known.timeline == point.timeline) {
                Some(known) => known.epoch = known.epoch.max(point.epoch),
                None => latest.push(*point),
            }
        }
        latest
    }

    /// Takes out everything whose points are reached, of what `may` be; `reached` lists how far timelines have come.
    pub(crate) fn take_ready(
        &mut self,
        reached: &[(TimelineId, Epoch)],
        may: impl Fn(SlotId) -> bool,
    ) -> Vec<SlotId> {
        let passed = |point: &Point| {
            reached
                .iter()
                .any(|(timeline, epoch)| *timeline == point.timeline && *epoch >= point.epoch)
        };
        let is_ready = |waiting: &mut Waiting| {
            if !may(waiting.id) {
                return false;
            }
            waiting.points.retain(|point| !passed(point));
            waiting.points.is_empty()
        };
        let ready = self.0.extract_if(.., |waiting| is_ready(waiting));
        ready.map(|waiting| waiting.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_taken_stays_also_when_it_waits_for_nothing() {
        let id = |index| SlotId { index, generation: 1 };
        let point = Point { timeline: TimelineId(3), epoch: Epoch(5) };
        let mut deferred = Deferred::new();
        deferred.push(id(0), 10, Vec::new());
        deferred.push(id(1), 20, [point].into());
        deferred.push(id(2), 30, Vec::new());
        let reached = [(point.timeline, Epoch(5))];
        assert_eq!(deferred.take_ready(&reached, |_| false), []);
        assert_eq!(deferred.take_ready(&[], |one| one != id(0)), [id(2)]);
        assert_eq!(deferred.take_ready(&reached, |_| true), [id(0), id(1)]);
        assert!(deferred.is_empty());
    }
}
