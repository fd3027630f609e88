//! A backend with one bug.
#![expect(unsafe_code, reason = "signs the contract of Backend, and breaks it on purpose")]
use crate::bug::Bug;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{
    Address, Backend, BlockOffset, Caps, DriverBudget, Epoch, Error, ErrorKind, Export, Exported,
    HeapBudget, HeapId, Launch, Map, Move, Page, Point, Remap, Result, TimelineId, Timelines,
    Transfer,
};
use omniheap_host::Host;
use std::sync::Arc;

type Inner = <Host as Backend>::Block;

pub(crate) struct Buggy {
    pub(crate) host: Arc<Host>,
    pub(crate) bug: Bug,
}

pub(crate) struct Block {
    inner: Inner,
    mapped: AtomicBool,
}

impl Block {
    const fn new(inner: Inner) -> Self {
        Self { inner, mapped: AtomicBool::new(false) }
    }
}

impl Buggy {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// Tells errors as the bug has it.
    fn told<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| match (error.kind(), self.bug) {
            (ErrorKind::ExceedsLimit, Bug::NeverIsNotNow) => {
                Error::new(ErrorKind::OutOfDeviceMemory)
            }
            (ErrorKind::NoSuchTimeline, Bug::ClosedIsBroken)
            | (ErrorKind::DeviceLost, Bug::LossIsBroken) => Error::new(ErrorKind::Driver),
            _ => error,
        })
    }

    fn unit(&self) -> u64 {
        self.host.caps().copy.align.get()
    }

    fn transfer(&self) -> &dyn Transfer<Block = Inner> {
        self.host.as_transfer().expect("the host has it")
    }
    fn lines(&self) -> &dyn Timelines {
        self.host.as_timelines().expect("the host has it")
    }
    fn remap(&self) -> &dyn Remap<Block = Inner> {
        self.host.as_remap().expect("the host has it")
    }
    fn share(&self) -> &dyn Export<Block = Inner> {
        self.host.as_export().expect("the host has it")
    }
}

pub(crate) const fn place<'a>(place: &BlockOffset<'a, Block>) -> BlockOffset<'a, Inner> {
    BlockOffset { block: &place.block.inner, offset: place.offset }
}

// SAFETY: nobody may rely on it; every bug stays inside memory that the host itself checks.
unsafe impl Backend for Buggy {
    type Block = Block;

    fn caps(&self) -> &Caps {
        self.host.caps()
    }
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let heap = if self.has(Bug::AnyHeapWillDo) && self.caps().heap(heap).is_none() {
            HeapId(0)
        } else {
            heap
        };
        let size = match self.bug {
            Bug::BlockTooSmall => (size / 2).max(1),
            Bug::ZeroIsServed => size.max(1),
            _ => size,
        };
        self.told(self.host.allocate(heap, size)).map(Block::new)
    }
    unsafe fn free(&self, block: Block) -> Result<()> {
        if self.has(Bug::FreeKeeps) {
            core::mem::forget(block);
            return Ok(());
        }
        // SAFETY: the caller's promise is about the same block.
        let freed = unsafe { self.host.free(block.inner) };
        match self.bug {
            Bug::FreeComplains => Err(ErrorKind::Driver.into()),
            Bug::FreeAsleep => Err(ErrorKind::Asleep.into()),
            _ => self.told(freed),
        }
    }
    fn wait_idle(&self) -> Result<()> {
        self.told(self.host.wait_idle())
    }
    fn as_map(&self) -> Option<&dyn Map<Block = Block>> {
        Some(self)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Block>> {
        Some(self)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.host.as_remap().map(|_| self as _)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }
    fn as_export(&self) -> Option<&dyn Export<Block = Block>> {
        Some(self)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        Some(self)
    }
}

// SAFETY: as for `Backend`: nobody may rely on it, and the host checks what reaches it.
unsafe impl Map for Buggy {
    type Block = Block;

    fn map(&self, block: &Block) -> Result<NonNull<u8>> {
        if block.mapped.swap(true, Relaxed) && self.has(Bug::MapsOnce) {
            return Err(ErrorKind::Driver.into());
        }
        self.host.as_map().expect("the host has it").map(&block.inner)
    }
    fn flush(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        if self.has(Bug::FlushDoesNothing) {
            return Ok(());
        }
        self.host.as_map().expect("the host has it").flush(&block.inner, offset, size)
    }
    fn invalidate(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        if self.has(Bug::InvalidateDoesNothing) {
            return Ok(());
        }
        self.host.as_map().expect("the host has it").invalidate(&block.inner, offset, size)
    }
}

