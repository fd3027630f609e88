//! One driver allocation of any kind.
use crate::{Positions, Raw};
use core::fmt;
use omniheap_seam::{ErrorKind, HeapId, Result};

/// Kind of memory behind a block. It decides how the block is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Memory {
    /// The driver's plain device memory.
    Device,
    /// The driver's asynchronous pool.
    Pooled,
    /// Pinned host memory.
    Pinned,
    /// Managed memory.
    Managed,
    /// The constant bank; where the device has none, read-only device memory.
    Constant,
    /// Addresses whose pages are mapped one by one.
    Reserved,
    /// Physical memory that can leave the process.
    Exportable,
    /// Physical memory from another process or API.
    Imported,
}

/// Backend-specific data of a block, needed to free it.
pub trait BlockKind: Send + Sync + 'static {
    /// Returns the kind of another process's memory that is opened by a handle.
    fn opened() -> Self;

    /// Returns the kind of memory that its owner frees.
    fn borrowed() -> Self;

    /// Returns the kind of memory.
    fn memory(&self) -> Memory;

    /// Returns the host's address of pinned memory.
    fn pinned(&self) -> Option<Raw<u8>>;

    /// Returns the mapped positions of a reservation.
    fn positions(&self) -> Option<&Positions>;

    /// Returns whether kernels may write the bytes.
    fn is_writable(&self) -> bool;
}

/// One driver allocation.
///
/// Only its own backend makes and frees one, so its address is that of live memory for as long as it exists.
pub struct Block<K> {
    pub(crate) owner: u64,
    pub(crate) heap: HeapId,
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) kind: K,
}

impl<K> Block<K> {
    /// Returns the device address of the first byte.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.base
    }

    /// Returns the bytes that may be used.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the heap it came from.
    #[must_use]
    pub const fn heap(&self) -> HeapId {
        self.heap
    }

    /// Returns the backend-specific data of the block.
    #[must_use]
    pub const fn kind(&self) -> &K {
        &self.kind
    }

    /// Returns the address of an offset that was checked before.
    ///
    /// # Panics
    ///
    /// Panics if the offset lies beyond the block.
    #[must_use]
    pub const fn at(&self, offset: u64) -> u64 {
        assert!(offset <= self.size, "the offset lies beyond the block");
        // Whoever made the block promised that its bytes are there, so the sum fits.
        self.base + offset
    }
}

impl<K: BlockKind> Block<K> {
    /// Returns the kind of memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.kind.memory()
    }

    /// Returns the mapped positions of a reserved block.
    ///
    /// # Errors
    ///
    /// `Unsupported` for any other block.
    pub fn positions(&self) -> Result<&Positions> {
        self.kind.positions().ok_or_else(|| ErrorKind::Unsupported.into())
    }

    /// Returns whether the bytes are device memory, now and always.
    pub(crate) fn is_on_device(&self) -> bool {
        !matches!(self.memory(), Memory::Pinned | Memory::Managed)
    }

    /// Returns whether [`Programs`](crate::Programs) must hear of every write, to update constants.
    pub(crate) fn is_watched(&self) -> bool {
        self.memory() == Memory::Constant
    }
}

impl<K: BlockKind> fmt::Debug for Block<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("memory", &self.memory())
            .field("heap", &self.heap)
            .field("address", &format_args!("{:#x}", self.base))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
