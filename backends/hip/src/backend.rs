//! The device, and the verbs that every backend has.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    block::{Block, Kind},
    caps::Attributes,
    config::Config,
    driver::{Coherence, Driver},
    module::{self, Module},
    pages::Pages,
    pool::AsyncPool,
    rtc::Arch,
    selftest,
    sys::{Api, hipStream_t},
};
use core::{fmt, ops::Deref};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_seam::{
    Address, Backend, Caps, DriverBudget, ErrorKind, Export, HeapBudget, HeapId, Launch, Map,
    Remap, Result, SystemLimit, Timelines, Transfer,
};
use omniheap_stream::{
    BuildError, Caching, Described, Device, IpcDriver, MemoryDriver, NativeStreams, Raw, Registry,
    Source, StreamDriver, StreamOwner, address_of_pinned, selftest::Outcome,
};
use std::sync::Arc;

/// The longest pitch that every runtime takes.
const MOST_PITCH: u64 = i32::MAX as u64;

/// One HIP device.
pub struct Hip {
    /// First, so that it is dropped first: it waits for what still runs.
    pub(crate) device: Device<Driver>,
    pub(crate) pages: Pages,
    pub(crate) pool: Option<AsyncPool>,
    pub(crate) config: Config,
}

impl Hip {
    /// Returns the number of devices; zero without a runtime.
    #[must_use]
    pub fn count() -> u32 {
        Driver::count().unwrap_or(0)
    }

    /// Opens a device by its ordinal, with the defaults.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a runtime (HIP 5.2 or later) or a device, `InvalidConfig` for an ordinal that no device
    /// has ([`count`](Self::count) tells), otherwise the runtime's error.
    pub fn open(ordinal: u32) -> Result<Self> {
        Self::open_with(ordinal, Config::new())
    }

    /// Opens a device by its ordinal.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_with(ordinal: u32, config: Config) -> Result<Self> {
        Self::start(Arc::new(Driver::open(ordinal)?), None, config)
    }

    /// Opens a device of a HIP library that is loaded already.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_on(api: &'static Api, ordinal: u32, config: Config) -> Result<Self> {
        Self::start(Arc::new(Driver::open_on(api, ordinal)?), None, config)
    }

    /// Uses a device that the caller has open too, and a stream of the caller's as the main timeline.
    ///
    /// HIP has one context for each device, so opening it twice shares it.
    ///
    /// # Errors
    ///
    /// `Foreign` for a stream of another device; otherwise as [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// `stream` is live, and stays so until the backend is dropped.
    pub unsafe fn wrap(ordinal: u32, stream: hipStream_t, config: Config) -> Result<Self> {
        let driver = Driver::open(ordinal)?;
        // SAFETY: the caller's promise.
        unsafe { driver.owns_stream(stream) }?;
        Self::start(Arc::new(driver), Some(Driver::of_caller(stream)), config)
    }

    fn start(
        driver: Arc<Driver>,
        main: Option<(hipStream_t, StreamOwner)>,
        config: Config,
    ) -> Result<Self> {
        let attributes = Attributes::read(&driver, config.block_source)?;
        let timelines = Registry::new(&driver, main)?;
        let Outcome { mut usable, pool, findings } = selftest::run(&driver, attributes.claims)?;
        usable.exportable = usable.page.filter(|_| cfg!(unix));
        let (caps, sources) = attributes.facts().translate(usable);
        let described = Described { caps, sources, findings, max_pitch: MOST_PITCH };
        let ordinal = u32::try_from(driver.ordinal()).unwrap_or(0);
        let limits = SystemLimits::new(Vendor::Amd, ordinal);
        let device = Device::new(driver, timelines, described).limited_by(limits);
        Ok(Self { device, pages: Pages::default(), pool, config })
    }

    /// Returns the number that HIP gave the device.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.driver().ordinal()
    }

    /// Compiles HIP C++ source for this device, and loads it.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with the compiler's log.
    pub fn compile(&self, source: &str) -> Result<Module, BuildError> {
        module::compile(self.driver(), &self.arch()?, source)
    }

    /// As [`compile`](Self::compile), for an architecture that the caller names.
    ///
    /// # Errors
    ///
    /// As for [`compile`](Self::compile); `Unsupported` when the device does not run it, and for every architecture but
    /// the device's own before HIP 6, whose compiler ends the process on a name that it does not know.
    pub fn compile_for(&self, arch: &Arch, source: &str) -> Result<Module, BuildError> {
        module::compile_for(self.driver(), arch, source)
    }

    /// Loads a code object that was compiled before.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for what is no code object or is cut off, `Unsupported` for another architecture's.
    ///
    /// # Safety
    ///
    /// The image is what a compiler made: HIP follows the offsets inside it without a look at where it ends.
    pub unsafe fn load_code(&self, image: &[u8]) -> Result<Module, BuildError> {
        // SAFETY: the caller's promise.
        unsafe { module::load_code(self.driver(), image) }
    }

    /// Returns the device's architecture.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a name that is not of the usual form.
    pub fn arch(&self) -> Result<Arch> {
        module::arch(self.driver())
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.device.driver()
    }

    fn allocate_device(&self, size: usize) -> Result<(u64, Kind)> {
        if let Some(pool) = &self.pool {
            match pool.allocate(size) {
                // The pool may be full of pieces where the device still has room.
                Err(error) if error.kind() == ErrorKind::OutOfDeviceMemory => {}
                result => return Ok((result?, Kind::Pooled)),
            }
        }
        let base = match self.config.device_coherence {
            Coherence::Coarse => self.driver().allocate(size)?,
            Coherence::Fine => self.driver().allocate_with(size, Coherence::Fine)?,
        };
        Ok((base, Kind::Device))
    }

    fn allocate_pinned(&self, size: usize, caching: Caching) -> Result<(u64, Kind)> {
        let host = self.driver().allocate_host(size, caching, self.config.pinned_coherence)?;
        // SAFETY: allocated just above and used by nothing.
        let base = unsafe { address_of_pinned(&**self.driver(), host) }?;
        Ok((base, Kind::Pinned(Raw(host.as_ptr()))))
    }

    /// Frees a block of the pool. Called by `Backend::free`, whose caller promises that it is ours and idle.
    fn free_pooled(&self, base: u64) -> Result<()> {
        let pool = self.pool.as_ref().ok_or(ErrorKind::Foreign)?;
        // SAFETY: `Backend::free` took the block by value, and its caller promised the rest.
        unsafe { pool.free(base) }
    }
}

