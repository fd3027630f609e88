//! A guarded batch of moves: planned, decided, copied on a timeline, committed at its epoch.
#![forbid(unsafe_code)]
use super::book::{Booking, Goal, TOGETHER, undo};
use super::budget::Purse;
use super::ending::{Portion, forsake, lanes_of, publish};
use super::ledger::{Ledger, Moved, Outcome};
use super::planned::{Decision, PlannedMove};
use super::trip::{Trip, Verdict};
use crate::device::Device;
use crate::pool::Lane;
use crate::{Backend, ErrorKind, Point, Result, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use core::time::Duration;
use std::time::Instant;

/// Whether the copies of a pass have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Waiting,
    Ready,
}

/// How a pass makes sure that nothing uses what it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Its copies run after what the timelines concerned have to do; the host does not wait.
    Timelines,
    /// It waits for the whole device.
    Idle,
}

/// Copies that were submitted.
struct UnderWay {
    /// When they have finished; `None` where only an idle device tells.
    point: Option<Point>,
    since: Instant,
    /// The last moment at which they had not finished.
    busy: Duration,
    moves: u64,
    bytes: u64,
}

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
    device: Arc<Device<B>>,
    ledger: Arc<Ledger>,
    on: TimelineId,
    order: Order,
    trips: Vec<Trip<B>>,
    under_way: Option<UnderWay>,
    host_time: Duration,
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
        let (mut trips, mut released) = (Vec::new(), 0u64);
        for booking in bookings {
            let left = Goal { wanted: goal.wanted.saturating_sub(released), ..*goal };
            let cost = ledger.cost(booking.heap());
            released = released.saturating_add(booking.book(&left, purse, cost, &mut trips));
            if trips.is_empty() && purse.too_dear {
                cost.doubt();
            }
        }
        let host_time = began.elapsed();
        Self { device, ledger, on, order, trips, under_way: None, host_time }
    }

    /// The planned moves, in order.
    pub fn moves(&self) -> impl ExactSizeIterator<Item = PlannedMove<'_, B>> {
        self.trips.iter().map(|trip| PlannedMove { trip })
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
    /// `OutOfRange` where there is no such move; `Busy` once the pass has started.
    pub fn decide(&mut self, which: usize, decision: Decision<B>) -> Result<()> {
        if self.under_way.is_some() {
            return Err(ErrorKind::Busy.into());
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
            let decision = owner(&PlannedMove { trip: &self.trips[which] });
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
        self.host_time += began.elapsed();
        started
    }

    fn submit(&mut self, users: &[TimelineId]) -> Result<()> {
        let copied = self.trips.iter().filter(|trip| trip.verdict == Verdict::Copy);
        let moves: Vec<_> = copied.map(Trip::as_move).collect();
        if !moves.is_empty() {
            self.wait_for_users(users)?;
        }
        let under_way = self.under_way.insert(UnderWay {
            point: None,
            since: Instant::now(),
            busy: Duration::ZERO,
            moves: moves.len() as u64,
            bytes: moves.iter().map(|each| each.size).sum(),
        });
        if moves.is_empty() {
            return Ok(());
        }
        let backend = self.device.backend();
        backend.as_transfer().ok_or(ErrorKind::Unsupported)?.copy(self.on, &moves)?;
        if let Some(timelines) = backend.as_timelines() {
            under_way.point = Some(Point { timeline: self.on, epoch: timelines.mark(self.on)? });
        }
        Ok(())
    }

    /// Takes out of the copies what stays or was freed; the timelines that may use the rest.
    fn drop_cancelled(&mut self) -> Vec<TimelineId> {
        let mut timelines = Vec::new();
        for few in self.trips.chunk_by_mut(|a, b| Arc::ptr_eq(&a.lane, &b.lane)) {
            for few in few.chunks_mut(TOGETHER) {
                let lane = Arc::clone(&few[0].lane);
                let state = lane.state.lock();
                for trip in few {
                    if !state.slots.is_copying(trip.slot) {
                        trip.verdict = Verdict::Ignore;
                    }
                    if trip.verdict == Verdict::Copy {
                        state.timelines_of_trip(trip, &mut timelines);
                    }
                }
            }
        }
        timelines
    }

    /// Puts the copies behind everything that was submitted to some timelines.
    ///
    /// Called when the allocations are marked: whoever submits more work asks for a place first, and so cancels the
    /// move.
    fn wait_for_users(&self, users: &[TimelineId]) -> Result<()> {
        let backend = self.device.backend();
        let timelines = match (self.order, backend.as_timelines()) {
            (Order::Idle, _) | (_, None) => return backend.wait_idle(),
            (Order::Timelines, Some(timelines)) => timelines,
        };
        for timeline in users.iter().copied().filter(|timeline| *timeline != self.on) {
            match timelines.mark(timeline) {
                Ok(epoch) => timelines.order(self.on, Point { timeline, epoch })?,
                // A timeline that was closed is gone, and with it its work.
                Err(error) if error.kind() == ErrorKind::NoSuchTimeline => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the copies have finished, so that [`commit`](Self::commit) does not wait. Not before
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn is_ready(&mut self) -> Result<bool> {
        Ok(self.look()? == Readiness::Ready)
    }

    pub(crate) fn look(&mut self) -> Result<Readiness> {
        let Some(under_way) = &mut self.under_way else { return Ok(Readiness::Waiting) };
        let (Some(point), Some(timelines)) =
            (under_way.point, self.device.backend().as_timelines())
        else {
            return Ok(Readiness::Ready);
        };
        match timelines.reached(point.timeline) {
            Ok(reached) if reached < point.epoch => {
                under_way.busy = under_way.since.elapsed();
                Ok(Readiness::Waiting)
            }
            Err(error) if error.kind() != ErrorKind::NoSuchTimeline => Err(error),
            _ => Ok(Readiness::Ready),
        }
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
        self.wait()?;
        let began = Instant::now();
        self.learn();
        let trips = core::mem::take(&mut self.trips);
        let mut outcome = publish(&trips);
        let lanes = lanes_of(&trips);
        drop(trips);
        outcome.moved.passes = 1;
        outcome.moved.host_time = self.host_time + began.elapsed();
        self.ledger.add(&outcome.moved);
        let Moved { moves, bytes, .. } = outcome.moved;
        tracing::debug!(moves, bytes, "a defragmentation pass was committed");
        Ok((outcome, lanes))
    }

    /// Waits until nothing reads or writes for this pass.
    fn wait(&self) -> Result<()> {
        let Some(under_way) = self.under_way.as_ref().filter(|under_way| under_way.moves > 0)
        else {
            return Ok(());
        };
        let backend = self.device.backend();
        match (under_way.point, backend.as_timelines()) {
            (Some(point), Some(timelines)) => match timelines.wait(point) {
                Err(error) if error.kind() == ErrorKind::NoSuchTimeline => Ok(()),
                other => other,
            },
            _ => backend.wait_idle(),
        }
    }

    fn learn(&self) {
        if let (Some(under_way), Some(trip)) = (&self.under_way, self.trips.first()) {
            let (moves, bytes) = (under_way.moves, under_way.bytes);
            let cost = self.ledger.cost(trip.lane.shared.heap);
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
        let trips = core::mem::take(&mut self.trips);
        let stopped = self.wait().or_else(|_| self.device.backend().wait_idle());
        if stopped.as_ref().is_err_and(|error| error.kind() != ErrorKind::DeviceLost) {
            tracing::error!(
                ?stopped,
                "copies could not be followed; their bytes are not used again"
            );
            forsake(&trips);
            return;
        }
        undo(trips);
    }
}