// SAFETY: the host checks every range that reaches it.
unsafe impl Transfer for Buggy {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        let (mut to, mut bytes) = (place(&to), bytes);
        let unit = usize::try_from(self.unit()).expect("small");
        match self.bug {
            Bug::WriteOneUnitOff => to.offset += self.unit(),
            Bug::WriteShort if bytes.len() > unit => bytes = &bytes[..bytes.len() - unit],
            _ => {}
        }
        self.told(self.transfer().write(on, to, bytes))
    }
    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        let mut from = place(&from);
        if self.has(Bug::ReadFromBase) {
            from.offset = 0;
        }
        self.told(self.transfer().read(on, from, bytes))?;
        if self.has(Bug::ReadZeros) {
            bytes.fill(0);
        }
        Ok(())
    }
    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        let (on, size, value) = match self.bug {
            Bug::FillWrongValue => (on, size, value ^ 1),
            Bug::FillShort => (on, size - self.unit().min(size), value),
            Bug::FillOnMain => (TimelineId::MAIN, size, value),
            _ => (on, size, value),
        };
        self.told(self.transfer().fill(on, place(&to), size, value))
    }
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        let keep = match self.bug {
            Bug::CopyDoesNothing => 0,
            Bug::CopyLosesTheLast if moves.len() > 1 => moves.len() - 1,
            _ => moves.len(),
        };
        let moves: Vec<_> = moves[..keep]
            .iter()
            .map(|step| Move { from: place(&step.from), to: place(&step.to), size: step.size })
            .collect();
        if self.has(Bug::CopiesOneByOne) {
            return moves.chunks(1).try_for_each(|step| self.transfer().copy(on, step));
        }
        self.told(self.transfer().copy(on, &moves))
    }
}

// SAFETY: as for `Backend`: nobody may rely on it, and the host checks what reaches it.
unsafe impl Address for Buggy {
    type Block = Block;

    fn address(&self, block: &Block) -> u64 {
        let truth = self.host.as_address().expect("the host has it").address(&block.inner);
        truth + u64::from(self.has(Bug::AddressOff))
    }
}

// SAFETY: as for `Backend`: nobody may rely on it, and the host checks what reaches it.
unsafe impl Timelines for Buggy {
    fn open(&self) -> Result<TimelineId> {
        self.told(self.lines().open())
    }
    fn close(&self, timeline: TimelineId) -> Result<()> {
        self.told(self.lines().close(timeline))
    }
    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        if timeline == TimelineId::ALL && self.has(Bug::MarkAllEarly) {
            return self.told(self.lines().reached(timeline));
        }
        let early = u64::from(self.has(Bug::MarkEarly));
        self.told(self.lines().mark(timeline)).map(|epoch| Epoch(epoch.0.saturating_sub(early)))
    }
    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        let truth = self.told(self.lines().reached(timeline))?;
        Ok(match self.bug {
            Bug::ReachedTooFar => Epoch(u64::MAX),
            Bug::NeverReached => Epoch::START,
            _ => truth,
        })
    }
    fn wait(&self, point: Point) -> Result<()> {
        self.told(self.lines().wait(point))
    }
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        if self.has(Bug::OrderIgnored) {
            Ok(())
        } else {
            self.told(self.lines().order(timeline, point))
        }
    }
}

// SAFETY: the host refuses what its own contract forbids.
unsafe impl Remap for Buggy {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        self.told(self.remap().reserve(heap, size)).map(Block::new)
    }
    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        self.told(self.remap().create(heap, count, pages))
    }
    fn create_on_host(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        if self.has(Bug::HostPagesAreNot) {
            return self.create(heap, count, pages);
        }
        self.told(self.remap().create_on_host(heap, count, most, pages))
    }
    unsafe fn destroy_on_host(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        if self.has(Bug::HostPagesAreNot) {
            // SAFETY: the caller's promise is about the same pages.
            return unsafe { self.destroy(heap, pages) };
        }
        // SAFETY: as above.
        unsafe { self.remap().destroy_on_host(heap, pages) }
    }
    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        if self.has(Bug::PagesStay) {
            return Ok(());
        }
        // SAFETY: the caller's promise is about the same pages.
        unsafe { self.remap().destroy(heap, pages) }
    }
    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        let mut pages = pages.to_vec();
        if self.has(Bug::PagesReversed) {
            // Positions beyond the first get each other's pages, differently each time.
            pages.reverse();
            pages.truncate(pages.len().max(2) - 1);
        }
        // SAFETY: the caller's promise is about the same block and pages.
        unsafe { self.remap().map_pages(&block.inner, first, &pages) }
    }
    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        if self.has(Bug::UnmapDoesNothing) {
            return Ok(());
        }
        // SAFETY: the caller's promise is about the same positions.
        unsafe { self.remap().unmap_pages(&block.inner, first, count) }
    }
}

impl DriverBudget for Buggy {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let truth = self.host.as_budget().expect("the host has it").budget(heap)?;
        Ok(match self.bug {
            Bug::BudgetStands => HeapBudget { used: 0, ..truth },
            Bug::BudgetTooLarge => HeapBudget { budget: u64::MAX, ..truth },
            _ => truth,
        })
    }
}

// SAFETY: as for `Backend`: nobody may rely on it, and the host checks what reaches it.
unsafe impl Export for Buggy {
    type Block = Block;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Block> {
        let block = self.told(self.share().allocate_exportable(heap, size))?;
        if self.has(Bug::ExportDirty) {
            let to = BlockOffset { block: &block, offset: 0 };
            self.transfer().fill(TimelineId::MAIN, to, size, 0xdd)?;
        }
        Ok(Block::new(block))
    }
    fn export(&self, block: &Block) -> Result<Exported> {
        let exported = self.told(self.share().export(&block.inner))?;
        let size = if self.has(Bug::ExportsZeroSize) { 0 } else { exported.size };
        Ok(Exported { size, ..exported })
    }
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        let uuid =
            if self.has(Bug::ImportsStrangers) { self.caps().device.uuid } else { exported.uuid };
        let fd = exported.fd.try_clone().map_err(|_| ErrorKind::OutOfHostMemory)?;
        let size = exported.size;
        self.told(self.share().import(heap, &Exported { fd, size, uuid })).map(Block::new)
    }
}
