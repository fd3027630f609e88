//! One error type, matched by kind.
use core::fmt;

/// Shorthand used across the project.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Kind of a failure, in words a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device has no memory left at this moment: free something, trim, or wait for a timeline.
    OutOfDeviceMemory,
    /// The host has no memory left for bookkeeping or staging: free host memory.
    OutOfHostMemory,
    /// Enough bytes are free, but no single hole is long enough: defragment.
    Fragmented,
    /// The request can never fit this heap or pool: ask for less, or for another heap.
    ExceedsLimit,
    /// A budget set by the user forbids it: raise the budget or free something it covers.
    OverBudget,
    /// The request has no bytes: ask for at least one.
    ZeroSize,
    /// The alignment is not a power of two, or is above what the heap can give.
    InvalidAlignment,
    /// Sizes or offsets do not fit in 64 bits: the request is a bug in the caller's arithmetic.
    SizeOverflow,
    /// The bytes named lie outside the allocation: check offset and length.
    OutOfRange,
    /// Offset or length is not a multiple of what the device can copy, fill or flush.
    Misaligned,
    /// Copies of one batch write the same bytes, or read what another writes: split the batch.
    Overlap,
    /// The device has no such heap, or none that the request permits.
    NoSuchHeap,
    /// The timeline was closed, or belongs to another device.
    NoSuchTimeline,
    /// The allocation belongs to another manager: give it to its owner.
    Foreign,
    /// The allocation was freed already or never existed, or what it came from has changed: the error's detail says which.
    Stale,
    /// The object is still in use: free the allocations, or wait for the timelines, then try again.
    Busy,
    /// The host cannot see these bytes: use `write` and `read`, or ask for a host-visible heap.
    NotMappable,
    /// The bytes were published and are read-only: allocate new ones instead.
    Published,
    /// The device or its backend lacks the capability, or is not here: the error's detail says which.
    Unsupported,
    /// A setting contradicts itself or the device: the error's detail names it.
    InvalidConfig,
    /// A pool's own strategy broke the contract of `Strategy`: the log says how; fix the strategy.
    BadStrategy,
    /// The pool of these bytes is asleep: wake it first.
    Asleep,
    /// The pool sleeps already: nothing was changed.
    AlreadyAsleep,
    /// The pool is awake already: nothing was changed.
    AlreadyAwake,
    /// The device is gone; every block is lost: open a new device.
    DeviceLost,
    /// Any other failure of the driver; the native code is in the error.
    Driver,
}

// `Driver` stays the last kind: one before it that `ALL` lacks does not compile, nor does another order.
const _: () = {
    let mut at = 0;
    while at < ErrorKind::ALL.len() {
        assert!(ErrorKind::ALL[at] as usize == at, "ErrorKind::ALL leaves out a kind");
        at += 1;
    }
    assert!(ErrorKind::Driver as usize + 1 == ErrorKind::ALL.len());
};

/// The recovery worth trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Retire finished work or free something, then retry.
    Reclaim,
    /// Run a defragmentation pass, then retry.
    Defragment,
    /// Retrying cannot help.
    GiveUp,
}

impl ErrorKind {
    /// Every kind, in the order of their declaration: for tables that must leave none out.
    pub const ALL: [Self; 26] = [
        Self::OutOfDeviceMemory,
        Self::OutOfHostMemory,
        Self::Fragmented,
        Self::ExceedsLimit,
        Self::OverBudget,
        Self::ZeroSize,
        Self::InvalidAlignment,
        Self::SizeOverflow,
        Self::OutOfRange,
        Self::Misaligned,
        Self::Overlap,
        Self::NoSuchHeap,
        Self::NoSuchTimeline,
        Self::Foreign,
        Self::Stale,
        Self::Busy,
        Self::NotMappable,
        Self::Published,
        Self::Unsupported,
        Self::InvalidConfig,
        Self::BadStrategy,
        Self::Asleep,
        Self::AlreadyAsleep,
        Self::AlreadyAwake,
        Self::DeviceLost,
        Self::Driver,
    ];

    /// Maps a kind to the recovery worth trying.
    #[must_use]
    pub const fn advice(self) -> Advice {
        match self {
            Self::OutOfDeviceMemory | Self::OutOfHostMemory | Self::OverBudget | Self::Busy => {
                Advice::Reclaim
            }
            Self::Fragmented => Advice::Defragment,
            _ => Advice::GiveUp,
        }
    }

