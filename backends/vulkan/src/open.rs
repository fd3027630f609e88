//! Opening a device of our own, or wrapping one that an engine owns.
#![expect(unsafe_code, reason = "wrapping trusts the caller's handles")]
use crate::{
    Vulkan,
    caps::{self, Paging, features::Feature},
    driver::{
        Instance, Names, WANTED,
        device::Device,
        objects::Sharing,
        physical::Physical,
        probe,
        validation::{Messages, Validation},
    },
    programs::Programs,
    remap::pages::Pages,
    timeline::{clock::Clocks, registry::Registry, whole::Whole},
    transfer::{
        copier::{Copier, Copies},
        staging::{Plan, Plans},
    },
};
use ash::vk;
use core::{ffi::CStr, sync::atomic::Ordering};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_seam::{Align, DeviceInfo, Error, ErrorKind, HeapKind, HostAccess, Result};
use std::sync::Arc;

/// The device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The one with the most memory of its own; a real device before a software one.
    #[default]
    Best,
    /// The device at this place in [`Vulkan::devices`].
    Index(usize),
    /// The device with the identity that other APIs and processes know it by.
    Uuid([u8; 16]),
}

/// Options for opening a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The device; ignored by [`Vulkan::wrap`].
    pub device: Which,
    /// Use of the validation layer; ignored by [`Vulkan::wrap`].
    pub validation: Validation,
    /// Implementation of epochs: semaphores or fences.
    pub clocks: Clocks,
    /// Heaps that offer pages.
    pub paging: Paging,
    /// Version of the instance that [`Vulkan::wrap_memory`] is given (`VkApplicationInfo::apiVersion`); ignored by all others. Below 1.1
    /// only functions of Vulkan 1.0 are called: no feature is known then, no budget, and no limit of the size of an allocation. Resources are
    /// asked what they need by their owner: [`Vulkan::needs`] takes the answer, and [`Vulkan::memory_untied`] gives memory.
    pub instance_version: u32,
    /// Most frames that an engine has under way on queues unknown to this backend. Zero if it has no such queues.
    ///
    /// Above zero, the engine calls [`Vulkan::end_frame`] once a frame. A resource that is dropped in a frame is destroyed after
    /// `frames_in_flight + 1` more frames have ended.
    pub frames_in_flight: u32,
    /// Implementation of copies inside the device.
    pub copies: Copies,
    /// Driver allocations to hold at most; as many as the driver gives where `None`.
    ///
    /// The device's own `maxMemoryAllocationCount` is a promise, not a limit: near it resources share memory, and only the driver
    /// refuses. An engine that allocates beside this backend leaves itself room with it.
    pub max_blocks: Option<u64>,
    /// Bytes of each timeline's staging ring, made when a timeline first writes or reads; at least 4 KiB.
    pub staging: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: Which::Best,
            validation: Validation::Off,
            clocks: Clocks::Semaphores,
            paging: Paging::OnOwnDevice,
            instance_version: WANTED,
            frames_in_flight: 0,
            copies: Copies::Fastest,
            max_blocks: None,
            staging: 16 << 20,
        }
    }
}

impl Options {
    /// Chooses the device.
    #[must_use]
    pub const fn device(self, device: Which) -> Self {
        Self { device, ..self }
    }
    /// Chooses whether the validation layer watches.
    #[must_use]
    pub const fn validation(self, validation: Validation) -> Self {
        Self { validation, ..self }
    }
    /// Chooses what epochs are made of.
    #[must_use]
    pub const fn clocks(self, clocks: Clocks) -> Self {
        Self { clocks, ..self }
    }
    /// Chooses which heaps offer pages.
    #[must_use]
    pub const fn paging(self, paging: Paging) -> Self {
        Self { paging, ..self }
    }
    /// Says what version the wrapped instance has.
    #[must_use]
    pub const fn instance_version(self, instance_version: u32) -> Self {
        Self { instance_version, ..self }
    }
    /// Sets the most frames that an engine has under way on queues unknown to this backend.
    #[must_use]
    pub const fn frames_in_flight(self, frames_in_flight: u32) -> Self {
        Self { frames_in_flight, ..self }
    }
    /// Chooses how bytes move inside the device.
    #[must_use]
    pub const fn copies(self, copies: Copies) -> Self {
        Self { copies, ..self }
    }
    /// Chooses how many driver allocations to hold at most.
    #[must_use]
    pub const fn max_blocks(self, max_blocks: u64) -> Self {
        Self { max_blocks: Some(max_blocks), ..self }
    }
    /// Chooses the bytes of each timeline's staging ring.
    #[must_use]
    pub const fn staging(self, staging: u64) -> Self {
        Self { staging, ..self }
    }
}

