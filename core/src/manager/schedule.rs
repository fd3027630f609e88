//! What a program will allocate, in order, and where each of it goes: a plan in the manager's words.
#![forbid(unsafe_code)]
use crate::{HeapId, Span};
use alloc::{collections::BTreeMap, vec::Vec};
use core::fmt;

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
    /// When it is allocated; any unit that only goes up.
    pub start: u64,
    /// When it has been freed; above `start`.
    pub end: u64,
}

/// The allocations of one iteration in order, each with its place.
///
/// Spans are in the order of their start; those that live at the same time have no byte in common.
///
/// # Examples
///
/// ```
/// use omniheap_core::{Schedule, ScheduledRegion, ScheduledSpan, ScheduleError, Span};
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

/// Why spans make no schedule. Numbers are positions in the list that was given.
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

impl Schedule {
    /// Sorts spans by their start and checks that they can be handed out.
    ///
    /// # Cost
    ///
    /// *O*(n log n).
    ///
    /// # Errors
    ///
    /// What the first wrong span is wrong about.
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

    /// The stretches of memory.
    #[must_use]
    pub fn regions(&self) -> &[ScheduledRegion] {
        &self.regions
    }

    /// The allocations, in the order in which they are made.
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
