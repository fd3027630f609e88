//! The allocator for Vulkan.
#![expect(unsafe_code, reason = "wraps the caller's device and maps its memory")]
mod allocation;
mod blocks;
mod heaps;
mod pools;
mod slots;

pub use allocation::{Allocation, MappedAllocationSlab};

use crate::{
    AllocationError, AllocationReport, AllocationSizes, AllocatorDebugSettings, AllocatorReport,
    MemoryBlockReport, MemoryLocation, Result,
};
use allocation::Pointer;
use ash::vk;
use blocks::{Block, Blocks};
use core::{
    fmt,
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use heaps::{Candidate, Heaps};
use log::{Level, debug, log, warn};
use omniheap_core::{
    Align, AllocateError, Allocation as Managed, Backend, ErrorKind, HeapId, HeapKind, Manager,
    ManagerConfig,
};
use omniheap_vulkan::{Bare, Block as VulkanBlock, Feature, Options, Vulkan};
use pools::{Ask, Pools, Taken};
use slots::{Live, Slots};
use std::{backtrace::Backtrace, collections::BTreeMap};

/// The largest granularity of neighbours that all sizes are rounded to.
const COARSE: Align = Align::of(1024);

/// Way in which a resource gets its memory.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum AllocationScheme {
    /// From memory that the driver gives for this buffer alone.
    DedicatedBuffer(vk::Buffer),
    /// From memory that the driver gives for this image alone.
    DedicatedImage(vk::Image),
    /// From memory that it may share.
    GpuAllocatorManaged,
}

/// A request.
#[derive(Clone, Debug)]
pub struct AllocationCreateDesc<'a> {
    /// A name, for reports.
    pub name: &'a str,
    /// Requirements of the driver for the resource.
    pub requirements: vk::MemoryRequirements,
    /// Memory that the resource should lie in.
    pub location: MemoryLocation,
    /// True if the resource is a buffer or a linear image.
    pub linear: bool,
    /// Way in which the resource gets its memory: shared, or alone.
    pub allocation_scheme: AllocationScheme,
}

/// The device to allocate on. Its handles belong together and outlive the allocator.
pub struct AllocatorCreateDesc {
    /// The instance.
    pub instance: ash::Instance,
    /// The device.
    pub device: ash::Device,
    /// The physical device.
    pub physical_device: vk::PhysicalDevice,
    /// Events that are logged.
    pub debug_settings: AllocatorDebugSettings,
    /// True if `bufferDeviceAddress` is enabled on the device.
    pub buffer_device_address: bool,
    /// The largest blocks.
    pub allocation_sizes: AllocationSizes,
}

impl fmt::Debug for AllocatorCreateDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorCreateDesc")
            .field("physical_device", &self.physical_device)
            .field("allocation_sizes", &self.allocation_sizes)
            .finish_non_exhaustive()
    }
}

/// Treatment of a [`MemoryLocation::GpuOnly`] request when device memory is full.
///
/// The environment variable `OMNIHEAP_WHEN_FULL` (`next_heap` or `fail`) sets it for programs that cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The next heap serves the request, host memory last. It is slower than device memory: the log warns, and the report says
    /// which allocations it happened to.
    #[default]
    NextHeap,
    /// The request fails.
    Fail,
}

impl WhenFull {
    fn from_environment() -> Self {
        match std::env::var("OMNIHEAP_WHEN_FULL").as_deref() {
            Ok("fail") => Self::Fail,
            Ok("next_heap") | Err(_) => Self::NextHeap,
            Ok(other) => {
                warn!(
                    "OMNIHEAP_WHEN_FULL is `next_heap` or `fail`, not `{other}`: using `next_heap`"
                );
                Self::NextHeap
            }
        }
    }
}

/// Allocates memory of one device.
pub struct Allocator {
    /// Before the pools and the manager, whose memory they hold.
    slots: Slots,
    next: NonZeroU64,
    /// Tells this allocator from all others.
    number: u64,
    blocks: Blocks,
    heaps: Heaps,
    pools: Pools,
    /// Properties by memory type.
    properties: Vec<vk::MemoryPropertyFlags>,
    debug: AllocatorDebugSettings,
    manager: Manager<Vulkan>,
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.generate_report().fmt(f)
    }
}

