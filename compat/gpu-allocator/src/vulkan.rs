//! The allocator for Vulkan.
#![expect(unsafe_code, reason = "wraps the caller's device and maps its memory")]
mod allocation;
mod blocks;
mod heaps;

pub use allocation::{Allocation, MappedAllocationSlab};

use crate::{
    AllocationError, AllocationReport, AllocationSizes, AllocatorDebugSettings, AllocatorReport,
    MemoryBlockReport, MemoryLocation, Result,
};
use allocation::Pointer;
use ash::vk;
use blocks::Blocks;
use core::{
    fmt,
    num::NonZeroU64,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use heaps::Heaps;
use log::{Level, debug, log, warn};
use omniheap_core::{
    Align, AllocateError, Allocation as Managed, Backend, Class, ErrorKind, HeapId, HeapKind,
    Manager, ManagerConfig, PoolConfig, Request, UserPool,
};
use omniheap_vulkan::{Alone, Bare, Feature, Options, Vulkan};
use std::{backtrace::Backtrace, collections::BTreeMap};

/// How a resource gets its memory.
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
    /// What the driver asks for on behalf of the resource.
    pub requirements: vk::MemoryRequirements,
    /// Where the memory should lie.
    pub location: MemoryLocation,
    /// Whether the resource is a buffer or a linear image.
    pub linear: bool,
    /// Whether the memory may be shared.
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
    /// What is logged.
    pub debug_settings: AllocatorDebugSettings,
    /// Whether `bufferDeviceAddress` is enabled on the device.
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

/// What happens to [`MemoryLocation::GpuOnly`] when device memory is full.
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

/// One live allocation.
struct Live {
    id: NonZeroU64,
    managed: Managed<Vulkan>,
    memory: vk::DeviceMemory,
    offset: u64,
    name: Box<str>,
    is_fallback: bool,
    trace: Option<Box<Backtrace>>,
}

/// Allocates memory of one device.
pub struct Allocator {
    /// Before the pools and the manager, whose memory they hold.
    live: Vec<Option<Live>>,
    /// Empty places in `live`.
    free: Vec<usize>,
    next: NonZeroU64,
    /// Tells this allocator from all others.
    number: u64,
    blocks: Blocks,
    heaps: Heaps,
    /// Pools for memory that programs name themselves rarely keep, by heap.
    scratch: BTreeMap<HeapId, UserPool<Vulkan>>,
    /// Properties by memory type.
    properties: Vec<vk::MemoryPropertyFlags>,
    when_full: WhenFull,
    debug: AllocatorDebugSettings,
    sizes: AllocationSizes,
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
        config.pool = pool();
        Ok(Self {
            live: Vec::new(),
            free: Vec::new(),
            next: NonZeroU64::MIN,
            number: NEXT.fetch_add(1, Relaxed),
            blocks: Blocks::default(),
            heaps: Heaps::default(),
            scratch: BTreeMap::new(),
            properties,
            when_full: WhenFull::from_environment(),
            debug: desc.debug_settings,
            sizes: desc.allocation_sizes,
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
        self.when_full = when_full;
        self.heaps.forget();
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
        let vulkan = self.manager.backend();
        let heaps = self.heaps.find(vulkan, types, desc.location, self.when_full);
        let Some(first) = heaps.as_slice().first().copied() else {
            return Err(AllocationError::NoCompatibleMemoryTypeFound);
        };
        let class = if desc.linear { Class::Linear } else { Class::Tiled };
        // It stays where it is without being pinned: this device copies nothing.
        let request = Request::new(size).align(align).class(class);
        let managed = self.take(desc, request, heaps.as_slice())?;
        self.admit(desc, managed, first)
    }

    /// Takes memory from the first heap that has some. If one is full, so are the others of its physical memory.
    fn take(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
        request: Request<'_>,
        heaps: &[HeapId],
    ) -> Result<Managed<Vulkan>> {
        let mut full = 0u32; // The driver numbers at most 16 physical heaps.
        let mut last = AllocationError::OutOfMemory;
        for (position, id) in heaps.iter().copied().enumerate() {
            let Some(heap) = self.manager.caps().heap(id) else { continue };
            let (physical, is_last) = (1 << heap.physical, position + 1 == heaps.len());
            let skipped = full & physical != 0 || request.layout.size > heap.max_block;
            if skipped
                || !is_last && heaps::is_crowded_window(&self.manager, id, request.layout.size)
            {
                continue;
            }
            match self.take_from(desc, request.heap(id), id) {
                Ok(managed) => return Ok(managed),
                Err(why) if why.kind().is_out_of_memory() => full |= physical,
                Err(why) => last = error(&why),
            }
        }
        Err(last)
    }

    fn take_from(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
        request: Request<'_>,
        heap: HeapId,
    ) -> core::result::Result<Managed<Vulkan>, AllocateError> {
        match desc.allocation_scheme {
            AllocationScheme::DedicatedBuffer(buffer) => {
                self.dedicate(buffer, desc, &request, heap)
            }
            AllocationScheme::DedicatedImage(image) => self.dedicate(image, desc, &request, heap),
            AllocationScheme::GpuAllocatorManaged => {
                let bound = self.sizes.largest(heaps::is_host(self.manager.backend(), heap));
                let size = request.layout.size;
                let is_alone = size > bound || bound < SHARED_BLOCK && size > SMALL;
                let request = if is_alone { request.dedicated() } else { request };
                match is_scratch(desc.name) {
                    true => self.scratch(heap)?.allocate(&request),
                    false => self.manager.allocate(&request),
                }
            }
        }
    }

    fn dedicate<H: omniheap_vulkan::Native>(
        &self,
        handle: H,
        desc: &AllocationCreateDesc<'_>,
        request: &Request<'_>,
        heap: HeapId,
    ) -> core::result::Result<Managed<Vulkan>, AllocateError> {
        let vulkan = self.manager.backend();
        let kind = if heaps::is_host(vulkan, heap) { HeapKind::Staging } else { HeapKind::Device };
        let mut needs = vulkan.needs(desc.requirements, Alone::Required, request.class, kind)?;
        needs.heaps = vec![heap];
        // SAFETY: as in the crate whose interface this is, the caller answers for a handle of this device with these
        // requirements.
        unsafe { Vulkan::allocate_alone(&self.manager, handle, &needs) }
    }

    fn scratch(&mut self, heap: HeapId) -> omniheap_core::Result<&UserPool<Vulkan>> {
        if !self.scratch.contains_key(&heap) {
            let made = self.manager.create_pool(heap, pool())?;
            self.scratch.insert(heap, made);
        }
        Ok(&self.scratch[&heap])
    }

    /// Returns whether a request for device memory was served from host memory, and warns of it.
    fn is_fallback(&self, desc: &AllocationCreateDesc<'_>, first: HeapId, served: HeapId) -> bool {
        let vulkan = self.manager.backend();
        let is_fallback = desc.location == MemoryLocation::GpuOnly
            && served != first
            && heaps::is_host(vulkan, served)
            && !heaps::is_host(vulkan, first);
        if is_fallback {
            let (name, size) = (desc.name, desc.requirements.size);
            let heap = vulkan.caps().heap(served).map_or("", |heap| &heap.name);
            warn!("device memory is full: `{name}` ({size} bytes) lies in {heap}");
        }
        is_fallback
    }

    /// Keeps the memory and describes it; `first` is the heap that suits it best.
    fn admit(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
        managed: Managed<Vulkan>,
        first: HeapId,
    ) -> Result<Allocation> {
        let vulkan = self.manager.backend();
        let binding = managed.binding();
        let (block, start) = (binding.block(), binding.span().offset);
        let is_fallback = self.is_fallback(desc, first, block.heap());
        let memory = block.memory().expect("pools of plain blocks have no pages");
        let mapped =
            match vulkan.caps().heap(block.heap()).is_some_and(|heap| heap.host.is_visible()) {
                true => Some(map(vulkan, block, start)?),
                false => None,
            };
        let memory_type = vulkan.memory_type(block.heap()).unwrap_or(u32::MAX);
        let properties = usize::try_from(memory_type).ok().and_then(|at| self.properties.get(at));
        let (properties, block_size) = (properties.copied().unwrap_or_default(), block.size());
        drop(binding);
        let (offset, size) = (start, desc.requirements.size);
        let dedicated = desc.allocation_scheme != AllocationScheme::GpuAllocatorManaged;
        let trace = self.debug.store_stack_traces.then(|| Box::new(Backtrace::force_capture()));
        let (id, name) = (self.next, desc.name.into());
        self.next = id.checked_add(1).expect("centuries of allocations");
        self.blocks.allocated(memory, block_size, size);
        let slot = self.keep(Live { id, managed, memory, offset, name, is_fallback, trace });
        let (chunk_id, allocator) = (Some(id), self.number);
        Ok(Allocation {
            chunk_id,
            allocator,
            slot,
            memory,
            offset,
            size,
            mapped,
            properties,
            dedicated,
        })
    }

    /// Returns the place of what is kept.
    fn keep(&mut self, live: Live) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.live[slot] = Some(live);
                slot
            }
            None => {
                self.live.push(Some(live));
                self.live.len() - 1
            }
        }
    }

    /// Takes memory back. The device has finished with it.
    ///
    /// # Errors
    ///
    /// `Internal` for an allocation of another allocator, which is not freed then.
    #[expect(clippy::needless_pass_by_value, reason = "ends the allocation")]
    pub fn free(&mut self, allocation: Allocation) -> Result<()> {
        let found = self.find(&allocation)?;
        let live = found.and_then(|slot| self.live[slot].take());
        self.free.extend(found);
        if self.debug.log_frees {
            debug!("Freeing `{}`.", live.as_ref().map_or("<null>", |live| &live.name));
            self.log_stack();
        }
        if let Some(live) = live {
            let (memory, bytes) = (live.memory, live.managed.size());
            drop(live);
            if self.blocks.freed(memory, bytes) {
                // A lost device has nothing to give back; the calls that allocate report it.
                let _ = self.manager.trim();
                self.blocks.trimmed();
            }
        }
        Ok(())
    }

    /// Returns the place of an allocation; `None` for the null allocation.
    fn find(&self, allocation: &Allocation) -> Result<Option<usize>> {
        let Some(id) = allocation.chunk_id else { return Ok(None) };
        let live = self.live.get(allocation.slot).and_then(Option::as_ref);
        match allocation.allocator == self.number && live.is_some_and(|live| live.id == id) {
            true => Ok(Some(allocation.slot)),
            false => Err(AllocationError::Internal("the allocation is another allocator's".into())),
        }
    }

    /// Gives an allocation another name.
    ///
    /// # Errors
    ///
    /// `Internal` for an allocation of another allocator.
    pub fn rename_allocation(&mut self, allocation: &mut Allocation, name: &str) -> Result<()> {
        let found = self.find(allocation)?;
        if let Some(live) = found.and_then(|slot| self.live[slot].as_mut()) {
            live.name = name.into();
        }
        Ok(())
    }

    /// Logs every live allocation.
    pub fn report_memory_leaks(&self, log_level: Level) {
        for live in self.live.iter().flatten() {
            let (name, size, at) = (&live.name, live.managed.size(), live.offset);
            log!(log_level, "leak detected: `{name}`, {size} bytes at {at} of {:?}", live.memory);
            if let Some(trace) = &live.trace {
                log!(log_level, "allocated at: {trace}");
            }
        }
    }

    /// Returns a snapshot.
    #[must_use]
    pub fn generate_report(&self) -> AllocatorReport {
        let mut by_memory: BTreeMap<vk::DeviceMemory, Vec<AllocationReport>> = BTreeMap::new();
        for live in self.live.iter().flatten() {
            let note = if live.is_fallback { " (in host memory: the device was full)" } else { "" };
            let (name, size) = (format!("{}{note}", live.name), live.managed.size());
            let one = AllocationReport { name, offset: live.offset, size };
            by_memory.entry(live.memory).or_default().push(one);
        }
        let (mut allocations, mut blocks) = (Vec::new(), Vec::new());
        for (memory, size) in self.blocks.in_use() {
            let first = allocations.len();
            let mut here = by_memory.remove(&memory).unwrap_or_default();
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

/// Requests up to this size share blocks of 4 MiB.
const SMALL: u64 = 1 << 20;
/// The largest block that several larger requests share.
const SHARED_BLOCK: u64 = 32 << 20;

/// Returns the settings of every pool. Callers hold a lock of their own, so one lane is enough, and holds less memory.
fn pool() -> PoolConfig {
    PoolConfig::new().lanes(1)
}

/// Returns whether a name says that the memory is staging or scratch: wgpu names its own so, and passes no label on for what
/// programs did not name.
fn is_scratch(name: &str) -> bool {
    name.is_empty() || name.starts_with("(wgpu internal)") || name.starts_with("Unlabeled ")
}

fn map(vulkan: &Vulkan, block: &omniheap_vulkan::Block, start: u64) -> Result<Pointer> {
    let map = vulkan.as_map().expect("this backend maps");
    let base = map.map(block).map_err(|why| AllocationError::FailedToMap(why.to_string()))?;
    let start = usize::try_from(start).expect("a mapping fits the address space");
    // SAFETY: the span lies in the mapping of its block.
    let first: NonNull<u8> = unsafe { base.add(start) };
    Ok(Pointer(first.cast()))
}

fn error(why: &AllocateError) -> AllocationError {
    match why.kind() {
        kind if kind.is_out_of_memory() => AllocationError::OutOfMemory,
        ErrorKind::ExceedsLimit => AllocationError::OutOfMemory,
        ErrorKind::NotMappable => AllocationError::FailedToMap(why.to_string()),
        _ => AllocationError::Internal(why.to_string()),
    }
}
