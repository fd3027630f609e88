//! The device, and the verbs that every backend has.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    block::{Block, Kind},
    caps::Attributes,
    config::Config,
    constant::Bank,
    driver::{Driver, Sharing},
    module::{self, Arch, Module},
    pool::AsyncPool,
    selftest,
    sys::{CUcontext, CUstream},
};
use core::{fmt, ops::Deref};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_seam::{
    Address, Align, Backend, Caps, DriverBudget, ErrorKind, Export, HeapId, Launch, Map, Remap,
    Result, Timelines, Transfer,
};
use omniheap_stream::{
    BuildError, Caching, Described, Device, IpcDriver, Memory, MemoryDriver, NativeStreams, Raw,
    Registry, Source, StreamDriver, StreamOwner, address_of_pinned, selftest::Outcome,
};
use std::sync::Arc;

type Stream = <Driver as StreamDriver>::Stream;

/// One CUDA device.
pub struct Cuda {
    /// First, so that it is dropped first: it waits for what still runs.
    pub(crate) device: Device<Driver>,
    pub(crate) bank: Bank,
    pub(crate) pool: Option<AsyncPool>,
}

impl Cuda {
    /// Returns the number of devices; zero without a driver.
    #[must_use]
    pub fn count() -> u32 {
        Driver::count().unwrap_or(0)
    }

    /// Opens a device by its ordinal, with the defaults.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a driver (CUDA 12.0 or later) or a device, `InvalidConfig` for an ordinal that no device
    /// has ([`count`](Self::count) tells), otherwise the driver's error.
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

    /// Uses a context, and optionally a stream as the main timeline, that the caller owns.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for a null context, `Foreign` for a stream of another context; otherwise as
    /// [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// - `context` is live, and stays so until the backend and every [`Module`](crate::Module) from it are dropped.
    /// - `stream` is live, and stays so until the backend is dropped.
    pub unsafe fn wrap(
        context: CUcontext,
        stream: Option<CUstream>,
        config: Config,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        let driver = unsafe { Driver::wrap(context) }?;
        let main = stream.map(Driver::of_caller);
        if let Some((stream, _)) = main {
            // SAFETY: the caller's promise.
            unsafe { driver.owns_stream(stream) }?;
        }
        Self::start(Arc::new(driver), main, config)
    }

    fn start(
        driver: Arc<Driver>,
        main: Option<(Stream, StreamOwner)>,
        config: Config,
    ) -> Result<Self> {
        let attributes = Attributes::read(&driver, &config)?;
        let timelines = Registry::new(&driver, main)?;
        let Outcome { mut usable, pool, findings } = selftest::run(&driver, attributes.claims)?;
        if cfg!(unix) && attributes.has_fd_handles && usable.page.is_some() {
            usable.exportable = Align::new(driver.granularity(Sharing::Exportable)?);
        }
        let (caps, sources) = attributes.facts().translate(usable);
        let described = Described { caps, sources, findings, max_pitch: attributes.max_pitch };
        let limits = SystemLimits::new(Vendor::Nvidia, driver.ordinal());
        let limits = if config.is_light {
            limits
        } else {
            limits.device(attributes.uuid, attributes.total_memory)
        };
        let cuda = Self {
            bank: Bank::new(&driver, config.bank_kernels),
            device: Device::new(driver, timelines, described).limited_by(limits),
            pool,
        };
        if !config.is_light {
            // Not with the first batch: loading device code may wait for kernels that run. Without it, batches are only slower.
            let _ = cuda.prepare_batches();
        }
        Ok(cuda)
    }