impl Allocator {
    /// Creates an allocator. Nothing is allocated yet.
    ///
    /// # Errors
    ///
    /// `InvalidAllocatorCreateDesc` for a null physical device, and for one below Vulkan 1.1.
    pub fn new(desc: &AllocatorCreateDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if desc.physical_device == vk::PhysicalDevice::null() {
            let why = "AllocatorCreateDesc field `physical_device` is null.";
            return Err(AllocationError::InvalidAllocatorCreateDesc(why.into()));
        }
        let vulkan = wrap(desc)?;
        // SAFETY: as in `wrap`.
        let memory =
            unsafe { desc.instance.get_physical_device_memory_properties(desc.physical_device) };
        let properties =
            memory.memory_types_as_slice().iter().map(|one| one.property_flags).collect();
        if desc.debug_settings.log_memory_information {
            for (id, heap) in vulkan.caps().heap_ids() {
                debug!("heap {}: {}, {} MiB", id.0, heap.name, heap.size >> 20);
            }
        }
        // Beyond its budget a driver pages: other heaps are faster then.
        let mut config = ManagerConfig::default().plain().within_driver_budget();
        config.pool = pools::one_lane();
        // Spans of whole granules need no look at their neighbours; coarse granules would waste too much.
        let granule = vulkan.caps().neighbour_granularity;
        config.unit = if granule <= COARSE { config.unit.max(granule) } else { config.unit };
        Ok(Self {
            slots: Slots::default(),
            next: NonZeroU64::MIN,
            number: NEXT.fetch_add(1, Relaxed),
            blocks: Blocks::default(),
            heaps: Heaps::new(desc.allocation_sizes, WhenFull::from_environment()),
            pools: Pools::default(),
            properties,
            debug: desc.debug_settings,
            manager: Manager::with_config(vulkan, config),
        })
    }

    /// Returns omniheap's manager, for reports, budgets and pressure callbacks. Its clones must not outlive the device.
    #[must_use]
    pub const fn manager(&self) -> &Manager<Vulkan> {
        &self.manager
    }

    /// Sets what happens when device memory is full.
    pub fn set_when_full(&mut self, when_full: WhenFull) {
        self.heaps.set_when_full(when_full);
    }

    /// Allocates memory for a resource. What the host sees stays mapped.
    ///
    /// # Errors
    ///
    /// `InvalidAllocationCreateDesc` for a size of zero or an alignment that is no power of two; `NoCompatibleMemoryTypeFound`;
    /// `OutOfMemory`; `FailedToMap`; `Internal` with what the driver said.
    pub fn allocate(&mut self, desc: &AllocationCreateDesc<'_>) -> Result<Allocation> {
        let vk::MemoryRequirements { size, alignment, memory_type_bits: types } = desc.requirements;
        if self.debug.log_allocations {
            debug!("Allocating `{}` of {size} bytes with an alignment of {alignment}.", desc.name);
            self.log_stack();
        }
        let align = Align::new(alignment).filter(|_| size > 0);
        let align = align.ok_or(AllocationError::InvalidAllocationCreateDesc)?;
        let heaps = self.heaps.find(self.manager.backend(), types, desc.location);
        let [first, others @ ..] = heaps else {
            return Err(AllocationError::NoCompatibleMemoryTypeFound);
        };
        let best = (first.id, first.is_host);
        let (manager, live_bytes) = (&self.manager, self.blocks.live_bytes());
        let ask = Ask { manager, desc, align, live_bytes };
        let taken = take(&ask, &mut self.pools, first, others)?;
        self.admit(desc, taken, best)
    }

    /// Keeps the memory and describes it; `best` is the heap that suits it best, and whether it is host memory.
    #[inline]
    fn admit(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
        (managed, (tag, offset)): Taken,
        best: (HeapId, bool),
    ) -> Result<Allocation> {
        let size = desc.requirements.size;
        let block = match self.blocks.enter(tag, size) {
            Some(at) => at,
            None => self.enter_new(&managed, size)?,
        };
        let Block { memory, heap, properties, base, .. } = *self.blocks.get(block);
        let is_fallback = heap != best.0 && self.is_fallback(desc, best.1, heap);
        let trace = self.debug.store_stack_traces.then(|| Box::new(Backtrace::force_capture()));
        let id = self.next;
        self.next = id.checked_add(1).expect("centuries of allocations");
        let slot =
            self.slots.keep(desc.name, Live { id, managed, block, offset, is_fallback, trace });
        Ok(Allocation {
            chunk_id: Some(id),
            allocator: self.number,
            slot,
            memory,
            offset,
            size,
            mapped: base.map(|base| base.add(offset)),
            properties,
            dedicated: desc.allocation_scheme != AllocationScheme::GpuAllocatorManaged,
        })
    }

