//! A schedule at work: its regions held, its spans handed out in its order, and deviations noticed.
use super::schedule::{Schedule, ScheduledSpan};
use super::{AllocateError, Allocation, Manager, UserPool};
use crate::pool::{Lane, Patience, SlotId};
use crate::sync::Mutex;
use crate::{
    Backend, Class, Contents, Error, ErrorKind, HeapId, PoolConfig, Request, Result, Sharing,
    StrategyKind, TimelineId,
};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;

/// How many spans of a schedule a program may leave out before what follows counts as extra.
const WINDOW: usize = 64;

/// How a program left its schedule. Positions are those of [`Schedule::spans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deviation {
    /// A request that the schedule does not have here; the manager's own pools served it.
    Extra {
        /// The span that was due.
        due: usize,
        /// Bytes that were asked for.
        size: u64,
    },
    /// Spans were passed over; the request got its place.
    Skipped {
        /// The first of them.
        due: usize,
        /// How many.
        count: usize,
    },
    /// The place is still in use, because something was freed late; the manager's own pools served the request.
    Occupied {
        /// The span.
        due: usize,
    },
}

/// How well a program keeps to its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleReport {
    /// Spans of the schedule.
    pub spans: u64,
    /// Bytes of its regions.
    pub reserved_bytes: u64,
    /// Times that the schedule came to its end.
    pub rounds: u64,
    /// Requests that got their planned place.
    pub served: u64,
    /// Requests that the schedule does not have.
    pub extra: u64,
    /// Spans that were passed over.
    pub skipped: u64,
    /// Requests whose place was still in use.
    pub occupied: u64,
    /// The latest deviation.
    pub last: Option<Deviation>,
}

/// A schedule and how far the program has come in it.
#[derive(Debug)]
pub(super) struct Course {
    schedule: Schedule,
    /// The heap of each region.
    heaps: Vec<HeapId>,
    timeline: Option<TimelineId>,
    state: Mutex<Progress>,
}

/// What a schedule has for a request.
enum Claimed<'a, B: Backend> {
    /// Its place, and how far the program had come before and after it.
    Span(&'a Arc<Lane<B>>, SlotId, [Progress; 2]),
    /// Nothing; the span that was due.
    Extra(usize),
    /// A place that is still in use.
    Occupied { due: usize, at: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    due: usize,
    report: ScheduleReport,
}

impl Progress {
    /// Goes on behind span `at`, unless another thread has gone on since span `due` was next.
    fn pass(&mut self, due: usize, at: usize, spans: usize) {
        if self.due != due {
            return;
        }
        if at != due {
            self.deviate(Deviation::Skipped { due, count: (at + spans - due) % spans });
        }
        self.report.rounds += u64::from(at + 1 == spans || at < due);
        self.due = (at + 1) % spans;
    }

    /// Takes back what one request did. Where another thread has gone on since, the place stays passed over.
    fn undo(&mut self, [before, after]: [Self; 2]) {
        if *self == after {
            *self = before;
        } else {
            self.report.served -= 1;
        }
    }

    fn deviate(&mut self, deviation: Deviation) {
        match deviation {
            Deviation::Extra { .. } => self.report.extra += 1,
            Deviation::Skipped { count, .. } => self.report.skipped += count as u64,
            Deviation::Occupied { .. } => self.report.occupied += 1,
        }
        self.report.last = Some(deviation);
        tracing::warn!(?deviation, "a program left its schedule");
    }
}

impl Course {
    pub(super) fn report(&self) -> ScheduleReport {
        self.state.lock().report
    }

    /// The next span that suits a request, within the window.
    fn find(&self, due: usize, request: &Request<'_>) -> Option<usize> {
        let spans = self.schedule.spans();
        let plain = request.sharing == Sharing::Shared && request.class == Class::Linear;
        if !plain || request.timeline != self.timeline {
            return None;
        }
        let suits = |one: &ScheduledSpan| {
            one.span.size == request.layout.size
                && request.layout.align.divides(one.span.offset)
                && request.heap.is_none_or(|heap| heap == self.heaps[one.region])
        };
        (0..WINDOW.min(spans.len()))
            .map(|ahead| (due + ahead) % spans.len())
            .find(|&at| suits(&spans[at]))
    }
}

/// A schedule that a manager holds memory for.
///
/// Dropping it gives its memory back as dropping its [pools](UserPool) would. [`Manager::uninstall`] also takes it out of the
/// report, and refuses while something in it is live.
pub struct Installed<B: Backend> {
    manager: Manager<B>,
    pools: Vec<UserPool<B>>,
    course: Arc<Course>,
}

impl<B: Backend> fmt::Debug for Installed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").field("report", &self.report()).finish_non_exhaustive()
    }
}

impl<B: Backend> Installed<B> {
    /// Allocates what the schedule has next, at its place.
    ///
    /// A request that the schedule does not have, or whose place is still in use, is served as by
    /// [`Manager::allocate`]; the [report](Self::report) counts it. After the last span the first is due again.
    ///
    /// # Errors
    ///
    /// As for [`Manager::allocate`]; the schedule then stands where it stood.
    pub fn allocate(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        super::ladder::check(request)?;
        match self.claim_span(request)? {
            Claimed::Span(lane, slot, progress) => {
                // Zeros and a sanitizer may wait for the device: nobody else waits with them.
                let allocation = self.hand_out(lane, slot, request);
                allocation.inspect_err(|_| self.course.state.lock().undo(progress))
            }
            Claimed::Extra(due) => {
                let allocation = self.manager.allocate(request)?;
                let size = request.layout.size;
                self.course.state.lock().deviate(Deviation::Extra { due, size });
                Ok(allocation)
            }
            Claimed::Occupied { due, at } => {
                let allocation = self.manager.allocate(request)?;
                let mut state = self.course.state.lock();
                state.pass(due, at, self.course.schedule.spans().len());
                state.deviate(Deviation::Occupied { due: at });
                Ok(allocation)
            }
        }
    }

