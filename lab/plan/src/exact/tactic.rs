//! Tactic of one search run: which section next, which item first.

use super::frame::{Frame, Run};
use crate::model::id;
use crate::rng::Rng;
use alloc::vec::Vec;

/// Rule that picks the next section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one with fewest items to choose from, then the tightest.
    Few,
    /// The lowest, then the tightest.
    Low,
    /// The lowest, then the one with fewest items to choose from.
    LowFew,
    /// One close to the last item placed and with few items to choose from.
    Near,
}

/// Order of candidate items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// Items that live longest.
    Life,
    /// Items that take most bytes times ticks.
    Area,
    /// Items that meet most sections.
    Width,
    /// Items that meet a high load, and then those that live longest.
    Load,
}

/// The decisions of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tactic {
    pub(crate) pick: Pick,
    pub(crate) prefer: Prefer,
    /// Weight of the waste that a choice causes; 0 skips looking ahead.
    pub(crate) look: f64,
    /// Random noise in preferences, 0 for none.
    pub(crate) noise: f64,
}

const PICKS: [(Pick, f64); 4] =
    [(Pick::Few, 100.0), (Pick::Low, 0.0), (Pick::LowFew, 0.0), (Pick::Near, 0.0)];
const PREFERS: [Prefer; 4] = [Prefer::Life, Prefer::Area, Prefer::Load, Prefer::Width];

impl Tactic {
    /// Returns the frame of the `run`-th run, alternating so that every tactic sees both.
    pub(crate) const fn frame(run: usize) -> usize {
        (run + run / PICKS.len()) % 2
    }

    /// Returns the tactic of the `run`-th run: every combination once without noise, then again with it.
    pub(crate) const fn nth(run: usize) -> Self {
        let (pick, look) = PICKS[run % PICKS.len()];
        let prefer = PREFERS[run / PICKS.len() % PREFERS.len()];
        let noise = if run < PICKS.len() * 2 { 0.0 } else { 0.7 };
        Self { pick, prefer, look, noise }
    }

    /// Returns the score of every item; higher comes first.
    #[expect(clippy::cast_precision_loss, reason = "scores only order branches")]
    pub(crate) fn scores(self, frame: &Frame, rng: &mut Rng) -> Vec<f64> {
        let most = frame.load.iter().copied().max().unwrap_or(1).max(1) as f64;
        (0..frame.len())
            .map(|i| {
                let (mut life, mut width, mut peak) = (0.0, 0.0, 0.0f64);
                for s in frame.runs(id(i)).iter().flat_map(Run::sections) {
                    life += frame.share[s];
                    width += 1.0;
                    peak = peak.max(frame.load[s] as f64 / most);
                }
                let base = match self.prefer {
                    Prefer::Life => life,
                    Prefer::Area => life * frame.size[i] as f64,
                    Prefer::Width => width,
                    Prefer::Load => peak * peak * peak * width,
                };
                rough_log(base) + self.noise * rng.unit()
            })
            .collect()
    }
}

/// Returns the natural logarithm to within a few percent: exponent and mantissa of the number itself, for want of a library.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn rough_log(x: f64) -> f64 {
    const SCALE: f64 = 1.0 / (1u64 << 52) as f64;
    let bits = x.max(1e-12).to_bits();
    (bits as f64 * SCALE - 1023.0) * core::f64::consts::LN_2
}
