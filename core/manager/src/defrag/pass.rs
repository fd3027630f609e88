//! Concurrent passes: moves that are planned, decided, copied on a timeline and committed when the copies have finished.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::copier;
use super::moves::{BlockRange, How, Move, MoveList, Moved, Outcome};
use super::planner::{Goal, LanePlanner};
use super::recall::{self, Spilled};
use super::stats::DefragStats;
use crate::device::{Block, Device, LARGEST_GROUP};
use crate::event::AllocationId;
use crate::lane::{Consent, Lane, Reservation, WaitMode};
use crate::{Backend, ErrorKind, HeapId, InsideBlock, Point, Result, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use core::time::Duration;
use std::time::Instant;

/// A batch of moves. Dropping it aborts it: every allocation is then at its old place.
///
/// Between the plan and the commit every allocation stays usable at its old place. Asking for its
/// [`binding`](crate::Allocation::binding) cancels its move; freeing it frees both places when the pass ends. No thread
/// waits for a pass.
///
/// An allocation without a timeline moves when no binding of it is held: hold it while the device uses the bytes, or
/// say with [`use_on`](crate::Allocation::use_on) which timeline does.
#[must_use = "dropping a pass aborts it"]
pub struct Pass<B: Backend> {
    device: Arc<Device<B>>,
    stats: Arc<DefragStats>,
    on: TimelineId,
    mode: Mode,
    moves: MoveList<B>,
    under_way: Option<UnderWay<B>>,
    host_time: Duration,
}

impl<B: Backend> fmt::Debug for Pass<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("moves", &self.moves.len())
            .field("under_way", &self.under_way.is_some())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Pass<B> {
    /// A pass whose moves are still to be planned; its copies run on a timeline.
    pub(crate) fn new(
        device: Arc<Device<B>>,
        stats: Arc<DefragStats>,
        on: TimelineId,
        mode: Mode,
    ) -> Self {
        let (moves, host_time) = (MoveList::new(stats.scratch.take_moves()), Duration::ZERO);
        Self { device, stats, on, mode, moves, under_way: None, host_time }
    }

    /// Plans the moves of a pass.
    pub(crate) fn plan(
        mut self,
        planners: &mut [LanePlanner<B>],
        goal: &Goal,
        meter: &mut BudgetMeter,
    ) -> Self {
        let (began, mut released) = (Instant::now(), 0u64);
        for planner in planners {
            let cost = self.device.cost(planner.heap());
            meter.set_rates(cost.rates());
            let left = goal.wanted.saturating_sub(released);
            released = released.saturating_add(planner.plan(left, meter, &mut self.moves));
            if self.moves.is_empty() && meter.too_dear {
                cost.doubt();
            }
        }
        self.host_time = began.elapsed();
        self
    }

    /// Plans the moves of a recall: see [`recall`].
    pub(crate) fn recall(
        mut self,
        spilled: Vec<Spilled<B>>,
        meter: &mut BudgetMeter,
        reserve: impl FnMut(&Spilled<B>) -> Result<Option<(Reservation<B>, u64)>>,
    ) -> Result<Self> {
        let began = Instant::now();
        recall::plan(&self.device, &mut self.moves, spilled, meter, reserve)?;
        self.host_time = began.elapsed();
        Ok(self)
    }

    /// The planned moves, in order.
    pub fn moves(&self) -> impl ExactSizeIterator<Item = PlannedMove<'_, B>> {
        self.moves.list().iter().map(|planned| PlannedMove { moves: &self.moves, planned })
    }

    /// Returns true if the pass has no moves, because nothing can be gained.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Returns the move at a position of [`moves`](Self::moves).
    pub(crate) fn planned(&self, which: usize) -> Option<PlannedMove<'_, B>> {
        let planned = self.moves.list().get(which)?;
        Some(PlannedMove { moves: &self.moves, planned })
    }

    /// Checks that moves can still be decided: `Busy` once the pass has started.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.under_way.is_some() { Err(ErrorKind::Busy.into()) } else { Ok(()) }
    }

    /// Sets how one move of an open pass is made; `OutOfRange` if there is no such move. An owner that copies finds the new place
    /// out of use.
    pub(crate) fn set_how(&mut self, which: usize, how: How) -> Result<()> {
        let planned = self.planned(which).ok_or(ErrorKind::OutOfRange)?;
        if how == How::OwnerCopies {
            planned.wait_for_target()?;
        }
        self.moves.get_mut(which).ok_or(ErrorKind::OutOfRange)?.how = how;
        Ok(())
    }

    /// Submits the copies behind all work that uses the moving allocations, and returns. Does nothing once started.
    ///
    /// # Errors
    ///
    /// Driver errors, also for later calls. Drop the pass then: every allocation is at its old place.
    pub fn start(&mut self) -> Result<()> {
        if let Some(under_way) = &self.under_way {
            return under_way.submitted;
        }
        let began = Instant::now();
        let timelines = self.drop_cancelled();
        let started = self.submit(&timelines);
        self.under_way.iter_mut().for_each(|under_way| under_way.submitted = started);
        let took = began.elapsed();
        self.host_time += took;
        if let (Some(under_way), Some(planned)) = (&self.under_way, self.moves.list().first())
            && self.mode == Mode::Concurrent
        {
            let cost = self.device.cost(self.moves.lane(planned).shared.heap);
            cost.learn_submitting(under_way.moves, took);
        }
        started
    }

    /// Starts the pass if that was not done, waits for the copies, and publishes the new places.
    ///
    /// Blocks and pages that are now empty are returned to the driver.
    ///
    /// # Errors
    ///
    /// Driver errors; every allocation is then at its old place.
    pub fn commit(self) -> Result<Outcome> {
        let stats = Arc::clone(&self.stats);
        let (mut outcome, lanes) = self.show()?;
        let (began, mut returned) = (Instant::now(), Moved::default());
        for lane in lanes {
            lane.give_back_empty(Portion::All, &mut returned);
        }
        returned.host_time = began.elapsed();
        stats.add(&returned);
        outcome.moved.add(&returned);
        Ok(outcome)
    }

    /// Commits the moves but does not trim. Returns the lanes that may now have empty blocks or pages.
    pub(crate) fn show(mut self) -> Result<(Outcome, Vec<Arc<Lane<B>>>)> {
        self.start()?;
        // Behind other work, the time of the copies cannot be seen.
        let waits = self.mode == Mode::Exclusive && !self.is_ready()?;
        self.wait()?;
        if let Some(under_way) = self.under_way.as_mut().filter(|_| waits) {
            under_way.busy = under_way.since.elapsed(); // Just now they ended.
        }
        let began = Instant::now();
        self.learn();
        let moves = self.moves.take();
        let mut outcome = moves.publish();
        let lanes = moves.lanes();
        self.stats.scratch.put_moves(moves.into_list());
        outcome.moved.passes = 1;
        outcome.moved.host_time = self.host_time + began.elapsed();
        self.stats.add(&outcome.moved);
        let Moved { moves, bytes, .. } = outcome.moved;
        tracing::debug!(moves, bytes, "a defragmentation pass was committed");
        Ok((outcome, lanes))
    }

    fn learn(&self) {
        if let (Some(under_way), Some(planned)) = (&self.under_way, self.moves.list().first()) {
            let (moves, bytes) = (under_way.moves, under_way.bytes);
            let cost = self.device.cost(self.moves.lane(planned).shared.heap);
            cost.learn(moves, bytes, under_way.busy, under_way.since.elapsed());
        }
    }
}

