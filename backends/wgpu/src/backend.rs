//! The backend itself: how a device is opened, and how blocks come and go.
#![expect(unsafe_code, reason = "signs the contract of Backend")]
use crate::{
    caps::{COPY_ALIGN, HeapClass, describe, who},
    clock::Clock,
    driver::{Driver, Start},
    hal,
    programs::Programs,
    staging::Staging,
};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_seam::{
    Backend, Caps, DeviceInfo, DriverBudget, Error, ErrorKind, HeapBudget, HeapId, Launch, Result,
    SystemLimit, Timelines, Transfer, lock,
};
use std::sync::{Mutex, MutexGuard};
use wgpu::{
    BackendOptions, Backends, BufferUsages, DeviceDescriptor, Features, Instance,
    InstanceDescriptor, Limits, NoopBackendOptions, PollType,
};

const NO_STAND_IN: Error =
    ErrorKind::Unsupported.because("wgpu was built without its stand-in device (feature `noop`)");

/// A device of wgpu.
#[derive(Debug)]
pub struct Wgpu {
    pub(crate) driver: Driver,
    pub(crate) staging: Staging,
    pub(crate) clock: Clock,
    pub(crate) programs: Programs,
    pub(crate) caps: Caps,
    /// The memory type of each heap whose blocks this backend allocates itself; empty where wgpu does.
    pub(crate) own: Vec<Option<u32>>,
    tells_budget: bool,
    /// Limits that are set for the process from outside.
    system_limits: SystemLimits,
    id: u64,
}

impl Wgpu {
    /// Returns every device that [`open`](Self::open) opens, by ordinal. Empty where there is none.
    #[must_use]
    pub fn devices() -> Vec<DeviceInfo> {
        listed().iter().map(|found| who(&found.get_info())).collect()
    }

    /// Opens the device with this ordinal, with all its limits.
    ///
    /// # Errors
    ///
    /// `Unsupported` when there is no such device, or the driver's error.
    pub fn open(ordinal: usize) -> Result<Self> {
        let found = listed()
            .into_iter()
            .nth(ordinal)
            .ok_or(ErrorKind::Unsupported.because("wgpu finds no device with this number"))?;
        let number = u32::try_from(ordinal).unwrap_or(u32::MAX);
        let limits = SystemLimits::new(Vendor::Any, number);
        Ok(Self::request(&found, found.limits())?.limited_by(limits))
    }

    /// Opens wgpu's own stand-in for a device, which needs no hardware.
    ///
    /// Its buffers are host memory, its copies and clears are performed, at once and by the calling thread; it runs no
    /// shaders. It has WebGPU's default limits.
    ///
    /// # Errors
    ///
    /// `Unsupported` when wgpu was built without it.
    pub fn open_noop() -> Result<Self> {
        let noop = NoopBackendOptions::enabled();
        let instance = Instance::new(InstanceDescriptor {
            backends: Backends::NOOP,
            backend_options: BackendOptions { noop, ..BackendOptions::default() },
            ..InstanceDescriptor::new_without_display_handle()
        });
        let found = pollster::block_on(instance.request_adapter(&Default::default()));
        Self::request(&found.map_err(|_| NO_STAND_IN)?, Limits::default())
    }

    /// Uses a device that an engine owns. Its error handler and its loss callback stay the engine's.
    ///
    /// wgpu panics on its own where the engine has set no handler, but not for calls of this crate.
    ///
    /// Limits of the system that tell devices apart know it by its place in [`devices`](Self::devices), or as device 0 where it is not
    /// among them; [`limited_by`](Self::limited_by) names another.
    #[must_use]
    pub fn wrap(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let limits = SystemLimits::new(Vendor::Any, number_of(&device.adapter_info()));
        Self::over(device, queue).limited_by(limits)
    }

