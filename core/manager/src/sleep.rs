//! Options and answers of pools that sleep, and the stores that keep their bytes meanwhile.
#![expect(unsafe_code, reason = "declares what a caller promises who sleeps over pins")]
use crate::event::{AllocationId, StoreKind};
use crate::{Error, ErrorKind, HostPinner, Point, Privacy, Result};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::fmt;

/// Copies one piece: its offset in the allocation, and its bytes.
pub type PutPiece<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;
/// Takes one piece: its offset in the allocation, and its bytes.
pub type GetPiece<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// Keeps the bytes of allocations while their pool sleeps: host memory, a file.
///
/// Several threads may call it, and `forget` may come while `get` of the same id runs. The store chooses the pieces: they lie
/// side by side, in order, and each but the last is a multiple of 4 KiB long.
pub trait BackingStore: fmt::Debug + Send + Sync {
    /// Makes room for `bytes` bytes before any of them is copied. A store in host memory has `pinner` pin the memory that they will be
    /// copied to; a failure to pin is no error, because it only makes copies slower.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory` where there is no room: the pool stays awake.
    fn prepare(&self, bytes: u64, pinner: &HostPinner<'_>) -> Result<()> {
        let _ = (bytes, pinner);
        Ok(())
    }

    /// Keeps `size` bytes under `id`, instead of what it kept there. `copy` fills each piece. The store may write on until
    /// [`flush`](Self::flush). The allocations of one lane ([`AllocationId::lane`]) come one after the other; others may come at once.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory` where there is no room, and what `copy` says; nothing is kept under `id` then.
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()>;

    /// Waits until the bytes under `id` are kept. A sleep calls it for each allocation after it has put all of them.
    ///
    /// # Errors
    ///
    /// The reason why they are not: the pool stays awake.
    fn flush(&self, _id: AllocationId) -> Result<()> {
        Ok(())
    }

    /// Hands every piece of what is kept under `id` to `take`. The bytes stay in the store.
    ///
    /// # Errors
    ///
    /// `Stale` where nothing is kept under `id`; what `take` says; `Driver` where the bytes are damaged.
    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()>;

    /// Drops what is kept under `id`, if anything is. Secret bytes are overwritten first.
    fn forget(&self, id: AllocationId);

    /// Returns whether it may keep such bytes.
    fn accepts(&self, privacy: Privacy) -> bool {
        let _ = privacy;
        true
    }

    /// Returns where it keeps bytes. One that keeps none is never asked for them.
    fn kind(&self) -> StoreKind {
        StoreKind::Host
    }
}

/// Options of a sleep: start from [`Sleep::to`].
#[derive(Clone, Debug)]
pub struct Sleep {
    pub(crate) store: Arc<dyn BackingStore>,
    pub(crate) after: Vec<Point>,
    pub(crate) over_pins: bool,
}

impl Sleep {
    /// Keeps the bytes in a store.
    pub fn to(store: Arc<dyn BackingStore>) -> Self {
        Self { store, after: Vec::new(), over_pins: false }
    }

    /// Waits for these points too, for work that the manager was not told of.
    #[must_use]
    pub fn after(mut self, points: impl IntoIterator<Item = Point>) -> Self {
        self.after.extend(points);
        self
    }

    /// Returns the store that keeps the bytes.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BackingStore> {
        &self.store
    }

    /// Returns the points that the sleep waits for besides what its pool knows of.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.after
    }

    /// Lets pinned allocations sleep too. They come back at the same addresses.
    ///
    /// # Safety
    ///
    /// Until the pool is awake again, nothing uses a binding, a mapping or an address of the pool's allocations, neither on
    /// the device nor on the host.
    #[must_use]
    pub unsafe fn over_pins(mut self) -> Self {
        self.over_pins = true;
        self
    }
}

/// Options of a wake: start from [`Wake::all`].
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    pub(crate) host_mapped: u64,
}

impl Wake {
    /// Wakes everything.
    #[must_use]
    pub const fn all() -> Self {
        Self { host_mapped: 0 }
    }

    /// Puts host memory, `most` bytes at most, at addresses for which the device has none left. Kernels and copies reach it
    /// over the link, until the pool sleeps and wakes again. Where the device maps no host memory, the wake fails as
    /// without it; `OverBudget` where `most` is too little.
    #[must_use]
    pub const fn host_mapped(self, most: u64) -> Self {
        Self { host_mapped: most }
    }
}

/// Figures of a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slept {
    /// Bytes that live allocations asked for.
    pub live: u64,
    /// Bytes copied to the store: live spans with their rounding, and no holes.
    pub copied: u64,
    /// Bytes returned to the driver.
    pub returned: u64,
    /// Bytes that stay held: the driver did not unmap them, or something that was freed is still in use. A wake uses them again.
    pub kept: u64,
}

/// Places of a pool's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residence {
    /// True if the pool is asleep, falling asleep or waking up: accesses and requests fail.
    pub asleep: bool,
    /// Bytes of the device's memory.
    pub device: u64,
    /// Bytes of host memory at the pool's addresses.
    pub host_mapped: u64,
    /// Bytes of live allocations that are away.
    pub evicted: u64,
    /// Bytes of live allocations, with their rounding, that a backing store keeps.
    pub stored: u64,
}

/// Reason why an allocation keeps its pool awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AwakeReason {
    /// Something holds its address: a binding, a mapping, or a pin for life.
    Pinned,
    /// The allocation has a block of its own, which may be exported.
    Dedicated,
    /// The allocation is secret, and the store does not take secrets.
    Secret,
    /// Defragmentation moves it now: try again.
    Moving,
    /// The allocation was freed, and work that was named or could not be followed may still use it.
    Deferred,
}

impl fmt::Display for AwakeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "it is pinned; drop its bindings and mappings",
            Self::Dedicated => "it has a block of its own; allocate it in another pool",
            Self::Secret => "it is secret and the store refuses secrets; sleep to host memory",
            Self::Moving => "defragmentation moves it; try again",
            Self::Deferred => "it was freed but work may still use it; wait for that work",
        })
    }
}

/// An allocation that keeps its pool awake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAwake {
    /// The allocation.
    pub id: AllocationId,
    /// Name that its owner gave it.
    pub name: Option<Box<str>>,
    /// Bytes that were asked for.
    pub size: u64,
    /// The reason.
    pub why: AwakeReason,
}

/// A sleep that failed: the pool is awake, with all its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct SleepError {
    error: Error,
    refused: Vec<KeptAwake>,
}

impl SleepError {
    pub(crate) const fn refused_by(refused: Vec<KeptAwake>) -> Self {
        let error = ErrorKind::Busy.because("allocations keep the pool awake");
        Self { error, refused }
    }

    /// The allocations that keep the pool awake, where that is why.
    #[must_use]
    pub fn refused(&self) -> &[KeptAwake] {
        &self.refused
    }
}

carries_error!(SleepError { refused: Vec::new() });

impl fmt::Display for SleepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let Some(first) = self.refused.first() else { return Ok(()) };
        let name = first.name.as_deref().unwrap_or("unnamed");
        write!(f, ": \"{name}\" ({} bytes): {}", first.size, first.why)?;
        match self.refused.len() - 1 {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
