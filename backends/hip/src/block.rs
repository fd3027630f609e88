//! Kinds of blocks. The kind decides how a block is freed.
use crate::{
    driver::{Driver, Reserved},
    sys::hipMemGenericAllocationHandle_t,
};
use core::sync::atomic::AtomicBool;
use omniheap_stream::{BlockKind, Memory, Positions, Raw};

/// One allocation of the runtime.
///
/// Only its own backend makes and frees one, so its address is that of live memory for as long as it exists.
pub type Block = omniheap_stream::Block<Kind>;

/// The kind of memory behind a block, with the data needed to free it.
#[derive(Debug)]
pub enum Kind {
    Device,
    Pooled,
    Pinned(Raw<u8>),
    Managed,
    Constant,
    Reserved(Reservation),
    Exportable(Shared),
    Imported(Shared),
    Opened,
    Borrowed,
}

/// Addresses whose pages are mapped one by one.
#[derive(Debug)]
pub struct Reservation {
    pub(crate) reserved: Reserved,
    pub(crate) positions: Positions,
    /// True if a map failed there: AMD's runtime remembers it, and takes it for what is mapped at those addresses later.
    pub(crate) is_spoiled: AtomicBool,
}

/// Physical memory with an address of its own.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub(crate) page: hipMemGenericAllocationHandle_t,
    pub(crate) reserved: Reserved,
    pub(crate) size: usize,
}

impl omniheap_stream::Driver for Driver {
    type Kind = Kind;
}

impl BlockKind for Kind {
    fn opened() -> Self {
        Self::Opened
    }

    fn borrowed() -> Self {
        Self::Borrowed
    }

    fn memory(&self) -> Memory {
        match self {
            Self::Device => Memory::Device,
            Self::Pooled => Memory::Pooled,
            Self::Pinned(_) => Memory::Pinned,
            Self::Managed => Memory::Managed,
            Self::Constant => Memory::Constant,
            Self::Reserved(_) => Memory::Reserved,
            Self::Exportable(_) => Memory::Exportable,
            Self::Imported(_) | Self::Opened | Self::Borrowed => Memory::Imported,
        }
    }

    fn pinned(&self) -> Option<Raw<u8>> {
        if let Self::Pinned(host) = self { Some(*host) } else { None }
    }

    fn positions(&self) -> Option<&Positions> {
        if let Self::Reserved(reservation) = self { Some(&reservation.positions) } else { None }
    }

    fn is_writable(&self) -> bool {
        // Constants are device memory too.
        true
    }
}
