//! The whole seam, forwarded once for every layer.
#![expect(unsafe_code, reason = "forwards the unsafe contract of Backend")]
use crate::{Call, CallKind, Hooks, Layer, Wrapped};
use core::ptr::NonNull;
use omniheap_seam::{
    Address, Argument, Backend, BlockOffset, Caps, DriverBudget, Epoch, Export, Exported,
    HeapBudget, HeapId, HostPin, Kernel, Launch, Map, Move, Page, Point, ProgramId, Remap, Result,
    SystemLimit, TimelineId, Timelines, Transfer,
};

const fn place<'a, T>(place: &BlockOffset<'a, Wrapped<T>>) -> BlockOffset<'a, T> {
    BlockOffset { block: &place.block.inner, offset: place.offset }
}

impl<B: Backend, H: Hooks> Layer<B, H> {
    fn map(&self) -> &dyn Map<Block = B::Block> {
        self.inner.as_map().expect("handed out by as_map")
    }
    fn transfer(&self) -> &dyn Transfer<Block = B::Block> {
        self.inner.as_transfer().expect("handed out by as_transfer")
    }
    fn timelines(&self) -> &dyn Timelines {
        self.inner.as_timelines().expect("handed out by as_timelines")
    }
    fn remap(&self) -> &dyn Remap<Block = B::Block> {
        self.inner.as_remap().expect("handed out by as_remap")
    }
    fn share(&self) -> &dyn Export<Block = B::Block> {
        self.inner.as_export().expect("handed out by as_export")
    }
    fn runner(&self) -> &dyn Launch<Block = B::Block> {
        self.inner.as_launch().expect("handed out by as_launch")
    }
}

// SAFETY: blocks are the inner backend's own, and `Hooks` promises to leave the rest of the contract intact.
unsafe impl<B: Backend, H: Hooks> Backend for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn caps(&self) -> &Caps {
        self.hooks.caps(self.inner.caps())
    }
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Self::Block> {
        let call = Call::new(CallKind::Allocate).heap(heap).size(self.rounded(heap, size));
        self.admit(call, || self.inner.allocate(heap, self.hooks.size(&call, size)))
    }
    unsafe fn free(&self, block: Self::Block) -> Result<()> {
        let call = Call::about(CallKind::Free, &block.call);
        // SAFETY: the caller's promise about the wrapped block holds for what it wraps.
        self.around(&call, || unsafe { self.inner.free(block.inner) })
    }
    fn wait_idle(&self) -> Result<()> {
        self.around(&Call::new(CallKind::WaitIdle), || self.inner.wait_idle())
    }
    fn as_map(&self) -> Option<&dyn Map<Block = Self::Block>> {
        self.inner.as_map().map(|_| self as _)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Self::Block>> {
        self.inner.as_transfer().map(|_| self as _)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Self::Block>> {
        self.inner.as_address().map(|_| self as _)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        self.inner.as_timelines().map(|_| self as _)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Self::Block>> {
        self.inner.as_remap().map(|_| self as _)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        self.inner.as_budget().map(|_| self as _)
    }
    fn as_export(&self) -> Option<&dyn Export<Block = Self::Block>> {
        self.inner.as_export().map(|_| self as _)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Self::Block>> {
        self.inner.as_launch().map(|_| self as _)
    }
}

// SAFETY: pointers and ranges are the inner backend's; `Hooks` promises that a block reaches no further than it says.
unsafe impl<B: Backend, H: Hooks> Map for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn map(&self, block: &Self::Block) -> Result<NonNull<u8>> {
        let call = Call::about(CallKind::Map, &block.call);
        self.around(&call, || self.map().map(&block.inner))
    }
    fn flush(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()> {
        let call = Call::about(CallKind::Flush, &block.call).size(size);
        self.around(&call, || self.map().flush(&block.inner, offset, size))
    }
    fn invalidate(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()> {
        let call = Call::about(CallKind::Invalidate, &block.call).size(size);
        self.around(&call, || self.map().invalidate(&block.inner, offset, size))
    }
}

// SAFETY: the inner backend touches only the ranges it is given; wrapping changes no range.
unsafe impl<B: Backend, H: Hooks> Transfer for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Self::Block>, bytes: &[u8]) -> Result<()> {
        let call = Call::about(CallKind::Write, &to.block.call).on(on).size(bytes.len() as u64);
        self.around(&call, || self.transfer().write(on, place(&to), bytes))
    }
    fn read(
        &self,
        on: TimelineId,
        from: BlockOffset<'_, Self::Block>,
        bytes: &mut [u8],
    ) -> Result<()> {
        let call = Call::about(CallKind::Read, &from.block.call).on(on).size(bytes.len() as u64);
        self.around(&call, || self.transfer().read(on, place(&from), bytes))
    }
    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, Self::Block>,
        size: u64,
        value: u8,
    ) -> Result<()> {
        let call = Call::about(CallKind::Fill, &to.block.call).on(on).size(size);
        self.around(&call, || self.transfer().fill(on, place(&to), size, value))
    }
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Self::Block>]) -> Result<()> {
        let size = moves.iter().fold(0u64, |sum, step| sum.saturating_add(step.size));
        let call = Call::new(CallKind::Copy).on(on).size(size).count(moves.len() as u64);
        let unwrapped: Vec<_> = moves
            .iter()
            .map(|m| Move { from: place(&m.from), to: place(&m.to), size: m.size })
            .collect();
        self.around(&call, || self.transfer().copy(on, &unwrapped))
    }
    unsafe fn pin_host(&self, start: NonNull<u8>, size: usize) -> Result<Option<HostPin>> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer().pin_host(start, size) }
    }
}

