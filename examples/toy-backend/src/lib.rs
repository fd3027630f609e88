#![doc = include_str!("../README.md")]
#![expect(unsafe_code, reason = "signs the contract of Backend")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_seam::{
    Align, Backend, BlockOffset, Caps, DeviceInfo, DriverBudget, ErrorKind, Heap, HeapBudget,
    HeapId, HeapKind, Move, Result, TimelineId, Transfer,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A device that is a number of bytes.
#[derive(Debug)]
pub struct Toy {
    caps: Caps,
    used: AtomicU64,
}

/// One block.
#[derive(Debug)]
pub struct Block(Mutex<Vec<u8>>);

impl Toy {
    /// Creates a device of `size` bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let device = DeviceInfo {
            backend: "toy",
            name: "a toy".into(),
            driver: env!("CARGO_PKG_VERSION").into(),
            uuid: None,
        };
        // Nothing here has an address, so every alignment of an offset is an alignment.
        let heap = Heap::new(HeapKind::Device, size).name("bytes").align(Align::of(4096));
        let caps = Caps::new(device, vec![heap]).max_blocks(4096);
        Self { caps, used: AtomicU64::new(0) }
    }

    fn heap(&self, heap: HeapId) -> Result<&Heap> {
        self.caps.heap(heap).ok_or(ErrorKind::NoSuchHeap.into())
    }
}

impl Block {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        // No code that holds the lock panics, so what lies behind a poisoned one is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the range of `len` bytes at `offset`, or `OutOfRange` if it leaves the block.
fn range(bytes: &[u8], offset: u64, len: u64) -> Result<core::ops::Range<usize>> {
    let end = offset.checked_add(len).filter(|end| *end <= bytes.len() as u64);
    let narrow = |value: u64| usize::try_from(value).map_err(|_| ErrorKind::OutOfRange);
    Ok(narrow(offset)?..narrow(end.ok_or(ErrorKind::OutOfRange)?)?)
}

/// Refuses what is not on the only timeline.
fn main_only(on: TimelineId) -> Result<()> {
    if on == TimelineId::MAIN { Ok(()) } else { Err(ErrorKind::NoSuchTimeline.into()) }
}

// SAFETY: every block owns its bytes and has as many as were asked for; blocks have no address; `caps` is never
// written; all state is atomic or behind a lock.
unsafe impl Backend for Toy {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let heap = self.heap(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if size > heap.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let within = |used: u64| used.checked_add(size).filter(|sum| *sum <= heap.size);
        let claimed = self.used.fetch_update(Relaxed, Relaxed, within);
        claimed.map_err(|_| ErrorKind::OutOfDeviceMemory)?;
        let length = usize::try_from(size).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(length).is_err() {
            self.used.fetch_sub(size, Relaxed);
            return Err(ErrorKind::OutOfHostMemory.into());
        }
        bytes.resize(length, 0);
        Ok(Block(Mutex::new(bytes)))
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.used.fetch_sub(block.bytes().len() as u64, Relaxed);
        Ok(())
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(()) // Everything is done when it returns.
    }

    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }

    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }
}

// SAFETY: slices check every range.
unsafe impl Transfer for Toy {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        main_only(on)?;
        let mut block = to.block.bytes();
        let range = range(&block, to.offset, bytes.len() as u64)?;
        block[range].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        main_only(on)?;
        let block = from.block.bytes();
        bytes.copy_from_slice(&block[range(&block, from.offset, bytes.len() as u64)?]);
        Ok(())
    }

    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        main_only(on)?;
        let mut block = to.block.bytes();
        let range = range(&block, to.offset, size)?;
        block[range].fill(value);
        Ok(())
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        main_only(on)?;
        // Checked first, so that a batch that fails has changed nothing.
        self.caps.copy.check_batch(moves, |block| Ok(block.bytes().len() as u64))?;
        for step in moves {
            let mut bytes = vec![0; usize::try_from(step.size).map_err(|_| ErrorKind::OutOfRange)?];
            self.read(on, step.from, &mut bytes)?;
            self.write(on, step.to, &bytes)?;
        }
        Ok(())
    }
}

impl DriverBudget for Toy {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        Ok(HeapBudget { budget: self.heap(heap)?.size, used: self.used.load(Relaxed) })
    }
}
