//! Type-erased backends: dynamic dispatch, for programs that ask for it.
#![expect(unsafe_code, reason = "forwards the unsafe contract of Backend")]
use crate::{
    Address, Argument, Backend, BlockOffset, Caps, DriverBudget, Export, Exported, HeapId, HostPin,
    Kernel, Launch, Map, Move, Page, ProgramId, Remap, Result, TimelineId, Timelines, Transfer,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{any::Any, ptr::NonNull};

/// A block whose vendor is known only at run time.
pub type AnyBlock = Box<dyn Any + Send + Sync>;

/// A backend chosen at run time.
pub type AnyBackend = Arc<dyn Backend<Block = AnyBlock>>;

/// Hides the backend's type.
pub fn erase(backend: impl Backend + 'static) -> AnyBackend {
    Arc::new(Erased(backend))
}

struct Erased<B>(B);

impl<B: Backend> Erased<B> {
    fn inner<'a>(&self, block: &'a AnyBlock) -> &'a B::Block {
        block.downcast_ref().expect("a block is given only to the backend that made it")
    }

    fn place<'a>(&self, p: &BlockOffset<'a, AnyBlock>) -> BlockOffset<'a, B::Block> {
        BlockOffset { block: self.inner(p.block), offset: p.offset }
    }

    fn map(&self) -> &dyn Map<Block = B::Block> {
        self.0.as_map().expect("handed out by as_map")
    }

    fn transfer(&self) -> &dyn Transfer<Block = B::Block> {
        self.0.as_transfer().expect("handed out by as_transfer")
    }

    fn remap(&self) -> &dyn Remap<Block = B::Block> {
        self.0.as_remap().expect("handed out by as_remap")
    }

    fn share(&self) -> &dyn Export<Block = B::Block> {
        self.0.as_export().expect("handed out by as_export")
    }

    fn runner(&self) -> &dyn Launch<Block = B::Block> {
        self.0.as_launch().expect("handed out by as_launch")
    }
}

// SAFETY: every promise is the inner backend's; erasing a block changes none of them.
unsafe impl<B: Backend> Backend for Erased<B> {
    type Block = AnyBlock;

    fn caps(&self) -> &Caps {
        self.0.caps()
    }
    fn allocate(&self, heap: HeapId, size: u64) -> Result<AnyBlock> {
        Ok(Box::new(self.0.allocate(heap, size)?))
    }
    unsafe fn free(&self, block: AnyBlock) -> Result<()> {
        let block = *block.downcast().expect("a block is given only to the backend that made it");
        // SAFETY: the caller's promise about the erased block holds for what it held.
        unsafe { self.0.free(block) }
    }
    fn wait_idle(&self) -> Result<()> {
        self.0.wait_idle()
    }
    fn as_map(&self) -> Option<&dyn Map<Block = AnyBlock>> {
        self.0.as_map().map(|_| self as _)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = AnyBlock>> {
        self.0.as_transfer().map(|_| self as _)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = AnyBlock>> {
        self.0.as_address().map(|_| self as _)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        self.0.as_timelines()
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = AnyBlock>> {
        self.0.as_remap().map(|_| self as _)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        self.0.as_budget()
    }
    fn as_export(&self) -> Option<&dyn Export<Block = AnyBlock>> {
        self.0.as_export().map(|_| self as _)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = AnyBlock>> {
        self.0.as_launch().map(|_| self as _)
    }
}

// SAFETY: pointers and ranges pass through unchanged to the inner backend, which keeps the promise.
unsafe impl<B: Backend> Map for Erased<B> {
    type Block = AnyBlock;

    fn map(&self, block: &AnyBlock) -> Result<NonNull<u8>> {
        self.map().map(self.inner(block))
    }
    fn flush(&self, block: &AnyBlock, offset: u64, size: u64) -> Result<()> {
        self.map().flush(self.inner(block), offset, size)
    }
    fn invalidate(&self, block: &AnyBlock, offset: u64, size: u64) -> Result<()> {
        self.map().invalidate(self.inner(block), offset, size)
    }
}

// SAFETY: the inner backend touches only the ranges it is given; erasing changes no range.
unsafe impl<B: Backend> Transfer for Erased<B> {
    type Block = AnyBlock;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, AnyBlock>, bytes: &[u8]) -> Result<()> {
        self.transfer().write(on, self.place(&to), bytes)
    }
    fn read(
        &self,
        on: TimelineId,
        from: BlockOffset<'_, AnyBlock>,
        bytes: &mut [u8],
    ) -> Result<()> {
        self.transfer().read(on, self.place(&from), bytes)
    }
    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, AnyBlock>,
        size: u64,
        value: u8,
    ) -> Result<()> {
        self.transfer().fill(on, self.place(&to), size, value)
    }
    fn copy(&self, on: TimelineId, moves: &[Move<'_, AnyBlock>]) -> Result<()> {
        let moves: Vec<_> = moves
            .iter()
            .map(|m| Move { from: self.place(&m.from), to: self.place(&m.to), size: m.size })
            .collect();
        self.transfer().copy(on, &moves)
    }
    unsafe fn pin_host(&self, start: NonNull<u8>, size: usize) -> Result<Option<HostPin>> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer().pin_host(start, size) }
    }
}

// SAFETY: the address is the inner backend's, of the same block.
unsafe impl<B: Backend> Address for Erased<B> {
    type Block = AnyBlock;

