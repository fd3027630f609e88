//! A device over the plain driver, and its blocks.
#![expect(unsafe_code, reason = "makes blocks")]
use crate::driver::Plain;
use omniheap_core::{Align, BlockOffset, DeviceInfo, HeapId, Result, SharedCaps};
use omniheap_stream::{
    BlockKind, ConstantHeap, Described, Facts, Memory, MemoryDriver, Positions, Raw, Registry,
    Source, Usable,
};
use std::sync::Arc;

pub(crate) type Device = omniheap_stream::Device<Plain>;
pub(crate) type Block = omniheap_stream::Block<Kind>;

pub(crate) const DEVICE: HeapId = HeapId(0);
pub(crate) const CONSTANT: HeapId = HeapId(3);
pub(crate) const PAGE: u64 = 4096;

impl omniheap_stream::Driver for Plain {
    type Kind = Kind;
}

#[derive(Debug)]
pub(crate) enum Kind {
    Device,
    Pinned(Raw<u8>),
    Constant,
    Reserved(Positions),
    Opened,
    Borrowed,
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
            Self::Pinned(_) => Memory::Pinned,
            Self::Constant => Memory::Constant,
            Self::Reserved(_) => Memory::Reserved,
            Self::Opened | Self::Borrowed => Memory::Imported,
        }
    }

    fn pinned(&self) -> Option<Raw<u8>> {
        if let Self::Pinned(host) = self { Some(*host) } else { None }
    }

    fn positions(&self) -> Option<&Positions> {
        if let Self::Reserved(positions) = self { Some(positions) } else { None }
    }

    fn is_writable(&self) -> bool {
        !matches!(self, Self::Constant)
    }
}

pub(crate) fn open() -> Device {
    let driver = Arc::new(Plain::default());
    let text = String::from;
    let facts = Facts {
        device: DeviceInfo {
            backend: "plain",
            name: text("host"),
            driver: text("none"),
            uuid: Some([1; 16]),
        },
        total_memory: 64 << 20,
        host_memory: None,
        device_align: Align::of(4096),
        device_granule: Align::of(4096),
        managed_granule: Align::of(4096),
        constant: Some(ConstantHeap {
            name: "constants",
            size: 4096,
            align: Align::of(256),
            granule: Align::of(256),
            physical: 0,
        }),
        shared: SharedCaps {
            per_group: 1000,
            per_group_opt_in: 3000,
            per_multiprocessor: 3000,
            banks: 32,
            bank_width: 4,
        },
    };
    let usable = Usable { page: Some(Align::of(PAGE)), managed: None, exportable: None };
    let (caps, sources) = facts.translate(usable);
    let timelines = Registry::new(&driver, None).expect("streams are numbers");
    let described = Described { caps, sources, findings: Vec::new(), max_pitch: 1 << 20 };
    Device::new(driver, timelines, described)
}

/// Returns a block as a backend allocates it.
pub(crate) fn allocate(device: &Device, heap: HeapId, size: u64) -> Result<Block> {
    let give = |source, bytes| {
        Ok(match source {
            Source::Constant => (device.driver().allocate(bytes)?, Kind::Constant),
            Source::Cached | Source::Combined => {
                let host = device.driver().take(bytes)?.as_ptr();
                (host.expose_provenance() as u64, Kind::Pinned(Raw(host)))
            }
            Source::Device | Source::Managed => (device.driver().allocate(bytes)?, Kind::Device),
        })
    };
    // SAFETY: the driver gives ranges of the size asked for.
    unsafe { device.allocate(heap, size, give, |block| free(device, block)) }
}

pub(crate) fn free(device: &Device, block: Block) -> Result<()> {
    device.let_go(&block)?;
    // SAFETY: allocated by `allocate`, and freed by value.
    unsafe { device.driver().free(block.address()) }
}

pub(crate) const fn at(block: &Block, offset: u64) -> BlockOffset<'_, Block> {
    BlockOffset { block, offset }
}
