//! One driver allocation of any kind.
use crate::{driver::Raw, positions::Positions};
use core::fmt;
use cudarc::driver::sys::CUextMemory_st;
use omniheap_core::HeapId;

/// How a block came to be, which decides how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Memory {
    /// `cuMemAlloc`.
    Device,
    /// The driver's asynchronous pool.
    Pooled,
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemAllocManaged`.
    Managed,
    /// The module's `__constant__` bank.
    Constant,
    /// Addresses whose pages are mapped one by one.
    Reserved,
    /// Physical memory that can leave the process.
    Exportable,
    /// Physical memory from another process or API.
    Imported,
}

/// What freeing a block needs.
pub(crate) enum Kind {
    Device,
    Pooled,
    Pinned(Raw<u8>),
    Managed,
    Constant,
    Reserved(Positions),
    Exportable(u64),
    Imported(u64),
    Opened,
    External(Raw<CUextMemory_st>),
}

/// One driver allocation.
///
/// Only its own backend makes and frees one, so its address is that of live memory for as long as it exists.
pub struct Block {
    pub(crate) owner: u64,
    pub(crate) heap: HeapId,
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
}

impl Block {
    /// The `CUdeviceptr` of the first byte.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.base
    }

    /// Bytes that may be used.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The heap it came from.
    #[must_use]
    pub const fn heap(&self) -> HeapId {
        self.heap
    }

    /// How it came to be.
    #[must_use]
    pub const fn memory(&self) -> Memory {
        match self.kind {
            Kind::Device => Memory::Device,
            Kind::Pooled => Memory::Pooled,
            Kind::Pinned(_) => Memory::Pinned,
            Kind::Managed => Memory::Managed,
            Kind::Constant => Memory::Constant,
            Kind::Reserved(_) => Memory::Reserved,
            Kind::Exportable(_) => Memory::Exportable,
            Kind::Imported(_) | Kind::Opened | Kind::External(_) => Memory::Imported,
        }
    }

    /// The address of an offset that was checked before.
    pub(crate) const fn at(&self, offset: u64) -> u64 {
        self.base + offset
    }

    /// Whether the bytes are device memory, now and always.
    pub(crate) const fn is_on_device(&self) -> bool {
        !matches!(self.kind, Kind::Pinned(_) | Kind::Managed)
    }

    /// Whether kernels see the bytes through the constant cache.
    pub(crate) const fn is_constant(&self) -> bool {
        matches!(self.kind, Kind::Constant)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("memory", &self.memory())
            .field("heap", &self.heap)
            .field("address", &format_args!("{:#x}", self.base))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
