//! Kinds of blocks. The kind decides how a block is freed.
use crate::driver::Driver;
use cudarc::driver::sys::CUextMemory_st;
use omniheap_stream::{BlockKind, Memory, Positions, Raw};

/// One driver allocation.
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
    Reserved(Positions),
    Exportable(u64),
    Imported(u64),
    Opened,
    Borrowed,
    External(Raw<CUextMemory_st>),
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
            Self::Imported(_) | Self::Opened | Self::Borrowed | Self::External(_) => {
                Memory::Imported
            }
        }
    }

    fn pinned(&self) -> Option<Raw<u8>> {
        if let Self::Pinned(host) = self { Some(*host) } else { None }
    }

    fn positions(&self) -> Option<&Positions> {
        if let Self::Reserved(positions) = self { Some(positions) } else { None }
    }

    fn is_writable(&self) -> bool {
        // Kernels see the bank through the constant cache.
        !matches!(self, Self::Constant)
    }
}
