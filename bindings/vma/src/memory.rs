//! Allocations: from a pool, from a linear one, or with memory of their own; and their end.
#![expect(unsafe_code, reason = "makes memory for resources of the program")]
use crate::abi::{
    VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT, VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT,
    VMA_ALLOCATION_CREATE_MAPPED_BIT, VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT,
    VMA_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT, VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT,
    VMA_ALLOCATION_CREATE_USER_DATA_COPY_STRING_BIT, VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT,
    VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED, VmaAllocation, VmaAllocationCreateInfo,
};
use crate::allocator::Allocator;
use crate::args::text;
use crate::call::Refused;
use crate::choice::{Access, may_map};
use crate::linear::Side;
use crate::pools::{CustomPool, Extras, Kind};
use crate::slots::{Facts, Handle, Slot};
use ash::vk::{self, Handle as _, MemoryPropertyFlags as F};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use omniheap_core::{Align, AllocateError, Allocation, AnyBackend, Class, Request, Span, UserPool};
use omniheap_seam::AnyBlock;
use omniheap_vulkan::{Block, MemoryExtras};
use std::sync::Arc;

/// An allocation of the engine.
pub(crate) type Managed = Allocation<AnyBackend>;

/// Owner of a slot's bytes.
pub(crate) enum Memory {
    /// The engine, in a default pool or alone.
    Default(Managed),
    /// The engine, in a pool of the program.
    Pooled(Managed, Arc<CustomPool>),
    /// A linear pool: its block's number, and the place there.
    Linear(Arc<CustomPool>, u64, u64),
}

/// Kind of resource, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    Unknown = 1,
    Buffer = 2,
    ImageUnknown = 3,
    ImageLinear = 4,
    ImageOptimal = 5,
}

impl Content {
    /// Returns the class for distances to neighbours. Unknown content has the stricter class.
    const fn class(self) -> Class {
        match self {
            Self::Buffer | Self::ImageLinear => Class::Linear,
            Self::Unknown | Self::ImageUnknown | Self::ImageOptimal => Class::Tiled,
        }
    }
}

/// Facts about an allocation that never change, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About(u64);

const ALONE: u64 = 1 << 16;
const MAPPED: u64 = 1 << 17;
const MAY_MAP: u64 = 1 << 18;

impl Memory {
    /// Returns what the engine owns; nothing for a linear pool.
    fn managed(&self) -> Option<&Managed> {
        match self {
            Self::Default(managed) | Self::Pooled(managed, _) => Some(managed),
            Self::Linear(..) => None,
        }
    }

    /// Sets its name for the engine's reports.
    pub(crate) fn set_name(&self, name: &str) {
        if let Some(managed) = self.managed() {
            managed.set_name(name);
        }
    }
}

impl About {
    fn new(memory_type: u32, content: Content, flags: u64, pool: u32) -> Self {
        Self(u64::from(memory_type) | (content as u64) << 8 | flags | u64::from(pool) << 32)
    }

    pub(crate) fn of(facts: &Facts) -> Self {
        Self(facts.about.load(Relaxed))
    }

    pub(crate) const fn memory_type(self) -> u32 {
        (self.0 & 0xFF) as u32
    }

    /// Returns the word that VMA's reports use for this content.
    pub(crate) const fn content(self) -> &'static str {
        match self.content_kind() {
            Content::Unknown => "UNKNOWN",
            Content::Buffer => "BUFFER",
            Content::ImageUnknown => "IMAGE_UNKNOWN",
            Content::ImageLinear => "IMAGE_LINEAR",
            Content::ImageOptimal => "IMAGE_OPTIMAL",
        }
    }

    /// Returns whether nothing shares its memory object.
    pub(crate) const fn is_alone(self) -> bool {
        self.0 & ALONE != 0
    }

    /// Returns whether it is mapped as long as it lives.
    pub(crate) const fn is_mapped(self) -> bool {
        self.0 & MAPPED != 0
    }

    pub(crate) const fn may_map(self) -> bool {
        self.0 & MAY_MAP != 0
    }

    /// Returns the number of its pool; zero for the default pools.
    pub(crate) const fn pool(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn content_kind(self) -> Content {
        match self.0 >> 8 & 0xF {
            2 => Content::Buffer,
            3 => Content::ImageUnknown,
            4 => Content::ImageLinear,
            5 => Content::ImageOptimal,
            _ => Content::Unknown,
        }
    }
}