impl<B: Backend> Drop for Pass<B> {
    fn drop(&mut self) {
        if self.moves.is_empty() {
            return;
        }
        self.stats.add(&Moved { passes: 1, aborted: 1, ..Moved::default() });
        let mut moves = self.moves.take();
        let stopped = self.wait().or_else(|_| self.device.backend().wait_idle());
        if stopped.as_ref().is_err_and(|error| error.kind() != ErrorKind::DeviceLost) {
            tracing::error!(
                ?stopped,
                "copies could not be followed; their bytes are not used again"
            );
            moves.abandon(self.on);
            if let Some(bounce) = self.under_way.take().and_then(|under_way| under_way.bounce) {
                self.device.give_up(bounce);
            }
            return;
        }
        moves.undo(0);
        if moves.taken_bytes() > 0 {
            // The other heap shall be as it was before the pass.
            let lanes = moves.cross_heap_lanes();
            lanes.iter().for_each(|lane| lane.give_back_empty(Portion::All, &mut Moved::default()));
        }
        self.stats.scratch.put_moves(moves.into_list());
    }
}

/// Method by which a pass makes sure that the device does not use what it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Its copies are ordered behind the work of the timelines concerned. The host does not wait.
    Concurrent,
    /// The pass waits until the device is idle.
    Exclusive,
}

