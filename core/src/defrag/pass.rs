//! A guarded batch of moves: planned, decided, copied on a timeline, committed at its epoch.
#![forbid(unsafe_code)]
use super::book::{Booking, Goal};
use super::budget::Purse;
use super::ending::{Portion, forsake, publish};
use super::ledger::{Ledger, Moved, Outcome};
use super::planned::{Decision, PlannedMove};
use super::submit::{Order, Readiness, UnderWay};
use super::trip::{Verdict, undo};
use super::trips::Trips;
use crate::device::Device;
use crate::pool::Lane;
use crate::{Backend, ErrorKind, Result, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use core::time::Duration;
use std::time::Instant;

/// A guarded batch of moves. Dropping it aborts: each allocation is then where it was.
///
/// Between the plan and the commit every allocation stays usable at its old place. Asking for its
/// [`binding`](crate::Allocation::binding) cancels its move; freeing it frees both places when the pass ends. No other thread
/// waits for a pass.
///
/// An allocation without a timeline moves when nobody holds its binding: hold it while the device uses the bytes, or
/// say with [`use_on`](crate::Allocation::use_on) which timeline does.
#[must_use = "dropping a pass aborts it"]
pub struct Pass<B: Backend> {
    pub(super) device: Arc<Device<B>>,
    ledger: Arc<Ledger>,
    pub(super) on: TimelineId,
    pub(super) order: Order,
    pub(super) trips: Trips<B>,
    pub(super) under_way: Option<UnderWay<B>>,
    pub(super) host_time: Duration,
}

impl<B: Backend> fmt::Debug for Pass<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("moves", &self.trips.len())
            .field("under_way", &self.under_way.is_some())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Pass<B> {
    /// Books the moves of a pass.
    pub(crate) fn plan(
        device: Arc<Device<B>>,
        ledger: Arc<Ledger>,
        on: TimelineId,
        order: Order,
        bookings: &mut [Booking<B>],
        goal: &Goal,
        purse: &mut Purse,
    ) -> Self {
        let began = Instant::now();
        let (mut trips, mut released) = (Trips::new(ledger.shelf.take_trips()), 0u64);
        for booking in bookings {
            let cost = device.cost(booking.heap());
            purse.set_rates(cost.rates());
            let left = goal.wanted.saturating_sub(released);
            released = released.saturating_add(booking.book(left, purse, &mut trips));
            if trips.is_empty() && purse.too_dear {
                cost.doubt();
            }
        }
        let host_time = began.elapsed();
        Self { device, ledger, on, order, trips, under_way: None, host_time }
    }

    /// A pass whose trips are still to be booked.
    pub(super) fn of(
        device: Arc<Device<B>>,
        ledger: Arc<Ledger>,
        on: TimelineId,
        trips: Trips<B>,
    ) -> Self {
        let (order, host_time) = (Order::Timelines, Duration::ZERO);
        Self { device, ledger, on, order, trips, under_way: None, host_time }
    }

    /// The planned moves, in order.
    pub fn moves(&self) -> impl ExactSizeIterator<Item = PlannedMove<'_, B>> {
        self.trips.list().iter().map(|trip| PlannedMove { trips: &self.trips, trip })
    }

    /// Whether there is nothing to gain.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.trips.is_empty()
    }

    /// Decides about one move, by its position in [`moves`](Self::moves). Undecided ones are copied, or ignored where
    /// they need consent.
    ///
    /// # Errors
    ///
    /// `OutOfRange` where there is no such move, or it is not that of the allocation to destroy; `Busy` once the pass has
    /// started. An allocation to destroy is freed whatever the answer.
    pub fn decide(&mut self, which: usize, decision: Decision<B>) -> Result<()> {
        if self.under_way.is_some() {
            return Err(ErrorKind::Busy.into());
        }
        let id = self.trips.list().get(which).map(|trip| self.trips.id(trip));
        if let Decision::Destroy(allocation) = &decision
            && id != Some(allocation.id())
        {
            return Err(ErrorKind::OutOfRange.into());
        }
        let trip = self.trips.get_mut(which).ok_or(ErrorKind::OutOfRange)?;
        trip.verdict = match decision {
            Decision::Copy => Verdict::Copy,
            Decision::OwnerCopies => Verdict::OwnerCopies,
            Decision::Ignore => Verdict::Ignore,
            Decision::Destroy(allocation) => {
                drop(allocation);
                Verdict::Ignore
            }
        };
        Ok(())
    }

    /// Asks `owner` about every move, copies, waits and commits.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    pub fn run(
        mut self,
        mut owner: impl FnMut(&PlannedMove<'_, B>) -> Decision<B>,
    ) -> Result<Outcome> {
        for which in 0..self.trips.len() {
            let trip = &self.trips.list()[which];
            let decision = owner(&PlannedMove { trips: &self.trips, trip });
            self.decide(which, decision)?;
        }
        self.commit()
    }

    /// Submits the copies, behind everything that uses what moves, and returns. Nothing to do when it has started.
    ///
    /// # Errors
    ///
    /// What the driver says; drop the pass then, and everything is where it was.
    pub fn start(&mut self) -> Result<()> {
        if self.under_way.is_some() {
            return Ok(());
        }
        let began = Instant::now();
        let timelines = self.drop_cancelled();
        let started = self.submit(&timelines);
        let took = began.elapsed();
        self.host_time += took;
        if let (Some(under_way), Some(trip)) = (&self.under_way, self.trips.list().first())
            && self.order == Order::Timelines
        {
            let cost = self.device.cost(self.trips.lane(trip).shared.heap);
            cost.learn_submitting(under_way.moves, took);
        }
        started
    }

    /// Waits for the copies and shows the new places; starts the pass first where that was not done.
    ///
    /// Blocks and pages that are empty now go back to the driver.
    ///
    /// # Errors
    ///
    /// What the driver says; each allocation is then where it was.
    pub fn commit(self) -> Result<Outcome> {
        let ledger = Arc::clone(&self.ledger);
        let (mut outcome, lanes) = self.show()?;
        let (began, mut returned) = (Instant::now(), Moved::default());
        for lane in lanes {
            lane.give_back_empty(Portion::All, &mut returned);
        }
        returned.host_time = began.elapsed();
        ledger.add(&returned);
        outcome.moved.add(&returned);
        Ok(outcome)
    }

    /// As [`commit`](Self::commit), but returns nothing to the driver: the lanes that may have something to return.
    pub(crate) fn show(mut self) -> Result<(Outcome, Vec<Arc<Lane<B>>>)> {
        self.start()?;
        // Behind other work, what the copies take is not seen.
        let waits = self.order == Order::Idle && self.look()? == Readiness::Waiting;
        self.wait()?;
        if let Some(under_way) = self.under_way.as_mut().filter(|_| waits) {
            under_way.busy = under_way.since.elapsed(); // Just now they ended.
        }
        let began = Instant::now();
        self.learn();
        let trips = self.trips.take();
        let mut outcome = publish(&trips);
        let lanes = trips.lanes();
        self.ledger.shelf.put_trips(trips.into_list());
        outcome.moved.passes = 1;
        outcome.moved.host_time = self.host_time + began.elapsed();
        self.ledger.add(&outcome.moved);
        let Moved { moves, bytes, .. } = outcome.moved;
        tracing::debug!(moves, bytes, "a defragmentation pass was committed");
        Ok((outcome, lanes))
    }

    fn learn(&self) {
        if let (Some(under_way), Some(trip)) = (&self.under_way, self.trips.list().first()) {
            let (moves, bytes) = (under_way.moves, under_way.bytes);
            let cost = self.device.cost(self.trips.lane(trip).shared.heap);
            cost.learn(moves, bytes, under_way.busy, under_way.since.elapsed());
        }
    }
}

impl<B: Backend> Drop for Pass<B> {
    fn drop(&mut self) {
        if self.trips.is_empty() {
            return;
        }
        self.ledger.add(&Moved { passes: 1, aborted: 1, ..Moved::default() });
        let mut trips = self.trips.take();
        let stopped = self.wait().or_else(|_| self.device.backend().wait_idle());
        if stopped.as_ref().is_err_and(|error| error.kind() != ErrorKind::DeviceLost) {
            tracing::error!(
                ?stopped,
                "copies could not be followed; their bytes are not used again"
            );
            forsake(&trips);
            if let Some(bounce) = self.under_way.take().and_then(|under_way| under_way.bounce) {
                self.device.give_up(bounce);
            }
            return;
        }
        undo(&mut trips, 0);
        if trips.taken_bytes > 0 {
            // Of another heap, which is to be as it was.
            let lanes = trips.lanes_abroad();
            lanes.iter().for_each(|lane| lane.give_back_empty(Portion::All, &mut Moved::default()));
        }
        self.ledger.shelf.put_trips(trips.into_list());
    }
}