/// The resource that memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    None,
    Buffer(vk::Buffer),
    Image(vk::Image),
}

/// A request, apart from its `VmaAllocationCreateInfo`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// Acceptable memory types, as a bit set.
    pub(crate) types: u32,
    pub(crate) resource: Resource,
    pub(crate) content: Content,
    pub(crate) access: Access,
    /// Usage flags of the buffer or image, for reports.
    pub(crate) usage: u32,
    /// True if the driver demands memory of its own; `likes_own` if it would be faster with it.
    pub(crate) needs_own: bool,
    pub(crate) likes_own: bool,
    /// Chain for the driver's call; only for memory of its own.
    pub(crate) next: *const c_void,
}

/// Place of bytes that were taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) offset: u64,
    pub(crate) block_size: u64,
    /// Host address of the block, where it is mapped.
    pub(crate) base: u64,
}

#[inline]
fn see(block: &AnyBlock, span: Span) -> Seen {
    let Some(block) = block.downcast_ref::<Block>() else { return Seen::default() };
    Seen {
        memory: block.memory().unwrap_or_default(),
        offset: span.offset,
        block_size: block.size(),
        base: block.user_data().load(Relaxed),
    }
}

/// Taken bytes: their owner, their place, and a flag for memory that nothing shares.
struct Taken {
    memory: Memory,
    seen: Seen,
    is_alone: bool,
}

impl Taken {
    fn pooled(managed: Managed, seen: Seen, pool: &Arc<CustomPool>) -> Self {
        Self { memory: Memory::Pooled(managed, Arc::clone(pool)), seen, is_alone: false }
    }
}

fn out_of_memory(why: &'static str) -> Refused {
    Refused::quietly(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, why)
}

const fn has(info: &VmaAllocationCreateInfo, flag: u32) -> bool {
    info.flags & flag != 0
}

impl Allocator {
    /// Allocates.
    #[inline]
    pub(crate) fn allocate(
        &self,
        mut ask: Ask,
        info: &VmaAllocationCreateInfo,
    ) -> Result<&Slot<Memory>, Refused> {
        self.settle(&mut ask, info)?;
        if !info.pool.is_null() {
            let (pool, number) = self.pool(info.pool)?;
            ask.align = ask.align.max(pool.min_align);
            let taken = self.take_in(&pool, &ask, info)?;
            return self.keep(&ask, info, (pool.memory_type, number), taken);
        }
        let mut types = ask.types;
        let mut memory_type = self.types.find(types, info, ask.access)?;
        loop {
            match self.take_of(memory_type, &ask, info) {
                Ok(taken) => return self.keep(&ask, info, (memory_type, 0), taken),
                Err(why) if !why.may_retry() => return Err(why),
                Err(why) => {
                    types &= !(1 << memory_type);
                    memory_type =
                        self.types.find(types, info, ask.access).map_err(|_| why.after_all())?;
                }
            }
        }
    }

    /// Refuses impossible requests, and applies the allocator's settings to the others.
    #[inline]
    fn settle(&self, ask: &mut Ask, info: &VmaAllocationCreateInfo) -> Result<(), Refused> {
        if ask.size == 0 {
            return Err(Refused::quietly(
                vk::Result::ERROR_INITIALIZATION_FAILED,
                "the size is zero",
            ));
        }
        for odd in [ask.align, info.min_alignment] {
            if odd & odd.wrapping_sub(1) != 0 {
                return Err(Refused::invalid(format!("the alignment {odd} is no power of two")));
            }
        }
        let is_lazy = info.usage == VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED;
        let may_grow = !has(info, VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT);
        ask.align = ask.align.max(info.min_alignment).max(self.debug.min_align).max(1);
        ask.needs_own = ask.needs_own
            || !ask.next.is_null()
            || is_lazy
            || has(info, VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT)
            || (self.debug.always_alone && may_grow);
        if ask.needs_own && !may_grow {
            let why =
                "memory of its own and VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT exclude each other";
            return Err(Refused::new(vk::Result::ERROR_FEATURE_NOT_PRESENT, why));
        }
        Ok(())
    }

