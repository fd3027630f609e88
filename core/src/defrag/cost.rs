//! What moves take on one heap, learnt from the copies and remaps that ran there.
#![forbid(unsafe_code)]
use crate::HeapId;
use crate::sync::Mutex;
use core::time::Duration;

/// Nanoseconds for each move before anything was measured.
const FIRST_PER_MOVE: f64 = 2_000.0;
/// Nanoseconds for each byte before anything was measured: ten gigabytes a second.
const FIRST_PER_BYTE: f64 = 0.1;
/// Nanoseconds on the host for submitting each move, before anything was measured and at most: a first submission may
/// pay for what is made once.
const SUBMITTING: [f64; 2] = [300.0, 5_000.0];
/// Moves of a pass that say what submitting one takes: with fewer, what every pass takes hides it.
const TELLING: u64 = 32;
/// How much of a difference one observation corrects.
const LEARN: f64 = 0.25;

/// What moving takes on one heap, as measured so far: `None` where nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveCost {
    /// The heap.
    pub heap: HeapId,
    /// Each copy, besides its bytes.
    pub per_copy: Option<Duration>,
    /// Each mebibyte copied.
    pub per_mib: Option<Duration>,
    /// Each page unmapped and mapped elsewhere.
    pub per_page: Option<Duration>,
}

/// What moves take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    per_move: f64,
    per_byte: f64,
    /// Each move that the host submits.
    per_submitted: f64,
    /// Whether copies were measured at all.
    measured: bool,
    /// Each page that is mapped, and each that is unmapped.
    per_mapped: Option<f64>,
    per_unmapped: Option<f64>,
}

impl Rates {
    pub(super) const FIRST: Self = Self {
        per_move: FIRST_PER_MOVE,
        per_byte: FIRST_PER_BYTE,
        per_submitted: SUBMITTING[0],
        measured: false,
        per_mapped: None,
        per_unmapped: None,
    };

    /// Nanoseconds on the host that submitting a move is expected to take.
    pub(super) const fn of_submitting(&self) -> f64 {
        self.per_submitted
    }

    /// As [`of`](Self::of), where copies were measured.
    pub(crate) fn of_measured(&self, moves: u64, bytes: u64) -> Option<f64> {
        self.measured.then(|| self.of(moves, bytes))
    }

    /// Nanoseconds that remapping pages is expected to take, where that was measured.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn of_pages(&self, pages: u64) -> Option<f64> {
        Some(pages as f64 * (self.per_mapped? + self.per_unmapped?))
    }

    /// For reports.
    pub(crate) fn tell(&self, heap: HeapId) -> MoveCost {
        let time = |nanos: f64| Duration::from_secs_f64(nanos.max(0.0) * 1e-9);
        MoveCost {
            heap,
            per_copy: self.of_measured(1, 0).map(time),
            per_mib: self.of_measured(0, 1 << 20).map(time),
            per_page: self.of_pages(1).map(time),
        }
    }

    /// Nanoseconds that moves are expected to take.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn of(&self, moves: u64, bytes: u64) -> f64 {
        moves as f64 * self.per_move + bytes as f64 * self.per_byte
    }
}

/// What moves take on one heap.
#[derive(Debug)]
pub(crate) struct Cost(Mutex<Rates>);

impl Default for Cost {
    fn default() -> Self {
        Self(Mutex::new(Rates::FIRST))
    }
}

impl Cost {
    /// What moves are known to take now.
    pub(crate) fn rates(&self) -> Rates {
        *self.0.lock()
    }

    #[cfg(test)]
    fn of(&self, moves: u64, bytes: u64) -> f64 {
        self.rates().of(moves, bytes)
    }

    /// Learns what submitting moves took on the host.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn learn_submitting(&self, moves: u64, took: Duration) {
        if moves >= TELLING {
            let now = (took.as_secs_f64() * 1e9 / moves as f64).min(SUBMITTING[1]);
            let rate = &mut self.0.lock().per_submitted;
            *rate += (now - *rate) * LEARN;
        }
    }

    /// Learns what mapping pages took.
    pub(crate) fn learn_mapping(&self, pages: u64, took: Duration) {
        blend(&mut self.0.lock().per_mapped, pages, took);
    }

    /// Learns what unmapping pages took.
    pub(crate) fn learn_unmapping(&self, pages: u64, took: Duration) {
        blend(&mut self.0.lock().per_unmapped, pages, took);
    }

    /// Believes a little less in what it learnt: for a budget that nothing fits any more, so that it tries again.
    pub(crate) fn doubt(&self) {
        let mut rates = self.0.lock();
        let doubt = |rate: f64, first: f64| rate - (rate - first).max(rate / 2.0) * LEARN;
        rates.per_move = doubt(rates.per_move, FIRST_PER_MOVE);
        rates.per_byte = doubt(rates.per_byte, FIRST_PER_BYTE);
    }

    /// Learns from a pass that ended somewhere between two observations.
    ///
    /// Both rates are corrected by their share in the estimate: a pass of small moves teaches what a move takes, one of
    /// large moves what a byte takes. A pass that was looked at late teaches nothing that the estimate does not allow.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn learn(&self, moves: u64, bytes: u64, earliest: Duration, latest: Duration) {
        let mut rates = self.0.lock();
        let expected = rates.of(moves, bytes);
        if moves == 0 || expected <= 0.0 {
            return;
        }
        let (low, high) = (earliest.as_secs_f64() * 1e9, latest.as_secs_f64() * 1e9);
        let took = expected.max(low).min(high.max(low)).max(1.0);
        let by_moves = moves as f64 * rates.per_move / expected;
        // By factors: one pass that had to wait long, or to make something first, is soon forgotten.
        let correct = |rate: f64, share: f64| rate * (took / expected).powf(LEARN * share);
        rates.measured = true;
        rates.per_move = correct(rates.per_move, by_moves);
        rates.per_byte = correct(rates.per_byte, 1.0 - by_moves);
    }
}

/// Corrects what one page takes.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn blend(rate: &mut Option<f64>, pages: u64, took: Duration) {
    let now = took.as_secs_f64() * 1e9 / pages.max(1) as f64;
    *rate = Some(rate.map_or(now, |known| known + (now - known) * LEARN));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_takes_is_known_once_both_ways_were_measured() {
        let cost = Cost::default();
        cost.learn_mapping(4, Duration::from_nanos(400));
        assert_eq!(cost.rates().of_pages(10), None);
        cost.learn_unmapping(2, Duration::from_nanos(40));
        assert_eq!(cost.rates().of_pages(10), Some(1200.0));
        cost.learn_mapping(1, Duration::from_nanos(500));
        assert_eq!(cost.rates().of_pages(10), Some(2200.0), "a quarter of the difference");
        assert_eq!(cost.rates().tell(HeapId(3)).per_page, Some(Duration::from_nanos(220)));
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
    fn one_slow_submission_does_not_stop_the_next() {
        let cost = Cost::default();
        cost.learn_submitting(100, Duration::from_secs(1));
        assert!(cost.rates().of_submitting() < 2_000.0);
        cost.learn_submitting(TELLING - 1, Duration::from_secs(1));
        (0..50).for_each(|_| cost.learn_submitting(100, Duration::from_micros(10)));
        assert!((cost.rates().of_submitting() - 100.0).abs() < 1.0);
    }

    #[test]
    fn a_late_look_teaches_nothing() {
        let cost = Cost::default();
        let before = cost.of(10, 1 << 20);
        cost.learn(10, 1 << 20, Duration::ZERO, Duration::from_secs(1));
        assert!((cost.of(10, 1 << 20) - before).abs() < 1e-6);
    }
}
