//! An opened device: what every backend over streams holds, and how it looks at blocks.
#![expect(
    unsafe_code,
    reason = "answers for the addresses of blocks, and signs the contract of Timelines"
)]
use crate::{
    Block, BlockKind, Driver, Finding, Memory, Programs, Registry, Source, Staging,
    compact::Compactor, pins::Pins, selftest,
};
use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_seam::{
    BlockOffset, Caps, Epoch, ErrorKind, Heap, HeapId, HeapKind, Point, Result, TimelineId,
    Timelines,
};
use std::sync::Arc;

/// Description of a device after its self-test.
#[derive(Debug)]
pub struct Described {
    /// Its caps.
    pub caps: Caps,
    /// Source of the blocks of each heap.
    pub sources: Vec<Source>,
    /// Results of the self-test.
    pub findings: Vec<Finding>,
    /// The longest pitch of a copy of rows, in bytes.
    pub max_pitch: u64,
}

/// One device, opened: its heaps and blocks, timelines, staging and kernels.
pub struct Device<D: Driver> {
    id: u64,
    described: Described,
    used: Vec<AtomicU64>,
    /// True if the device has touched managed memory.
    is_managed_tried: AtomicBool,
    timelines: Registry<D>,
    staging: Staging<D>,
    pub(crate) pins: Arc<Pins<D>>,
    pub(crate) programs: Programs<D>,
    pub(crate) compactor: Compactor<D>,
    driver: Arc<D>,
    limits: SystemLimits,
}