    /// Takes memory of one type, shared or alone.
    #[inline]
    fn take_of(
        &self,
        memory_type: u32,
        ask: &Ask,
        info: &VmaAllocationCreateInfo,
    ) -> Result<Taken, Refused> {
        let extras = MemoryExtras::default().priority(info.priority.clamp(0.0, 1.0));
        let alone = || self.take_alone(memory_type, ask, info, Extras(extras), None);
        if ask.needs_own {
            return alone();
        }
        let may_grow = !has(info, VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT);
        let is_large = ask.size > (32 << 20).min(self.preferred_block(memory_type) / 2);
        let rather_alone = may_grow && (is_large || ask.likes_own) && !self.is_near_limit();
        if rather_alone && let Ok(taken) = alone() {
            return Ok(taken);
        }
        let shared = self.take_shared(memory_type, ask, info);
        match shared {
            Err(why) if may_grow && why.may_retry() => alone(),
            shared => shared,
        }
    }

    /// Returns true if more than 3/4 of `maxMemoryAllocationCount` are taken. Allocations then share blocks.
    fn is_near_limit(&self) -> bool {
        self.counts.blocks() > u64::from(self.limits().max_memory_allocation_count) / 4 * 3
    }

    #[inline]
    fn take_shared(
        &self,
        memory_type: u32,
        ask: &Ask,
        info: &VmaAllocationCreateInfo,
    ) -> Result<Taken, Refused> {
        let is_visible = self.type_flags(memory_type).contains(F::HOST_VISIBLE);
        let kind = match ask.access {
            Access::Transfers if is_visible && ask.content == Content::Buffer => Kind::Scratch,
            _ => Kind::of(ask.size),
        };
        let request = self.request(ask);
        let limited =
            VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT | VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT;
        let pool = self.defaults.get(self, memory_type, kind)?;
        let (managed, seen) = match take_lowest(pool, &request, info) {
            Some(lowest) => lowest,
            None if info.flags & limited != 0 => {
                return self.take_held(memory_type, &request, kind, info);
            }
            None => pool.allocate_and_look(&request, see)?,
        };
        Ok(Taken { memory: Memory::Default(managed), seen, is_alone: false })
    }

    /// Takes memory that is held already, or within the budget.
    #[cold]
    fn take_held(
        &self,
        memory_type: u32,
        request: &Request<'_>,
        kind: Kind,
        info: &VmaAllocationCreateInfo,
    ) -> Result<Taken, Refused> {
        let own = self.defaults.get(self, memory_type, kind)?;
        let held = request.no_grow();
        let mut pools = core::iter::once(own).chain(self.defaults.of_type(memory_type));
        let found = pools.find_map(|pool| pool.allocate_and_look(&held, see).ok());
        let default =
            |(managed, seen)| Taken { memory: Memory::Default(managed), seen, is_alone: false };
        if let Some(found) = found {
            return Ok(default(found));
        }
        if has(info, VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT) {
            return Err(out_of_memory("no block that is held has room"));
        }
        let (size, growth) = (request.layout.size, kind.growth(self.preferred_block(memory_type)));
        let block = growth.block_for(size, own.reserved()).unwrap_or(size);
        self.check_budget(memory_type, block, info)?;
        Ok(default(own.allocate_and_look(request, see)?))
    }

    /// Refuses bytes beyond the budget, if the program asked for that.
    fn check_budget(
        &self,
        memory_type: u32,
        bytes: u64,
        info: &VmaAllocationCreateInfo,
    ) -> Result<(), Refused> {
        if !has(info, VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT) {
            return Ok(());
        }
        match self.has_room(self.heap_of(memory_type), bytes) {
            true => Ok(()),
            false => Err(out_of_memory("it would exceed the budget")),
        }
    }

