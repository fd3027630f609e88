//! Kernels of the seam over streams: what is loaded, and constants brought into a kernel's own module.
//!
//! Where a kernel reads constants through a symbol of its own module, a launch copies the span that a constant slot names
//! into that symbol, in timeline order, but only when it may have changed: constants are written once and read often, and
//! most launches copy nothing.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{Launch, Shape, lock};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{
    Argument, ErrorKind, Kernel as Declared, Place, ProgramId, Result, Slot, TimelineId,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Address and size of the symbol that holds the constants of a slot.
pub type Symbol = Option<(u64, u64)>;

/// What launches need of a backend.
///
/// # Safety
///
/// - [`address`](Self::address) answers only for bytes of live blocks of this backend.
/// - A kernel, and the symbols that were found with it, stay loaded as long as it lives.
pub unsafe trait Launcher {
    /// A block of the backend.
    type Block;
    /// A kernel that is loaded.
    type Kernel: Send + Sync;

    /// The programs of this backend.
    fn programs(&self) -> &Programs<Self::Kernel>;

    /// Compiles a kernel and finds, by name, the symbols of its constants.
    ///
    /// # Errors
    ///
    /// When it does not compile, or there is no compiler.
    fn build(
        &self,
        declared: &Declared,
        names: &[Option<String>],
    ) -> Result<(Self::Kernel, Vec<Symbol>)>;

    /// Checks a launch against the limits of the kernel and the device.
    ///
    /// # Errors
    ///
    /// As for [`Launch::check`].
    fn check(&self, kernel: &Self::Kernel, launch: Launch) -> Result<Shape>;

    /// The device address of `size` bytes of a block.
    ///
    /// # Errors
    ///
    /// `Foreign`, `OutOfRange`.
    fn address(&self, place: &Place<'_, Self::Block>, size: u64) -> Result<u64>;

    /// Whether every write to a block is told to [`Programs::touch`].
    fn is_watched(&self, block: &Self::Block) -> bool;

    /// Makes `on` wait for what `earlier` has to do now; one that was closed has nothing.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` for `on`, `DeviceLost`.
    fn follow(&self, on: TimelineId, earlier: TimelineId) -> Result<()>;

    /// Copies inside the device, in timeline order.
    ///
    /// # Errors
    ///
    /// What the driver says.
    ///
    /// # Safety
    ///
    /// Both ranges are live until the copy has run.
    unsafe fn copy_bytes(&self, on: TimelineId, to: u64, from: u64, size: usize) -> Result<()>;

    /// Launches, in timeline order.
    ///
    /// # Errors
    ///
    /// What the driver says.
    ///
    /// # Safety
    ///
    /// `pointers` are as many as the kernel takes, each to a value of its type; what the kernel does with them touches
    /// only memory that is live until it has run.
    unsafe fn start(
        &self,
        on: TimelineId,
        kernel: &Self::Kernel,
        shape: Shape,
        pointers: &mut [*mut c_void],
    ) -> Result<()>;
}

/// Kernels that are loaded.
pub struct Programs<K> {
    loaded: Mutex<BTreeMap<u64, Arc<Program<K>>>>,
    next: AtomicU64,
    /// Counts what may change what a timeline sees in watched blocks: writes to them, and orders between timelines.
    version: AtomicU64,
}

impl<K> Default for Programs<K> {
    fn default() -> Self {
        Self { loaded: Mutex::default(), next: AtomicU64::new(0), version: AtomicU64::new(0) }
    }
}

impl<K> core::fmt::Debug for Programs<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Programs")
            .field("loaded", &lock(&self.loaded).len())
            .finish_non_exhaustive()
    }
}

/// A kernel, ready to launch.
struct Program<K> {
    declared: Declared,
    kernel: K,
    shared: u64,
    symbols: Vec<Symbol>,
    /// Held from the first copy into a symbol to the launch that reads it.
    copied: Mutex<Copied>,
}

/// What the symbols hold, and for whom.
#[derive(Default)]
struct Copied {
    timeline: Option<TimelineId>,
    version: u64,
    sources: Vec<Symbol>,
}

