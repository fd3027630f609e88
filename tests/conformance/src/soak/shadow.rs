//! Shadow of live spans, and of freed spans with work still to come, by block and offset: too simple to be wrong.
use omniheap_core::{Epoch, Point, Span, TimelineId};
use std::collections::BTreeMap;

/// A block and an offset in it.
type Place = (u64, u64);

/// The oracle: no two live spans overlap, and no span is handed out before every earlier use is ordered before.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    live: BTreeMap<Place, u64>,
    /// Freed spans: where they end, and the points that their last uses end at.
    freed: BTreeMap<Place, (u64, Vec<Point>)>,
    /// Epoch of another timeline that later work of one runs after: by the one and the other.
    after: BTreeMap<(TimelineId, TimelineId), Epoch>,
}

/// The entries of a map that overlap a span.
fn overlapping<T>(
    map: &BTreeMap<Place, T>,
    block: u64,
    span: Span,
    end: impl Fn(&T) -> u64,
) -> Vec<Place> {
    let before = map.range((block, 0)..(block, span.offset)).next_back();
    let inside = map.range((block, span.offset)..(block, span.end()));
    let touching = before.filter(|(_, value)| end(value) > span.offset);
    touching.into_iter().chain(inside).map(|(place, _)| *place).collect()
}

impl Shadow {
    /// Notes that a timeline runs after a point, and so after everything that the point's timeline runs after.
    pub(super) fn order(&mut self, timeline: TimelineId, point: Point) {
        let of = |other: &TimelineId| (*other, TimelineId(0))..=(*other, TimelineId(u32::MAX));
        let theirs: Vec<_> = self
            .after
            .range(of(&point.timeline))
            .map(|((_, other), epoch)| (*other, *epoch))
            .collect();
        for (other, epoch) in theirs.into_iter().chain([(point.timeline, point.epoch)]) {
            let known = self.after.entry((timeline, other)).or_default();
            *known = epoch.max(*known);
        }
    }

    fn is_after(&self, timeline: Option<TimelineId>, point: &Point) -> bool {
        let known = timeline.and_then(|timeline| self.after.get(&(timeline, point.timeline)));
        known.is_some_and(|epoch| *epoch >= point.epoch)
    }

    /// Notes that a span was handed out to be used on `on`; `None` is the host, at once.
    pub(super) fn hand_out(
        &mut self,
        block: u64,
        span: Span,
        on: Option<TimelineId>,
        reached: impl Fn(TimelineId) -> Option<Epoch>,
    ) -> Result<(), String> {
        if let Some(other) = overlapping(&self.live, block, span, |end| *end).first() {
            return Err(format!("{span:?} of block {block} overlaps the live span at {}", other.1));
        }
        for place in overlapping(&self.freed, block, span, |(end, _)| *end) {
            let (_, points) = &self.freed[&place];
            let early = points.iter().find(|point| {
                on != Some(point.timeline)
                    && !self.is_after(on, point)
                    && reached(point.timeline).is_some_and(|now| now < point.epoch)
            });
            if let Some(point) = early {
                return Err(format!(
                    "{span:?} of block {block} is handed out to {on:?} before {point:?}"
                ));
            }
            self.forget(place, span);
        }
        self.live.insert((block, span.offset), span.end());
        Ok(())
    }

    /// Cuts a span out of a freed one; what is left of it keeps its points.
    fn forget(&mut self, place: Place, span: Span) {
        let Some((end, points)) = self.freed.remove(&place) else { return };
        if place.1 < span.offset {
            self.freed.insert(place, (span.offset, points.clone()));
        }
        if end > span.end() {
            self.freed.insert((place.0, span.end()), (end, points));
        }
    }

    /// Notes that a span was freed, and where its last uses end.
    pub(super) fn free(&mut self, block: u64, span: Span, points: Vec<Point>) {
        self.live.remove(&(block, span.offset));
        if !points.is_empty() {
            self.freed.insert((block, span.offset), (span.end(), points));
        }
    }

    /// Forgets freed spans whose points were all reached, so that the map stays small.
    pub(super) fn tidy(&mut self, reached: impl Fn(TimelineId) -> Option<Epoch>) {
        self.freed.retain(|_, (_, points)| {
            points.iter().any(|point| reached(point.timeline).is_some_and(|now| now < point.epoch))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: TimelineId = TimelineId(1);

    fn span(offset: u64, size: u64) -> Span {
        Span { offset, size }
    }

    #[test]
    fn overlaps_are_found_from_both_sides() {
        let mut shadow = Shadow::default();
        let reached = |_| Some(Epoch(9));
        shadow.hand_out(1, span(100, 50), None, reached).expect("empty");
        for (offset, size) in [(100, 50), (90, 11), (149, 1), (0, 500), (120, 5)] {
            assert!(shadow.hand_out(1, span(offset, size), None, reached).is_err(), "{offset}");
        }
        shadow.hand_out(1, span(150, 50), None, reached).expect("beside");
        shadow.hand_out(2, span(100, 50), None, reached).expect("another block");
    }

    #[test]
    fn early_reuse_is_found_and_ordered_reuse_is_not() {
        let used = || {
            let mut shadow = Shadow::default();
            shadow.hand_out(1, span(0, 100), Some(LINE), |_| Some(Epoch(0))).expect("empty");
            shadow.free(1, span(0, 100), vec![Point { timeline: LINE, epoch: Epoch(5) }]);
            shadow
        };
        let at = |epoch| move |_| Some(Epoch(epoch));
        assert!(
            used().hand_out(1, span(50, 10), None, at(4)).is_err(),
            "the work is still to come"
        );
        assert!(used().hand_out(1, span(50, 10), Some(TimelineId(2)), at(4)).is_err());
        used().hand_out(1, span(50, 10), Some(LINE), at(4)).expect("its own order");
        used().hand_out(1, span(50, 10), None, at(5)).expect("it has passed");
        let two = TimelineId(2);
        let mut ordered = used();
        ordered.order(two, Point { timeline: LINE, epoch: Epoch(4) });
        assert!(ordered.hand_out(1, span(50, 10), Some(two), at(4)).is_err(), "too early");
        ordered.order(two, Point { timeline: LINE, epoch: Epoch(5) });
        ordered.order(TimelineId(3), Point { timeline: two, epoch: Epoch(1) });
        ordered.hand_out(1, span(50, 10), Some(two), at(4)).expect("it runs after the work");
        ordered.hand_out(1, span(60, 10), Some(TimelineId(3)), at(4)).expect("after one that does");
        assert!(ordered.hand_out(1, span(70, 10), None, at(4)).is_err(), "the host does not");
        let mut part = used();
        part.hand_out(1, span(50, 10), Some(LINE), at(4)).expect("its own order");
        assert!(part.hand_out(1, span(60, 10), None, at(4)).is_err(), "the rest still waits");
        assert!(part.hand_out(1, span(40, 10), None, at(4)).is_err(), "on both sides");
    }
}