// SAFETY: the address is the inner backend's, or a false one that `Hooks` promises nobody relies on.
unsafe impl<B: Backend, H: Hooks> Address for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn address(&self, block: &Self::Block) -> u64 {
        let inner = self.inner.as_address().expect("handed out by as_address");
        self.hooks.address(block.id(), inner.address(&block.inner))
    }
}

// SAFETY: ids and epochs are the inner backend's; a hook may only report an earlier epoch as reached.
unsafe impl<B: Backend, H: Hooks> Timelines for Layer<B, H> {
    fn open(&self) -> Result<TimelineId> {
        self.around(&Call::new(CallKind::Open), || self.timelines().open())
    }
    fn close(&self, timeline: TimelineId) -> Result<()> {
        let call = Call::new(CallKind::Close).on(timeline);
        self.around(&call, || self.timelines().close(timeline))
    }
    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        let call = Call::new(CallKind::Mark).on(timeline);
        self.around(&call, || self.timelines().mark(timeline))
    }
    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        let call = Call::new(CallKind::Reached).on(timeline);
        let epoch = self.around(&call, || self.timelines().reached(timeline))?;
        Ok(self.hooks.reached(epoch))
    }
    fn wait(&self, point: Point) -> Result<()> {
        let call = Call::new(CallKind::Wait).on(point.timeline).after(point);
        self.around(&call, || self.timelines().wait(point))
    }
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let call = Call::new(CallKind::Order).on(timeline).after(point);
        self.around(&call, || self.timelines().order(timeline, point))
    }
}

