//! The device, and the verbs that every backend has.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
pub(crate) use crate::block::Block;
use crate::{
    block::Kind,
    caps::{self, Attributes, Source},
    compact::Compactor,
    config::Config,
    constant::Bank,
    driver::{Caching, Driver},
    kernel::Kernel,
    pool::AsyncPool,
    selftest::{self, Finding, Outcome},
    sys::{CUcontext, CUstream},
    timeline::owner_of,
};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};
use omniheap_core::{
    Address, Backend, Caps, DriverBudget, ErrorKind, Export, Heap, HeapId, Launch, Map, Place,
    Remap, Result, Timelines, Transfer,
};
use omniheap_stream::{Programs, Registry, Staging};
use std::sync::Arc;

/// One CUDA device.
pub struct Cuda {
    id: u64,
    caps: Caps,
    sources: Vec<Source>,
    attributes: Attributes,
    findings: Vec<Finding>,
    used: Vec<AtomicU64>,
    timelines: Registry<Driver>,
    staging: Staging<Driver>,
    pub(crate) programs: Programs<Kernel>,
    pub(crate) bank: Bank,
    pub(crate) compactor: Compactor,
    pub(crate) pool: Option<AsyncPool>,
    driver: Arc<Driver>,
}

impl Cuda {
    /// How many devices the driver shows; zero where there is no driver.
    #[must_use]
    pub fn count() -> u32 {
        Driver::count().unwrap_or(0)
    }

    /// Opens a device by its ordinal, with the defaults.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a driver (CUDA 12.0 or later) or a device, `InvalidConfig` for an ordinal that no device
    /// has ([`count`](Self::count) tells), otherwise what the driver says.
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
        if let Some(stream) = stream {
            // SAFETY: the caller's promise.
            unsafe { driver.owns_stream(stream) }?;
        }
        Self::start(Arc::new(driver), stream, config)
    }

    fn start(driver: Arc<Driver>, main: Option<CUstream>, config: Config) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let attributes = Attributes::read(&driver)?;
        let timelines = Registry::new(&driver, main.map(owner_of))?;
        let Outcome { usable, pool, findings } =
            selftest::run(&driver, &attributes, config.block_source)?;
        let (caps, sources) = caps::translate(&attributes, usable);
        let cuda = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            used: sources.iter().map(|_| AtomicU64::new(0)).collect(),
            caps,
            sources,
            findings,
            timelines,
            staging: Staging::new(&driver),
            programs: Programs::default(),
            bank: Bank::new(&driver, attributes.compute, config.bank_kernels),
            compactor: Compactor::new(&driver, attributes.compute),
            pool,
            attributes,
            driver,
        };
        // Not with the first batch: loading device code may wait for kernels that run. Without it, batches are only slower.
        let _ = cuda.prepare_batches();
        Ok(cuda)
    }

    /// What the self-test found when the device was opened.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The context that everything here runs in.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.driver.context()
    }

    /// Events that are kept for later marks; it stays small however many marks are made.
    #[must_use]
    pub fn spare_events(&self) -> usize {
        self.timelines.spare_events()
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub(crate) fn timelines(&self) -> &Registry<Driver> {
        &self.timelines
    }

    pub(crate) fn staging(&self) -> &Staging<Driver> {
        &self.staging
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The heap with this id, and where its blocks come from.
    pub(crate) fn source(&self, heap: HeapId) -> Result<(Source, &Heap)> {
        let described = self.caps.heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        Ok((self.sources[usize::from(heap.0)], described))
    }

    /// Bytes of live blocks in a heap, reservations aside.
    pub(crate) fn used(&self, heap: HeapId) -> u64 {
        self.used.get(usize::from(heap.0)).map_or(0, |used| used.load(Ordering::Relaxed))
    }

    /// Makes a block of memory that the driver just gave, and counts it.
    pub(crate) fn block(&self, heap: HeapId, base: u64, size: u64, kind: Kind) -> Block {
        if !matches!(kind, Kind::Reserved(_)) {
            self.used[usize::from(heap.0)].fetch_add(size, Ordering::Relaxed);
        }
        Block { owner: self.id, heap, base, size, kind }
    }

    /// Refuses another backend's block.
    pub(crate) fn owns(&self, block: &Block) -> Result<()> {
        if block.owner == self.id { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }

    /// The address of `size` bytes that lie inside our own block, and are mapped.
    pub(crate) fn range(&self, place: &Place<'_, Block>, size: u64) -> Result<u64> {
        self.owns(place.block)?;
        let end = place.offset.checked_add(size).ok_or(ErrorKind::OutOfRange)?;
        if end > place.block.size {
            return Err(ErrorKind::OutOfRange.into());
        }
        if let Kind::Reserved(positions) = &place.block.kind {
            positions.require_mapped(place.offset, size)?;
        }
        Ok(place.block.at(place.offset))
    }
}

// SAFETY: the driver gives disjoint ranges of at least the size asked for, and `allocate` checks their alignment. The
// constant bank takes each unit for one block at a time. The caps are set once in `start`. Everything mutable is behind locks or
// atomics, and every driver call makes its context current on the calling thread.
unsafe impl Backend for Cuda {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let (source, described) = self.source(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if size > described.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let bytes = usize::try_from(size).map_err(|_| ErrorKind::ExceedsLimit)?;
        let (base, kind) = match source {
            Source::Device => self.allocate_device(bytes)?,
            Source::Combined => self.allocate_pinned(bytes, Caching::Combined)?,
            Source::Cached => self.allocate_pinned(bytes, Caching::Cached)?,
            Source::Managed => (self.driver.allocate_managed(bytes)?, Kind::Managed),
            Source::Constant => (self.bank.take(size)?, Kind::Constant),
        };
        let block = self.block(heap, base, size, kind);
        if described.align.divides(base) {
            return Ok(block);
        }
        tracing::error!(base, heap = heap.0, "the driver broke the heap's alignment");
        // SAFETY: made just above and used by nothing.
        let _ = unsafe { self.free(block) };
        Err(ErrorKind::Driver.into())
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.owns(&block)?;
        if !matches!(block.kind, Kind::Reserved(_)) {
            self.used[usize::from(block.heap.0)].fetch_sub(block.size, Ordering::Relaxed);
        }
        match block.kind {
            // SAFETY: the caller promises that the block is ours and idle; a block is freed by value, so once.
            Kind::Device | Kind::Managed => unsafe { self.driver.free(block.base) },
            Kind::Pooled => self.free_pooled(block.base),
            // SAFETY: as above.
            Kind::Pinned(host) => unsafe { self.driver.free_host(host.0) },
            Kind::Constant => {
                self.bank.give_back(block.base, block.size);
                Ok(())
            }
            Kind::Reserved(ref positions) => self.free_reserved(&block, positions),
            Kind::Exportable(page) | Kind::Imported(page) => self.free_shared(&block, page),
            // SAFETY: as above; `open_ipc` made the block.
            Kind::Opened => unsafe { self.driver.close_ipc(block.base) },
            Kind::External(memory) => self.free_external(&block, memory),
        }
    }

    fn wait_idle(&self) -> Result<()> {
        self.driver.synchronize()
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
        self.caps.heaps.iter().any(|heap| heap.page.is_some()).then_some(self as _)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        Some(self)
    }
    fn as_export(&self) -> Option<&dyn Export<Block = Block>> {
        (cfg!(unix) && self.attributes.has_fd_handles && self.as_remap().is_some())
            .then_some(self as _)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Copies may still read staging memory, which goes next. On a lost device nothing runs any more.
        let _ = self.driver.synchronize();
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("device", &self.caps.device)
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}
