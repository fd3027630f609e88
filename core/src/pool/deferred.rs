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
        let mine = self.0.iter_mut().filter(|waiting| may(waiting.id));
        mine.for_each(|waiting| waiting.points.retain(|point| !passed(point)));
        self.0
            .extract_if(.., |waiting| waiting.points.is_empty())
            .map(|waiting| waiting.id)
            .collect()
    }
}
