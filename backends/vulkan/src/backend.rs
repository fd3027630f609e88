//! [`Vulkan`]: everything that was opened, blocks from memory types, and the capabilities of the device.
#![expect(unsafe_code, reason = "signs the contract of Backend")]
use crate::{
    Block,
    block::{Backing, Shared},
    caps::{Slot, Suits, Table, features::Feature},
    driver::{
        device::Device,
        hooks::Hooks,
        objects::{Ask, Buffer, Kind, Memory, Share, Sharing},
        physical,
        validation::Messages,
    },
    programs::Programs,
    remap::pages::Pages,
    timeline::{registry::Registry, whole::Whole},
    transfer::copier::Copier,
};
use ash::vk;
use core::{fmt, ptr::NonNull};
use omniheap_limits::SystemLimits;
use omniheap_seam::{
    Address, Backend, Caps, DriverBudget, ErrorKind, Export, Heap, HeapBudget, HeapId, HostAccess,
    Launch, Map, Remap, Result, SystemLimit, Timelines, Transfer,
};
use std::sync::Arc;

/// One Vulkan device.
///
/// Dropping it waits until the device is idle, and destroys the handles that were [retired](Self::retire). Blocks and resources
/// that are still alive keep the device open, so any order of dropping is safe.
pub struct Vulkan {
    /// Before the timelines, for whose launches they wait.
    pub(crate) programs: Programs,
    pub(crate) timelines: Registry,
    /// Marks of all work, and the handles that are destroyed at them.
    pub(crate) whole: Arc<Whole>,
    pub(crate) pages: Pages,
    pub(crate) copier: Copier,
    pub(crate) table: Table,
    pub(crate) sharing: Sharing,
    /// The queue that binds sparse memory, where there is one.
    pub(crate) binder: usize,
    /// Bytes of the largest sparse buffer.
    pub(crate) sparse_limit: u64,
    /// Memory types that a block's buffer may be bound to.
    pub(crate) buffer_types: u32,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) alignments: physical::Alignments,
    pub(crate) messages: Option<Messages>,
    /// Limits that are set for the process from outside.
    pub(crate) system_limits: SystemLimits,
    pub(crate) device: Arc<Device>,
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        self.whole.end();
    }
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vulkan")
            .field("device", &self.table.caps.device)
            .field("limits", &self.system_limits)
            .finish_non_exhaustive()
    }
}

impl Vulkan {
    /// Returns the device, for an engine's own calls.
    ///
    /// The device stays valid while this backend, a block or a resource of it lives. Queues belong to
    /// [`with_queue`](Self::with_queue).
    #[must_use]
    pub fn ash_device(&self) -> &ash::Device {
        &self.device.raw
    }

    /// Returns the instance that the device came from.
    #[must_use]
    pub fn ash_instance(&self) -> &ash::Instance {
        &self.device.instance.raw
    }

    /// Returns the loader that the instance came from; `None` after [`wrap_memory`](Self::wrap_memory).
    #[must_use]
    pub fn ash_entry(&self) -> Option<&ash::Entry> {
        self.device.instance.entry.as_ref()
    }

    /// Returns the physical device.
    #[must_use]
    pub fn physical_device(&self) -> vk::PhysicalDevice {
        self.device.physical
    }

    /// Sets an engine's hooks around every memory call of the device. Only the first call has an effect.
    ///
    /// Memory that was allocated earlier is freed without the hooks, so call this before anything is allocated.
    pub fn set_hooks(&self, hooks: Hooks) {
        // The first hooks stay: they may have been told of memory already.
        let _ = self.device.hooks.set(hooks);
    }

    /// Returns whether an ability is enabled on the device.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.device.features.has(feature)
    }
}

/// Options of a block beyond heap and size.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BlockOptions<'a> {
    /// Debug name of the memory and its buffer.
    pub name: Option<&'a str>,
    /// Residency priority, 0 to 1, where the device takes hints; other values are clamped.
    pub priority: Option<f32>,
}

