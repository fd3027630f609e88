//! Shared memory as a layout: named arrays with phases, laid out for one launch. Pure.
mod order;

use crate::words::{Contents, Privacy};
use alloc::vec::Vec;
use core::fmt;
use omniheap_seam::{Align, SharedCaps, Span};
use order::{lower_bound, place};

/// Directions in which the threads of a group walk an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Walk {
    /// Only along rows: rows stand close together.
    #[default]
    Rows,
    /// Down columns too: rows are padded, so that a column's elements lie in different banks.
    Columns,
}

/// One array that a kernel keeps in shared memory.
///
/// ```
/// use omniheap_placement::{SharedArray, Walk};
/// let tile = SharedArray::new("tile", 4, 16).rows(16).walk(Walk::Columns).phases(0, 1);
/// assert_eq!(tile.name, "tile");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedArray<'a> {
    /// Names it in errors and reports.
    pub name: &'a str,
    /// Bytes of an element.
    pub element: u64,
    /// Elements of a row.
    pub columns: u64,
    /// Rows.
    pub rows: u64,
    /// Alignment of its start; at least its element's size.
    pub align: Align,
    /// Directions in which it is walked.
    pub walk: Walk,
    /// The first and the last phase in which it is used.
    pub phases: (u32, u32),
    /// Contents when its first phase starts.
    pub contents: Contents,
    /// Visibility of its bytes after its last phase.
    pub privacy: Privacy,
}

impl<'a> SharedArray<'a> {
    /// One row of `columns` elements, used in phase 0.
    #[must_use]
    pub const fn new(name: &'a str, element: u64, columns: u64) -> Self {
        Self {
            name,
            element,
            columns,
            rows: 1,
            align: Align::ONE,
            walk: Walk::Rows,
            phases: (0, 0),
            contents: Contents::Any,
            privacy: Privacy::Open,
        }
    }

    /// With this many rows.
    #[must_use]
    pub const fn rows(self, rows: u64) -> Self {
        Self { rows, ..self }
    }

    /// At a multiple of `align`.
    #[must_use]
    pub const fn align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    /// Walked so.
    #[must_use]
    pub const fn walk(self, walk: Walk) -> Self {
        Self { walk, ..self }
    }

    /// Used from phase `first` to phase `last`, both included.
    #[must_use]
    pub const fn phases(self, first: u32, last: u32) -> Self {
        Self { phases: (first, last), ..self }
    }

    /// Zero when its first phase starts.
    #[must_use]
    pub const fn zeroed(self) -> Self {
        Self { contents: Contents::Zero, ..self }
    }

    /// Cleared after its last phase: the next kernel on the multiprocessor must not see its bytes.
    #[must_use]
    pub const fn secret(self) -> Self {
        Self { privacy: Privacy::Secret, ..self }
    }

    /// Returns true if a phase needs both arrays.
    const fn meets(&self, other: &Self) -> bool {
        self.phases.0 <= other.phases.1 && other.phases.0 <= self.phases.1
    }

    /// Returns the bytes from one row to the next.
    fn pitch(&self, caps: &SharedCaps) -> Option<u64> {
        let row = self.element.checked_mul(self.columns)?;
        let word = u64::from(caps.bank_width.max(1));
        if self.walk == Walk::Rows || self.rows <= 1 || caps.banks <= 1 {
            return Some(row);
        }
        let step = self.element.max(word);
        let mut pitch = row.div_ceil(step).checked_mul(step)?;
        // Elements wider than a word take several banks each; then their groups must not coincide.
        let wanted = step.div_ceil(word).min(u64::from(caps.banks));
        for _ in 0..caps.banks {
            if common(pitch / word, u64::from(caps.banks)) <= wanted {
                return Some(pitch);
            }
            pitch = pitch.checked_add(step)?;
        }
        // No pitch helps where an element's size and the banks have it so.
        Some(row)
    }

    /// Returns the bytes of the whole array, and from row to row.
    fn measure(&self, index: usize, caps: &SharedCaps) -> Result<(u64, u64), SharedError> {
        if self.element == 0 || self.columns == 0 || self.rows == 0 {
            return Err(SharedError::Empty { array: index });
        }
        if self.phases.0 > self.phases.1 {
            return Err(SharedError::Phases { array: index, phases: self.phases });
        }
        let overflow = SharedError::Overflow { array: index };
        let pitch = self.pitch(caps).ok_or(overflow)?;
        let row = self.element * self.columns;
        let size = pitch.checked_mul(self.rows - 1).and_then(|rest| rest.checked_add(row));
        Ok((size.ok_or(overflow)?, pitch))
    }

    /// Returns the alignment of the start: the one asked for, or the element's own if that is larger.
    fn start(&self) -> Align {
        let natural = 1u64 << self.element.trailing_zeros().min(4);
        self.align.max(Align::new(natural).unwrap_or(Align::ONE))
    }
}

