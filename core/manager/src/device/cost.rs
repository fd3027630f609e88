//! Costs of copies and remaps on one heap, learned from those that ran there.
#![forbid(unsafe_code)]
use crate::HeapId;
use crate::sync::Mutex;
use core::time::Duration;

/// The cost of copies before any was measured: 2 microseconds each, and 10 GB/s.
const COPYING: LinearCost = LinearCost { each: 2_000.0, unit: 0.1 };
/// The assumed ratio of the cost of a map or unmap call to that of each page, until several were measured.
const REMAPPING: LinearCost = LinearCost { each: 20_000.0, unit: 1_000.0 };
/// Host nanoseconds to submit a move: the first estimate, and the upper limit. A first submission may include one-time
/// setup.
const SUBMITTING: [f64; 2] = [300.0, 5_000.0];
/// The most by which one slow call may exceed the estimate before it is learned from; anything above is clipped.
const LONGEST_CALL: f64 = 4.0;
/// The fewest moves in a pass to learn the cost of submitting from. With fewer, the fixed cost of a pass dominates.
const TELLING: u64 = 32;
/// The part of an error that one observation corrects.
const LEARN: f64 = 0.25;
/// The part of an estimated wait that is forgotten each time it decided against copies. It is small, because a busy
/// device stays busy for a while and trying costs a wait.
const FORGET: f64 = 1.0 / 16.0;

/// The measured cost of moves on one heap; `None` where nothing was measured yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveCost {
    /// The heap.
    pub heap: HeapId,
    /// Fixed time of a copy.
    pub per_copy: Option<Duration>,
    /// Time to copy a mebibyte.
    pub per_mib: Option<Duration>,
    /// Fixed time of the calls that unmap the pages of a hole and map them elsewhere.
    pub per_remap: Option<Duration>,
    /// Time to unmap a page and map it elsewhere.
    pub per_page: Option<Duration>,
    /// Time to wait for the device before live data is slid together for a request.
    pub wait: Option<Duration>,
}

/// The cost of moves, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Per move and per byte.
    copying: LinearCost,
    /// Per move that the host submits.
    per_submitted: f64,
    /// True if any copy was measured.
    measured: bool,
    /// Per map call and per page.
    mapping: Option<LinearCost>,
    /// Per unmap call and per page.
    unmapping: Option<LinearCost>,
    /// Wait until the device is idle.
    waiting: Option<f64>,
}

impl Rates {
    pub(crate) const FIRST: Self = Self {
        copying: COPYING,
        per_submitted: SUBMITTING[0],
        measured: false,
        mapping: None,
        unmapping: None,
        waiting: None,
    };

    /// Estimated host nanoseconds to submit a move.
    pub(crate) const fn of_submitting(&self) -> f64 {
        self.per_submitted
    }

    /// Estimated nanoseconds until the device is idle; zero before the first wait.
    pub(crate) fn of_waiting(&self) -> f64 {
        self.waiting.unwrap_or(0.0)
    }

    /// As [`of`](Self::of); `None` before copies were measured.
    fn of_measured(&self, moves: u64, bytes: u64) -> Option<f64> {
        self.measured.then(|| self.of(moves, bytes))
    }

    /// Estimated nanoseconds to map the pages of some holes side by side; `None` before both ways were measured.
    pub(crate) fn of_remapping(&self, holes: u64, pages: u64) -> Option<f64> {
        Some(self.unmapping?.of(holes, pages) + self.mapping?.of(1, pages))
    }

    /// The measured cost, for reports.
    pub(crate) fn tell(&self, heap: HeapId) -> MoveCost {
        let time = |nanos: f64| Duration::from_secs_f64(nanos.max(0.0) * 1e-9);
        MoveCost {
            heap,
            per_copy: self.of_measured(1, 0).map(time),
            per_mib: self.of_measured(0, 1 << 20).map(time),
            per_remap: self.of_remapping(1, 0).map(time),
            per_page: self
                .of_remapping(0, 1)
                .zip(self.mapping)
                .map(|(all, map)| time(all - map.each)),
            wait: self.waiting.map(time),
        }
    }

    /// Estimated nanoseconds of moves.
    pub(crate) const fn of(&self, moves: u64, bytes: u64) -> f64 {
        self.copying.of(moves, bytes)
    }
}

/// The learned cost of moves on one heap.
#[derive(Debug)]
pub(crate) struct Cost(Mutex<Rates>);

impl Default for Cost {
    fn default() -> Self {
        Self(Mutex::new(Rates::FIRST))
    }
}

impl Cost {
    /// The current estimates.
    pub(crate) fn rates(&self) -> Rates {
        *self.0.lock()
    }

    #[cfg(test)]
    fn of(&self, moves: u64, bytes: u64) -> f64 {
        self.rates().of(moves, bytes)
    }