/// Copies that were submitted.
struct UnderWay<B: Backend> {
    /// The point at which they have finished; `None` where only an idle device shows it.
    point: Option<Point>,
    since: Instant,
    /// The last time at which they were seen unfinished.
    busy: Duration,
    moves: u64,
    bytes: u64,
    /// The bounce block, where copies inside a block are forbidden.
    bounce: Option<Block<B>>,
    /// Result of submitting them: an error if some were not.
    submitted: Result<()>,
}

impl<B: Backend> Pass<B> {
    /// Drops the copies of moves that were cancelled or freed. Returns the timelines that may use the others.
    fn drop_cancelled(&mut self) -> Vec<TimelineId> {
        let mut timelines = Vec::new();
        self.moves.each_few_mut(|lane, few| {
            let guard = lane.lock_moves();
            for planned in few {
                if !guard.is_copying(planned.slot) {
                    planned.how = How::Ignore;
                }
                if planned.how == How::Copy {
                    guard.timelines_of(planned.slot, &mut timelines);
                }
            }
        });
        // A hole in another heap may still be in use by the timeline that freed it.
        for lane in self.moves.cross_heap_lanes() {
            for timeline in lane.busy_timelines().into_iter().chain([TimelineId::MAIN]) {
                if !timelines.contains(&timeline) {
                    timelines.push(timeline);
                }
            }
        }
        timelines
    }

