//! A schedule: the allocations of a program in order, each with its place.

use crate::check::ProblemError;
use crate::problem::{Problem, Spot};
use crate::validate::{Flaw, validate};
use alloc::{collections::BTreeMap, vec::Vec};
use core::fmt;
use omniheap_seam::{HeapId, Span};

/// One stretch of memory that a schedule divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledRegion {
    /// The heap that it is of; `None` is the heap of requests that say nothing of their use.
    pub heap: Option<HeapId>,
    /// Bytes.
    pub size: u64,
}

/// One allocation of a schedule: where, and from when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledSpan {
    /// Index of the region.
    pub region: usize,
    /// The bytes inside it.
    pub span: Span,
    /// Time of its allocation; any unit that only goes up.
    pub start: u64,
    /// Time by which it has been freed; above `start`.
    pub end: u64,
}

/// The allocations of one iteration in order, each with its place.
///
/// Spans are in the order of their start; those that live at the same time have no byte in common.
///
/// # Examples
///
/// ```
/// use omniheap_schedule::{Schedule, ScheduleError, ScheduledRegion, ScheduledSpan};
/// use omniheap_seam::Span;
///
/// let regions = vec![ScheduledRegion { heap: None, size: 4096 }];
/// let at = |offset, start, end| {
///     ScheduledSpan { region: 0, span: Span { offset, size: 2048 }, start, end }
/// };
/// let schedule = Schedule::new(regions.clone(), vec![at(0, 0, 2), at(2048, 1, 3), at(0, 2, 4)])?;
/// assert_eq!(schedule.spans().len(), 3);
/// let wrong = Schedule::new(regions, vec![at(0, 0, 2), at(1024, 1, 3)]);
/// assert_eq!(wrong, Err(ScheduleError::Overlap { first: 0, second: 1 }));
/// # Ok::<(), ScheduleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    regions: Vec<ScheduledRegion>,
    spans: Vec<ScheduledSpan>,
}

/// Reason why spans make no schedule. Numbers are positions in the list that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There is nothing to allocate.
    Empty,
    /// A span has no bytes, or ends before it starts: leave it out.
    Nothing {
        /// The span.
        at: usize,
    },
    /// A span names a region that is not there, or leaves it.
    OutOfRegion {
        /// The span.
        at: usize,
    },
    /// Two spans have a byte in common while both live: plan again.
    Overlap {
        /// The one that starts first.
        first: usize,
        /// The other.
        second: usize,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the schedule is empty; allocate without one"),
            Self::Nothing { at } => {
                write!(f, "span {at} has no bytes or no time to live; leave it out")
            }
            Self::OutOfRegion { at } => {
                write!(f, "span {at} leaves its region; give the region the plan's peak")
            }
            Self::Overlap { first, second } => {
                write!(f, "spans {first} and {second} share a byte while both live; plan again")
            }
        }
    }
}

impl core::error::Error for ScheduleError {}

/// Reason why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSchedule {
    /// The places may not be used; where a buffer ends behind its region, spill something or give it more.
    Places(Flaw),
    /// The problem makes no sense.
    Problem(ProblemError),
    /// The spans cannot be handed out one by one, as with buffers that share bytes; numbers are those of buffers.
    Spans(ScheduleError),
}

impl fmt::Display for NoSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Places(flaw) => flaw.fmt(f),
            Self::Problem(error) => error.fmt(f),
            Self::Spans(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NoSchedule {}

impl Schedule {
    /// Sorts spans by their start and checks that they can be handed out.
    ///
    /// # Cost
    ///
    /// *O*(n log n).
    ///
    /// # Errors
    ///
    /// The fault of the first wrong span.
    pub fn new(
        regions: Vec<ScheduledRegion>,
        spans: Vec<ScheduledSpan>,
    ) -> Result<Self, ScheduleError> {
        if spans.is_empty() {
            return Err(ScheduleError::Empty);
        }
        for (at, one) in spans.iter().enumerate() {
            if one.span.size == 0 || one.start >= one.end {
                return Err(ScheduleError::Nothing { at });
            }
            let end = one.span.offset.checked_add(one.span.size);
            let region = regions.get(one.region);
            if region.is_none_or(|region| end.is_none_or(|end| end > region.size)) {
                return Err(ScheduleError::OutOfRegion { at });
            }
        }
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&at| spans[at].start);
        refuse_overlap(&spans, &order)?;
        Ok(Self { regions, spans: order.into_iter().map(|at| spans[at]).collect() })
    }

    /// Makes a schedule of places.
    ///
    /// Region `i` of the problem is of heap `heaps[i]`, or of the heap for plain requests where there is none. Buffers are
    /// allocated in the order of their start, those that start together in the order of the problem. Buffers that never need
    /// bytes, because they have none or gaps cover their whole life, are left out.
    ///
    /// # Errors
    ///
    /// [`NoSchedule`]: a problem that makes no sense, places that may not be used, and buffers that share bytes while both live.
    pub fn from_spots(
        problem: &Problem,
        spots: &[Spot],
        heaps: &[HeapId],
    ) -> Result<Self, NoSchedule> {
        problem.check().map_err(NoSchedule::Problem)?;
        validate(problem, spots).map_err(NoSchedule::Places)?;
        let heaps = heaps.iter().copied().map(Some).chain(core::iter::repeat(None));
        let regions = heaps.take(problem.regions.len());
        let mut regions: Vec<_> = regions.map(|heap| ScheduledRegion { heap, size: 0 }).collect();
        let (mut buffers, mut spans) = (Vec::new(), Vec::new());
        let placed = problem.buffers.iter().zip(spots).enumerate();
        for (at, (buffer, spot)) in placed.filter(|(_, (buffer, _))| buffer.needs_bytes()) {
            let span = Span { offset: spot.offset, size: buffer.size };
            let size = &mut regions[spot.region].size;
            *size = (*size).max(span.end());
            let (start, end) = (buffer.live.start, buffer.live.end);
            spans.push(ScheduledSpan { region: spot.region, span, start, end });
            buffers.push(at);
        }
        Self::new(regions, spans).map_err(|error| {
            NoSchedule::Spans(match error {
                ScheduleError::Overlap { first, second } => {
                    ScheduleError::Overlap { first: buffers[first], second: buffers[second] }
                }
                other => other,
            })
        })
    }

    /// Returns the stretches of memory.
    #[must_use]
    pub fn regions(&self) -> &[ScheduledRegion] {
        &self.regions
    }

    /// Returns the allocations, in the order in which they are made.
    #[must_use]
    pub fn spans(&self) -> &[ScheduledSpan] {
        &self.spans
    }
}

/// Plays the schedule: at every start, the neighbours of the new span must leave it room.
fn refuse_overlap(spans: &[ScheduledSpan], order: &[usize]) -> Result<(), ScheduleError> {
    let mut ends: Vec<usize> = order.to_vec();
    ends.sort_by_key(|&at| spans[at].end);
    let mut ends = ends.into_iter().peekable();
    let mut live: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    for &at in order {
        let one = &spans[at];
        while let Some(over) = ends.next_if(|&over| spans[over].end <= one.start) {
            live.remove(&(spans[over].region, spans[over].span.offset));
        }
        let below = live.range((one.region, 0)..(one.region, one.span.end())).next_back();
        if let Some((_, &first)) = below.filter(|b| spans[*b.1].span.end() > one.span.offset) {
            return Err(ScheduleError::Overlap { first, second: at });
        }
        live.insert((one.region, one.span.offset), at);
    }
    Ok(())
}