// SAFETY: positions and pages pass through unchanged to the inner backend, which keeps the promise.
unsafe impl<B: Backend, H: Hooks> Remap for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Self::Block> {
        let call = Call::new(CallKind::Reserve).heap(heap).size(size);
        self.admit(call, || self.remap().reserve(heap, size))
    }
    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let call = self.call_of_pages(CallKind::Create, heap, count);
        self.around(&call, || self.remap().create(heap, count, pages))
    }
    fn create_groups(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let call = self.call_of_pages(CallKind::Create, heap, count);
        self.around(&call, || self.remap().create_groups(heap, count, most, pages))
    }
    fn create_on_host(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let call = self.call_of_pages(CallKind::CreateOnHost, heap, count);
        self.around(&call, || self.remap().create_on_host(heap, count, most, pages))
    }
    unsafe fn destroy_on_host(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        let call = self.call_of_pages(CallKind::DestroyOnHost, heap, pages.len() as u64);
        // SAFETY: the caller's promise is about the same pages.
        self.around(&call, || unsafe { self.remap().destroy_on_host(heap, pages) })
    }
    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        let call = self.call_of_pages(CallKind::Destroy, heap, pages.len() as u64);
        // SAFETY: the caller's promise is about the same pages.
        self.around(&call, || unsafe { self.remap().destroy(heap, pages) })
    }
    unsafe fn map_pages(&self, block: &Self::Block, first: u64, pages: &[Page]) -> Result<()> {
        let call = Call::about(CallKind::MapPages, &block.call).count(pages.len() as u64);
        // SAFETY: the caller's promise is about what is wrapped, and the same pages.
        self.around(&call, || unsafe { self.remap().map_pages(&block.inner, first, pages) })
    }
    unsafe fn unmap_pages(&self, block: &Self::Block, first: u64, count: u64) -> Result<()> {
        let call = Call::about(CallKind::UnmapPages, &block.call).count(count);
        // SAFETY: the caller's promise is about the same positions.
        self.around(&call, || unsafe { self.remap().unmap_pages(&block.inner, first, count) })
    }
}

impl<B: Backend, H: Hooks> DriverBudget for Layer<B, H> {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let inner = self.inner.as_budget().expect("handed out by as_budget");
        let call = Call::new(CallKind::Budget).heap(heap);
        let budget = self.around(&call, || inner.budget(heap))?;
        Ok(self.hooks.budget(heap, budget))
    }
    fn limits(&self, heap: HeapId) -> Vec<SystemLimit> {
        self.inner.as_budget().map_or_else(Vec::new, |inner| inner.limits(heap))
    }
}

// SAFETY: the blocks are the inner backend's own; `Hooks` promises that a block reaches no further than it says.
unsafe impl<B: Backend, H: Hooks> Export for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Self::Block> {
        let size_taken = self.rounded(heap, size);
        let call = Call::new(CallKind::AllocateExportable).heap(heap).size(size_taken);
        self.admit(call, || self.share().allocate_exportable(heap, self.hooks.size(&call, size)))
    }
    fn export(&self, block: &Self::Block) -> Result<Exported> {
        let call = Call::about(CallKind::Export, &block.call);
        self.around(&call, || self.share().export(&block.inner))
    }
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Self::Block> {
        let call = Call::new(CallKind::Import).heap(heap).size(exported.size);
        self.admit(call, || self.share().import(heap, exported))
    }
}

// SAFETY: kernels, arguments and parameters pass through unchanged to the inner backend, which keeps the promise.
unsafe impl<B: Backend, H: Hooks> Launch for Layer<B, H> {
    type Block = Wrapped<B::Block>;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        let call = Call::new(CallKind::Load).size(shared);
        self.around(&call, || self.runner().load(kernel, shared))
    }
    fn unload(&self, program: ProgramId) -> Result<()> {
        self.around(&Call::new(CallKind::Unload), || self.runner().unload(program))
    }
    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Self::Block>],
        parameters: &[u8],
    ) -> Result<()> {
        let size = arguments.iter().fold(0u64, |sum, argument| sum.saturating_add(argument.size));
        let call = Call::new(CallKind::Launch).on(on).size(size).count(arguments.len() as u64);
        let unwrapped: Vec<_> = arguments
            .iter()
            .map(|argument| Argument { place: place(&argument.place), size: argument.size })
            .collect();
        self.around(&call, || {
            // SAFETY: the caller's promise is about the same bytes.
            unsafe { self.runner().launch(on, program, groups, &unwrapped, parameters) }
        })
    }
}