    /// Submits the copies behind the work of some timelines.
    fn submit(&mut self, users: &[TimelineId]) -> Result<()> {
        let bounce = self.bounce();
        let copied = self.moves.list().iter().filter(|planned| planned.how == How::Copy);
        let (mut moves, mut around, mut bytes) =
            (Vec::with_capacity(self.moves.len()), Vec::new(), 0);
        for planned in copied {
            let one = self.moves.region(planned);
            bytes += one.size;
            match &bounce {
                Some(_) if planned.from_block == planned.to_block => around.push(one),
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
            submitted: Ok(()),
        };
        let backend = self.device.backend();
        let under_way = self.under_way.insert(under_way);
        if count == 0 {
            return Ok(());
        }
        let transfer = backend.as_transfer().ok_or(ErrorKind::Unsupported)?;
        transfer.copy(self.on, &moves)?;
        if let Some(bounce) = &under_way.bounce {
            copier::carry(transfer, self.on, bounce, &around)?;
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
            |planned: &&Move| planned.how == How::Copy && planned.from_block == planned.to_block;
        let moves = self.moves.list().iter().filter(inside);
        let bytes: u64 = moves.clone().map(Move::bytes).sum();
        let heap = self.moves.lane(moves.clone().next()?).shared.heap;
        let bounce = copier::take(&self.device, heap, bytes);
        if bounce.is_none() {
            self.moves.each_few_mut(|_, few| {
                few.iter_mut()
                    .filter(|planned| inside(&&**planned))
                    .for_each(|planned| planned.how = How::Ignore);
            });
        }
        bounce
    }

    /// Puts the copies behind everything that was submitted to some timelines.
    ///
    /// Called when the allocations are marked: a caller that submits more work asks for a place first, and so cancels the
    /// move.
    fn wait_for_users(&self, users: &[TimelineId]) -> Result<()> {
        let backend = self.device.backend();
        let timelines = match (self.mode, backend.as_timelines()) {
            (Mode::Exclusive, _) | (_, None) => return backend.wait_idle(),
            (Mode::Concurrent, Some(timelines)) => timelines,
        };
        for timeline in users.iter().copied().filter(|timeline| *timeline != self.on) {
            match self.device.unless_closed(timeline, timelines.mark(timeline)) {
                Ok(Some(epoch)) => {
                    let ordered = timelines.order(self.on, Point { timeline, epoch });
                    // The timeline may have been closed since: then its work has passed.
                    self.device.unless_closed(timeline, ordered)?;
                }
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

    /// Returns true once the copies have finished, so that [`commit`](Self::commit) does not wait; `false` before
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn is_ready(&mut self) -> Result<bool> {
        let Some(under_way) = &mut self.under_way else { return Ok(false) };
        let (Some(point), Some(timelines)) =
            (under_way.point, self.device.backend().as_timelines())
        else {
            return Ok(true);
        };
        match timelines.reached(point.timeline) {
            Ok(reached) if reached < point.epoch => {
                under_way.busy = under_way.since.elapsed();
                Ok(false)
            }
            Err(error) if error.kind() != ErrorKind::NoSuchTimeline => Err(error),
            _ => Ok(true),
        }
    }

    /// Waits until the copies of this pass have finished.
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
}

/// One move of a pass, before it is made.
pub struct PlannedMove<'a, B: Backend> {
    moves: &'a MoveList<B>,
    planned: &'a Move,
}

impl<B: Backend> fmt::Debug for PlannedMove<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedMove")
            .field("allocation", &self.allocation())
            .field("from", &self.planned.from)
            .field("to", &self.to().span)
            .finish()
    }
}

impl<'a, B: Backend> PlannedMove<'a, B> {
    /// The id of the allocation.
    #[must_use]
    pub fn allocation(&self) -> AllocationId {
        self.moves.id(self.planned)
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&'a str> {
        self.planned.name.as_deref()
    }

    /// Its requested size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.planned.size
    }

    /// Its current heap.
    #[must_use]
    pub fn heap(&self) -> HeapId {
        self.moves.lane(self.planned).shared.heap
    }

    /// The heap it moves to: the same, unless the pass is a [recall](crate::Manager::begin_recall).
    #[must_use]
    pub fn to_heap(&self) -> HeapId {
        self.moves
            .cross_heap(self.planned)
            .unwrap_or_else(|| self.moves.lane(self.planned))
            .shared
            .heap
    }

    /// Returns true if the allocation stays unless its owner decides to move it.
    #[must_use]
    pub fn needs_consent(&self) -> bool {
        self.planned.consent == Consent::Needed
    }

    /// Its current place.
    #[must_use]
    pub fn from(&self) -> BlockRange<'a, B::Block> {
        self.moves.from(self.planned)
    }

    /// Waits until nothing on the device uses its new place: no timeline is known that an owner's copies could be ordered on.
    pub(crate) fn wait_for_target(&self) -> Result<()> {
        self.moves.wait_for_target(self.planned)
    }

    /// Its new place. No other allocation gets these bytes while the pass lives.
    #[must_use]
    pub fn to(&self) -> BlockRange<'a, B::Block> {
        self.moves.to(self.planned)
    }
}

/// Part of the empty memory that is returned to the driver at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    All,
    /// As much as one driver call takes: a block, or a page group.
    Little,
}

impl<B: Backend> Lane<B> {
    /// Returns empty blocks and pages to the driver, and counts them. Those still in use by the device stay in the pool.
    pub(crate) fn give_back_empty(&self, portion: Portion, moved: &mut Moved) {
        let (enough, most) = match portion {
            Portion::All => (u64::MAX, u64::MAX),
            Portion::Little => (1, LARGEST_GROUP),
        };
        if self.shared.watch.is_some() {
            // Allocations freed during the pass wait only for their guards.
            let _ = self.retire(WaitMode::Poll);
        }
        if self.poll_users(WaitMode::Poll).is_err() {
            return;
        }
        let (of_blocks, count) = self.trim_some_blocks(enough);
        let of_pages = self.trim_some_pages(most).unwrap_or(0);
        moved.returned_blocks += count;
        moved.returned_bytes += of_blocks + of_pages;
        moved.remapped_bytes += of_pages;
    }
}