    /// Notes the first allocation in a memory object; returns the object's place.
    #[cold]
    fn enter_new(&mut self, managed: &Managed<Vulkan>, size: u64) -> Result<usize> {
        let binding = managed.binding();
        let seen = look_at(self.manager.backend(), &self.properties, binding.block())?;
        let tag = self.blocks.enter_new(seen, size);
        binding.block().user_data().store(tag.into_raw(), Relaxed);
        Ok(tag.at())
    }

    /// Returns whether a request for device memory was served from host memory, and warns of it.
    #[cold]
    fn is_fallback(
        &self,
        desc: &AllocationCreateDesc<'_>,
        is_first_host: bool,
        served: HeapId,
    ) -> bool {
        let heap = self.manager.caps().heap(served);
        let is_host = heap.is_some_and(|heap| heap.kind == HeapKind::Staging);
        let is_fallback = desc.location == MemoryLocation::GpuOnly && is_host && !is_first_host;
        if is_fallback {
            let (name, size) = (desc.name, desc.requirements.size);
            let heap = heap.map_or("", |heap| &heap.name);
            warn!("device memory is full: `{name}` ({size} bytes) lies in {heap}");
        }
        is_fallback
    }

    /// Takes memory back. The device has finished with it.
    ///
    /// # Errors
    ///
    /// `Internal` for an allocation of another allocator, which is not freed then.
    #[expect(clippy::needless_pass_by_value, reason = "ends the allocation")]
    pub fn free(&mut self, allocation: Allocation) -> Result<()> {
        let Some(at) = self.find(&allocation)? else { return Ok(()) };
        if self.debug.log_frees {
            debug!("Freeing `{}`.", self.slots.name(at));
            self.log_stack();
        }
        let Some(block) = self.slots.release(at) else { return Ok(()) };
        if self.blocks.freed(block, allocation.size) {
            // A lost device has nothing to give back; the calls that allocate report it.
            let _ = self.manager.trim();
            self.blocks.trimmed();
        }
        Ok(())
    }

    /// Returns the slot of an allocation; `None` for the null allocation.
    #[inline]
    fn find(&self, allocation: &Allocation) -> Result<Option<usize>> {
        let Some(id) = allocation.chunk_id else { return Ok(None) };
        let is_own = allocation.allocator == self.number && self.slots.has(allocation.slot, id);
        if is_own { Ok(Some(allocation.slot)) } else { Err(foreign()) }
    }

    /// Gives an allocation another name.
    ///
    /// # Errors
    ///
    /// `Internal` for an allocation of another allocator.
    pub fn rename_allocation(&mut self, allocation: &mut Allocation, name: &str) -> Result<()> {
        if let Some(at) = self.find(allocation)? {
            self.slots.rename(at, name);
        }
        Ok(())
    }

    /// Logs every live allocation.
    pub fn report_memory_leaks(&self, log_level: Level) {
        for (name, live) in self.slots.iter() {
            let (size, at, memory) =
                (live.managed.size(), live.offset, self.blocks.get(live.block).memory);
            log!(log_level, "leak detected: `{name}`, {size} bytes at {at} of {memory:?}");
            if let Some(trace) = &live.trace {
                log!(log_level, "allocated at: {trace}");
            }
        }
    }

    /// Returns a snapshot.
    #[must_use]
    pub fn generate_report(&self) -> AllocatorReport {
        let mut by_block: BTreeMap<usize, Vec<AllocationReport>> = BTreeMap::new();
        for (name, live) in self.slots.iter() {
            let note = if live.is_fallback { " (in host memory: the device was full)" } else { "" };
            let (name, size) = (format!("{name}{note}"), live.managed.size());
            let one = AllocationReport { name, offset: live.offset, size };
            by_block.entry(live.block).or_default().push(one);
        }
        let (mut allocations, mut blocks) = (Vec::new(), Vec::new());
        for (at, &Block { size, .. }) in self.blocks.in_use() {
            let first = allocations.len();
            let mut here = by_block.remove(&at).unwrap_or_default();
            here.sort_by_key(|one| one.offset);
            allocations.append(&mut here);
            blocks.push(MemoryBlockReport { size, allocations: first..allocations.len() });
        }
        let end = allocations.len();
        let held = self.manager.report().pools;
        for empty in held.iter().flat_map(|pool| &pool.blocks).filter(|block| block.live.is_empty())
        {
            blocks.push(MemoryBlockReport { size: empty.size, allocations: end..end });
        }
        AllocatorReport {
            allocations,
            blocks,
            total_allocated_bytes: self.blocks.live_bytes(),
            total_capacity_bytes: self.capacity(),
        }
    }