/// A device that an engine owns.
#[derive(Clone)]
pub struct Existing<'a> {
    /// The loader.
    pub entry: ash::Entry,
    /// The instance, of version 1.1 at least.
    pub instance: ash::Instance,
    /// The physical device, of version 1.1 at least.
    pub physical_device: vk::PhysicalDevice,
    /// The device.
    pub device: ash::Device,
    /// Queues and their families; the first is the main timeline's.
    pub queues: &'a [(u32, vk::Queue)],
    /// Features that were enabled when the device was created.
    pub enabled: &'a [Feature],
}

impl core::fmt::Debug for Existing<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Existing")
            .field("device", &self.device.handle())
            .field("queues", &self.queues)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// A device that an engine owns and whose queues it keeps to itself.
#[derive(Clone)]
pub struct Bare<'a> {
    /// The instance, of the version that [`Options::instance_version`] says.
    pub instance: ash::Instance,
    /// The physical device, of version 1.1 at least where the instance is.
    pub physical_device: vk::PhysicalDevice,
    /// The device.
    pub device: ash::Device,
    /// Features that were enabled when the device was created. Four matter here: `BufferDeviceAddress`, `MemoryPriority`,
    /// `DeviceCoherentMemory` and `ProtectedMemory`. The driver's budget is read wherever the physical device reports one: that needs no enabled
    /// extension.
    pub enabled: &'a [Feature],
}

impl core::fmt::Debug for Bare<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bare")
            .field("device", &self.device.handle())
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

impl Vulkan {
    /// Returns every Vulkan device here, in the loader's order.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a loader or driver; the driver's error.
    pub fn devices() -> Result<Vec<DeviceInfo>> {
        let instance = Instance::open(Validation::Off)?;
        Ok(usable(&instance)?.into_iter().map(|physical| physical.info).collect())
    }

    /// Opens the device at `index` of [`devices`](Self::devices).
    ///
    /// # Errors
    ///
    /// `Unsupported` without a loader, a driver or that device; the driver's error.
    pub fn open(index: usize) -> Result<Self> {
        Self::open_with(Options::default().device(Which::Index(index)))
    }

    /// Opens a device as `options` say.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), and `InvalidConfig` when the staging ring is too small or larger than a block.
    pub fn open_with(options: Options) -> Result<Self> {
        let instance = Arc::new(Instance::open(options.validation)?);
        let (number, mut physical) = choose(usable(&instance)?, options.device)?;
        // Nothing here submits protected work.
        physical.features = physical.features.without(Feature::ProtectedMemory);
        let device = Device::open(instance, &physical)?;
        Self::assemble(device, &physical, number, options)
    }

    /// Sets which limits of the system hold; by default those of the device's place in [`devices`](Self::devices).
    #[must_use]
    pub fn limited_by(mut self, limits: SystemLimits) -> Self {
        self.system_limits = limits;
        self
    }

    /// Manages memory on a device that the caller owns. Limits of the system know it by its place in the instance's list, as
    /// [`devices`](Self::devices) has it.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for a physical device that is none of the instance, without queues, with an unknown family, for a feature in
    /// `enabled` that the physical device lacks or whose functions the device does not have, or as for [`open_with`](Self::open_with); `Unsupported` for a device below
    /// version 1.1.
    ///
    /// # Safety
    ///
    /// - The handles belong together, and `enabled` was enabled. The driver tells only about extensions with functions, and
    ///   those are checked; the rest is believed.
    /// - They outlive this backend and everything that it made.
    /// - While this backend lives, its queues are used only inside [`with_queue`](Self::with_queue).
    /// - Work on other queues uses memory and resources of this backend only in frames that [`end_frame`](Self::end_frame) counts. It
    ///   has ended when the manager ends.
    pub unsafe fn wrap(existing: Existing<'_>, options: Options) -> Result<Self> {
        let names = match existing.enabled.contains(&Feature::DebugUtils) {
            true => Names::Shown,
            false => Names::Dropped,
        };
        let instance =
            Arc::new(Instance::wrap(Some(existing.entry), existing.instance, (names, WANTED)));
        // SAFETY: the caller promises that the handles belong together.
        let mut physical = unsafe { Physical::read(&instance, existing.physical_device) }?;
        check_enabled(&instance, &physical, &existing.device, existing.enabled)?;
        physical.features = existing.enabled.iter().copied().collect();
        let number = number_of(&instance, physical.raw)?;
        let device = Device::wrap(instance, &physical, existing.device, existing.queues)?;
        Self::assemble(device, &physical, number, options)
    }

