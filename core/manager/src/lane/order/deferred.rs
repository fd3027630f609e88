//! Freed allocations that wait for their timelines.
#![forbid(unsafe_code)]
use crate::lane::extra::{Origin, SlotId};
use crate::{Epoch, Point, TimelineId};
use alloc::{collections::BTreeMap, vec::Vec};

/// One freed allocation, and the points that must pass before its bytes are reused.
#[derive(Debug)]
pub(in crate::lane) struct DeferredFree {
    pub(in crate::lane) id: SlotId,
    pub(super) bytes: u64,
    pub(in crate::lane) points: Vec<Point>,
    pub(super) origin: Origin,
}

/// Place in the queue of an allocation that waits: an epoch of a timeline, behind those that came before it.
type Place = (TimelineId, Epoch, u64);

/// Freed allocations that wait, each for one of its points at a time: what has passed is found without a look at the rest.
#[derive(Debug)]
pub(super) struct Deferred {
    waiting: BTreeMap<Place, DeferredFree>,
    /// Allocations that wait for nothing any more, by their number.
    ready: BTreeMap<u64, DeferredFree>,
    bytes: u64,
    next: u64,
}

impl Deferred {
    pub(super) const fn new() -> Self {
        Self { waiting: BTreeMap::new(), ready: BTreeMap::new(), bytes: 0, next: 0 }
    }

    pub(super) fn push(&mut self, waiting: DeferredFree) {
        let number = self.next;
        self.next += 1;
        self.bytes += waiting.bytes;
        self.put(number, waiting);
    }

    fn put(&mut self, number: u64, mut waiting: DeferredFree) {
        match waiting.points.pop() {
            Some(Point { timeline, epoch }) => {
                self.waiting.insert((timeline, epoch, number), waiting);
            }
            None => {
                self.ready.insert(number, waiting);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    /// Bytes that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latest point of each timeline that something waits for now; when it has passed, there may be others.
    pub(super) fn latest(&self) -> Vec<Point> {
        let mut latest = Vec::new();
        let mut from = Some(TimelineId(0));
        while let Some(first) = from {
            let mut later = self.waiting.range((first, Epoch(0), 0)..);
            let Some(((timeline, ..), _)) = later.next() else { break };
            let all = (*timeline, Epoch(0), 0)..=(*timeline, Epoch(u64::MAX), u64::MAX);
            let last = self.waiting.range(all).next_back();
            latest.extend(
                last.map(|((timeline, epoch, _), _)| Point { timeline: *timeline, epoch: *epoch }),
            );
            from = timeline.0.checked_add(1).map(TimelineId);
        }
        latest
    }

    /// Takes out everything whose points are reached, of what `may` be; `reached` lists how far timelines have come.
    pub(super) fn take_ready(
        &mut self,
        reached: &[(TimelineId, Epoch)],
        may: impl Fn(SlotId) -> bool,
    ) -> Vec<SlotId> {
        let mut moved = true;
        while moved {
            moved = false;
            for (timeline, epoch) in reached {
                let passed = (*timeline, Epoch(0), 0)..=(*timeline, *epoch, u64::MAX);
                for ((_, _, number), waiting) in
                    self.waiting.extract_if(passed, |_, _| true).collect::<Vec<_>>()
                {
                    moved |= !waiting.points.is_empty();
                    self.put(number, waiting);
                }
            }
        }
        let bytes = &mut self.bytes;
        let ready = self.ready.extract_if(.., |_, waiting| may(waiting.id));
        ready
            .map(|(_, waiting)| {
                *bytes -= waiting.bytes;
                waiting.id
            })
            .collect()
    }

    /// Takes out everything whose points were all marked, of what `may` be, with the points that are left.
    pub(super) fn take_marked(&mut self, may: impl Fn(SlotId) -> bool) -> Vec<DeferredFree> {
        let taken = |waiting: &DeferredFree| waiting.origin == Origin::Marked && may(waiting.id);
        let mut found = Vec::new();
        for ((timeline, epoch, _), mut waiting) in self.waiting.extract_if(.., |_, one| taken(one))
        {
            self.bytes -= waiting.bytes;
            waiting.points.push(Point { timeline, epoch });
            found.push(waiting);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Origin::Marked;
    use super::*;

    const fn id(index: u32) -> SlotId {
        SlotId { index, generation: 1 }
    }

    const fn point(timeline: u32, epoch: u64) -> Point {
        Point { timeline: TimelineId(timeline), epoch: Epoch(epoch) }
    }

    fn free(index: u32, bytes: u64, points: impl Into<Vec<Point>>) -> DeferredFree {
        DeferredFree { id: id(index), bytes, points: points.into(), origin: Marked }
    }

    #[test]
    fn what_may_not_be_taken_stays_also_when_it_waits_for_nothing() {
        let mut deferred = Deferred::new();
        deferred.push(free(0, 10, []));
        deferred.push(free(1, 20, [point(3, 5)]));
        deferred.push(free(2, 30, []));
        let reached = [(TimelineId(3), Epoch(5))];
        assert_eq!(deferred.take_ready(&reached, |_| false), []);
        assert_eq!(deferred.take_ready(&[], |one| one != id(0)), [id(1), id(2)]);
        assert_eq!((deferred.bytes(), deferred.is_empty()), (10, false));
        assert_eq!(deferred.take_ready(&reached, |_| true), [id(0)]);
        assert_eq!((deferred.bytes(), deferred.is_empty()), (0, true));
    }

    #[test]
    fn what_was_taken_out_in_vain_waits_as_before() {
        let mut deferred = Deferred::new();
        deferred.push(free(0, 10, [point(1, 4), point(2, 9)]));
        let before = deferred.latest();
        for waiting in deferred.take_marked(|_| true) {
            deferred.push(waiting);
        }
        assert_eq!((deferred.bytes(), deferred.latest()), (10, before));
        assert_eq!(deferred.take_ready(&[(TimelineId(2), Epoch(9))], |_| true), []);
        assert_eq!(deferred.take_ready(&[(TimelineId(1), Epoch(4))], |_| true), [id(0)]);
    }

    #[test]
    fn every_point_has_to_pass_in_any_order() {
        let mut deferred = Deferred::new();
        deferred.push(free(0, 1, [point(1, 4), point(2, 9)]));
        deferred.push(free(1, 1, [point(2, u64::MAX)]));
        deferred.push(free(2, 1, [point(2, 3)]));
        assert_eq!(deferred.latest(), [point(2, u64::MAX)]);
        assert_eq!(deferred.take_ready(&[(TimelineId(1), Epoch(4))], |_| true), []);
        assert_eq!(deferred.take_ready(&[(TimelineId(2), Epoch(8))], |_| true), [id(2)]);
        let both = [(TimelineId(1), Epoch(3)), (TimelineId(2), Epoch(9))];
        assert_eq!(deferred.take_ready(&both, |_| true), []);
        assert_eq!(deferred.latest(), [point(1, 4), point(2, u64::MAX)]);
        assert_eq!(deferred.take_ready(&[(TimelineId(1), Epoch(4))], |_| true), [id(0)]);
        assert_eq!(deferred.bytes(), 1);
    }
}