impl<'a> BlockOptions<'a> {
    /// Shows `name` in tools.
    #[must_use]
    pub const fn name(self, name: &'a str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Hints how much an eviction would hurt, 0 to 1.
    #[must_use]
    pub const fn priority(self, priority: f32) -> Self {
        Self { priority: Some(priority), ..self }
    }
}

impl Vulkan {
    /// Asks the driver for a block, with a name and a priority.
    ///
    /// # Errors
    ///
    /// As for [`Backend::allocate`]; `Unsupported` for a heap that needs a feature which is not enabled.
    pub fn allocate_with(
        &self,
        heap: HeapId,
        size: u64,
        options: BlockOptions<'_>,
    ) -> Result<Block> {
        let (slot, size) = self.checked(heap, size)?;
        let block = self.block(heap, slot, size, options.priority, Shared::No)?;
        if let Some(name) = options.name {
            self.name_block(&block, name);
        }
        Ok(block)
    }

    /// Returns the native slot of a heap and the rounded size, or why not.
    pub(crate) fn checked(&self, heap: HeapId, size: u64) -> Result<(Slot, u64)> {
        let (described, slot) = self.heap(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if size > described.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        self.enabled(slot)?;
        Ok((slot, described.granule.up(size).ok_or(ErrorKind::ExceedsLimit)?))
    }

    pub(crate) fn heap(&self, heap: HeapId) -> Result<(&Heap, Slot)> {
        let described = self.table.caps.heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        Ok((described, self.table.slots[usize::from(heap.0)]))
    }

    /// Memory that needs a feature is refused without it.
    pub(crate) fn enabled(&self, slot: Slot) -> Result<()> {
        match slot.needs().is_none_or(|feature| self.device.features.has(feature)) {
            true => Ok(()),
            false => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Returns a block of a size that was checked and rounded.
    pub(crate) fn block(
        &self,
        heap: HeapId,
        slot: Slot,
        size: u64,
        priority: Option<f32>,
        shared: Shared,
    ) -> Result<Block> {
        let share = if shared == Shared::Exportable { Share::Export } else { Share::No };
        let mut ask = Ask { size, memory_type: slot.memory_type, priority, dedicated: None, share };
        if !self.takes_buffers(slot) {
            let memory = Memory::allocate(&self.device, ask)?;
            return Ok(Block::with_memory(&self.device, heap, size, None, memory, shared));
        }
        let kind = if shared == Shared::No { Kind::Plain } else { Kind::Shared };
        let buffer = Buffer::create(&self.device, size, kind)?;
        ask.size = buffer.requirements().size.max(size);
        if shared == Shared::Exportable {
            ask.dedicated = self.sharing.dedicated(buffer.raw);
        }
        let memory = Memory::allocate(&self.device, ask)?;
        buffer.bind(&memory)?;
        let block = Block::with_memory(&self.device, heap, size, Some(buffer), memory, shared);
        self.based(block)
    }

    /// Enforces the promise about a block's base, which was measured when the device was opened.
    pub(crate) fn based(&self, block: Block) -> Result<Block> {
        let (described, _) = self.heap(block.heap())?;
        if described.align.divides(block.address()) {
            return Ok(block);
        }
        // SAFETY: nobody has seen the block yet.
        unsafe { block.end() };
        Err(ErrorKind::Driver.into())
    }

    /// Returns whether blocks of this slot have a buffer.
    pub(crate) fn takes_buffers(&self, slot: Slot) -> bool {
        // Protected memory takes only protected buffers, which blocks do not have.
        self.device.has_queues()
            && slot.needs() != Some(Feature::ProtectedMemory)
            && slot.suits != Suits::Images
            && self.buffer_types & (1 << slot.memory_type) != 0
    }

    fn name_block(&self, block: &Block, name: &str) {
        if let Some(memory) = block.memory() {
            // SAFETY: the block was made by this device and is alive.
            unsafe { self.device.name(memory, name) };
        }
        if let Some(buffer) = block.buffer() {
            // SAFETY: as above.
            unsafe { self.device.name(buffer, name) };
        }
    }
}

// SAFETY: every block is a driver allocation of its own, at least as large as asked; `based` refuses a base that misses
// the heap's alignment; `table` is never written after opening; all state is behind locks or atomics. Without queues, no
// work is submitted here, and who called `wrap_memory` promised that freed memory is out of use.
unsafe impl Backend for Vulkan {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.table.caps
    }
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        self.allocate_with(heap, size, BlockOptions::default())
    }
    unsafe fn free(&self, block: Block) -> Result<()> {
        // A block of another device is still freed, by the device it belongs to, after waiting for it.
        block.belongs_to(&self.device)?;
        // SAFETY: the caller promises that no device work uses the block.
        unsafe { block.end() };
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        self.device.wait_idle()?;
        self.whole.settle();
        Ok(())
    }
    fn as_map(&self) -> Option<&dyn Map<Block = Block>> {
        Some(self)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        self.device.has_queues().then_some(self)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Block>> {
        let has =
            self.device.has_queues() && self.device.features.has(Feature::BufferDeviceAddress);
        has.then_some(self)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        (self.device.has_queues() || self.whole.counts_frames()).then_some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.table.caps.heaps.iter().any(|heap| heap.page.is_some()).then_some(self)
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        Some(self)
    }
    fn as_export(&self) -> Option<&dyn Export<Block = Block>> {
        (self.device.has_queues() && self.sharing.works()).then_some(self)
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = Block>> {
        let main = self.device.queues.first()?;
        main.flags.contains(vk::QueueFlags::COMPUTE).then_some(self)
    }
}

// SAFETY: the driver maps the whole memory, once, until it is freed; `sync` refuses ranges that leave the block.
unsafe impl Map for Vulkan {
    type Block = Block;

    fn map(&self, block: &Block) -> Result<NonNull<u8>> {
        block.belongs_to(&self.device)?;
        let (described, _) = self.heap(block.heap())?;
        match described.host {
            HostAccess::None => Err(ErrorKind::NotMappable.into()),
            _ => block.mapping(),
        }
    }
    fn flush(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        self.sync(block, offset, size, Memory::flush)
    }
    fn invalidate(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        self.sync(block, offset, size, Memory::invalidate)
    }
}

impl Vulkan {
    /// Checks a range, and calls the driver where the heap is not coherent.
    fn sync(
        &self,
        block: &Block,
        offset: u64,
        size: u64,
        call: fn(&Memory, u64, u64) -> Result<()>,
    ) -> Result<()> {
        self.map(block)?;
        block.covers(offset, size)?;
        let (described, _) = self.heap(block.heap())?;
        let atom = self.table.caps.atom;
        if !(atom.divides(offset) && atom.divides(size)) {
            return Err(ErrorKind::Misaligned.into());
        }
        match block.backing() {
            Backing::Memory { memory, .. }
                if described.host == HostAccess::Incoherent && size > 0 =>
            {
                call(memory, offset, size)
            }
            _ => Ok(()),
        }
    }
}

// SAFETY: the driver said where the block's buffer begins when the block was made; a buffer does not move.
unsafe impl Address for Vulkan {
    type Block = Block;

    fn address(&self, block: &Block) -> u64 {
        block.address()
    }
}

impl DriverBudget for Vulkan {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let (described, _) = self.heap(heap)?;
        if !self.device.features.has(Feature::MemoryBudget) {
            return Err(ErrorKind::Unsupported
                .because("the driver tells no budget: it has no VK_EXT_memory_budget"));
        }
        // SAFETY: the physical device is this instance's, and has the extension.
        let all = unsafe { physical::budgets(&self.device.instance, self.device.physical) };
        Ok(all[usize::from(described.physical)])
    }
    fn limits(&self, _: HeapId) -> Vec<SystemLimit> {
        self.system_limits.read()
    }
}