    /// Returns true if memory is short now and may not be later.
    #[must_use]
    pub const fn is_out_of_memory(self) -> bool {
        matches!(
            self,
            Self::OutOfDeviceMemory | Self::OutOfHostMemory | Self::Fragmented | Self::OverBudget
        )
    }

    /// Returns an error of this kind that also says what exactly went wrong and what to do.
    #[must_use]
    pub const fn because(self, detail: &'static str) -> Error {
        Error { kind: self, native: 0, detail }
    }

    /// One sentence for people: what happened and what to do.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::OutOfDeviceMemory => "the device is out of memory; free something or trim",
            Self::OutOfHostMemory => "the host is out of memory; free host memory",
            Self::Fragmented => "enough bytes are free but scattered; defragment",
            Self::ExceedsLimit => "the request can never fit here; ask for less or another heap",
            Self::OverBudget => "the budget forbids it; raise the budget or free something",
            Self::ZeroSize => "zero bytes were asked for; ask for at least one",
            Self::InvalidAlignment => "the alignment is not a power of two that the heap can give",
            Self::SizeOverflow => "size or offset overflows 64 bits; check the arithmetic",
            Self::OutOfRange => "the range lies outside the allocation; check offset and length",
            Self::Misaligned => "offset or length is not a multiple of the device's copy alignment",
            Self::Overlap => "copies of one batch overlap; split it into batches that do not",
            Self::NoSuchHeap => "no heap of this device satisfies the request",
            Self::NoSuchTimeline => "the timeline was closed or belongs to another device",
            Self::Foreign => "the allocation belongs to another manager",
            Self::Stale => "it was freed or changed meanwhile",
            Self::Busy => "it is still in use; free its allocations or wait for its timelines",
            Self::NotMappable => "the host cannot see these bytes; use write and read",
            Self::Published => "the bytes are published and stay as they are; allocate new ones",
            Self::Unsupported => "not supported by this device or build",
            Self::InvalidConfig => "a setting is invalid",
            Self::BadStrategy => {
                "the pool's own strategy broke its contract, as the log says; fix the strategy"
            }
            Self::Asleep => "the pool is asleep; wake it first",
            Self::AlreadyAsleep => "the pool sleeps already; nothing was changed",
            Self::AlreadyAwake => "the pool is awake already; nothing was changed",
            Self::DeviceLost => "the device is lost; open a new one",
            Self::Driver => "the driver refused",
        }
    }
}

/// A failed operation. Cheap to build: no allocation, no backtrace.
///
/// `Debug` prints the same sentence as `Display`, behind the kind, so that a program whose `main` returns it says what to do.
///
/// ```
/// use omniheap_seam::{Error, ErrorKind};
/// let error: Error = ErrorKind::InvalidConfig.because("`lanes` is 0; leave it unset or set at least 1");
/// assert_eq!(error.to_string(), "a setting is invalid: `lanes` is 0; leave it unset or set at least 1");
/// assert_eq!(format!("{error:?}"), format!("InvalidConfig: {error}"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    native: i64,
    detail: &'static str,
}

impl Error {
    /// Creates an error without a driver code.
    #[must_use]
    pub const fn new(kind: ErrorKind) -> Self {
        Self { kind, native: 0, detail: "" }
    }

    /// Attaches the vendor's own code, for logs only.
    #[must_use]
    pub const fn with_native(self, native: i64) -> Self {
        Self { native, ..self }
    }

    /// Returns what exactly went wrong and what to do, where the kind alone does not say it; empty otherwise.
    #[must_use]
    pub const fn detail(&self) -> &'static str {
        self.detail
    }

    /// Returns the kind to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the vendor's own code, zero if there is none. For logs only.
    #[must_use]
    pub const fn native(&self) -> i64 {
        self.native
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.sentence())?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if self.native == 0 { Ok(()) } else { write!(f, " (driver code {})", self.native) }
    }
}

impl core::error::Error for Error {}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for ErrorKind {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn the_code_of_a_driver_is_shown_where_there_is_one() {
        let kind = ErrorKind::OutOfDeviceMemory;
        assert_eq!(Error::new(kind).to_string(), kind.to_string());
        let told = Error::new(kind).with_native(-7).to_string();
        assert_eq!(told, kind.to_string() + " (driver code -7)");
    }
}