    /// Manages memory on a device that the caller owns, without using any queue of it.
    ///
    /// Blocks are memory objects without a buffer: bind resources to [`Block::memory`](crate::Block::memory). They can be
    /// mapped where the host sees them, and the driver's budget is read. There are no transfers, timelines, kernels, pages or
    /// device addresses of blocks; memory is allocated for device addresses where that feature is enabled, so buffers bound to
    /// it have them.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for a physical device that is null or none of the instance, for a feature in `enabled` that matters and that the physical device lacks,
    /// or as for [`open_with`](Self::open_with); `Unsupported` for a device below version 1.1 of an instance
    /// that is not.
    ///
    /// # Safety
    ///
    /// - The handles belong together, and `enabled` was enabled. Below version 1.1, only functions of 1.0 need be there.
    /// - They outlive this backend and everything that it made, and so does the loader's library.
    /// - Memory is freed only when the device has finished with it: this backend has no queue to wait for.
    pub unsafe fn wrap_memory(bare: Bare<'_>, options: Options) -> Result<Self> {
        if bare.physical_device == vk::PhysicalDevice::null() {
            return Err(ErrorKind::InvalidConfig.because("`physical_device` is null"));
        }
        let known = (Names::Dropped, options.instance_version);
        let instance = Arc::new(Instance::wrap(None, bare.instance, known));
        // SAFETY: the caller promises that the handles belong together.
        let mut physical = unsafe { Physical::read(&instance, bare.physical_device) }?;
        let enabled = || bare.enabled.iter().copied().filter(|feature| OF_MEMORY.contains(feature));
        if let Some(feature) = enabled().find(|feature| !physical.features.has(*feature)) {
            return Err(ErrorKind::InvalidConfig.because(feature.missing()));
        }
        let budget = Some(Feature::MemoryBudget).filter(|budget| physical.features.has(*budget));
        physical.features = enabled().chain(budget).collect();
        let number = number_of(&instance, physical.raw)?;
        let device = Device::wrap_memory(instance, &physical, bare.device);
        Self::assemble(device, &physical, number, options)
    }

    fn assemble(
        device: Arc<Device>,
        physical: &Physical,
        number: u32,
        options: Options,
    ) -> Result<Self> {
        let paging = options.paging.on_device_of(device.owner());
        let mut facts = probe::facts(&device, physical, paging)?;
        facts.max_blocks = facts.max_blocks.min(options.max_blocks.unwrap_or(u64::MAX));
        device.most_live.store(facts.max_blocks, Ordering::Relaxed);
        let table = caps::translate(&facts);
        let bytes = staging(&table, &facts, options.staging)?;
        let plans = Plans { bytes, lists: lists(&table, &facts, bytes) };
        let clocks = match device.features.has(Feature::TimelineSemaphore) {
            true => options.clocks,
            false => Clocks::Fences,
        };
        Ok(Self {
            programs: Programs::default(),
            timelines: match device.has_queues() {
                true => Registry::new(&device, clocks, plans)?,
                false => Registry::closed(clocks, plans),
            },
            whole: Arc::new(Whole::open(&device, clocks, options.frames_in_flight)?),
            pages: Pages::new(&device),
            copier: Copier::new(&device, physical.kind, options.copies),
            sharing: Sharing::read(&device),
            binder: probe::binder(&device).unwrap_or(0),
            sparse_limit: facts.sparse.map_or(0, |sparse| sparse.space.min(facts.max_buffer)),
            buffer_types: facts.buffer_types,
            limits: facts.limits,
            alignments: physical.alignments,
            messages: device.instance.messages().cloned(),
            system_limits: SystemLimits::new(Vendor::Any, number),
            table,
            device,
        })
    }

    /// Returns the validation layer's messages so far and to come; `None` where it is not watching.
    #[must_use]
    pub const fn messages(&self) -> Option<&Messages> {
        self.messages.as_ref()
    }
}

/// Features that change how memory is allocated; without queues, no other is used.
const OF_MEMORY: [Feature; 4] = [
    Feature::BufferDeviceAddress,
    Feature::MemoryPriority,
    Feature::DeviceCoherentMemory,
    Feature::ProtectedMemory,
];

