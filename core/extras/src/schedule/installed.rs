//! A schedule at work: its regions held, its spans handed out in its order, and deviations noticed.
//!
//! A *deviation* is a request that differs from the schedule: the schedule does not have it, it passes spans over, or
//! its place is still in use.
use super::Exact;
use core::fmt;
use omniheap_core::{
    AllocateError, Allocation, Backend, Class, Error, ErrorKind, HeapId, Manager, PoolConfig,
    Request, Result, Sharing, TimelineId, UserPool,
};
use omniheap_schedule::{Schedule, ScheduledSpan};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Spans that a program may skip before later requests count as extra.
const WINDOW: usize = 64;

/// A deviation of the program from its schedule. Positions are those of [`Schedule::spans`].
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
        /// Number of them.
        count: usize,
    },
    /// The place is still in use, because something was freed late; the manager's own pools served the request.
    Occupied {
        /// The span.
        due: usize,
    },
}

/// Statistics of how a program follows its schedule.
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
struct Cursor {
    schedule: Schedule,
    /// The heap of each region.
    heaps: Vec<HeapId>,
    timeline: Option<TimelineId>,
    progress: Mutex<Progress>,
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

/// Next span of a schedule for a request.
enum Next {
    /// A span, and how far the program had come before and after it.
    Span(usize, [Progress; 2]),
    /// Nothing; the span that was due.
    Extra(usize),
}

impl Cursor {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Nothing panics under the lock.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next span that suits a request, within the window.
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

    /// Advances to the next span for a request. It counts as served until reported otherwise.
    fn advance(&self, request: &Request<'_>) -> Next {
        let mut progress = self.progress();
        let (before, due) = (*progress, progress.due);
        let Some(at) = self.find(due, request) else { return Next::Extra(due) };
        progress.pass(due, at, self.schedule.spans().len());
        progress.report.served += 1;
        Next::Span(at, [before, *progress])
    }
}

/// A schedule that a manager holds memory for.
///
/// Dropping it gives its memory back as dropping its [pools](UserPool) would; [`uninstall`](Self::uninstall) refuses while
/// something in it is live.
///
/// # Examples
///
/// Know or record the lifetimes, place them, and run by that:
///
/// ```
/// use omniheap_core::{Manager, Request};
/// use omniheap_extras::Installed;
/// use omniheap_host::Host;
/// use omniheap_schedule::{Buffer, Problem, Region, Schedule, place};
///
/// let mut problem = Problem::new(Region::unbounded());
/// problem.push(Buffer::new(4096, 0, 2).align(256));
/// problem.push(Buffer::new(4096, 1, 3).align(256));
/// problem.push(Buffer::new(4096, 2, 4).align(256)); // the first is free again: its bytes are used twice
/// let spots = place(&problem, 10_000, &|| false)?;
/// let schedule = Schedule::from_spots(&problem, &spots, &[])?;
/// assert_eq!(schedule.regions()[0].size, 8192);
///
/// let manager = Manager::new(Host::new());
/// let installed = Installed::new(&manager, schedule, None)?;
/// let first = installed.allocate(&Request::new(4096))?;
/// let second = installed.allocate(&Request::new(4096))?;
/// drop(first);
/// let third = installed.allocate(&Request::new(4096))?;
/// assert_eq!(installed.report().served, 3);
/// # drop((second, third));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
pub struct Installed<B: Backend> {
    manager: Manager<B>,
    /// A pool of one block for each region.
    pools: Vec<UserPool<B>>,
    cursor: Box<Cursor>,
}

impl<B: Backend> fmt::Debug for Installed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").field("report", &self.report()).finish_non_exhaustive()
    }
}

