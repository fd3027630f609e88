//! Shorthand of these tests.
#![expect(unsafe_code, reason = "frees blocks")]
use omniheap_core::{Backend, BlockOffset, Error, ErrorKind, HeapId, HeapKind, TimelineId};
use omniheap_host::{Block, Host, heap};

pub(crate) const HEAP: HeapId = HeapId(0);
pub(crate) const MAIN: TimelineId = TimelineId::MAIN;
pub(crate) const MIB: u64 = 1 << 20;

/// Returns a device with one device heap.
pub(crate) fn host(size: u64) -> Host {
    Host::builder().heap(heap(HeapKind::Device, size)).open().expect("valid")
}

pub(crate) fn free<B: Backend>(backend: &B, block: B::Block) -> omniheap_core::Result<()> {
    // SAFETY: tests free blocks of the same backend; the host checks what else the contract asks for.
    unsafe { backend.free(block) }
}

pub(crate) fn at(block: &Block, offset: u64) -> BlockOffset<'_, Block> {
    BlockOffset { block, offset }
}

pub(crate) fn read(host: &Host, on: TimelineId, block: &Block, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let transfer = host.as_transfer().expect("has transfers");
    transfer.read(on, at(block, offset), &mut bytes).expect("readable");
    bytes
}

pub(crate) fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("refused").kind()
}

pub(crate) fn used(host: &Host) -> u64 {
    host.as_budget().expect("has a budget").budget(HEAP).expect("alive").used
}
