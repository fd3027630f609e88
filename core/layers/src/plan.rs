//! Plans of a driver's failures, and the errors that it answers then.
use crate::CallKind;
use core::time::Duration;
use omniheap_seam::ErrorKind;

/// Calls that fail. Calls are counted from zero since the plan was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    /// No call.
    #[default]
    Never,
    /// The call with this number.
    Nth(u64),
    /// The call with this number, and every later call of its kind.
    From(u64),
    /// The call `at` and the next calls of its kind, `times` in all; then the driver has recovered.
    NthThenOk {
        /// The first to fail.
        at: u64,
        /// Number of calls that fail.
        times: u64,
    },
    /// The calls with these two numbers.
    Pair(u64, u64),
    /// The call of this kind with this number, counted within the kind.
    Kind(CallKind, u64),
    /// Each call fails with this chance in a million; the same calls for the same seed and order.
    Random {
        /// Chance in millionths.
        per_million: u32,
        /// Chooses which.
        seed: u64,
    },
    /// No call, but every call of this kind returns late.
    Delay(CallKind, Duration),
    /// No call, but from the call with this number on the driver gives false answers.
    Corruption(u64, Corruption),
    /// The call with this number and everything after it: the device is gone.
    LoseDeviceAt(u64),
}

/// False answer of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A block's address is null.
    NullAddress,
    /// A block's address is one byte off.
    MisalignedAddress,
    /// A block's address is that of the first block asked about.
    OverlappingAddress,
    /// A block has half the bytes that were asked for.
    ShortBlock,
    /// Work never finishes, to judge by the epoch reached.
    NeverReached,
}

/// Returns the errors of a call without a mistake in it, likeliest first. Never empty, and always with the
/// [errors of every call](omniheap_seam::Backend#errors-of-every-call).
///
/// With [`mistakes`] it is what the seam's documents list for the call.
#[must_use]
pub const fn errors(kind: CallKind) -> &'static [ErrorKind] {
    use ErrorKind::{
        Busy, DeviceLost, Driver, ExceedsLimit, Foreign, OutOfDeviceMemory, OutOfHostMemory,
    };
    match kind {
        CallKind::Allocate | CallKind::AllocateExportable | CallKind::Create => {
            &[OutOfDeviceMemory, OutOfHostMemory, Driver, DeviceLost, Busy]
        }
        CallKind::Reserve | CallKind::CreateOnHost | CallKind::MapPages | CallKind::Map => {
            &[OutOfHostMemory, Driver, DeviceLost, Busy]
        }
        CallKind::Write
        | CallKind::Read
        | CallKind::Fill
        | CallKind::Copy
        | CallKind::Load
        | CallKind::Launch => &[DeviceLost, OutOfHostMemory, Driver, Busy],
        CallKind::Free
        | CallKind::Destroy
        | CallKind::DestroyOnHost
        | CallKind::UnmapPages
        | CallKind::Unload => &[Driver, DeviceLost, Busy, OutOfHostMemory],
        CallKind::Open => &[ExceedsLimit, OutOfHostMemory, DeviceLost, Driver, Busy],
        CallKind::Import => {
            &[Foreign, OutOfDeviceMemory, DeviceLost, OutOfHostMemory, Driver, Busy]
        }
        CallKind::Export => &[Driver, OutOfHostMemory, DeviceLost, Busy],
        CallKind::WaitIdle
        | CallKind::Flush
        | CallKind::Invalidate
        | CallKind::Close
        | CallKind::Mark
        | CallKind::Reached
        | CallKind::Wait
        | CallKind::Order
        | CallKind::Budget => &[DeviceLost, Driver, Busy, OutOfHostMemory],
    }
}

/// Returns the errors, beside [`errors`], of a call that asks for what is not there or names what the backend does not
/// know.
#[must_use]
pub const fn mistakes(kind: CallKind) -> &'static [ErrorKind] {
    use ErrorKind::{
        ExceedsLimit, Foreign, InvalidConfig, Misaligned, NoSuchHeap, NoSuchTimeline, NotMappable,
        OutOfRange, Overlap, Stale, Unsupported, ZeroSize,
    };
    match kind {
        CallKind::Allocate | CallKind::AllocateExportable | CallKind::Reserve => {
            &[NoSuchHeap, ZeroSize, ExceedsLimit, Unsupported]
        }
        CallKind::Free | CallKind::WaitIdle => &[],
        CallKind::Map => &[NotMappable, Foreign],
        CallKind::Flush | CallKind::Invalidate => &[Foreign, NotMappable, OutOfRange, Misaligned],
        CallKind::Write | CallKind::Read | CallKind::Fill => {
            &[Foreign, OutOfRange, Misaligned, NoSuchTimeline]
        }
        CallKind::Copy => &[Foreign, OutOfRange, Misaligned, NoSuchTimeline, Overlap, Unsupported],
        CallKind::Open => &[],
        CallKind::Close => &[NoSuchTimeline, Unsupported],
        CallKind::Mark | CallKind::Reached => &[NoSuchTimeline],
        CallKind::Wait | CallKind::Order => &[NoSuchTimeline, OutOfRange],
        CallKind::Create | CallKind::CreateOnHost => &[NoSuchHeap, Unsupported],
        CallKind::Destroy | CallKind::DestroyOnHost => &[],
        CallKind::MapPages | CallKind::UnmapPages => &[OutOfRange],
        CallKind::Budget => &[NoSuchHeap, Unsupported],
        CallKind::Export => &[Foreign, Unsupported],
        CallKind::Import => &[NoSuchHeap, ExceedsLimit, Unsupported],
        CallKind::Load => &[ExceedsLimit, Misaligned, Unsupported, InvalidConfig],
        CallKind::Unload => &[Stale],
        CallKind::Launch => &[
            Stale,
            InvalidConfig,
            ZeroSize,
            ExceedsLimit,
            Foreign,
            OutOfRange,
            Misaligned,
            Unsupported,
            NoSuchTimeline,
        ],
    }
}

/// Returns whether the seam's documents list an answer for calls of this kind.
#[must_use]
pub fn is_documented(kind: CallKind, answer: ErrorKind) -> bool {
    errors(kind).contains(&answer) || mistakes(kind).contains(&answer)
}