    fn address(&self, block: &AnyBlock) -> u64 {
        self.0.as_address().expect("handed out by as_address").address(self.inner(block))
    }
}

// SAFETY: positions and pages pass through unchanged to the inner backend, which keeps the promise.
unsafe impl<B: Backend> Remap for Erased<B> {
    type Block = AnyBlock;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<AnyBlock> {
        Ok(Box::new(self.remap().reserve(heap, size)?))
    }
    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        self.remap().create(heap, count, pages)
    }
    fn create_groups(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        self.remap().create_groups(heap, count, most, pages)
    }
    fn create_on_host(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        self.remap().create_on_host(heap, count, most, pages)
    }
    unsafe fn destroy_on_host(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        // SAFETY: the caller's promise is about the same pages.
        unsafe { self.remap().destroy_on_host(heap, pages) }
    }
    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        // SAFETY: the caller's promise is about the same pages.
        unsafe { self.remap().destroy(heap, pages) }
    }
    unsafe fn map_pages(&self, block: &AnyBlock, first: u64, pages: &[Page]) -> Result<()> {
        // SAFETY: the caller's promise is about the same block and pages.
        unsafe { self.remap().map_pages(self.inner(block), first, pages) }
    }
    unsafe fn unmap_pages(&self, block: &AnyBlock, first: u64, count: u64) -> Result<()> {
        // SAFETY: the caller's promise is about the same positions.
        unsafe { self.remap().unmap_pages(self.inner(block), first, count) }
    }
}

// SAFETY: the blocks are the inner backend's own, in a box.
unsafe impl<B: Backend> Export for Erased<B> {
    type Block = AnyBlock;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<AnyBlock> {
        Ok(Box::new(self.share().allocate_exportable(heap, size)?))
    }
    fn export(&self, block: &AnyBlock) -> Result<Exported> {
        self.share().export(self.inner(block))
    }
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<AnyBlock> {
        Ok(Box::new(self.share().import(heap, exported)?))
    }
}

// SAFETY: kernels, arguments and parameters pass through unchanged to the inner backend, which keeps the promise.
unsafe impl<B: Backend> Launch for Erased<B> {
    type Block = AnyBlock;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        self.runner().load(kernel, shared)
    }
    fn unload(&self, program: ProgramId) -> Result<()> {
        self.runner().unload(program)
    }
    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, AnyBlock>],
        parameters: &[u8],
    ) -> Result<()> {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| Argument { place: self.place(&argument.place), size: argument.size })
            .collect();
        // SAFETY: the caller's promise is about the same bytes.
        unsafe { self.runner().launch(on, program, groups, &arguments, parameters) }
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        // SAFETY: a pointer to a backend keeps that backend's promises.
        unsafe impl<B: Backend + ?Sized> Backend for $pointer {
            type Block = B::Block;
            fn caps(&self) -> &Caps {
                (**self).caps()
            }
            fn allocate(&self, heap: HeapId, size: u64) -> Result<B::Block> {
                (**self).allocate(heap, size)
            }
            unsafe fn free(&self, block: B::Block) -> Result<()> {
                // SAFETY: the caller's promise is about the same backend.
                unsafe { (**self).free(block) }
            }
            fn wait_idle(&self) -> Result<()> {
                (**self).wait_idle()
            }
            fn as_map(&self) -> Option<&dyn Map<Block = B::Block>> {
                (**self).as_map()
            }
            fn as_transfer(&self) -> Option<&dyn Transfer<Block = B::Block>> {
                (**self).as_transfer()
            }
            fn as_address(&self) -> Option<&dyn Address<Block = B::Block>> {
                (**self).as_address()
            }
            fn as_timelines(&self) -> Option<&dyn Timelines> {
                (**self).as_timelines()
            }
            fn as_remap(&self) -> Option<&dyn Remap<Block = B::Block>> {
                (**self).as_remap()
            }
            fn as_budget(&self) -> Option<&dyn DriverBudget> {
                (**self).as_budget()
            }
            fn as_export(&self) -> Option<&dyn Export<Block = B::Block>> {
                (**self).as_export()
            }
            fn as_launch(&self) -> Option<&dyn Launch<Block = B::Block>> {
                (**self).as_launch()
            }
        }
    )*};
}
forward!(&B, Box<B>, Arc<B>);