    /// Returns the request to the engine. Content of unknown class shares no granule with any neighbour.
    #[inline]
    fn request(&self, ask: &Ask) -> Request<'static> {
        self.laid_out(ask.size, ask.align, ask.content)
    }

    #[inline]
    fn laid_out(&self, size: u64, align: u64, content: Content) -> Request<'static> {
        let class = content.class();
        let (mut size, mut align) = (size.saturating_add(self.debug.margin), align);
        let granularity = self.limits().buffer_image_granularity;
        if matches!(content, Content::Unknown | Content::ImageUnknown)
            && granularity > self.manager.config().unit.get()
        {
            (size, align) = (size.next_multiple_of(granularity), align.max(granularity));
        }
        let align = Align::new(align).unwrap_or(Align::ONE);
        Request::new(size).align(align).class(class)
    }

    /// Takes memory of a pool of the program.
    fn take_in(
        &self,
        pool: &Arc<CustomPool>,
        ask: &Ask,
        info: &VmaAllocationCreateInfo,
    ) -> Result<Taken, Refused> {
        let may_grow = !has(info, VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT);
        let side = match has(info, VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT) {
            true => Side::Upper,
            false => Side::Lower,
        };
        self.check_in(pool, ask, side)?;
        if ask.needs_own {
            return self.take_alone(pool.memory_type, ask, info, pool.extras, Some(pool));
        }
        let grows = |bytes: u64| match may_grow {
            true => self.check_budget(pool.memory_type, bytes, info),
            false => Err(out_of_memory("no block that is held has room")),
        };
        let Some(general) = pool.general() else {
            return self.take_linear(pool, ask, side, grows);
        };
        match self.take_pooled((pool, general), ask, info, grows) {
            Err(why) if pool.block_size == 0 && may_grow && why.may_retry() => {
                self.take_alone(pool.memory_type, ask, info, pool.extras, Some(pool))
            }
            taken => taken,
        }
    }

    /// Takes bytes of blocks that allocations of a pool share.
    fn take_pooled(
        &self,
        (pool, general): (&Arc<CustomPool>, &UserPool<AnyBackend>),
        ask: &Ask,
        info: &VmaAllocationCreateInfo,
        grows: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<Taken, Refused> {
        let request = self.request(ask);
        let request =
            if pool.ignores_neighbours() { request.class(Class::Linear) } else { request };
        let block = pool.block_size.max(request.layout.size);
        let limited =
            VMA_ALLOCATION_CREATE_NEVER_ALLOCATE_BIT | VMA_ALLOCATION_CREATE_WITHIN_BUDGET_BIT;
        if let Some((managed, seen)) = take_lowest(general, &request, info) {
            return Ok(Taken::pooled(managed, seen, pool));
        }
        if pool.is_at_most() {
            // The pool may not grow, so the ladder of a request that fails could gain nothing here.
            let is_usual = request.layout.align <= self.base_align(pool.memory_type);
            let taken = match general.allocate_at_once(&request, see) {
                // This thread may have no lane of the pool yet, so the slower way may still succeed.
                None if is_usual => general.allocate_and_look(&request.no_grow(), see).ok(),
                taken => taken,
            };
            if taken.is_some() || is_usual {
                let (managed, seen) = taken.ok_or_else(|| out_of_memory("the pool is full"))?;
                return Ok(Taken::pooled(managed, seen, pool));
            }
        }
        let (managed, seen) = pool.extras.0.scoped(|| match info.flags & limited {
            0 => Ok(general.allocate_and_look(&request, see)?),
            _ => take_general(general, &request, || grows(block)),
        })?;
        Ok(Taken::pooled(managed, seen, pool))
    }

    /// Refuses requests that a pool can never serve.
    fn check_in(&self, pool: &CustomPool, ask: &Ask, side: Side) -> Result<(), Refused> {
        let why = if side == Side::Upper && !(pool.is_linear() && pool.is_single()) {
            "VMA_ALLOCATION_CREATE_UPPER_ADDRESS_BIT needs a linear pool with maxBlockCount 1"
        } else if ask.needs_own && pool.block_size != 0 && !self.debug.always_alone {
            "a pool with a blockSize has no memory of its own for single allocations"
        } else {
            return Ok(());
        };
        Err(Refused::new(vk::Result::ERROR_FEATURE_NOT_PRESENT, why))
    }

    fn take_linear(
        &self,
        pool: &Arc<CustomPool>,
        ask: &Ask,
        side: Side,
        grows: impl FnOnce(u64) -> Result<(), Refused>,
    ) -> Result<Taken, Refused> {
        let (mut size, mut align) = (ask.size.saturating_add(self.debug.margin), ask.align);
        let granularity = self.limits().buffer_image_granularity;
        let is_buffer = matches!(ask.content, Content::Buffer | Content::ImageLinear);
        if !is_buffer && !pool.ignores_neighbours() {
            (size, align) = (size.next_multiple_of(granularity), align.max(granularity));
        }
        let flags = self.type_flags(pool.memory_type);
        if flags.contains(F::HOST_VISIBLE) && !flags.contains(F::HOST_COHERENT) {
            // A flush of one allocation must not cover bytes of its neighbour.
            align = align.max(self.limits().non_coherent_atom_size);
        }
        let (number, seen) = pool.take_linear(self, (size, align, side), grows)?;
        let memory = Memory::Linear(Arc::clone(pool), number, seen.offset);
        Ok(Taken { memory, seen, is_alone: false })
    }

    /// Takes memory that nothing shares. It is tied to the resource, unless others may be bound to it.
    #[cold]
    fn take_alone(
        &self,
        memory_type: u32,
        ask: &Ask,
        info: &VmaAllocationCreateInfo,
        extras: Extras,
        pool: Option<&Arc<CustomPool>>,
    ) -> Result<Taken, Refused> {
        self.check_budget(memory_type, ask.size, info)?;
        let extras = match ask.next.is_null() {
            true => extras.0,
            // SAFETY: the program's chain for this call, which it keeps valid meanwhile.
            false => unsafe { extras.0.next(ask.next) },
        };
        let can_alias = has(info, VMA_ALLOCATION_CREATE_CAN_ALIAS_BIT);
        let is_tied = !can_alias && self.newer.asks_chains;
        let resource = if is_tied { ask.resource } else { Resource::None };
        let (managed, seen) = self.make(memory_type, ask.size, resource, Extras(extras))?;
        let memory = match pool {
            Some(pool) => Memory::Pooled(managed, Arc::clone(pool)),
            None => Memory::Default(managed),
        };
        Ok(Taken { memory, seen, is_alone: true })
    }

    /// Makes a driver allocation of exactly `size` bytes. It counts against the manager's budgets.
    fn make(
        &self,
        memory_type: u32,
        size: u64,
        resource: Resource,
        extras: Extras,
    ) -> Result<(Managed, Seen), Refused> {
        let (heap, vulkan) = (self.heap(memory_type), &self.vulkan);
        let most = self.manager.caps().heap(heap).map_or(0, |heap| heap.size);
        if size > most {
            return Err(out_of_memory("it is larger than the heap"));
        }
        let make = || {
            let block = extras.0.scoped(|| match resource {
                Resource::None => vulkan.memory_untied(heap, size),
                // SAFETY: the program's own buffer, whose requirements were just asked for.
                Resource::Buffer(buffer) => unsafe { vulkan.memory_tied(heap, size, buffer) },
                // SAFETY: as above, an image.
                Resource::Image(image) => unsafe { vulkan.memory_tied(heap, size, image) },
            });
            block.map(|block| Box::new(block) as AnyBlock)
        };
        let request = Request::new(size).heap(heap);
        // SAFETY: made by the manager's own device, in this heap, with these bytes, for this use alone.
        let managed = unsafe { self.manager.allocate_made(&request, make) }?;
        let binding = managed.binding();
        let seen = see(binding.block(), binding.span());
        drop(binding);
        Ok((managed, seen))
    }

    /// Makes a block of a linear pool.
    pub(crate) fn block(
        &self,
        memory_type: u32,
        size: u64,
        extras: Extras,
    ) -> Result<(Managed, Seen), Refused> {
        self.make(memory_type, size, Resource::None, extras)
    }

    /// Enters taken bytes into the table.
    #[inline]
    fn keep(
        &self,
        ask: &Ask,
        info: &VmaAllocationCreateInfo,
        (memory_type, pool): (u32, u32),
        taken: Taken,
    ) -> Result<&Slot<Memory>, Refused> {
        let Taken { memory, seen, is_alone } = taken;
        let is_visible = self.type_flags(memory_type).contains(F::HOST_VISIBLE);
        let is_mapped = is_visible && has(info, VMA_ALLOCATION_CREATE_MAPPED_BIT);
        let flags = if is_alone { ALONE } else { 0 }
            | if is_mapped { MAPPED } else { 0 }
            | if is_visible && (may_map(info) || is_mapped) { MAY_MAP } else { 0 };
        let about = About::new(memory_type, ask.content, flags, pool);
        if let Memory::Pooled(_, pool) | Memory::Linear(pool, ..) = &memory {
            pool.count(about, ask.size);
        }
        let copies = has(info, VMA_ALLOCATION_CREATE_USER_DATA_COPY_STRING_BIT);
        let user_data = if copies { crate::allocator::NOTHING } else { info.p_user_data };
        let slot = self.slots.keep((memory_type, ask.size), memory, |slot| {
            let facts = &slot.facts;
            facts.memory.store(seen.memory.as_raw(), Relaxed);
            facts.block_size.store(seen.block_size, Relaxed);
            facts.set_place(seen.offset, seen.base);
            facts.size.store(ask.size, Relaxed);
            facts.align.store(ask.align, Relaxed);
            facts.about.store(about.0, Relaxed);
            facts.usage.store(ask.usage, Relaxed);
            facts.maps.store(0, Relaxed);
            facts.user_data.store(user_data, Relaxed);
            if self.debug.looks() {
                self.fill_new(slot);
                self.lay_margin(slot);
            }
        });
        if is_mapped && seen.base == 0 {
            self.mapping(slot).inspect_err(|_| {
                self.forget(slot.handle());
            })?;
        }
        if copies {
            // SAFETY: the program said that its pointer is a text.
            slot.set_name(unsafe { text(info.p_user_data.cast_const().cast()) });
        }
        Ok(slot)
    }

    /// Returns the request for a copy of an allocation, from memory that is already held.
    fn request_beside(&self, slot: &Slot<Memory>) -> Request<'static> {
        let (size, align) = (slot.facts.size.load(Relaxed), slot.facts.align.load(Relaxed));
        self.laid_out(size, align, About::of(&slot.facts).content_kind()).no_grow()
    }

    /// Takes the lowest place for a copy of an allocation in its own block, below it and behind `after`, an allocation of that block.
    pub(crate) fn take_below(
        &self,
        memory_type: u32,
        (slot, handle): (&Slot<Memory>, Handle),
        after: Option<Handle>,
        pool: Option<&Arc<CustomPool>>,
    ) -> Option<(Managed, Seen)> {
        let request = self.request_beside(slot);
        let take = |pool: &UserPool<AnyBackend>, after: Option<&Managed>| {
            let take = |before: &mut Memory| {
                pool.allocate_between(&request, after, before.managed()?, see).ok()
            };
            slot.with_of(handle, take)?
        };
        let take = |after: Option<&Managed>| match pool {
            Some(pool) => take(pool.general()?, after),
            None => self.defaults.of_type(memory_type).find_map(|pool| take(pool, after)),
        };
        match after {
            None => take(None),
            Some(after) => self.slots.get(after)?.with_of(after, |after| take(after.managed()))?,
        }
    }

    /// Takes a place for a copy of an allocation, in the same pool, from memory that is already held.
    pub(crate) fn take_beside(
        &self,
        memory_type: u32,
        slot: &Slot<Memory>,
        pool: Option<&Arc<CustomPool>>,
    ) -> Option<(Managed, Seen)> {
        let (request, size) = (self.request_beside(slot), slot.facts.size.load(Relaxed));
        match pool {
            Some(pool) => pool.general()?.allocate_and_look(&request, see).ok(),
            None => {
                let pool = self.defaults.get(self, memory_type, Kind::of(size)).ok()?;
                pool.allocate_and_look(&request, see).ok()
            }
        }
    }

    /// Enters a place for a copy of an allocation into the table. `None` if its memory cannot be mapped.
    pub(crate) fn keep_beside(
        &self,
        slot: &Slot<Memory>,
        (memory, seen): (Memory, Seen),
    ) -> Option<Handle> {
        let (about, size) = (About::of(&slot.facts), slot.facts.size.load(Relaxed));
        if let Memory::Pooled(_, pool) | Memory::Linear(pool, ..) = &memory {
            pool.count(about, size);
        }
        let beside = self.slots.keep((about.memory_type(), size), memory, |beside| {
            let facts = &beside.facts;
            facts.memory.store(seen.memory.as_raw(), Relaxed);
            facts.block_size.store(seen.block_size, Relaxed);
            facts.set_place(seen.offset, seen.base);
            facts.size.store(size, Relaxed);
            facts.align.store(slot.facts.align.load(Relaxed), Relaxed);
            facts.about.store(about.0, Relaxed);
            facts.usage.store(slot.facts.usage.load(Relaxed), Relaxed);
            facts.maps.store(0, Relaxed);
            facts.user_data.store(crate::allocator::NOTHING, Relaxed);
            self.lay_margin(beside);
        });
        let handle = beside.handle();
        let is_seen = slot.facts.host.load(Relaxed) != 0;
        if is_seen && self.mapping(beside).is_err() {
            self.forget(handle);
            return None;
        }
        Some(handle)
    }

    /// Returns the slot of an allocation.
    #[inline]
    pub(crate) fn slot(&self, allocation: VmaAllocation) -> Result<&Slot<Memory>, Refused> {
        let handle = Handle::from_address(allocation.0.addr());
        self.slots.get(handle).ok_or_else(|| self.not_live(handle))
    }

    #[cold]
    fn not_live(&self, handle: Handle) -> Refused {
        Refused::invalid(self.slots.why_not(handle))
    }

    /// Frees an allocation. Null does nothing.
    #[inline]
    pub(crate) fn free(&self, allocation: VmaAllocation) -> Result<(), Refused> {
        self.free_after(allocation, || ())
    }

    /// Frees an allocation after `last`. `last` runs once no other call can reach the allocation, and also for null.
    #[inline]
    pub(crate) fn free_after(
        &self,
        allocation: VmaAllocation,
        last: impl FnOnce(),
    ) -> Result<(), Refused> {
        if allocation.is_null() {
            last();
            return Ok(());
        }
        let handle = Handle::from_address(allocation.0.addr());
        if self.debug.looks() {
            self.look_at_margin(self.slot(allocation)?);
        }
        match self.forget_after(handle, last) {
            true => Ok(()),
            false => Err(self.not_live(handle)),
        }
    }

    /// Takes an allocation out of the table and gives its bytes back. Returns true if it was there.
    #[inline]
    pub(crate) fn forget(&self, handle: Handle) -> bool {
        self.forget_after(handle, || ())
    }

    /// Does what [`forget`](Self::forget) does, and runs `last` before the bytes go back.
    #[inline]
    fn forget_after(&self, handle: Handle, last: impl FnOnce()) -> bool {
        let (mut about, mut size) = (About(0), 0);
        let weigh = |facts: &Facts| {
            (about, size) = (About::of(facts), facts.size.load(Relaxed));
            (about.memory_type(), size)
        };
        let Some(ended) = self.slots.release(handle, weigh) else { return false };
        last();
        match ended.memory {
            Memory::Default(managed) => drop(managed),
            Memory::Pooled(managed, pool) => {
                drop(managed);
                pool.uncount(about, size);
            }
            Memory::Linear(pool, number, offset) => {
                pool.free_linear(number, offset);
                pool.uncount(about, size);
            }
        }
        if ended.is_worth_a_look {
            self.counts.return_empty(self.slots.tally().bytes(), |enough| self.trim(enough));
        }
        true
    }
}

/// Takes the lowest bytes that the pool holds, if the program asked for that. The pool's own choice is as good for the other strategies:
/// it finds a hole at once that is the smallest to within a thirty-second.
#[inline]
fn take_lowest(
    pool: &UserPool<AnyBackend>,
    request: &Request<'_>,
    info: &VmaAllocationCreateInfo,
) -> Option<(Managed, Seen)> {
    let is_asked = has(info, VMA_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT);
    is_asked.then(|| pool.allocate_lowest(request, |of, span| Some(see(of, span))).ok())?
}

/// Takes bytes that the pool holds. If there are none, takes new ones unless `may_grow` refuses.
fn take_general(
    pool: &UserPool<AnyBackend>,
    request: &Request<'_>,
    may_grow: impl FnOnce() -> Result<(), Refused>,
) -> Result<(Managed, Seen), Refused> {
    let held = request.no_grow();
    let found: Result<_, AllocateError> = pool.allocate_and_look(&held, see);
    match found {
        Ok(found) => Ok(found),
        Err(_) => {
            may_grow()?;
            Ok(pool.allocate_and_look(request, see)?)
        }
    }
}
