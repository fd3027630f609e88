//! Kernels of the seam: compiled when they are loaded, their constants brought into their own module.
//!
//! A kernel reaches the constant cache only through a symbol of its own module, and the constant heap is a symbol of
//! another one. So a launch copies the span that a constant slot names into the kernel's symbol, in timeline order, but
//! only when it may have changed: constants are written once and read often, and most launches copy nothing.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    backend::Cuda,
    block::{Block, Memory},
    driver::Shape,
    kernel::{Kernel, Launch as Geometry},
    lock,
};
use core::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering},
};
use omniheap_core::{
    Argument, ErrorKind, Kernel as Declared, Launch, Point, ProgramId, Result, Slot, TimelineId,
    Timelines,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Kernels that are loaded.
#[derive(Default)]
pub(crate) struct Programs {
    loaded: Mutex<BTreeMap<u64, Arc<Program>>>,
    next: AtomicU64,
    /// Counts what may change what a timeline sees in the constant heap: writes to it, and orders between timelines.
    version: AtomicU64,
}

impl Programs {
    /// Says that constants may have changed.
    pub(crate) fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// The same, if a block of the constant heap was written.
    pub(crate) fn touch_if_constant(&self, block: &Block) {
        if block.memory() == Memory::Constant {
            self.touch();
        }
    }
}

/// A kernel, ready to launch.
struct Program {
    declared: Declared,
    kernel: Kernel,
    shared: u64,
    /// For every slot: address and size of the symbol that holds its constants.
    symbols: Vec<Option<(u64, u64)>>,
    /// Held from the first copy into a symbol to the launch that reads it.
    copied: Mutex<Copied>,
}

/// What the symbols hold, and for whom.
#[derive(Default)]
struct Copied {
    timeline: Option<TimelineId>,
    version: u64,
    sources: Vec<Option<(u64, u64)>>,
}

impl Cuda {
    fn program(&self, declared: &Declared, shared: u64) -> Result<Program> {
        let module = self.compile(declared.cpp).map_err(|error| {
            tracing::warn!(kernel = declared.name, %error, "a kernel did not compile");
            error.error()
        })?;
        let kernel = module.kernel(declared.name)?;
        self.check_shape(&kernel, Geometry { grid: [1; 3], group: declared.group, shared })?;
        let symbol = |(index, slot): (usize, &Slot)| match slot {
            Slot::Constant => module.global(&format!("omniheap_constant_{index}")).ok(),
            Slot::Read | Slot::Write => None,
        };
        let symbols: Vec<_> = declared.slots.iter().enumerate().map(symbol).collect();
        let sources = vec![None; symbols.len()];
        let copied = Mutex::new(Copied { sources, ..Copied::default() });
        Ok(Program { declared: *declared, kernel, shared, symbols, copied })
    }

    /// The device address of an argument.
    fn argument(&self, argument: &Argument<'_, Block>) -> Result<u64> {
        if argument.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let address = self.range(&argument.place, argument.size)?;
        let words = address.is_multiple_of(4) && argument.size.is_multiple_of(4);
        if words { Ok(address) } else { Err(ErrorKind::Misaligned.into()) }
    }

    /// Brings the constants of a launch into the kernel's symbols, where they may have changed.
    fn refresh(
        &self,
        on: TimelineId,
        program: &Program,
        copied: &mut Copied,
        arguments: &[Argument<'_, Block>],
    ) -> Result<()> {
        let version = self.programs.version.load(Ordering::Acquire);
        let is_same = copied.timeline == Some(on) && copied.version == version;
        for (index, argument) in arguments.iter().enumerate() {
            let Some((symbol, room)) = program.symbols[index] else { continue };
            if argument.size > room {
                return Err(ErrorKind::ExceedsLimit.into());
            }
            let source = (self.argument(argument)?, argument.size);
            // Blocks of other heaps change without anyone's notice.
            let is_watched = argument.place.block.memory() == Memory::Constant;
            if is_same && is_watched && copied.sources[index] == Some(source) {
                continue;
            }
            self.follow(on, copied)?;
            copied.sources[index] = None;
            let size = usize::try_from(argument.size).map_err(|_| ErrorKind::ExceedsLimit)?;
            let stream = self.timelines().get(on)?.stream()?.0;
            // SAFETY: `argument` saw the source inside a live block, and the symbol has room; the module is loaded as
            // long as the program is.
            unsafe { self.driver().copy(symbol, source.0, size, stream) }?;
            copied.sources[index] = Some(source);
        }
        copied.version = version;
        Ok(())
    }

    /// Makes `on` wait for the launches that still read the symbols.
    fn follow(&self, on: TimelineId, copied: &mut Copied) -> Result<()> {
        if let Some(timeline) = copied.timeline.replace(on)
            && timeline != on
            // A timeline that was closed has finished.
            && let Ok(epoch) = self.mark(timeline)
        {
            self.timelines().order(on, Point { timeline, epoch })?;
        }
        Ok(())
    }
}

impl Launch for Cuda {
    fn load(&self, kernel: &Declared, shared: u64) -> Result<ProgramId> {
        if kernel.cpp.is_empty() {
            return Err(ErrorKind::Unsupported.into());
        }
        if !shared.is_multiple_of(4) || !kernel.parameters.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        let program = self.program(kernel, shared)?;
        let id = self.programs.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.programs.loaded).insert(id, Arc::new(program));
        Ok(ProgramId(id))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        let removed = lock(&self.programs.loaded).remove(&program.0);
        // Unloading the module waits for its launches.
        removed.map(drop).ok_or(ErrorKind::Stale.into())
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        let program = lock(&self.programs.loaded).get(&program.0).cloned();
        let program = program.ok_or(ErrorKind::Stale)?;
        let Declared { slots, group, parameters: declared, .. } = program.declared;
        if arguments.len() != slots.len() || parameters.len() as u64 != u64::from(declared) {
            return Err(ErrorKind::InvalidConfig.into());
        }
        let geometry = Geometry { grid: groups, group, shared: program.shared };
        let shared = self.check_shape(&program.kernel, geometry)?;
        let addresses = arguments.iter().map(|a| self.argument(a)).collect::<Result<Vec<u64>>>()?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        self.opt_in(&program.kernel, shared)?;
        let mut copied = lock(&program.copied);
        self.refresh(on, &program, &mut copied, arguments)?;
        // Whole words, so that the driver may read them as such.
        let mut words = vec![0u64; parameters.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(parameters.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
        let pointer = |address: &u64| core::ptr::from_ref(address).cast::<c_void>().cast_mut();
        let mut pointers: Vec<*mut c_void> = addresses.iter().map(pointer).collect();
        pointers.extend(words.first().map(pointer));
        let shape = Shape { grid: groups, group, shared };
        // SAFETY: the kernel is loaded as long as the program is; one pointer for each slot and one to the parameters,
        // which are as long as declared; the caller promises the rest.
        unsafe { self.driver().launch(program.kernel.raw(), shape, stream, &mut pointers) }
    }
}
