//! Kernels of the seam over streams: what is loaded, and constants brought into a kernel's own module.
//!
//! Kernels that read constants through a symbol of their own module get them by copy: a launch copies the span that a
//! constant slot names into that symbol, in timeline order, but only when it may have changed. Constants are written
//! once and read often, so most launches copy nothing.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{Block, BlockKind, CodeDriver, Device, Driver, Kernel, Launch, lock};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{
    self as seam, Argument, ErrorKind, Kernel as Declared, Point, ProgramId, Result, Slot,
    TimelineId,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Address and size of the symbol that holds the constants of a slot.
type Symbol = Option<(u64, u64)>;

/// Kernels that are loaded.
pub struct Programs<D: CodeDriver> {
    loaded: Mutex<BTreeMap<u64, Arc<Program<D>>>>,
    next: AtomicU64,
    /// Counts what may change what a timeline sees in watched blocks: writes to them, and orders between timelines.
    version: AtomicU64,
}

impl<D: CodeDriver> Default for Programs<D> {
    fn default() -> Self {
        Self { loaded: Mutex::default(), next: AtomicU64::new(0), version: AtomicU64::new(0) }
    }
}

impl<D: CodeDriver> core::fmt::Debug for Programs<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Programs")
            .field("loaded", &lock(&self.loaded).len())
            .finish_non_exhaustive()
    }
}

/// A kernel, ready to launch.
struct Program<D: CodeDriver> {
    declared: Declared,
    kernel: Kernel<D>,
    shared: u64,
    symbols: Vec<Symbol>,
    /// Held from the first copy into a symbol to the launch that reads it.
    copied: Mutex<Copied>,
}

/// The sources last copied to the constant symbols, the timeline, and the version they were of.
#[derive(Default)]
struct Copied {
    timeline: Option<TimelineId>,
    version: u64,
    sources: Vec<Symbol>,
}

impl<D: CodeDriver> Programs<D> {
    /// Marks all constants as possibly changed.
    pub(crate) fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

// SAFETY: the module holds the kernel's text; the driver gets the address of each checked argument in the order of the slots, then
// the parameters; a stream runs in order.
unsafe impl<D: Driver> seam::Launch for Device<D> {
    type Block = Block<D::Kind>;

    fn load(&self, declared: &Declared, shared: u64) -> Result<ProgramId> {
        if declared.cpp.is_empty() {
            return Err(ErrorKind::Unsupported.into());
        }
        if !shared.is_multiple_of(4) || !declared.parameters.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        // Authors hear the same of their kernel from every backend.
        declared.check()?;
        let module = D::compile(self.driver(), declared.cpp).map_err(|error| {
            tracing::warn!(kernel = declared.name, %error, "a kernel did not compile");
            error.error()
        })?;
        let symbol = |(index, slot): (usize, &Slot)| match slot {
            Slot::Constant => module.global(&format!("omniheap_constant_{index}")).ok(),
            Slot::Read | Slot::Write => None,
        };
        let symbols: Vec<_> = declared.slots.iter().enumerate().map(symbol).collect();
        let kernel = module.kernel(declared.name)?;
        self.check(&kernel, Launch { grid: [1; 3], group: declared.group, shared })?;
        let copied = Mutex::new(Copied { sources: vec![None; symbols.len()], ..Copied::default() });
        let program = Program { declared: *declared, kernel, shared, symbols, copied };
        let id = self.programs.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.programs.loaded).insert(id, Arc::new(program));
        Ok(ProgramId(id))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        // Unloading its module waits for its launches.
        let removed = lock(&self.programs.loaded).remove(&program.0);
        removed.map(drop).ok_or(ErrorKind::Stale.into())
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Self::Block>],
        parameters: &[u8],
    ) -> Result<()> {
        let program =
            lock(&self.programs.loaded).get(&program.0).cloned().ok_or(ErrorKind::Stale)?;
        program.declared.check_launch(arguments.len(), parameters.len())?;
        let launch = Launch { grid: groups, group: program.declared.group, shared: program.shared };
        let shape = self.check(&program.kernel, launch)?;
        let address = |argument| self.argument(argument);
        let addresses = arguments.iter().map(address).collect::<Result<Vec<u64>>>()?;
        let mut copied = lock(&program.copied);
        self.refresh(on, &program, &mut copied, arguments)?;
        let words = words(parameters);
        let pointer = |value: &u64| core::ptr::from_ref(value).cast::<c_void>().cast_mut();
        let mut pointers: Vec<*mut c_void> = addresses.iter().map(pointer).collect();
        pointers.extend(words.first().map(pointer));
        // SAFETY: one pointer for each slot and one to the parameters, which are as long as declared; the caller
        // promises the rest.
        unsafe { self.start(on, &program.kernel, shape, &mut pointers) }
    }
}

impl<D: Driver> Device<D> {
    /// Marks constants as possibly changed if a block of the constant heap was written.
    pub(crate) fn touch_if_watched<K: BlockKind>(&self, block: &Block<K>) {
        if block.is_watched() {
            self.programs.touch();
        }
    }

    /// Copies the constants of a launch to the kernel's symbols, if they may have changed.
    fn refresh<K: BlockKind>(
        &self,
        on: TimelineId,
        program: &Program<D>,
        copied: &mut Copied,
        arguments: &[Argument<'_, Block<K>>],
    ) -> Result<()> {
        let version = self.programs.version.load(Ordering::Acquire);
        let is_same = copied.timeline == Some(on) && copied.version == version;
        for (index, argument) in arguments.iter().enumerate() {
            let Some((symbol, room)) = program.symbols[index] else { continue };
            if argument.size > room {
                return Err(ErrorKind::ExceedsLimit.into());
            }
            let source = (self.argument(argument)?, argument.size);
            // Other blocks change without anyone's notice.
            let is_watched = argument.place.block.is_watched();
            if is_same && is_watched && copied.sources[index] == Some(source) {
                continue;
            }
            // The symbols are free once the launches that still read them have run.
            if let Some(earlier) = copied.timeline.filter(|earlier| *earlier != on) {
                self.follow(on, earlier)?;
            }
            copied.timeline = Some(on);
            copied.sources[index] = None;
            let size = usize::try_from(argument.size).map_err(|_| ErrorKind::ExceedsLimit)?;
            let timeline = self.timelines().get(on)?;
            // SAFETY: `range` answered for the source, and the symbol, which lives as long as the kernel, has room.
            unsafe { self.driver().copy(symbol, source.0, size, timeline.stream()?) }?;
            copied.sources[index] = Some(source);
        }
        copied.version = version;
        Ok(())
    }

    /// Makes `on` wait for the work that `earlier` has now. If that cannot be marked, the host waits for the device.
    fn follow(&self, on: TimelineId, earlier: TimelineId) -> Result<()> {
        match self.timelines().mark(earlier) {
            Ok(epoch) => self.timelines().order(on, Point { timeline: earlier, epoch }),
            Err(_) if self.timelines().get(earlier).is_err() => Ok(()), // It was closed, and has finished.
            Err(_) => self.timelines().wait_idle(),
        }
    }

    /// Returns the device address of an argument.
    fn argument<K: BlockKind>(&self, argument: &Argument<'_, Block<K>>) -> Result<u64> {
        if argument.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let address = self.range(&argument.place, argument.size)?;
        let words = address.is_multiple_of(4) && argument.size.is_multiple_of(4);
        if words { Ok(address) } else { Err(ErrorKind::Misaligned.into()) }
    }
}

/// Parameters as whole words, so that a driver may read them as such.
fn words(parameters: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(eight)
    };
    parameters.chunks(8).map(word).collect()
}
