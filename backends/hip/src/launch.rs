//! Kernels of the seam: compiled when they are loaded, run by `omniheap_stream`.
//!
//! On AMD devices constants are read by their address, through the scalar cache. Where a kernel has a symbol for them all
//! the same (HIP over another vendor's runtime), a launch may copy them into it first.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    backend::Hip,
    block::{Block, Memory},
    kernel::Kernel,
};
use core::ffi::c_void;
use omniheap_core::{
    Argument, Kernel as Declared, Launch, Place, Point, ProgramId, Result, TimelineId,
};
use omniheap_stream::{Launch as Geometry, Launcher, Programs, Shape, Symbol};

impl Hip {
    /// Says that constants may have changed, if a block of the constant heap was written.
    pub(crate) fn touch_if_constant(&self, block: &Block) {
        if self.is_watched(block) {
            self.programs.touch();
        }
    }
}

// SAFETY: `range` answers for mapped bytes of own blocks only; a kernel keeps its module loaded, and with it the symbols.
unsafe impl Launcher for Hip {
    type Block = Block;
    type Kernel = Kernel;

    fn programs(&self) -> &Programs<Kernel> {
        &self.programs
    }

    fn build(
        &self,
        declared: &Declared,
        names: &[Option<String>],
    ) -> Result<(Kernel, Vec<Symbol>)> {
        let module = self.compile(declared.cpp).map_err(|error| {
            tracing::warn!(kernel = declared.name, %error, "a kernel did not compile");
            error.error()
        })?;
        let symbol = |name: &Option<String>| module.global(name.as_deref()?).ok();
        Ok((module.kernel(declared.name)?, names.iter().map(symbol).collect()))
    }

    fn check(&self, kernel: &Kernel, launch: Geometry) -> Result<Shape> {
        self.check_shape(kernel, launch)
    }

    fn address(&self, place: &Place<'_, Block>, size: u64) -> Result<u64> {
        self.range(place, size)
    }

    fn is_watched(&self, block: &Block) -> bool {
        block.memory() == Memory::Constant
    }

    fn follow(&self, on: TimelineId, earlier: TimelineId) -> Result<()> {
        match self.timelines().mark(earlier) {
            Ok(epoch) => self.timelines().order(on, Point { timeline: earlier, epoch }),
            Err(_) => Ok(()), // It was closed, and has finished.
        }
    }

    unsafe fn copy_bytes(&self, on: TimelineId, to: u64, from: u64, size: usize) -> Result<()> {
        let timeline = self.timelines().get(on)?;
        // SAFETY: the caller's promise.
        unsafe { self.driver().copy(to, from, size, timeline.stream()?) }
    }

    unsafe fn start(
        &self,
        on: TimelineId,
        kernel: &Kernel,
        shape: Shape,
        pointers: &mut [*mut c_void],
    ) -> Result<()> {
        let timeline = self.timelines().get(on)?;
        self.opt_in(kernel, shape.shared)?;
        // SAFETY: the module is loaded as long as `kernel` lives; the caller promises the rest.
        unsafe { self.driver().launch(kernel.raw(), shape, timeline.stream()?, pointers) }
    }
}

impl Launch for Hip {
    fn load(&self, kernel: &Declared, shared: u64) -> Result<ProgramId> {
        self.programs.load(self, kernel, shared)
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        self.programs.unload(program)
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.programs.launch(self, on, program, groups, arguments, parameters) }
    }
}