    /// Learns the host time of submitting moves.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn learn_submitting(&self, moves: u64, took: Duration) {
        if moves >= TELLING {
            let now = (took.as_secs_f64() * 1e9 / moves as f64).min(SUBMITTING[1]);
            let rate = &mut self.0.lock().per_submitted;
            *rate += (now - *rate) * LEARN;
        }
    }

    /// Learns the time of a wait for the device. A longer wait replaces the estimate at once.
    pub(crate) fn learn_waiting(&self, took: Duration) {
        let took = took.as_secs_f64() * 1e9;
        let known = &mut self.0.lock().waiting;
        *known = Some(known.map_or(took, |known| took.max(known + (took - known) * LEARN)));
    }

    /// Lowers the estimated wait a little, so that copies are tried again.
    pub(crate) fn doubt_waiting(&self) {
        if let Some(known) = &mut self.0.lock().waiting {
            *known -= *known * FORGET;
        }
    }

    /// Learns the time of a call that mapped pages.
    pub(crate) fn learn_mapping(&self, pages: u64, took: Duration) {
        learn_call(&mut self.0.lock().mapping, pages, took);
    }

    /// Learns the time of a call that unmapped pages.
    pub(crate) fn learn_unmapping(&self, pages: u64, took: Duration) {
        learn_call(&mut self.0.lock().unmapping, pages, took);
    }

    /// Lowers the estimated cost of copies a little, so that a budget that nothing fits any more is tried again.
    pub(crate) fn doubt(&self) {
        self.0.lock().copying.doubt(COPYING);
    }

    /// Learns from a pass that finished between two observations.
    pub(crate) fn learn(&self, moves: u64, bytes: u64, earliest: Duration, latest: Duration) {
        let mut rates = self.0.lock();
        let [earliest, latest] = [earliest, latest].map(|time| time.as_secs_f64() * 1e9);
        rates.copying.learn(moves, bytes, earliest, latest);
        rates.measured |= moves > 0;
    }
}

/// Learns the time of a call that mapped or unmapped pages.
fn learn_call(line: &mut Option<LinearCost>, pages: u64, took: Duration) {
    let took = took.as_secs_f64() * 1e9;
    match line {
        Some(line) => {
            // A preempted thread measures a long call.
            let took = took.min(line.of(1, pages) * LONGEST_CALL);
            line.learn(1, pages, took, took);
        }
        None => *line = Some(REMAPPING.through(1, pages, took)),
    }
}

/// A cost in nanoseconds: a fixed part for each call, and a part for each unit that it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearCost {
    pub(crate) each: f64,
    pub(crate) unit: f64,
}

