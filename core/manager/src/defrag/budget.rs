//! Budgets of passes, and the meter that is read while a pass is planned.
#![forbid(unsafe_code)]
use crate::device::Rates;
use core::time::Duration;
use std::time::Instant;

/// The limits of a pass. None is ever exceeded: a move that does not fit is not started.
///
/// ```
/// use core::time::Duration;
/// use omniheap_core::Budget;
/// let frame = Budget::new().bytes(16 << 20).moves(256).time(Duration::from_micros(500));
/// assert!(frame.bytes < Budget::new().bytes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Bytes to copy. With zero, only memory that is already free is returned or remapped.
    pub bytes: u64,
    /// Allocations to move.
    pub moves: u64,
    /// Device time of the copies, estimated from earlier ones. The host may take as long again: half of it to plan, half
    /// to submit.
    pub time: Duration,
}

impl Budget {
    /// No limit.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: u64::MAX, moves: u64::MAX, time: Duration::MAX }
    }

    /// Limits the bytes that are copied.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Limits the allocations that are moved.
    #[must_use]
    pub const fn moves(mut self, moves: u64) -> Self {
        self.moves = moves;
        self
    }

    /// Limits the time.
    #[must_use]
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

/// The part of a budget that is left while a pass is planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetMeter {
    bytes: u64,
    moves: u64,
    /// Nanoseconds left on the device; `submitting` is those left on the host to submit.
    time: f64,
    submitting: f64,
    deadline: Option<Instant>,
    rates: Rates,
    /// True if a move was refused because of its estimated time.
    pub(super) too_dear: bool,
}

impl BudgetMeter {
    /// The meter of a pass whose planning starts at `now`.
    pub(crate) fn new(budget: &Budget, now: Instant) -> Self {
        let time = if budget.time == Duration::MAX {
            f64::INFINITY
        } else {
            budget.time.as_secs_f64() * 1e9
        };
        let deadline = now.checked_add(budget.time / 2);
        let (bytes, moves) = (budget.bytes, budget.moves);
        let (submitting, rates) = (time / 2.0, Rates::FIRST);
        Self { bytes, moves, time, submitting, deadline, rates, too_dear: false }
    }

    /// Sets the rates of the heap whose moves are paid from now on.
    pub(super) const fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// Pays for one move; returns `false`, and pays nothing, where the budget is too small.
    #[inline]
    pub(super) fn pay(&mut self, bytes: u64) -> bool {
        let time = self.rates.of(1, bytes);
        let submitting = self.rates.of_submitting();
        if bytes > self.bytes || self.moves == 0 || submitting > self.submitting {
            return false;
        }
        if time > self.time {
            self.too_dear = true;
            return false;
        }
        (self.bytes, self.moves, self.time) =
            (self.bytes - bytes, self.moves - 1, self.time - time);
        self.submitting -= submitting;
        true
    }

    /// The number of moves left, at most `count`.
    pub(super) fn moves_of(&self, count: usize) -> usize {
        count.min(usize::try_from(self.moves).unwrap_or(usize::MAX))
    }

    /// Refunds a move that is not made.
    pub(super) fn refund(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.moves = self.moves.saturating_add(1);
        self.time += self.rates.of(1, bytes);
        self.submitting += self.rates.of_submitting();
    }

    /// Returns true if the time for planning is up.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes == 0 || self.moves == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cost;

    #[test]
    fn no_limit_is_exceeded_and_a_refund_restores_it() {
        let budget = Budget::new().bytes(100).moves(2);
        let mut meter = BudgetMeter::new(&budget, Instant::now());
        assert_eq!((meter.moves_of(1), meter.moves_of(5)), (1, 2));
        assert!(meter.pay(60) && !meter.pay(41) && meter.pay(40));
        assert_eq!(meter.moves_of(5), 0);
        assert!(meter.is_empty() && !meter.pay(0), "two moves were made");
        meter.refund(40);
        assert!(meter.pay(40));
    }

    #[test]
    fn time_is_paid_by_what_moves_are_known_to_take() {
        let each = Duration::from_secs_f64(Rates::FIRST.of(1, 1 << 20) * 1.001e-9);
        let mut meter = BudgetMeter::new(&Budget::new().time(each * 3), Instant::now());
        assert_eq!((0..10).filter(|_| meter.pay(1 << 20)).count(), 3);
    }

    #[test]
    fn half_of_the_time_is_for_submitting() {
        let cost = Cost::default();
        (0..100).for_each(|_| cost.learn_submitting(100, Duration::from_secs(1)));
        let rates = cost.rates();
        let time = Duration::from_secs_f64(rates.of_submitting() * 2.0 * 2.5e-9);
        let mut meter = BudgetMeter::new(&Budget::new().time(time), Instant::now());
        meter.set_rates(rates);
        assert!(rates.of(3, 0) < time.as_secs_f64() * 1e9, "the device has time for more");
        assert_eq!((0..10).filter(|_| meter.pay(0)).count(), 2);
        meter.refund(0);
        assert!(meter.pay(0) && !meter.pay(0), "what is not submitted costs nothing");
    }
}
