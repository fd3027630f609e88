//! Traces of one step at several batch sizes, as a line in the batch for each allocation.

use super::lives;
use core::fmt;
use omniheap_trace::{Event, LabelId, Labels, Op, Trace};
use std::collections::HashMap;

/// Reason why traces do not make lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Two sizes are needed for a line and one to check it.
    #[error("three traces at different batch sizes are needed, and there are {0}; record more")]
    TooFew(usize),
    /// The titles name different versions of PyTorch.
    #[error(
        "the traces come from different recorders ({0:?} and {1:?}); record all with one version"
    )]
    Versions(String, String),
    /// The traces are not of one program.
    #[error("{0}")]
    Differs(Box<Difference>),
    /// At this batch more bytes are live than 64 bits count.
    #[error("at batch {0} live bytes exceed 64 bits; ask for a smaller batch")]
    TooLarge(u64),
    /// At this batch an allocation would have no bytes, or more than 64 bits count.
    #[error(
        "at batch {batch} {label:?} would have {bytes} bytes; ask for a batch nearer to those traced"
    )]
    OffTheLine {
        /// The batch.
        batch: u64,
        /// The allocation's label.
        label: String,
        /// The bytes that the line gives.
        bytes: i128,
    },
}

/// The first place where traces of several batches do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The batches of the two traces, or of the line and the trace beside it.
    pub batches: (u64, u64),
    /// Number of the request, from 0.
    pub request: usize,
    /// Label in the first trace: module path and operator.
    pub label: String,
    /// Description of the difference.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batches: (one, other), request, label, what } = self;
        write!(f, "batches {one} and {other} differ at request {request} ({label}): {what}; ")?;
        f.write_str("trace at each batch that matters, and ask `omniheap fit`")
    }
}

/// A size as a line in the batch: `(base + slope * batch) / scale`.
#[derive(Debug, Clone, Copy)]
struct Line {
    base: i128,
    slope: i128,
    scale: i128,
}

impl Line {
    /// Returns nothing where the numbers are too large.
    fn through(a: (u64, u64), b: (u64, u64)) -> Option<Self> {
        let [x0, y0, x1, y1] = [a.0, a.1, b.0, b.1].map(i128::from);
        let (scale, slope) = (x1 - x0, y1 - y0);
        let base = y0.checked_mul(scale)?.checked_sub(slope.checked_mul(x0)?)?;
        Some(Self { base, slope, scale })
    }

    /// Returns the bytes at a batch, rounded up; nothing where they are too many.
    fn at(&self, batch: u64) -> Option<i128> {
        let whole = self.base.checked_add(self.slope.checked_mul(i128::from(batch))?)?;
        Some(whole.div_euclid(self.scale) + i128::from(whole.rem_euclid(self.scale) != 0))
    }
}

/// A step whose allocations are lines in the batch.
#[derive(Debug)]
pub struct Lines<'t> {
    /// The trace that gives order, labels and lifetimes.
    trace: &'t Trace,
    lines: Vec<Line>,
}

impl<'t> Lines<'t> {
    /// Matches the requests of traces by order and label. The smallest and the largest batch make the lines; every
    /// other trace must lie on them to the byte.
    ///
    /// # Errors
    /// [`BatchError::Differs`] names the first operator that does not match.
    pub fn new(traces: &'t [(u64, Trace)]) -> Result<Self, BatchError> {
        let mut sorted: Vec<_> = traces.iter().collect();
        sorted.sort_by_key(|(batch, _)| *batch);
        sorted.dedup_by_key(|(batch, _)| *batch);
        let [(low, first), middle @ .., (high, last)] = &sorted[..] else {
            return Err(BatchError::TooFew(sorted.len()));
        };
        if middle.is_empty() {
            return Err(BatchError::TooFew(sorted.len()));
        }
        for (batch, trace) in &sorted[1..] {
            same_recorder(first, trace)?;
            same_requests((*low, first), (*batch, trace))?;
        }
        let ends = sizes(first).zip(sizes(last));
        let lines: Option<_> = ends.map(|(a, b)| Line::through((*low, a), (*high, b))).collect();
        let lines = Self { trace: first, lines: lines.ok_or(BatchError::TooLarge(*high))? };
        for (batch, trace) in middle {
            lines.check((*low, *high), *batch, trace)?;
        }
        Ok(lines)
    }

    /// Fits lines through two traces, without a third to check them: good enough to choose what to trace next. Sizes that shrink
    /// with the batch are kept at their value for the larger one.
    ///
    /// # Errors
    /// As [`Lines::new`].
    pub fn unchecked(
        (low, first): (u64, &'t Trace),
        (high, last): (u64, &'t Trace),
    ) -> Result<Self, BatchError> {
        if low >= high {
            return Err(BatchError::TooFew(1));
        }
        same_recorder(first, last)?;
        same_requests((low, first), (high, last))?;
        let ends = sizes(first).zip(sizes(last));
        let lines: Option<_> =
            ends.map(|(a, b)| Line::through((low, a.min(b)), (high, b))).collect();
        Ok(Self { trace: first, lines: lines.ok_or(BatchError::TooLarge(high))? })
    }

    /// Returns the trace of the step at another batch.
    ///
    /// # Errors
    /// [`BatchError::OffTheLine`] when an allocation would have no bytes or too many, [`BatchError::TooLarge`] when all
    /// together have too many.
    pub fn at(&self, batch: u64) -> Result<Trace, BatchError> {
        let mut lives = lives::of(self.trace);
        for (life, line) in lives.iter_mut().zip(&self.lines) {
            let bytes = line.at(batch).ok_or(BatchError::TooLarge(batch))?;
            // A growing size is never zero, even where its line crosses zero at small batches.
            let bytes = if line.slope > 0 { bytes.max(1) } else { bytes };
            life.size = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
                let label = self.trace.labels().path(life.label);
                BatchError::OffTheLine { batch, label, bytes }
            })?;
        }
        lives::to_trace(&lives, self.trace).ok_or(BatchError::TooLarge(batch))
    }