    fn over(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let limits = device.limits();
        let immediates = device.features().contains(Features::IMMEDIATES);
        let immediates = if immediates { u64::from(limits.max_immediate_size) } else { 0 };
        let memory = hal::memory(&device);
        let caps = describe(&device.adapter_info(), &limits, immediates, memory.as_ref());
        Self {
            driver: Driver::new(device, queue),
            staging: Staging::default(),
            clock: Clock::default(),
            programs: Programs::default(),
            caps,
            own: Vec::new(),
            tells_budget: memory.is_some_and(|memory| memory.tells_budget),
            system_limits: SystemLimits::new(Vendor::Any, 0),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Sets which limits of the system hold; by default those of its place in [`devices`](Self::devices), and of device 0 where it is not
    /// among them.
    #[must_use]
    pub fn limited_by(mut self, limits: SystemLimits) -> Self {
        self.system_limits = limits;
        self
    }

    /// Sets the device's memory size, if the driver could not be asked (the heaps' names say so).
    ///
    /// Without it such a heap counts as one largest block.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        if hal::memory(self.device()).is_none() {
            for heap in &mut self.caps.heaps {
                heap.size = bytes;
                heap.max_block = heap.max_block.min(COPY_ALIGN.down(bytes));
            }
        }
        self
    }

    /// Returns the device, for the engine's own work.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.driver.device
    }

    /// Returns the queue, for the engine's own submissions: epochs marked later cover them.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.driver.queue
    }

    /// Returns the bytes of the staging buffers that this backend keeps, and of its uploads under way.
    #[must_use]
    pub fn staging_bytes(&self) -> u64 {
        self.staging.bytes()
    }

    /// Returns the bytes that wgpu's own allocator holds: textures and staging, and blocks where this backend does not make them itself
    /// ([`with_own_memory`](Self::with_own_memory)). `None` where wgpu does not tell.
    #[must_use]
    pub fn bytes_of_wgpu(&self) -> Option<u64> {
        self.device().generate_allocator_report().map(|report| report.total_reserved_bytes)
    }

    /// Returns the memory type that a heap's blocks are allocated from, where this backend allocates them itself.
    #[must_use]
    pub fn memory_type(&self, heap: HeapId) -> Option<u32> {
        self.own.get(usize::from(heap.0)).copied().flatten()
    }

    /// Returns the class of a heap.
    pub(crate) fn class(&self, heap: HeapId) -> Option<HeapClass> {
        HeapClass::of(heap).or_else(|| self.memory_type(heap).map(|_| HeapClass::Device))
    }

    /// Returns a block of a size that was checked and rounded.
    fn make(&self, heap: HeapId, class: HeapClass, size: u64) -> Result<Block> {
        #[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
        if let Some(memory_type) = self.memory_type(heap) {
            return self.allocate_own(heap, memory_type, size);
        }
        let buffer = self.driver.create(class.usages(), size, Start::Unmapped)?;
        Ok(self.block(buffer, heap))
    }

    /// Returns a buffer of this device as a block.
    pub(crate) fn block(&self, buffer: wgpu::Buffer, heap: HeapId) -> Block {
        let (owner, mapping) = (self.id, Mutex::default());
        Block {
            buffer,
            heap,
            owner,
            mapping,
            #[cfg(any(
                windows,
                target_os = "linux",
                target_os = "android",
                target_os = "freebsd"
            ))]
            memory: None,
        }
    }

    /// Returns whether it is wgpu's stand-in, which runs no shaders.
    pub(crate) fn is_stand_in(&self) -> bool {
        self.device().adapter_info().backend == wgpu::Backend::Noop
    }

    /// Refuses a block of another device.
    pub(crate) fn own(&self, block: &Block) -> Result<()> {
        if block.owner == self.id { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }

    fn request(found: &wgpu::Adapter, required_limits: Limits) -> Result<Self> {
        let required_features = found.features() & Features::IMMEDIATES;
        let descriptor = DeviceDescriptor {
            label: Some("omniheap"),
            required_features,
            required_limits,
            ..DeviceDescriptor::default()
        };
        let opened = pollster::block_on(found.request_device(&descriptor));
        let (device, queue) = opened.map_err(|error| {
            tracing::warn!(%error, "wgpu could not open the device");
            ErrorKind::Driver
        })?;
        let backend = Self::over(device, queue);
        backend.driver.install_handlers();
        Ok(backend)
    }
}