    /// Returns the bytes held from the driver.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.manager.totals().reserved_bytes
    }

    fn log_stack(&self) {
        if self.debug.log_stack_traces {
            debug!("Stack trace: {}", Backtrace::force_capture());
        }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        if self.debug.log_leaks_on_shutdown {
            self.report_memory_leaks(Level::Warn);
        }
    }
}

/// Takes memory from the first heap that has some.
#[inline]
fn take(
    ask: &Ask<'_>,
    pools: &mut Pools,
    first: &Candidate,
    others: &[Candidate],
) -> Result<Taken> {
    let mut refused = None;
    if first.may_serve(ask.manager, ask.desc.requirements.size, others.is_empty()) {
        match pools::take(ask, pools, first) {
            Ok(taken) => return Ok(taken),
            Err(why) => refused = Some((first, why)),
        }
    }
    take_elsewhere(ask, pools, others, refused)
}

/// As [`take`], after the first heap refused or may not serve. If a heap is full, so are the others of its physical memory.
#[cold]
fn take_elsewhere<'a>(
    ask: &Ask<'_>,
    pools: &mut Pools,
    mut others: &'a [Candidate],
    mut refused: Option<(&'a Candidate, AllocateError)>,
) -> Result<Taken> {
    let (mut full, mut last) = (0, AllocationError::OutOfMemory);
    loop {
        if let Some((heap, why)) = refused.take() {
            match why.kind().is_out_of_memory() {
                true => full |= heap.physical,
                false => last = error(&why),
            }
        }
        let [heap, rest @ ..] = others else { return Err(last) };
        others = rest;
        let size = ask.desc.requirements.size;
        if full & heap.physical == 0 && heap.may_serve(ask.manager, size, rest.is_empty()) {
            match pools::take(ask, pools, heap) {
                Ok(taken) => return Ok(taken),
                Err(why) => refused = Some((heap, why)),
            }
        }
    }
}

/// Wraps the caller's device.
fn wrap(desc: &AllocatorCreateDesc) -> Result<Vulkan> {
    let enabled: &[Feature] =
        if desc.buffer_device_address { &[Feature::BufferDeviceAddress] } else { &[] };
    let bare = Bare {
        instance: desc.instance.clone(),
        physical_device: desc.physical_device,
        device: desc.device.clone(),
        enabled,
    };
    // SAFETY: as in the crate whose interface this is, the caller answers for handles that belong together and outlive the
    // allocator, and frees only what the device has finished with.
    let vulkan = unsafe { Vulkan::wrap_memory(bare, Options::default()) };
    vulkan.map_err(|why| {
        AllocationError::InvalidAllocatorCreateDesc(format!("omniheap refused the device: {why}"))
    })
}

/// Returns what is known of a memory object, mapped where the host sees it.
fn look_at(
    vulkan: &Vulkan,
    properties: &[vk::MemoryPropertyFlags],
    block: &VulkanBlock,
) -> Result<Block> {
    let memory = block.memory().expect("pools of plain blocks have no pages");
    let heap = block.heap();
    let is_visible = vulkan.caps().heap(heap).is_some_and(|heap| heap.host.is_visible());
    let base = vulkan.as_map().filter(|_| is_visible).map(|map| map.map(block));
    let base = base.transpose().map_err(|why| AllocationError::FailedToMap(why.to_string()))?;
    let memory_type = vulkan.memory_type(heap).and_then(|at| usize::try_from(at).ok());
    let properties = memory_type.and_then(|at| properties.get(at)).copied().unwrap_or_default();
    let base = base.map(|base| Pointer(base.cast()));
    Ok(Block { memory, size: block.size(), heap, properties, base })
}

#[cold]
fn foreign() -> AllocationError {
    AllocationError::Internal("the allocation is another allocator's".into())
}

#[cold]
fn error(why: &AllocateError) -> AllocationError {
    match why.kind() {
        kind if kind.is_out_of_memory() => AllocationError::OutOfMemory,
        ErrorKind::ExceedsLimit => AllocationError::OutOfMemory,
        ErrorKind::NotMappable => AllocationError::FailedToMap(why.to_string()),
        _ => AllocationError::Internal(why.to_string()),
    }
}