    /// Takes the place that is due for a request, and goes on in the schedule. No lock is held over a driver call.
    fn claim_span(&self, request: &Request<'_>) -> Result<Claimed<'_, B>, AllocateError> {
        let spans = self.course.schedule.spans();
        let mut is_retired = false;
        loop {
            let mut state = self.course.state.lock();
            let (before, due) = (*state, state.due);
            let Some(at) = self.course.find(due, request) else { return Ok(Claimed::Extra(due)) };
            let pool = self.pools[spans[at].region].pool();
            if request.layout.align > self.manager.inner.device.heap(pool.shared.heap)?.align {
                return Err(ErrorKind::InvalidAlignment.into());
            }
            let lane = pool.lane();
            let slot = lane.state.lock().take(spans[at].span, self.course.timeline);
            match slot {
                Ok(slot) => {
                    state.pass(due, at, spans.len());
                    state.report.served += 1;
                    return Ok(Claimed::Span(lane, slot, [before, *state]));
                }
                Err(ErrorKind::Busy) if !is_retired => {
                    drop(state);
                    is_retired = true;
                    lane.retire(Patience::Look)?;
                }
                Err(ErrorKind::Busy) => return Ok(Claimed::Occupied { due, at }),
                Err(kind) => return Err(kind.into()),
            }
        }
    }

    /// A place that was taken, as an allocation.
    fn hand_out(
        &self,
        lane: &Arc<Lane<B>>,
        slot: SlotId,
        request: &Request<'_>,
    ) -> Result<Allocation<B>, AllocateError> {
        self.manager.note(lane, slot, request);
        let allocation = self.manager.claim(lane, slot, request, None);
        if request.contents == Contents::Zero {
            allocation.wipe()?;
        }
        allocation.begin_sanitized(request.contents)?;
        Ok(allocation)
    }

    /// Begins the schedule anew: for a program that ended an iteration early.
    pub fn restart(&self) {
        self.course.state.lock().due = 0;
    }

    /// How well the program keeps to the schedule.
    #[must_use]
    pub fn report(&self) -> ScheduleReport {
        self.course.report()
    }
}

impl<B: Backend> Manager<B> {
    /// Reserves a schedule's regions, one block each, and hands out its spans.
    ///
    /// Requests through the result are used and freed in the order of `timeline`; without one, they are freed only
    /// when out of use.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `ExceedsLimit` when a region is larger than the heap's largest block; `OverBudget` and what the
    /// driver says. Nothing is held then.
    pub fn install(
        &self,
        schedule: Schedule,
        timeline: Option<TimelineId>,
    ) -> Result<Installed<B>> {
        if let (Some(timeline), Some(timelines)) = (timeline, self.backend().as_timelines()) {
            timelines.reached(timeline)?;
        }
        let (mut pools, mut heaps) = (Vec::new(), Vec::new());
        for region in schedule.regions() {
            let first = || self.inner.plain.as_slice().first().copied();
            let heap = region.heap.or_else(first).ok_or(ErrorKind::NoSuchHeap)?;
            let granule = self.inner.device.heap(heap)?.granule;
            let size = granule.up(region.size.max(1)).ok_or(ErrorKind::ExceedsLimit)?;
            let mut config = PoolConfig { strategy: StrategyKind::Exact, ..PoolConfig::new() };
            (config.minimum, config.maximum, config.block) = (size, size, Some(size));
            pools.push(Arc::new(self.make_pool(heap, config)?));
            heaps.push(heap);
        }
        let report = ScheduleReport {
            spans: schedule.spans().len() as u64,
            reserved_bytes: pools.iter().map(|pool| pool.shared.reserved()).sum(),
            ..ScheduleReport::default()
        };
        let state = Mutex::new(Progress { due: 0, report });
        let course = Arc::new(Course { schedule, heaps, timeline, state });
        self.inner.user_pools.lock().extend(pools.iter().cloned());
        self.inner.courses.lock().push(Arc::clone(&course));
        let pools = pools.into_iter().map(|pool| UserPool::new(self.clone(), pool)).collect();
        Ok(Installed { manager: self.clone(), pools, course })
    }

    /// Gives a schedule's regions back to the driver.
    ///
    /// # Errors
    ///
    /// `Busy` with the schedule when something in it is live or waits for a timeline; `Foreign` for another manager's.
    pub fn uninstall(&self, installed: Installed<B>) -> Result<(), (Installed<B>, Error)> {
        if installed.manager.number() != self.number() {
            return Err((installed, ErrorKind::Foreign.into()));
        }
        for pool in &installed.pools {
            if let Err(error) = Self::check_idle(pool.pool()) {
                return Err((installed, error));
            }
        }
        self.inner.courses.lock().retain(|known| !Arc::ptr_eq(known, &installed.course));
        let Installed { pools, .. } = installed;
        let gone = |known: &Arc<_>| pools.iter().any(|pool| Arc::ptr_eq(pool.pool(), known));
        self.inner.user_pools.lock().retain(|known| !gone(known));
        Ok(())
    }
}
