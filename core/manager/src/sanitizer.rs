//! The hook of tools that watch the bytes of allocations: what they are told, and what they may do with the device.
#![forbid(unsafe_code)]
use crate::device::{Block, Device};
use crate::event::AllocationId;
use crate::sync::Mutex;
use crate::{
    Backend, BlockOffset, Caps, Contents, ErrorKind, HeapId, Move, Result, Span, TimelineId,
    Timelines, Transfer,
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};
use core::any::Any;
use core::fmt;

/// Makes a [`Sanitizer`] for each manager; set it in [`ManagerConfig`](crate::ManagerConfig).
pub trait Sanitize: Send + Sync + fmt::Debug {
    /// Makes the sanitizer of one manager.
    fn start(&self) -> Arc<dyn Sanitizer>;
}

/// Watches the bytes of every allocation of one manager, for example to find writes behind their end.
///
/// With a sanitizer no request takes the fast path; without one nothing is paid for. It must not call the manager. Only
/// [`skip`](Self::skip) is called under a lock; the others may wait for the device.
pub trait Sanitizer: Any + Send + Sync {
    /// Bytes to add behind each request, where the pool can give them.
    fn room(&self) -> u64;

    /// A timeline for work on bytes that no timeline orders.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn timeline(&self, device: &dyn SanitizerDevice) -> Result<TimelineId>;

    /// An allocation is about to be handed out; prepares its bytes in the order of `on`.
    ///
    /// Returns what to keep as [`Sanitized::note`]; zero for an allocation that is not looked at again.
    ///
    /// # Errors
    ///
    /// What the device says: the request fails with it.
    fn begin(&self, bytes: &dyn SanitizerBytes, on: TimelineId, contents: Contents) -> Result<u64>;

    /// A copy of whole words went over an allocation whose size is none; restores what lies behind its end.
    ///
    /// # Errors
    ///
    /// What the device says: the resize fails with it.
    fn restore(&self, bytes: &dyn SanitizerBytes, on: TimelineId) -> Result<()>;

    /// An allocation's bytes are about to be used again: in the order of `after`, or, without it, by anyone.
    ///
    /// # Errors
    ///
    /// What the device says when something may still touch the bytes: they are never used again.
    fn end(&self, bytes: &dyn SanitizerBytes, after: Option<TimelineId>) -> Result<()>;

    /// Looks at an allocation that lives on, after what its timeline has to do now.
    ///
    /// Returns how to report damage. The manager calls it, and looks at the allocation no more, unless the allocation ended
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn look<'a>(
        &'a self,
        bytes: &dyn SanitizerBytes,
        home: Option<TimelineId>,
    ) -> Result<Option<Box<dyn FnOnce() + 'a>>>;

    /// An allocation is not looked at: its block has no room, or its owner moved the bytes.
    fn skip(&self);

    /// Looks at what the device has copied since; with `wait`, waits for all of it.
    fn poll(&self, device: &dyn SanitizerDevice, wait: bool);

    /// Gives back scratch memory that is not in use.
    fn trim(&self, device: &dyn SanitizerDevice);

    /// The manager and all its allocations are gone: the last call.
    fn close(&self, device: &dyn SanitizerDevice);
}

/// An allocation, as a sanitizer sees it.
#[derive(Clone, Debug)]
pub struct Sanitized {
    /// The allocation.
    pub id: AllocationId,
    /// The name that its owner gave it.
    pub name: Option<Box<str>>,
    /// Bytes that were asked for.
    pub size: u64,
    /// Everything that it occupies of its block, padding included.
    pub span: Span,
    /// The heap that it lies in.
    pub heap: HeapId,
    /// What [`Sanitizer::begin`] returned; zero before that.
    pub note: u64,
}

/// Names a block of scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScratchId(u64);

/// A place in scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchPlace {
    /// The block.
    pub block: ScratchId,
    /// Bytes from its start.
    pub offset: u64,
}