impl<D: Driver> Device<D> {
    /// Creates a device whose timelines are open already.
    #[must_use]
    pub fn new(driver: Arc<D>, timelines: Registry<D>, described: Described) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            used: described.sources.iter().map(|_| AtomicU64::new(0)).collect(),
            is_managed_tried: AtomicBool::new(false),
            described,
            timelines,
            staging: Staging::new(&driver),
            pins: Pins::new(&driver),
            programs: Programs::default(),
            compactor: Compactor::default(),
            driver,
            limits: SystemLimits::new(Vendor::Any, 0),
        }
    }

    /// The same device with the limits that its vendor's tools set.
    #[must_use]
    pub fn limited_by(mut self, limits: SystemLimits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) const fn system_limits(&self) -> &SystemLimits {
        &self.limits
    }

    /// Returns its driver.
    #[must_use]
    pub const fn driver(&self) -> &Arc<D> {
        &self.driver
    }

    /// Returns its caps.
    #[must_use]
    pub const fn caps(&self) -> &Caps {
        &self.described.caps
    }

    /// Returns the results of the self-test that ran when the device was opened.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.described.findings
    }

    /// Returns its open timelines.
    #[must_use]
    pub const fn timelines(&self) -> &Registry<D> {
        &self.timelines
    }

    pub(crate) const fn staging(&self) -> &Staging<D> {
        &self.staging
    }

    pub(crate) const fn max_pitch(&self) -> u64 {
        self.described.max_pitch
    }

    /// Returns the heap with this id, and where its blocks come from.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`.
    pub fn source(&self, heap: HeapId) -> Result<(Source, &Heap)> {
        let described = self.caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        Ok((self.described.sources[usize::from(heap.0)], described))
    }

    /// Allocates from where a heap's blocks come from: `give` gets an address and what freeing it needs. A block that is not
    /// aligned as the heap says is given back.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `ZeroSize`, `ExceedsLimit`, or what `give` says.
    ///
    /// # Safety
    ///
    /// From the address that `give` returns on, as many bytes as it was asked for are the block's alone until it is freed.
    pub unsafe fn allocate<K: BlockKind>(
        &self,
        heap: HeapId,
        size: u64,
        give: impl FnOnce(Source, usize) -> Result<(u64, K)>,
        give_back: impl FnOnce(Block<K>) -> Result<()>,
    ) -> Result<Block<K>> {
        let (source, bytes) = self.admit(heap, size)?;
        let (base, kind) = give(source, bytes)?;
        // SAFETY: the caller's promise.
        let block = unsafe { self.block(heap, base, size, kind) };
        if self.caps().heap(heap).is_some_and(|heap| heap.align.divides(base)) {
            return Ok(block);
        }
        tracing::error!(base, heap = heap.0, "the driver broke the heap's alignment");
        let _ = give_back(block);
        Err(ErrorKind::Driver.into())
    }

    /// Allocates memory that host and device share. The first time, the device tries a little of it before.
    ///
    /// # Errors
    ///
    /// The driver's error, or `Driver` when host and device see different bytes.
    pub fn allocate_managed(&self, bytes: usize) -> Result<u64> {
        if !self.is_managed_tried.load(Ordering::Relaxed) {
            selftest::touch_managed(&*self.driver)?;
            self.is_managed_tried.store(true, Ordering::Relaxed);
        }
        self.driver.allocate_managed(bytes)
    }

    /// Refuses a size that a heap can never give; says where its blocks come from, and the size as drivers take it.
    pub(crate) fn admit(&self, heap: HeapId, size: u64) -> Result<(Source, usize)> {
        let (source, described) = self.source(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if size > described.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        Ok((source, usize::try_from(size).map_err(|_| ErrorKind::ExceedsLimit)?))
    }

    /// Returns the page size of a heap that has pages.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `Unsupported`.
    pub fn page(&self, heap: HeapId) -> Result<u64> {
        match self.source(heap)? {
            (Source::Device, Heap { page: Some(page), .. }) => Ok(page.get()),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Refuses a size that cannot be reserved; returns the page size.
    ///
    /// # Errors
    ///
    /// As for [`page`](Self::page); `ZeroSize`, `Misaligned`.
    pub fn admit_reservation(&self, heap: HeapId, size: u64) -> Result<u64> {
        let page = self.page(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if size.is_multiple_of(page) { Ok(page) } else { Err(ErrorKind::Misaligned.into()) }
    }

    /// Returns the bytes of live blocks in a heap, reservations aside.
    #[must_use]
    pub fn used(&self, heap: HeapId) -> u64 {
        self.used.get(usize::from(heap.0)).map_or(0, |used| used.load(Ordering::Relaxed))
    }

    /// Makes a block of memory that the driver just gave, and counts it.
    ///
    /// # Panics
    ///
    /// For a heap that the device does not have.
    ///
    /// # Safety
    ///
    /// From `base` on, `size` bytes are this block's alone until it is freed, and live; of a reservation, those that its
    /// positions show as mapped.
    pub unsafe fn block<K: BlockKind>(
        &self,
        heap: HeapId,
        base: u64,
        size: u64,
        kind: K,
    ) -> Block<K> {
        if kind.memory() != Memory::Reserved {
            self.used[usize::from(heap.0)].fetch_add(size, Ordering::Relaxed);
        }
        Block { owner: self.id, heap, base, size, kind }
    }

    /// Makes a block of device memory that another owner allocated, for copies to and from it. Freeing the block leaves
    /// the memory as it is.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap` when the device has no memory of its own.
    ///
    /// # Safety
    ///
    /// From `address` on, `size` bytes are live memory of this device until the block is freed, and nothing else uses them while
    /// this device's work does.
    pub unsafe fn borrow(&self, address: u64, size: u64) -> Result<Block<D::Kind>> {
        let is_device = |heap: &Heap| heap.kind == HeapKind::Device;
        let heap = self.caps().heap_ids().find(|(_, heap)| is_device(heap));
        let (heap, _) = heap.ok_or(ErrorKind::NoSuchHeap)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.block(heap, address, size, D::Kind::borrowed()) })
    }

    /// Counts a block out that is about to be freed.
    ///
    /// # Errors
    ///
    /// `Foreign`.
    pub fn let_go<K: BlockKind>(&self, block: &Block<K>) -> Result<()> {
        self.owns(block)?;
        if block.memory() != Memory::Reserved {
            self.used[usize::from(block.heap.0)].fetch_sub(block.size, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Refuses another backend's block.
    ///
    /// # Errors
    ///
    /// `Foreign`.
    pub fn owns<K>(&self, block: &Block<K>) -> Result<()> {
        if block.owner == self.id { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }

    /// Returns the address of `size` bytes that lie inside our own block, and are mapped.
    ///
    /// # Errors
    ///
    /// `Foreign`, `OutOfRange`.
    pub fn range<K: BlockKind>(&self, place: &BlockOffset<'_, Block<K>>, size: u64) -> Result<u64> {
        self.owns(place.block)?;
        self.caps().copy.check_range(place.block.size, place.offset, size)?;
        if let Some(positions) = place.block.kind.positions() {
            positions.require_mapped(place.offset, size)?;
        }
        Ok(place.block.at(place.offset))
    }
}

// SAFETY: the driver promises that an event finishes behind everything recorded before it, and no earlier; the registry hands out
// epochs in the order of their events, waits before it forgets a timeline, and counts ids up.
unsafe impl<D: Driver> Timelines for Device<D> {
    fn open(&self) -> Result<TimelineId> {
        self.timelines.open()
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        self.timelines.close(timeline)
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.timelines.mark(timeline)
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.timelines.reached(timeline)
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.timelines.wait(point)
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.programs.touch();
        self.timelines.order(timeline, point)
    }
}

impl<D: Driver> Drop for Device<D> {
    fn drop(&mut self) {
        // Copies may still read staging memory, which goes next. On a lost device nothing runs any more.
        let _ = self.driver.synchronize();
    }
}

impl<D: Driver> fmt::Debug for Device<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("device", &self.caps().device)
            .field("findings", &self.findings())
            .finish_non_exhaustive()
    }
}