    /// Returns the number that CUDA gave the device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.driver().ordinal()
    }

    /// Returns the context that everything here runs in.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.driver().context()
    }

    /// Notes that the context is gone. Events count as reached, and plain memory as returned, without a call: the driver may read freed
    /// memory if it is asked. Pages and addresses outlive a context, and can still be given back.
    pub fn end_context(&self) {
        self.driver().end();
    }

    /// Returns the module that holds the constant bank and the kernels that read it.
    ///
    /// # Errors
    ///
    /// Those of building it; with [`Config::bank_kernels`](crate::Config::bank_kernels), `Unsupported` where there is
    /// no run-time compiler.
    pub fn bank_module(&self) -> Result<Module, BuildError> {
        self.bank.module()
    }

    /// Returns the offset of a constant block in the bank, which kernels add to [`BANK_SYMBOL`](crate::BANK_SYMBOL).
    ///
    /// # Errors
    ///
    /// `Foreign` for another backend's block, `Unsupported` for a block of another heap.
    pub fn bank_offset(&self, block: &Block) -> Result<u64> {
        self.device.owns(block)?;
        let constant = Some(block).filter(|block| block.memory() == Memory::Constant);
        let offset = constant.and_then(|block| self.bank.offset_of(block.address()));
        offset.ok_or_else(|| ErrorKind::Unsupported.into())
    }

    /// Compiles CUDA C++ source for this device, and loads it.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with the compiler's log.
    pub fn compile(&self, source: &str) -> Result<Module, BuildError> {
        self.compile_for(Arch::of(self.driver())?, source)
    }

    /// As [`compile`](Self::compile), for an architecture that the caller names.
    ///
    /// # Errors
    ///
    /// As for [`compile`](Self::compile); `Unsupported` when the device does not run it.
    pub fn compile_for(&self, arch: Arch, source: &str) -> Result<Module, BuildError> {
        module::compile(self.driver(), arch, source)
    }

    /// Loads PTX that was compiled before.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with the driver's log.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module, BuildError> {
        module::load_ptx(self.driver(), ptx)
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.device.driver()
    }

    fn allocate_device(&self, size: usize) -> Result<(u64, Kind)> {
        match &self.pool {
            Some(pool) => Ok((pool.allocate(size)?, Kind::Pooled)),
            None => Ok((self.driver().allocate(size)?, Kind::Device)),
        }
    }

    fn allocate_pinned(&self, size: usize, caching: Caching) -> Result<(u64, Kind)> {
        let host = self.driver().allocate_host(size, caching)?;
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

// SAFETY: the driver gives disjoint ranges of at least the size asked for, and `allocate` checks their alignment. The
// constant bank takes each unit for one block at a time. The caps are set once in `start`. Everything mutable is behind locks
// or atomics, and every driver call makes its context current on the calling thread.
unsafe impl Backend for Cuda {
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
                Source::Constant => (self.bank.take(bytes as u64)?, Kind::Constant),
            })
        };
        // SAFETY: a block that comes back was made just now and is used by nothing.
        let give_back = |block| unsafe { self.free(block) };
        // SAFETY: driver and bank give disjoint ranges of at least the size that they are asked for.
        unsafe { self.device.allocate(heap, size, give, give_back) }
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.device.let_go(&block)?;
        let base = block.address();
        match *block.kind() {
            // SAFETY: the caller promises that the block is ours and idle; a block is freed by value, so once.
            Kind::Device | Kind::Managed => unsafe { self.driver().free(base) },
            Kind::Pooled => self.free_pooled(base),
            // SAFETY: as above.
            Kind::Pinned(host) => unsafe { self.driver().free_host(host.0) },
            Kind::Constant => {
                self.bank.give_back(base, block.size());
                Ok(())
            }
            Kind::Reserved(ref positions) => self.free_reserved(&block, positions),
            Kind::Exportable(page) | Kind::Imported(page) => self.free_shared(&block, page),
            // SAFETY: as above; `open_ipc` made the block.
            Kind::Opened => unsafe { self.driver().close_ipc(base) },
            Kind::Borrowed => Ok(()),
            Kind::External(memory) => self.free_external(&block, memory),
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
        Some(&self.device)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        Some(&self.device)
    }
    fn as_export(&self) -> Option<&dyn Export<Block = Block>> {
        let can_export = self.caps().heaps.iter().any(|heap| heap.registrable.is_some());
        can_export.then_some(self as _)
    }
}

/// Gives access to the functions that all devices over streams share.
impl Deref for Cuda {
    type Target = Device<Driver>;

    fn deref(&self) -> &Self::Target {
        &self.device
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cuda").field(&self.device).finish()
    }
}