    fn check(&self, ends: (u64, u64), batch: u64, trace: &Trace) -> Result<(), BatchError> {
        let wrong = self.lines.iter().zip(sizes(trace)).enumerate();
        let wrong = wrong.map(|(at, (line, size))| (at, line.at(batch), size));
        let mut wrong = wrong.filter(|(_, line, size)| *line != Some(i128::from(*size)));
        let Some((id, line, size)) = wrong.next() else { return Ok(()) };
        let line = line.ok_or(BatchError::TooLarge(batch))?;
        let (request, label) = request(self.trace, id);
        let what = format!("{size} bytes at batch {batch} are not on the line, which gives {line}");
        Err(BatchError::Differs(Box::new(Difference { batches: ends, request, label, what })))
    }
}

/// Number of batches beyond the first that does not fit that are tried.
const BEYOND: u64 = 16;

/// Returns the largest batch that fits, from 1 to `most`, searched from `start` on; `None` when none of those tried does.
///
/// A larger batch may fit where a smaller one does not, because requests of other sizes leave other gaps. So batches that are up to 1/32 larger,
/// 16 at most, are tried too; beyond them larger batches are taken to need more.
///
/// # Errors
/// Those of `fits`.
pub fn largest<E>(
    start: u64,
    most: u64,
    mut fits: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    let (mut low, mut high) = (0, most.saturating_add(1));
    let (mut batch, mut stride) = (start.clamp(1, most.max(1)), 1_u64);
    while low < batch && batch < high {
        if fits(batch)? {
            (low, batch) = (batch, batch.saturating_add(stride));
        } else {
            (high, batch) = (batch, batch.saturating_sub(stride));
        }
        stride = stride.saturating_mul(2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    let last = low.saturating_add((low / 32).min(BEYOND)).min(most);
    for batch in (high.saturating_add(1)..=last).rev() {
        if fits(batch)? {
            return Ok(Some(batch));
        }
    }
    Ok((low > 0).then_some(low))
}

fn same_recorder(a: &Trace, b: &Trace) -> Result<(), BatchError> {
    let (a, b) = (&a.meta().title, &b.meta().title);
    if a == b { Ok(()) } else { Err(BatchError::Versions(a.clone(), b.clone())) }
}

fn sizes(trace: &Trace) -> impl Iterator<Item = u64> {
    trace.events().iter().filter_map(|event| match event.op {
        Op::Allocate { size, .. } => Some(size),
        _ => None,
    })
}

/// Returns the requests of a trace: allocations and completed frees.
fn requests(trace: &Trace) -> impl Iterator<Item = &Event> {
    let is_request =
        |event: &&Event| matches!(event.op, Op::Allocate { .. } | Op::FreeCompleted { .. });
    trace.events().iter().filter(is_request)
}

/// Checks that two traces make and free the same allocations in the same order, sizes aside.
fn same_requests(a: (u64, &Trace), b: (u64, &Trace)) -> Result<(), BatchError> {
    let mut known = HashMap::new();
    let differ = |request, label, what: String| {
        let batches = (a.0, b.0);
        Err(BatchError::Differs(Box::new(Difference { batches, request, label, what })))
    };
    let (mut left, mut right) = (requests(a.1), requests(b.1));
    for request in 0.. {
        let (label, what) = match (left.next().map(|one| one.op), right.next().map(|one| one.op)) {
            (None, None) => return Ok(()),
            (Some(Op::Allocate { id, .. }), Some(Op::Allocate { id: other, .. })) => {
                let (one, two) = (a.1.label_of(id), b.1.label_of(other));
                if same_label(a.1.labels(), one, b.1.labels(), two, &mut known) {
                    continue;
                }
                (a.1.labels().path(one), format!("the other has {:?}", b.1.labels().path(two)))
            }
            (Some(Op::FreeCompleted { id, .. }), Some(Op::FreeCompleted { id: other, .. })) => {
                if id == other {
                    continue;
                }
                let two = b.1.labels().path(b.1.label_of(other));
                (
                    a.1.labels().path(a.1.label_of(id)),
                    format!("it is freed where the other frees {two:?}"),
                )
            }
            (one, _) => {
                let what = "one allocates where the other frees, or ends".to_owned();
                (one.and_then(|op| super::label(a.1, &op)).unwrap_or_default(), what)
            }
        };
        return differ(request, label, what);
    }
    Ok(())
}

/// Returns whether two labels of different traces have the same path. Each pair is compared once.
fn same_label(
    a: &Labels,
    one: LabelId,
    b: &Labels,
    two: LabelId,
    known: &mut HashMap<LabelId, LabelId>,
) -> bool {
    match known.get(&one) {
        Some(same) => *same == two,
        None => {
            let is_same = a.path(one) == b.path(two);
            if is_same {
                known.insert(one, two);
            }
            is_same
        }
    }
}

/// Returns the number of the request that made allocation `id`, and its label.
fn request(trace: &Trace, id: usize) -> (usize, String) {
    let is_it = |event: &&Event| matches!(event.op, Op::Allocate { id: other, .. } if other.0 as usize == id);
    let number = requests(trace).position(|event| is_it(&event)).unwrap_or(id);
    let event = requests(trace).nth(number);
    (number, event.and_then(|event| super::label(trace, &event.op)).unwrap_or_default())
}
