//! What moves take on one heap, learnt from the passes that ran there.
#![forbid(unsafe_code)]
use crate::sync::Mutex;
use core::time::Duration;

/// Nanoseconds for each move before anything was measured.
const FIRST_PER_MOVE: f64 = 2_000.0;
/// Nanoseconds for each byte before anything was measured: ten gigabytes a second.
const FIRST_PER_BYTE: f64 = 0.1;
/// How much of a difference one observation corrects.
const LEARN: f64 = 0.25;

/// What moves take, in nanoseconds: so much each, and so much for each byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    per_move: f64,
    per_byte: f64,
}

impl Rates {
    pub(super) const FIRST: Self = Self { per_move: FIRST_PER_MOVE, per_byte: FIRST_PER_BYTE };

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

    /// Believes a little less in what it learnt: for a budget that nothing fits any more, so that it tries again.
    pub(super) fn doubt(&self) {
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
    pub(super) fn learn(&self, moves: u64, bytes: u64, earliest: Duration, latest: Duration) {
        let mut rates = self.0.lock();
        let expected = rates.of(moves, bytes);
        if moves == 0 || expected <= 0.0 {
            return;
        }
        let (low, high) = (earliest.as_secs_f64() * 1e9, latest.as_secs_f64() * 1e9);
        let took = expected.max(low).min(high.max(low)).max(1.0);
        let by_moves = moves as f64 * rates.per_move / expected;
        let correct =
            |rate: f64, share: f64| rate * (1.0 + LEARN * share * (took / expected - 1.0));
        rates.per_move = correct(rates.per_move, by_moves);
        rates.per_byte = correct(rates.per_byte, 1.0 - by_moves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_late_look_teaches_nothing() {
        let cost = Cost::default();
        let before = cost.of(10, 1 << 20);
        cost.learn(10, 1 << 20, Duration::ZERO, Duration::from_secs(1));
        assert!((cost.of(10, 1 << 20) - before).abs() < 1e-6);
    }
}