/// The device, as a sanitizer may use it.
pub trait SanitizerDevice {
    /// What the device offers.
    fn caps(&self) -> &Caps;
    /// The device's timelines, if it has any.
    fn timelines(&self) -> Option<&dyn Timelines>;
    /// Waits until all work has finished.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn wait_idle(&self) -> Result<()>;
    /// Whether a timeline was closed, so that all of its work has passed.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn is_closed(&self, timeline: TimelineId) -> Result<bool>;
    /// Allocates a block of scratch memory of about `size` bytes; returns its size, too.
    fn take_scratch(&self, size: u64) -> Option<(ScratchId, u64)>;
    /// Frees scratch memory that nothing uses.
    fn free_scratch(&self, block: ScratchId);
    /// Never frees scratch memory that the device may still write.
    fn abandon_scratch(&self, block: ScratchId, why: &'static str);
    /// Reads scratch memory, after everything earlier on `on`.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn read_scratch(&self, on: TimelineId, from: ScratchPlace, bytes: &mut [u8]) -> Result<()>;
}

/// The bytes of one allocation, as a sanitizer may use them. Offsets count from the start of [`Sanitized::span`].
pub trait SanitizerBytes {
    /// The allocation.
    fn about(&self) -> &Sanitized;
    /// The device.
    fn device(&self) -> &dyn SanitizerDevice;
    /// Fills bytes, in the order of `on`.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device moves no bytes, or what it says.
    fn fill(&self, on: TimelineId, offset: u64, size: u64, value: u8) -> Result<()>;
    /// Writes bytes, in the order of `on`.
    ///
    /// # Errors
    ///
    /// As for [`fill`](Self::fill).
    fn write(&self, on: TimelineId, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Reads bytes, after everything earlier on `on`.
    ///
    /// # Errors
    ///
    /// As for [`fill`](Self::fill).
    fn read(&self, on: TimelineId, offset: u64, bytes: &mut [u8]) -> Result<()>;
    /// Copies bytes to scratch memory, in the order of `on`.
    ///
    /// # Errors
    ///
    /// As for [`fill`](Self::fill).
    fn save(&self, on: TimelineId, offset: u64, size: u64, to: ScratchPlace) -> Result<()>;
}

/// A manager's sanitizer, with the device that it works on.
pub(crate) struct Watch<B: Backend> {
    pub(crate) sanitizer: Arc<dyn Sanitizer>,
    device: Arc<Device<B>>,
    /// Where scratch memory comes from.
    heap: HeapId,
    scratch: Mutex<Scratch<B>>,
}

struct Scratch<B: Backend> {
    next: u64,
    blocks: BTreeMap<ScratchId, Arc<Block<B>>>,
}

/// An allocation that the sanitizer is about to see.
pub(crate) struct Seen<B: Backend> {
    pub(crate) block: Arc<Block<B>>,
    pub(crate) about: Sanitized,
}

/// The bytes of an allocation, with the device.
pub(crate) struct Bytes<'a, B: Backend> {
    watch: &'a Watch<B>,
    seen: &'a Seen<B>,
}

impl<B: Backend> Watch<B> {
    pub(crate) fn new(sanitizer: Arc<dyn Sanitizer>, device: Arc<Device<B>>, heap: HeapId) -> Self {
        let scratch = Mutex::new(Scratch { next: 0, blocks: BTreeMap::new() });
        Self { sanitizer, device, heap, scratch }
    }

    pub(crate) const fn bytes<'a>(&'a self, seen: &'a Seen<B>) -> Bytes<'a, B> {
        Bytes { watch: self, seen }
    }

    /// Looks at what the device has copied since; with `wait`, waits for all of it.
    pub(crate) fn poll(&self, wait: bool) {
        self.sanitizer.poll(self, wait);
    }

    fn transfer(&self) -> Result<&dyn Transfer<Block = B::Block>> {
        self.device.backend().as_transfer().ok_or(ErrorKind::Unsupported.into())
    }

    fn scratch(&self, block: ScratchId) -> Result<Arc<Block<B>>> {
        let found = self.scratch.lock().blocks.get(&block).cloned();
        found.ok_or(ErrorKind::Stale.into())
    }
}

impl<B: Backend> Drop for Watch<B> {
    fn drop(&mut self) {
        self.sanitizer.close(self);
    }
}

impl<B: Backend> SanitizerDevice for Watch<B> {
    fn caps(&self) -> &Caps {
        self.device.backend().caps()
    }

    fn timelines(&self) -> Option<&dyn Timelines> {
        self.device.backend().as_timelines()
    }

    fn wait_idle(&self) -> Result<()> {
        self.device.backend().wait_idle()
    }

    fn is_closed(&self, timeline: TimelineId) -> Result<bool> {
        self.device.is_closed(timeline)
    }

    fn take_scratch(&self, size: u64) -> Option<(ScratchId, u64)> {
        let about = self.device.heap(self.heap).ok()?;
        let size = about.granule.up(size)?.min(about.max_block);
        let block = Arc::new(self.device.allocate(self.heap, size).ok()?);
        let mut scratch = self.scratch.lock();
        let id = ScratchId(scratch.next);
        scratch.next += 1;
        scratch.blocks.insert(id, block);
        Some((id, size))
    }

    fn free_scratch(&self, block: ScratchId) {
        // Dropped without the lock: the driver takes its time.
        let freed = self.scratch.lock().blocks.remove(&block);
        drop(freed);
    }

    fn abandon_scratch(&self, block: ScratchId, why: &'static str) {
        if let Some(block) = self.scratch.lock().blocks.remove(&block) {
            self.device.quarantine(block.size(), why);
            core::mem::forget(block);
        }
    }

    fn read_scratch(&self, on: TimelineId, from: ScratchPlace, bytes: &mut [u8]) -> Result<()> {
        self.transfer()?.read(on, self.scratch(from.block)?.at(from.offset), bytes)
    }
}

impl<B: Backend> Bytes<'_, B> {
    fn place(&self, offset: u64) -> BlockOffset<'_, B::Block> {
        self.seen.block.at(self.seen.about.span.offset + offset)
    }
}

impl<B: Backend> SanitizerBytes for Bytes<'_, B> {
    fn about(&self) -> &Sanitized {
        &self.seen.about
    }

    fn device(&self) -> &dyn SanitizerDevice {
        self.watch
    }

    fn fill(&self, on: TimelineId, offset: u64, size: u64, value: u8) -> Result<()> {
        self.watch.transfer()?.fill(on, self.place(offset), size, value)
    }

    fn write(&self, on: TimelineId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.watch.transfer()?.write(on, self.place(offset), bytes)
    }

    fn read(&self, on: TimelineId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.watch.transfer()?.read(on, self.place(offset), bytes)
    }

    fn save(&self, on: TimelineId, offset: u64, size: u64, to: ScratchPlace) -> Result<()> {
        let block = self.watch.scratch(to.block)?;
        let to = block.at(to.offset);
        self.watch.transfer()?.copy(on, &[Move { from: self.place(offset), to, size }])
    }
}