impl LinearCost {
    /// Estimated nanoseconds of calls that carry `units` units together.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) const fn of(&self, calls: u64, units: u64) -> f64 {
        calls as f64 * self.each + units as f64 * self.unit
    }

    /// Learns from calls that finished between two observations, in nanoseconds.
    ///
    /// Both rates are corrected by their share in the estimate: calls of few units correct the fixed part, calls of many
    /// units the other. An estimate between the two observations is not corrected.
    pub(crate) fn learn(&mut self, calls: u64, units: u64, earliest: f64, latest: f64) {
        let expected = self.of(calls, units);
        if calls == 0 || expected <= 0.0 {
            return;
        }
        let took = expected.max(earliest).min(latest.max(earliest)).max(1.0);
        let by_calls = self.of(calls, 0) / expected;
        // By factors: one outlier is soon forgotten.
        let correct = |rate: f64, share: f64| rate * (took / expected).powf(LEARN * share);
        self.each = correct(self.each, by_calls);
        self.unit = correct(self.unit, 1.0 - by_calls);
    }

    /// Scales both parts to fit one observation.
    pub(crate) fn through(&self, calls: u64, units: u64, took: f64) -> Self {
        let factor = took.max(1.0) / self.of(calls, units).max(1.0);
        Self { each: self.each * factor, unit: self.unit * factor }
    }

    /// Moves the estimate a little back to the first one, or below.
    pub(crate) fn doubt(&mut self, first: Self) {
        let doubt = |rate: f64, first: f64| rate - (rate - first).max(rate / 2.0) * LEARN;
        self.each = doubt(self.each, first.each);
        self.unit = doubt(self.unit, first.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remapping_takes_is_known_once_both_ways_were_measured() {
        let cost = Cost::default();
        cost.learn_mapping(4, Duration::from_micros(24));
        assert_eq!(cost.rates().of_remapping(1, 10), None);
        cost.learn_unmapping(5, Duration::from_micros(50));
        let told = cost.rates().tell(HeapId(3));
        assert_eq!(told.per_remap, Some(Duration::from_micros(20 + 40)));
        assert_eq!(told.per_page, Some(Duration::from_micros(1 + 2)));
        assert_eq!(cost.rates().of_remapping(2, 10), Some(2.0 * 40e3 + 20e3 + 10.0 * 3e3));
    }

    #[test]
    fn many_pages_of_one_call_do_not_cost_what_one_does() {
        let cost = Cost::default();
        for _ in 0..50 {
            for pages in [1, 512] {
                // As on a device where a call takes fifty microseconds and each page a tenth of one.
                let took = Duration::from_nanos(50_000 + pages * 100);
                cost.learn_mapping(pages, took);
                cost.learn_unmapping(pages, took);
            }
        }
        let expected = cost.rates().of_remapping(1, 512).expect("measured");
        assert!((expected / 202_400.0 - 1.0).abs() < 0.1, "{expected}");
    }

    #[test]
    fn a_call_that_was_interrupted_is_soon_forgotten() {
        let cost = Cost::default();
        let usual = Duration::from_micros(20);
        let expected = |cost: &Cost| cost.rates().of_remapping(1, 1).expect("measured");
        (0..20).for_each(|_| cost.learn_mapping(1, usual));
        (0..20).for_each(|_| cost.learn_unmapping(1, usual));
        let before = expected(&cost);
        cost.learn_unmapping(1, usual * 10_000);
        assert!(expected(&cost) < before * 1.3, "{}", expected(&cost));
        (0..20).for_each(|_| cost.learn_unmapping(1, usual * 20));
        assert!(expected(&cost) > before * 8.0, "what lasts is believed: {}", expected(&cost));
    }

    #[test]
    fn what_passes_take_is_learnt() {
        let cost = Cost::default();
        for _ in 0..200 {
            // One microsecond a move and one nanosecond a byte, seen exactly.
            for (moves, bytes) in [(1000, 256_000), (1, 64 << 20)] {
                let took = Duration::from_nanos(moves * 1000 + bytes);
                cost.learn(moves, bytes, took, took);
            }
        }
        let close = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.1;
        assert!(close(cost.of(0, 1 << 20), 1_048_576.0), "{}", cost.of(0, 1 << 20));
        assert!(close(cost.of(1000, 0), 1_000_000.0), "{}", cost.of(1000, 0));
        let told = cost.rates().tell(HeapId(0));
        let nanos = |time: Option<Duration>| time.expect("measured").as_secs_f64() * 1e9;
        assert!(close(nanos(told.per_copy), 1000.0) && close(nanos(told.per_mib), 1_048_576.0));
    }

    #[test]
    fn each_part_is_corrected_by_its_share_alone() {
        let learned = |calls, units, took| {
            let mut line = LinearCost { each: 16.0, unit: 1.0 };
            line.learn(calls, units, took, took);
            (line.each, line.unit)
        };
        let quarter = 16_f64.powf(LEARN);
        assert_eq!(learned(1, 0, 256.0), (16.0 * quarter, 1.0), "no unit was carried");
        let (each, unit) = learned(1, 16, 512.0);
        let close = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        assert!(close(each, 16.0 * quarter.sqrt()) && close(unit, quarter.sqrt()), "half each");
    }

    #[test]
    fn what_became_too_dear_is_tried_again() {
        let cost = Cost::default();
        let slow = Duration::from_secs(9);
        (0..50).for_each(|_| cost.learn(1, 4096, slow, slow));
        assert!(cost.of(1, 4096) > 1e8);
        (0..100).for_each(|_| cost.doubt());
        assert!(cost.of(1, 4096) < 1e3, "{}", cost.of(1, 4096));
    }

    #[test]
    fn a_long_wait_is_believed_at_once_and_forgotten_slowly() {
        let cost = Cost::default();
        assert!(cost.rates().of_waiting() == 0.0 && cost.rates().tell(HeapId(0)).wait.is_none());
        for micros in [1, 8_000, 0] {
            cost.learn_waiting(Duration::from_micros(micros));
        }
        assert!((cost.rates().of_waiting() - 6e6).abs() < 1.0, "{}", cost.rates().of_waiting());
        (0..16).for_each(|_| cost.doubt_waiting());
        assert!(cost.rates().of_waiting() > 1e6);
        (0..200).for_each(|_| cost.doubt_waiting());
        assert!(cost.rates().of_waiting() < 1e3);
    }

    #[test]
    fn one_slow_submission_does_not_stop_the_next() {
        let cost = Cost::default();
        cost.learn_submitting(100, Duration::from_secs(1));
        assert!(cost.rates().of_submitting() < 2_000.0);
        cost.learn_submitting(TELLING - 1, Duration::from_secs(1));
        (0..50).for_each(|_| cost.learn_submitting(100, Duration::from_micros(10)));
        assert!((cost.rates().of_submitting() - 100.0).abs() < 1.0);
    }

    #[test]
    fn no_calls_teach_nothing_and_few_submissions_do() {
        let (cost, second) = (Cost::default(), Duration::from_secs(1));
        cost.learn(0, 0, second, second);
        assert_eq!(cost.rates().tell(HeapId(0)).per_copy, None, "no copy was measured");
        let mut line = LinearCost { each: 10.0, unit: 1.0 };
        line.learn(0, 100, 5000.0, 5000.0);
        assert!((line.of(1, 1) - 11.0).abs() < 1e-9, "{line:?}");
        cost.learn_submitting(TELLING, Duration::from_nanos(TELLING * 100));
        assert!((cost.rates().of_submitting() - 250.0).abs() < 1.0, "a quarter of the way");
    }

    #[test]
    fn a_late_look_teaches_nothing() {
        let cost = Cost::default();
        let before = cost.of(10, 1 << 20);
        cost.learn(10, 1 << 20, Duration::ZERO, Duration::from_secs(1));
        assert!((cost.of(10, 1 << 20) - before).abs() < 1e-6);
    }
}