impl<K: Send + Sync> Programs<K> {
    /// Says that constants may have changed, or what a timeline sees of them.
    pub fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Compiles a kernel and keeps it.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a source, `Misaligned` for sizes that are not whole words, or what building it says.
    pub fn load<L: Launcher<Kernel = K>>(
        &self,
        launcher: &L,
        declared: &Declared,
        shared: u64,
    ) -> Result<ProgramId> {
        if declared.cpp.is_empty() {
            return Err(ErrorKind::Unsupported.into());
        }
        if !shared.is_multiple_of(4) || !declared.parameters.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        let name = |(index, slot): (usize, &Slot)| match slot {
            Slot::Constant => Some(format!("omniheap_constant_{index}")),
            Slot::Read | Slot::Write => None,
        };
        let names: Vec<_> = declared.slots.iter().enumerate().map(name).collect();
        let (kernel, symbols) = launcher.build(declared, &names)?;
        launcher.check(&kernel, Launch { grid: [1; 3], group: declared.group, shared })?;
        let copied = Mutex::new(Copied { sources: vec![None; symbols.len()], ..Copied::default() });
        let program = Program { declared: *declared, kernel, shared, symbols, copied };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.loaded).insert(id, Arc::new(program));
        Ok(ProgramId(id))
    }

    /// Lets go of a kernel. Unloading its module waits for its launches.
    ///
    /// # Errors
    ///
    /// `Stale`.
    pub fn unload(&self, program: ProgramId) -> Result<()> {
        let removed = lock(&self.loaded).remove(&program.0);
        removed.map(drop).ok_or(ErrorKind::Stale.into())
    }

    /// Runs a kernel, in timeline order.
    ///
    /// # Errors
    ///
    /// `Stale`; `InvalidConfig` for other arguments or parameters than declared; what the backend says of each argument,
    /// of the shape and of the launch.
    ///
    /// # Safety
    ///
    /// As for the seam's own `launch`.
    pub unsafe fn launch<L: Launcher<Kernel = K>>(
        &self,
        launcher: &L,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, L::Block>],
        parameters: &[u8],
    ) -> Result<()> {
        let program = lock(&self.loaded).get(&program.0).cloned().ok_or(ErrorKind::Stale)?;
        let Declared { slots, group, parameters: declared, .. } = program.declared;
        if arguments.len() != slots.len() || parameters.len() as u64 != u64::from(declared) {
            return Err(ErrorKind::InvalidConfig.into());
        }
        let launch = Launch { grid: groups, group, shared: program.shared };
        let shape = launcher.check(&program.kernel, launch)?;
        let address = |argument| address(launcher, argument);
        let addresses = arguments.iter().map(address).collect::<Result<Vec<u64>>>()?;
        let mut copied = lock(&program.copied);
        self.refresh(launcher, on, &program, &mut copied, arguments)?;
        let words = words(parameters);
        let pointer = |value: &u64| core::ptr::from_ref(value).cast::<c_void>().cast_mut();
        let mut pointers: Vec<*mut c_void> = addresses.iter().map(pointer).collect();
        pointers.extend(words.first().map(pointer));
        // SAFETY: one pointer for each slot and one to the parameters, which are as long as declared; the caller
        // promises the rest.
        unsafe { launcher.start(on, &program.kernel, shape, &mut pointers) }
    }

    /// Brings the constants of a launch into the kernel's symbols, where they may have changed.
    fn refresh<L: Launcher<Kernel = K>>(
        &self,
        launcher: &L,
        on: TimelineId,
        program: &Program<K>,
        copied: &mut Copied,
        arguments: &[Argument<'_, L::Block>],
    ) -> Result<()> {
        let version = self.version.load(Ordering::Acquire);
        let is_same = copied.timeline == Some(on) && copied.version == version;
        for (index, argument) in arguments.iter().enumerate() {
            let Some((symbol, room)) = program.symbols[index] else { continue };
            if argument.size > room {
                return Err(ErrorKind::ExceedsLimit.into());
            }
            let source = (address(launcher, argument)?, argument.size);
            // Other blocks change without anyone's notice.
            let is_watched = launcher.is_watched(argument.place.block);
            if is_same && is_watched && copied.sources[index] == Some(source) {
                continue;
            }
            // The symbols are free once the launches that still read them have run.
            if let Some(earlier) = copied.timeline.replace(on).filter(|earlier| *earlier != on) {
                launcher.follow(on, earlier)?;
            }
            copied.sources[index] = None;
            let size = usize::try_from(argument.size).map_err(|_| ErrorKind::ExceedsLimit)?;
            // SAFETY: the launcher answered for the source, and the symbol, which lives as long as the kernel, has room.
            unsafe { launcher.copy_bytes(on, symbol, source.0, size) }?;
            copied.sources[index] = Some(source);
        }
        copied.version = version;
        Ok(())
    }
}

/// The device address of an argument.
fn address<L: Launcher>(launcher: &L, argument: &Argument<'_, L::Block>) -> Result<u64> {
    if argument.size == 0 {
        return Err(ErrorKind::ZeroSize.into());
    }
    let address = launcher.address(&argument.place, argument.size)?;
    let words = address.is_multiple_of(4) && argument.size.is_multiple_of(4);
    if words { Ok(address) } else { Err(ErrorKind::Misaligned.into()) }
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
