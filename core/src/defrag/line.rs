//! What calls take that carry many units: so much each, and so much for each unit. Learnt from what they took.
#![forbid(unsafe_code)]

/// How much of a difference one observation corrects.
const LEARN: f64 = 0.25;

/// Nanoseconds for each call, and for each unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) each: f64,
    pub(super) unit: f64,
}

impl Line {
    /// Nanoseconds that calls with so many units together are expected to take.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) const fn of(&self, calls: u64, units: u64) -> f64 {
        calls as f64 * self.each + units as f64 * self.unit
    }

    /// Learns from calls that ended somewhere between two observations, in nanoseconds.
    ///
    /// Both rates are corrected by their share in the estimate: calls of few units teach what a call takes, those of many
    /// what a unit takes. Calls that were looked at late teach nothing that the estimate does not allow.
    pub(super) fn learn(&mut self, calls: u64, units: u64, earliest: f64, latest: f64) {
        let expected = self.of(calls, units);
        if calls == 0 || expected <= 0.0 {
            return;
        }
        let took = expected.max(earliest).min(latest.max(earliest)).max(1.0);
        let by_calls = self.of(calls, 0) / expected;
        // By factors: one that had to wait long, or to make something first, is soon forgotten.
        let correct = |rate: f64, share: f64| rate * (took / expected).powf(LEARN * share);
        self.each = correct(self.each, by_calls);
        self.unit = correct(self.unit, 1.0 - by_calls);
    }

    /// The same shape, so that it fits one observation.
    pub(super) fn through(&self, calls: u64, units: u64, took: f64) -> Self {
        let factor = took.max(1.0) / self.of(calls, units).max(1.0);
        Self { each: self.each * factor, unit: self.unit * factor }
    }

    /// Believes a little less in what it learnt.
    pub(super) fn doubt(&mut self, first: Self) {
        let doubt = |rate: f64, first: f64| rate - (rate - first).max(rate / 2.0) * LEARN;
        self.each = doubt(self.each, first.each);
        self.unit = doubt(self.unit, first.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_of_many_units_and_many_calls_of_one_are_told_apart() {
        let mut line = Line { each: 10.0, unit: 10.0 }.through(1, 1, 1001.0);
        for _ in 0..100 {
            // A microsecond each and a nanosecond for each unit.
            for (calls, units) in [(1, 1), (1, 5_000)] {
                let took = Line { each: 1000.0, unit: 1.0 }.of(calls, units);
                line.learn(calls, units, took, took);
            }
        }
        assert!(
            (line.each / 1000.0 - 1.0).abs() < 0.1 && (line.unit - 1.0).abs() < 0.1,
            "{line:?}"
        );
    }

    #[test]
    fn the_first_observation_is_believed() {
        let line = Line { each: 20.0, unit: 1.0 }.through(2, 10, 5000.0);
        assert!((line.of(2, 10) - 5000.0).abs() < 1e-6);
    }
}