// SAFETY: the runtime gives disjoint ranges of at least the size asked for, and `allocate` checks their alignment. The
// caps are set once in `start`. Everything mutable is behind locks or atomics, and every call makes the device the calling
// thread's.
unsafe impl Backend for Hip {
    type Block = Block;

    fn caps(&self) -> &Caps {
        self.device.caps()
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let give = |source, bytes| {
            Ok(match source {
                Source::Device => self.allocate_device(bytes)?,
                Source::Combined => self.allocate_pinned(bytes, Caching::Combined)?,
                Source::Cached => self.allocate_pinned(bytes, Caching::Cached)?,
                Source::Managed => (self.device.allocate_managed(bytes)?, Kind::Managed),
                Source::Constant => (self.allocate_constant(heap, bytes)?, Kind::Constant),
            })
        };
        // SAFETY: a block that comes back was made just now and is used by nothing.
        let give_back = |block| unsafe { self.free(block) };
        // SAFETY: the runtime gives disjoint ranges of at least the size that they are asked for.
        unsafe { self.device.allocate(heap, size, give, give_back) }
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.device.let_go(&block)?;
        let base = block.address();
        match *block.kind() {
            // SAFETY: the caller promises that the block is ours and idle; a block is freed by value, so once.
            Kind::Device | Kind::Managed | Kind::Constant => unsafe { self.driver().free(base) },
            Kind::Pooled => self.free_pooled(base),
            // SAFETY: as above.
            Kind::Pinned(host) => unsafe { self.driver().free_host(host.0) },
            Kind::Reserved(ref reservation) => self.free_reserved(reservation),
            Kind::Exportable(shared) => self.free_exportable(shared),
            Kind::Imported(shared) => self.free_imported(shared),
            // SAFETY: as above; `open_ipc` made the block.
            Kind::Opened => unsafe { self.driver().close_ipc(base) },
            Kind::Borrowed => Ok(()),
        }
    }

    fn wait_idle(&self) -> Result<()> {
        self.device.timelines().wait_idle()
    }

    fn as_map(&self) -> Option<&dyn Map<Block = Block>> {
        Some(&self.device)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(&self.device)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Block>> {
        Some(&self.device)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(&self.device)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.caps().heaps.iter().any(|heap| heap.page.is_some()).then_some(self as _)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        Some(&self.device)
    }
    fn as_export(&self) -> Option<&dyn Export<Block = Block>> {
        let can_export = self.caps().heaps.iter().any(|heap| heap.registrable.is_some());
        can_export.then_some(self as _)
    }
}

impl DriverBudget for Hip {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let told = self.device.budget(heap)?;
        // The runtime does not count managed memory that is not on the device now.
        Ok(HeapBudget { used: told.used.max(self.device.used(heap)), ..told })
    }
    fn limits(&self, heap: HeapId) -> Vec<SystemLimit> {
        self.device.limits(heap)
    }
}

/// Gives access to the functions that all devices over streams share.
impl Deref for Hip {
    type Target = Device<Driver>;

    fn deref(&self) -> &Self::Target {
        &self.device
    }
}

impl fmt::Debug for Hip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hip").field(&self.device).finish()
    }
}
