//! Errors of failed allocations, with the figures that explain them.
use super::{Manager, report::pool_totals};
use crate::lane::Ask;
use crate::pool::Pool;
use crate::{Backend, Error, ErrorKind, HeapId, Keyword, RegionVerdict};
use core::fmt;

/// Shortage behind a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The heap that was tried last.
    pub heap: HeapId,
    /// Bytes asked for.
    pub requested: u64,
    /// The largest hole of any lane.
    pub largest_hole: u64,
    /// Bytes in holes.
    pub free: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// Bytes live.
    pub live: u64,
    /// Bytes freed that wait for a timeline.
    pub deferred: u64,
    /// The hard limit of the heap's budget.
    pub hard_limit: u64,
    /// True if the request would fit if all free bytes were one hole.
    pub fits_after_defragment: bool,
    /// True if the request would fit once every timeline has passed.
    pub fits_after_wait: bool,
    /// True if host memory has room for the request, which forbids it.
    pub fits_after_spill: bool,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes were asked for; heap {} holds {} bytes, {} live, {} free in holes of at most {}, {} waiting for \
             timelines",
            self.requested,
            self.heap.0,
            self.reserved,
            self.live,
            self.free,
            self.largest_hole,
            self.deferred
        )?;
        if self.hard_limit < u64::MAX {
            write!(f, ", and may hold {}", self.hard_limit)?;
        }
        match (self.fits_after_defragment, self.fits_after_wait) {
            (true, _) => f.write_str("; it would fit after defragmentation"),
            (false, true) => f.write_str("; it would fit once the timelines have passed"),
            (false, false) => f.write_str("; free something, or ask for less"),
        }?;
        if self.fits_after_spill { f.write_str(", or let it spill to host memory") } else { Ok(()) }
    }
}

/// An allocation that failed. `Debug` prints the kind and the sentence that `Display` prints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AllocateError {
    error: Error,
    detail: Detail,
}

/// Details beside the kind of an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Nothing,
    Short(Shortage),
    Refused(RegionVerdict),
}

impl AllocateError {
    pub(super) const fn short(error: Error, shortage: Shortage) -> Self {
        Self { error, detail: Detail::Short(shortage) }
    }

    pub(super) const fn refusing(error: Error, verdict: RegionVerdict) -> Self {
        Self { error, detail: Detail::Refused(verdict) }
    }

    /// Returns the shortage, where memory was missing.
    #[must_use]
    pub const fn shortage(&self) -> Option<&Shortage> {
        if let Detail::Short(shortage) = &self.detail { Some(shortage) } else { None }
    }

    /// The region that suits the request best and why it cannot have it, where that is what went wrong.
    #[must_use]
    pub const fn refused(&self) -> Option<&RegionVerdict> {
        if let Detail::Refused(verdict) = &self.detail { Some(verdict) } else { None }
    }
}

carries_error!(AllocateError { detail: Detail::Nothing });

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        match self.detail {
            Detail::Short(shortage) => write!(f, ": {shortage}"),
            Detail::Refused(RegionVerdict { region, refusal: Some(why) }) => {
                write!(f, ": {} memory suits it best, but {why}", region.word())
            }
            _ => Ok(()),
        }
    }
}

/// A call that takes an allocation or a pool and failed: what it was given comes back, as it was.
pub struct GiveBack<T> {
    /// The argument of the call.
    pub given: T,
    /// The reason.
    pub error: Error,
}

impl<T> fmt::Debug for GiveBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> fmt::Display for GiveBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T> core::error::Error for GiveBack<T> {}

impl<B: Backend> Manager<B> {
    /// Adds to a failure what people need to understand it.
    pub(super) fn explain_failure(&self, pool: &Pool<B>, ask: Ask, error: Error) -> AllocateError {
        if !error.kind().is_out_of_memory() {
            return error.into();
        }
        let (heap, size, totals) = (pool.shared.heap, ask.layout.size, pool_totals(pool));
        let shortage = Shortage {
            heap,
            requested: ask.size,
            largest_hole: totals.largest_hole,
            free: totals.free_bytes,
            reserved: totals.reserved_bytes,
            live: totals.live_bytes,
            deferred: totals.deferred_bytes,
            hard_limit: self.inner.device.heap_use(heap).map_or(u64::MAX, |heap| heap.hard_limit),
            fits_after_defragment: totals.free_bytes >= size,
            fits_after_wait: totals.free_bytes.saturating_add(totals.deferred_bytes) >= size,
            fits_after_spill: self.could_spill(heap, size),
        };
        let scattered =
            shortage.fits_after_defragment && error.kind() == ErrorKind::OutOfDeviceMemory;
        let error = if scattered {
            Error::new(ErrorKind::Fragmented).with_native(error.native())
        } else {
            error
        };
        AllocateError::short(error, shortage)
    }
}
