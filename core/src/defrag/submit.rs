//! Submitting the copies of a pass, and finding out when they are done.
#![forbid(unsafe_code)]
use super::bounce;
use super::pass::Pass;
use super::trip::{Trip, Verdict};
use crate::device::Block;
use crate::{Backend, ErrorKind, InsideBlock, Point, Result, TimelineId};
use alloc::vec::Vec;
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
pub(super) struct UnderWay<B: Backend> {
    /// When they have finished; `None` where only an idle device tells.
    point: Option<Point>,
    pub(super) since: Instant,
    /// The last moment at which they had not finished.
    pub(super) busy: Duration,
    pub(super) moves: u64,
    pub(super) bytes: u64,
    /// What carries bytes inside a block where copies there are forbidden.
    pub(super) bounce: Option<Block<B>>,
}

impl<B: Backend> Pass<B> {
    /// Takes out of the copies what stays or was freed; the timelines that may use the rest.
    pub(super) fn drop_cancelled(&mut self) -> Vec<TimelineId> {
        let mut timelines = Vec::new();
        self.trips.each_few_mut(|lane, few| {
            let state = lane.state.lock();
            for trip in few {
                if !state.slots.is_copying(trip.slot) {
                    trip.verdict = Verdict::Ignore;
                }
                if trip.verdict == Verdict::Copy {
                    state.timelines_of_trip(trip, &mut timelines);
                }
            }
        });
        // What is free in another heap may still be in use by the timeline that freed it.
        for lane in self.trips.lanes_abroad() {
            let state = lane.state.lock();
            for timeline in state.users.busy().chain([TimelineId::MAIN]) {
                if !timelines.contains(&timeline) {
                    timelines.push(timeline);
                }
            }
        }
        timelines
    }

    /// Submits the copies behind what some timelines have to do.
    pub(super) fn submit(&mut self, users: &[TimelineId]) -> Result<()> {
        let bounce = self.bounce();
        let copied = self.trips.list().iter().filter(|trip| trip.verdict == Verdict::Copy);
        let (mut moves, mut around, mut bytes) =
            (Vec::with_capacity(self.trips.len()), Vec::new(), 0);
        for trip in copied {
            let one = self.trips.as_move(trip);
            bytes += one.size;
            match &bounce {
                Some(_) if trip.from_block == trip.to_block => around.push(one),
                _ => moves.push(one),
            }
        }
        let count = (moves.len() + around.len()) as u64;
        if count > 0 {
            self.wait_for_users(users)?;
        }
        let under_way = UnderWay {
            point: None,
            since: Instant::now(),
            busy: Duration::ZERO,
            moves: count,
            bytes,
            bounce,
        };
        let backend = self.device.backend();
        let under_way = self.under_way.insert(under_way);
        if count == 0 {
            return Ok(());
        }
        let transfer = backend.as_transfer().ok_or(ErrorKind::Unsupported)?;
        transfer.copy(self.on, &moves)?;
        if let Some(bounce) = &under_way.bounce {
            bounce::carry(transfer, self.on, bounce, &around)?;
        }
        if let Some(timelines) = backend.as_timelines() {
            under_way.point = Some(Point { timeline: self.on, epoch: timelines.mark(self.on)? });
        }
        Ok(())
    }

    /// A block to carry bytes through, where something moves inside a block and the device cannot copy there. Where
    /// there is no memory for one, such moves are not made.
    fn bounce(&mut self) -> Option<Block<B>> {
        if self.device.backend().caps().copy.inside_block == InsideBlock::Allowed {
            return None;
        }
        let inside =
            |trip: &&Trip| trip.verdict == Verdict::Copy && trip.from_block == trip.to_block;
        let trips = self.trips.list().iter().filter(inside);
        let bytes: u64 = trips.clone().map(Trip::bytes).sum();
        let heap = self.trips.lane(trips.clone().next()?).shared.heap;
        let bounce = bounce::take(&self.device, heap, bytes);
        if bounce.is_none() {
            self.trips.each_few_mut(|_, few| {
                few.iter_mut()
                    .filter(|trip| inside(&&**trip))
                    .for_each(|trip| trip.verdict = Verdict::Ignore);
            });
        }
        bounce
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
            match self.device.unless_closed(timeline, timelines.mark(timeline)) {
                Ok(Some(epoch)) => timelines.order(self.on, Point { timeline, epoch })?,
                Ok(None) => {}
                // The device cannot mark all of its work.
                Err(error)
                    if error.kind() == ErrorKind::NoSuchTimeline && timeline == TimelineId::ALL =>
                {
                    backend.wait_idle()?;
                }
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

    /// Waits until nothing reads or writes for this pass.
    pub(super) fn wait(&self) -> Result<()> {
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
}