/// Returns the number of a device that another owner has opened. Only limits that tell devices apart need it: looking
/// through the devices asks every driver.
fn number_of(info: &wgpu::AdapterInfo) -> u32 {
    let limit = std::env::var(omniheap_limits::VARIABLE).unwrap_or_default();
    let all = if limit.contains('=') { listed() } else { Vec::new() };
    let place = all.iter().position(|found| found.get_info() == *info);
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
}

fn listed() -> Vec<wgpu::Adapter> {
    let instance = Instance::new(InstanceDescriptor {
        backends: Backends::PRIMARY,
        ..InstanceDescriptor::new_without_display_handle()
    });
    pollster::block_on(instance.enumerate_adapters(Backends::PRIMARY))
}

/// One buffer.
///
/// While the backend writes or reads a block of a staging heap, the block is mapped, and the engine must not submit
/// work that uses it: wgpu would refuse that work.
#[derive(Debug)]
pub struct Block {
    buffer: wgpu::Buffer,
    heap: HeapId,
    owner: u64,
    mapping: Mutex<()>,
    #[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
    memory: Option<ash::vk::DeviceMemory>,
}

impl Block {
    /// Returns the buffer, for bind groups, vertex streams and the engine's own copies.
    #[must_use]
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Returns the heap it came from.
    #[must_use]
    pub fn heap(&self) -> HeapId {
        self.heap
    }

    /// Bytes: what was asked for, rounded up to the heap's granule.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// Sets the memory that it covers from the first byte.
    #[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
    pub(crate) fn over(mut self, memory: ash::vk::DeviceMemory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Returns the native memory that it covers from the first byte on; `None` where wgpu or another allocator placed it.
    #[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
    #[must_use]
    pub const fn memory(&self) -> Option<ash::vk::DeviceMemory> {
        self.memory
    }

    /// Returns whether wgpu can map it, and so may have it mapped.
    pub(crate) fn is_mappable(&self) -> bool {
        self.buffer.usage().intersects(BufferUsages::MAP_READ | BufferUsages::MAP_WRITE)
    }

    /// Keeps it from being mapped by one thread while another submits it.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.mapping)
    }
}

// SAFETY: a block is a buffer of its own, of at least the size asked for, and wgpu lets no two live buffers share bytes;
// offset zero of a buffer meets every alignment, and there are no addresses; `caps` is written before the backend is
// shared; every field synchronizes itself.
unsafe impl Backend for Wgpu {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let class = self.class(heap).ok_or(ErrorKind::NoSuchHeap)?;
        let limits = self.caps.heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let size = limits.granule.up(size).filter(|&size| size <= limits.max_block);
        let size = size.ok_or(ErrorKind::ExceedsLimit)?;
        match self.make(heap, class, size) {
            // Memory kept for speed is given back before anyone sees an error.
            Err(error) if error.kind().is_out_of_memory() && self.staging.trim() => {
                self.driver.poll(PollType::Poll)?;
                self.make(heap, class, size)
            }
            result => result,
        }
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.own(&block)?;
        block.buffer.destroy();
        // wgpu gives the memory back when it next looks at the queue.
        self.driver.poll(PollType::Poll)
    }

    fn wait_idle(&self) -> Result<()> {
        self.driver.wait_idle()
    }

    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }

    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }

    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }

    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        if self.computes() { Some(self) } else { None }
    }
}

impl DriverBudget for Wgpu {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        self.driver.probe()?;
        let heap = self.caps.heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        if !self.tells_budget {
            return Err(ErrorKind::Unsupported.because("wgpu's driver tells no budget here"));
        }
        hal::budget(self.device(), heap.physical).ok_or(ErrorKind::Driver.into())
    }
    fn limits(&self, _: HeapId) -> Vec<SystemLimit> {
        self.system_limits.read()
    }
}