impl<B: Backend> Installed<B> {
    /// Reserves a schedule's regions in a manager, one block each, to hand out its spans.
    ///
    /// Requests through the result are used and freed in the order of `timeline`; without one, they are freed only when out of
    /// use.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `ExceedsLimit` when a region is larger than the heap's largest block; `OverBudget` and what the driver
    /// says. Nothing is held then.
    pub fn new(
        manager: &Manager<B>,
        schedule: Schedule,
        timeline: Option<TimelineId>,
    ) -> Result<Self> {
        if let (Some(timeline), Some(timelines)) = (timeline, manager.backend().as_timelines()) {
            timelines.reached(timeline)?;
        }
        let (mut pools, mut heaps) = (Vec::new(), Vec::new());
        for region in schedule.regions() {
            let heap = match region.heap {
                Some(heap) => heap,
                None => plain_heap(manager)?,
            };
            let about = manager.caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
            let size = about.granule.up(region.size.max(1)).ok_or(ErrorKind::ExceedsLimit)?;
            let config = PoolConfig::new().minimum(size).maximum(size).block(size).lanes(1);
            let make = |granularity| Box::new(Exact::new(granularity)) as _;
            pools.push(manager.create_pool_with(heap, config, make)?);
            heaps.push(heap);
        }
        let report = ScheduleReport {
            spans: schedule.spans().len() as u64,
            reserved_bytes: pools.iter().map(UserPool::reserved).sum(),
            ..ScheduleReport::default()
        };
        let progress = Mutex::new(Progress { due: 0, report });
        let cursor = Box::new(Cursor { schedule, heaps, timeline, progress });
        Ok(Self { manager: manager.clone(), pools, cursor })
    }

    /// Allocates what the schedule has next, at its place.
    ///
    /// A request that the schedule does not have, or whose place is still in use, is served as by
    /// [`Manager::allocate`]; the [report](Self::report) counts it. After the last span the first is due again.
    ///
    /// # Errors
    ///
    /// As for [`Manager::allocate`]; the schedule then stands where it stood.
    pub fn allocate(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        match self.cursor.advance(request) {
            Next::Span(at, progress) => {
                let allocated = self.allocate_at(at, request);
                allocated.inspect_err(|_| self.cursor.progress().undo(progress))
            }
            Next::Extra(due) => {
                let allocation = self.manager.allocate(request)?;
                let size = request.layout.size;
                self.cursor.progress().deviate(Deviation::Extra { due, size });
                Ok(allocation)
            }
        }
    }

    /// Takes the place of a span; the manager's own pools serve the request while that is in use. No lock is held: zeros and
    /// guards may wait for the device.
    fn allocate_at(
        &self,
        at: usize,
        request: &Request<'_>,
    ) -> Result<Allocation<B>, AllocateError> {
        let one = self.cursor.schedule.spans()[at];
        match self.pools[one.region].take_span(one.span.offset, request) {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            taken => return taken,
        }
        let allocation = self.manager.allocate(request)?;
        let mut progress = self.cursor.progress();
        progress.report.served -= 1;
        progress.deviate(Deviation::Occupied { due: at });
        Ok(allocation)
    }

    /// Begins the schedule anew: for a program that ended an iteration early.
    pub fn restart(&self) {
        self.cursor.progress().due = 0;
    }

    /// Returns statistics of how the program follows the schedule.
    #[must_use]
    pub fn report(&self) -> ScheduleReport {
        self.cursor.progress().report
    }

    /// Returns the schedule's regions to the driver.
    ///
    /// # Errors
    ///
    /// `Busy` with the schedule when something in it is live or waits for a timeline; `DeviceLost`.
    pub fn uninstall(self) -> Result<(), (Self, Error)> {
        for pool in &self.pools {
            match pool.is_idle() {
                Ok(true) => {}
                Ok(false) => return Err((self, ErrorKind::Busy.into())),
                Err(error) => return Err((self, error)),
            }
        }
        Ok(())
    }
}

/// Returns the heap of requests that say nothing of their use.
fn plain_heap<B: Backend>(manager: &Manager<B>) -> Result<HeapId> {
    let explained = manager.explain(&Request::new(1)).map_err(|error| error.kind())?;
    let heaps = explained.placement.heaps;
    heaps.as_slice().first().copied().ok_or_else(|| ErrorKind::NoSuchHeap.into())
}