/// `InvalidConfig` for a feature that the physical device lacks, or whose functions the device does not have.
fn check_enabled(
    instance: &Instance,
    physical: &Physical,
    device: &ash::Device,
    enabled: &[Feature],
) -> Result<()> {
    for feature in enabled {
        // SAFETY: both are alive and belong together, as the caller of `wrap` promises.
        let has_function = |name: &CStr| unsafe {
            instance.raw.get_device_proc_addr(device.handle(), name.as_ptr()).is_some()
        };
        let is_there = feature.function(physical.api).is_none_or(has_function);
        if !is_there || !physical.features.has(*feature) {
            return Err(ErrorKind::InvalidConfig.because(feature.missing()));
        }
    }
    Ok(())
}

fn usable(instance: &Instance) -> Result<Vec<Physical>> {
    let all = instance.physical_devices()?;
    // SAFETY: the list is this instance's own.
    let read = all.into_iter().map(|raw| unsafe { Physical::read(instance, raw) });
    // A device too old to use does not hide the others.
    Ok(read.filter_map(Result::ok).collect())
}

/// Returns the number of a device in [`Vulkan::devices`], which has the same devices of every instance.
fn number_of(instance: &Instance, raw: vk::PhysicalDevice) -> Result<u32> {
    let place = usable(instance)?.iter().position(|physical| physical.raw == raw);
    place.and_then(|place| u32::try_from(place).ok()).ok_or(
        ErrorKind::InvalidConfig.because("`physical_device` is none of `instance`'s devices"),
    )
}

/// Returns the device with its number.
fn choose(mut all: Vec<Physical>, which: Which) -> Result<(u32, Physical)> {
    let index = match which {
        Which::Index(index) => Some(index),
        Which::Uuid(uuid) => all.iter().position(|physical| physical.info.uuid == Some(uuid)),
        Which::Best => (0..all.len()).max_by_key(|index| (worth(&all[*index]), usize::MAX - index)),
    };
    match index {
        Some(index) if index < all.len() => {
            Ok((u32::try_from(index).unwrap_or(u32::MAX), all.swap_remove(index)))
        }
        _ => Err(ErrorKind::Unsupported.because("no Vulkan device has this number or UUID")),
    }
}

/// Returns the rank of a device: real before software, then by its own memory.
fn worth(physical: &Physical) -> (bool, u64) {
    let local = |heap: &&vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    let heaps = physical.memory.memory_heaps_as_slice();
    let size = heaps.iter().filter(local).map(|heap| heap.size).max().unwrap_or(0);
    (physical.kind != vk::PhysicalDeviceType::CPU, size)
}

const STAGING: Error = ErrorKind::InvalidConfig
    .because("the staging ring's size is 0 or above the largest block of staging memory");

/// Cached memory: writing it is as fast as any, and reading it is not slow.
fn staging(table: &caps::Table, facts: &caps::Facts, size: u64) -> Result<Plan> {
    let mut heaps = table.candidates(facts.buffer_types, HeapKind::Staging);
    heaps.sort_by_key(|id| match table.caps.heap(*id).map(|heap| heap.host) {
        Some(HostAccess::Cached) => 0,
        Some(HostAccess::Incoherent) => 1,
        _ => 2,
    });
    let id = *heaps.first().ok_or(ErrorKind::Unsupported)?;
    let heap = table.caps.heap(id).ok_or(ErrorKind::Unsupported)?;
    let size = Align::of(4096).max(table.caps.atom).up(size).ok_or(STAGING)?;
    if size < 4096 || size > heap.max_block {
        return Err(STAGING);
    }
    let memory_type = table.slots[usize::from(id.0)].memory_type;
    Ok(Plan { memory_type, access: heap.host, atom: table.caps.atom, size })
}

/// Memory of the device that the host can write, where there is some; room for more tasks than a device has groups.
fn lists(table: &caps::Table, facts: &caps::Facts, bytes: Plan) -> Plan {
    let best = table.candidates(facts.buffer_types, HeapKind::Unified).into_iter().next();
    let found = best.and_then(|id| Some((id, table.caps.heap(id)?)));
    let size = LISTS.min(bytes.size);
    let Some((id, heap)) = found.filter(|(_, heap)| heap.max_block >= size) else { return bytes };
    let memory_type = table.slots[usize::from(id.0)].memory_type;
    Plan { memory_type, access: heap.host, atom: table.caps.atom, size }
}

/// Bytes of each timeline's ring for lists at most; a device that is opened for little staging has less.
const LISTS: u64 = 4 << 20;