/// Returns the greatest common divisor.
const fn common(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Reason why arrays cannot be laid out. Arrays are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedError {
    /// An array has no bytes: give it elements, columns and rows.
    Empty {
        /// The array.
        array: usize,
    },
    /// An array ends before it starts: swap its phases.
    Phases {
        /// The array.
        array: usize,
        /// As given.
        phases: (u32, u32),
    },
    /// An array's size does not fit in 64 bits.
    Overflow {
        /// The array.
        array: usize,
    },
    /// All together are more than a group may have: use smaller tiles, or more phases.
    TooLarge {
        /// Bytes that the layout takes, static ones included.
        bytes: u64,
        /// Bytes that a group may have when the launch opts in.
        limit: u64,
    },
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { array } => {
                write!(f, "shared array {array} has no bytes; give it elements, columns and rows")
            }
            Self::Phases { array, phases: (first, last) } => {
                write!(f, "shared array {array} ends in phase {last} before it starts in {first}")
            }
            Self::Overflow { array } => write!(f, "the size of shared array {array} overflows"),
            Self::TooLarge { bytes, limit } => write!(
                f,
                "the layout takes {bytes} bytes of shared memory and a group may have {limit}; use smaller tiles or more \
                 phases"
            ),
        }
    }
}

impl core::error::Error for SharedError {}

/// Place of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSpan {
    /// Its bytes, from the start of dynamic shared memory.
    pub span: Span,
    /// Bytes from one row to the next.
    pub pitch: u64,
}

/// Moment at which bytes of a layout are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// Before this phase: the array counts on zeros.
    Before(u32),
    /// After this phase: the contents must not be visible to later arrays.
    After(u32),
}

/// Need of a launch to ask for more shared memory than is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptIn {
    /// Every launch may have this much.
    NotNeeded,
    /// The launch opts in.
    Needed,
}

/// Arrays laid out for one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLayout {
    /// Dynamic bytes of a group: what a launch is loaded with, a multiple of four.
    pub bytes: u64,
    /// Every array's place, in the order of the arrays.
    pub arrays: Vec<SharedSpan>,
    /// Spans that the kernel clears, each with its moment.
    pub clears: Vec<(Clear, Span)>,
    /// Need of the launch to opt in.
    pub opt_in: OptIn,
    /// Groups that one multiprocessor can hold at a time, as far as shared memory goes; `None` without a limit.
    pub resident_groups: Option<u64>,
    /// Bytes below which no layout of these arrays gets.
    pub lower_bound: u64,
}

impl SharedLayout {
    /// Lays arrays out. `fixed` bytes of a group are the kernel's own static shared memory.
    ///
    /// Arrays whose phases do not meet may share bytes. With seven arrays or fewer the result is the smallest there is;
    /// with more, [`lower_bound`](Self::lower_bound) says how much could be missing.
    ///
    /// ```
    /// use omniheap_placement::{SharedArray, SharedLayout};
    /// use omniheap_seam::SharedCaps;
    /// # let caps = SharedCaps { per_group: 49152, per_group_opt_in: 49152, per_multiprocessor: 65536, banks: 32, bank_width: 4 };
    /// let load = SharedArray::new("load", 4, 1024).phases(0, 0);
    /// let sums = SharedArray::new("sums", 4, 1024).phases(1, 1);
    /// let layout = SharedLayout::plan(&[load, sums], 0, &caps)?;
    /// assert_eq!(layout.bytes, 4096, "the two never meet, so they overlay");
    /// # Ok::<(), omniheap_placement::SharedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SharedError`], with the array, or the limit and the bytes.
    pub fn plan(
        arrays: &[SharedArray<'_>],
        fixed: u64,
        caps: &SharedCaps,
    ) -> Result<Self, SharedError> {
        let sizes = arrays
            .iter()
            .enumerate()
            .map(|(index, array)| array.measure(index, caps))
            .collect::<Result<Vec<_>, _>>()?;
        let (top, offsets) = place(arrays, &sizes);
        let bytes = top.checked_next_multiple_of(4).unwrap_or(u64::MAX);
        let total = bytes.saturating_add(fixed);
        let limit = caps.per_group.max(caps.per_group_opt_in);
        if total > limit {
            return Err(SharedError::TooLarge { bytes: total, limit });
        }
        let span = |(offset, (size, pitch)): (&u64, &(u64, u64))| SharedSpan {
            span: Span { offset: *offset, size: *size },
            pitch: *pitch,
        };
        let placed: Vec<_> = offsets.iter().zip(&sizes).map(span).collect();
        let is_small = total <= caps.per_group;
        Ok(Self {
            bytes,
            clears: clears(arrays, &placed),
            arrays: placed,
            opt_in: if is_small { OptIn::NotNeeded } else { OptIn::Needed },
            resident_groups: caps.per_multiprocessor.checked_div(total),
            lower_bound: lower_bound(arrays, &sizes),
        })
    }

    /// Returns the array's offset.
    #[must_use]
    pub fn offset(&self, array: usize) -> Option<u64> {
        self.arrays.get(array).map(|placed| placed.span.offset)
    }
}

fn clears(arrays: &[SharedArray<'_>], placed: &[SharedSpan]) -> Vec<(Clear, Span)> {
    let mut clears = Vec::new();
    for (array, placed) in arrays.iter().zip(placed) {
        if array.contents == Contents::Zero {
            clears.push((Clear::Before(array.phases.0), placed.span));
        }
        if array.privacy == Privacy::Secret {
            clears.push((Clear::After(array.phases.1), placed.span));
        }
    }
    clears
}
