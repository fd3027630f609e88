//! Capabilities from what the driver says about its memory ([`Caps`]), and the ranking of heaps. Pure: no driver call
//! is made here.
#![forbid(unsafe_code)]
pub(crate) mod features;

use self::features::Feature;
use crate::driver::Owner;
use ash::vk;
use omniheap_seam::{
    Align, Caps, ConstantCaps, DeviceInfo, Heap, HeapKind, HostAccess, Mapper, SharedCaps, Use,
};

/// Heaps that offer pages, where the device has sparse binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paging {
    /// [`DeviceOnly`](Self::DeviceOnly) on a device that the backend opened, [`Off`](Self::Off) on an engine's device. An engine
    /// has buffers and images, and these cannot be bound to pages.
    #[default]
    OnOwnDevice,
    /// Heaps that the host cannot see: a paged block cannot be mapped, so a visible heap would lose that ability.
    DeviceOnly,
    /// Every heap that sparse buffers accept; paged blocks of visible heaps answer `NotMappable`.
    EveryHeap,
    /// None.
    Off,
}

impl Paging {
    /// Returns the choice on a device of this owner.
    pub(crate) fn on_device_of(self, owner: Owner) -> Self {
        match (self, owner) {
            (Self::OnOwnDevice, Owner::Us) => Self::DeviceOnly,
            (Self::OnOwnDevice, Owner::Caller) => Self::Off,
            (other, _) => other,
        }
    }
}

/// Requirements of sparse buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparse {
    /// Memory types that may back them, as a bit set.
    pub(crate) types: u32,
    /// Bytes: every bound piece starts and ends at a multiple of this.
    pub(crate) align: u64,
    /// Bytes of sparse addresses that the device has in total.
    pub(crate) space: u64,
}

/// Everything the translation reads.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) device: DeviceInfo,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    /// Driver allocations that may be alive: what the options say, else no limit but the driver's.
    pub(crate) max_blocks: u64,
    /// Largest single driver allocation, in bytes.
    pub(crate) max_allocation: u64,
    /// Largest buffer in bytes; `u64::MAX` where the driver does not say.
    pub(crate) max_buffer: u64,
    /// Memory types that a block's buffer may be bound to, as a bit set.
    pub(crate) buffer_types: u32,
    /// Alignment a block's buffer asks for.
    pub(crate) buffer_align: u64,
    /// Alignment that every block's base has, also as an address, by memory type.
    pub(crate) base_align: [u64; vk::MAX_MEMORY_TYPES],
    pub(crate) sparse: Option<Sparse>,
    pub(crate) paging: Paging,
}

/// Suitability of a memory type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suits {
    /// Blocks with a buffer over all their bytes.
    Buffers,
    /// Images alone: the driver binds no buffer of ours to it.
    Images,
    /// Requests that name it: protected, lazily backed, device-coherent or peer memory.
    Named,
}

/// One heap's native side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Index of the memory type.
    pub(crate) memory_type: u32,
    pub(crate) flags: vk::MemoryPropertyFlags,
    pub(crate) suits: Suits,
}

impl Slot {
    /// Returns the memory type as an index.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.memory_type).expect("the driver numbers at most 32 memory types")
    }
}

/// The description and, at the same index as each heap, its native side.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) caps: Caps,
    pub(crate) slots: Vec<Slot>,
}

impl Slot {
    /// Returns the feature that memory of this type needs.
    pub(crate) fn needs(self) -> Option<Feature> {
        use vk::MemoryPropertyFlags as F;
        if self.flags.intersects(F::PROTECTED) {
            Some(Feature::ProtectedMemory)
        } else if self.flags.intersects(F::DEVICE_COHERENT_AMD | F::DEVICE_UNCACHED_AMD) {
            Some(Feature::DeviceCoherentMemory)
        } else {
            None
        }
    }
}

const NAMED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::PROTECTED.as_raw()
        | vk::MemoryPropertyFlags::LAZILY_ALLOCATED.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD.as_raw()
        | vk::MemoryPropertyFlags::RDMA_CAPABLE_NV.as_raw(),
);

/// The least page: smaller ones cost more in binds than they save in bytes.
const PAGE: u64 = 2 << 20;

/// Translates and ranks.
pub(crate) fn translate(facts: &Facts) -> Table {
    let types = facts.memory.memory_types_as_slice();
    let mut ranked: Vec<(Slot, Heap)> = (0u32..)
        .zip(types)
        .map(|(index, memory_type)| {
            let slot = Slot {
                memory_type: index,
                flags: memory_type.property_flags,
                suits: suits(memory_type.property_flags, facts.buffer_types & (1 << index) != 0),
            };
            (slot, heap(facts, slot, memory_type.heap_index))
        })
        .collect();
    ranked.sort_by_key(|(slot, heap)| {
        let host = rank::host(heap.host);
        (rank::kind(heap.kind), slot.suits, core::cmp::Reverse(heap.size), host, slot.memory_type)
    });
    let (slots, heaps) = ranked.into_iter().unzip();
    Table { caps: caps(facts, heaps), slots }
}

fn suits(flags: vk::MemoryPropertyFlags, takes_buffers: bool) -> Suits {
    if flags.intersects(NAMED) {
        Suits::Named
    } else if takes_buffers {
        Suits::Buffers
    } else {
        Suits::Images
    }
}

fn heap(facts: &Facts, slot: Slot, physical: u32) -> Heap {
    let index = usize::try_from(physical).expect("the driver numbers at most 16 heaps");
    let size = facts.memory.memory_heaps_as_slice()[index].size;
    let granule = granule(facts);
    let host = host(slot.flags);
    let kind = kind(slot.flags);
    let hidden_in_host = kind == HeapKind::Staging && host == HostAccess::None;
    let on_request = slot.suits != Suits::Buffers || hidden_in_host;
    Heap::new(kind, size)
        .name(name(slot))
        .max_block(granule.down(size.min(facts.max_allocation).min(facts.max_buffer)))
        .align(power(facts.base_align[slot.index()]))
        .granule(granule)
        .page(page(facts, slot, host))
        // Pages are bound by `vkQueueBindSparse`.
        .mapper(Mapper::Queue)
        .host(host)
        .use_when(if on_request { Use::OnRequest } else { Use::Normal })
        .physical(u8::try_from(physical).expect("the driver numbers at most 16 heaps"))
}

fn page(facts: &Facts, slot: Slot, host: HostAccess) -> Option<Align> {
    let sparse = facts.sparse?;
    let wanted = match facts.paging {
        Paging::OnOwnDevice | Paging::DeviceOnly => !host.is_visible(),
        Paging::EveryHeap => true,
        Paging::Off => false,
    };
    let accepted = slot.suits == Suits::Buffers && sparse.types & (1 << slot.memory_type) != 0;
    (wanted && accepted).then(|| power(sparse.align.max(PAGE)))
}

fn caps(facts: &Facts, heaps: Vec<Heap>) -> Caps {
    let limits = &facts.limits;
    let uniform = u64::from(limits.max_uniform_buffer_range);
    let shared = u64::from(limits.max_compute_shared_memory_size);
    Caps::new(facts.device.clone(), heaps)
        .max_blocks(facts.max_blocks)
        .neighbour_granularity(power(limits.buffer_image_granularity))
        .atom(power(limits.non_coherent_atom_size))
        .constant(Some(ConstantCaps {
            bank: uniform,
            align: power(limits.min_uniform_buffer_offset_alignment),
            max_bind: uniform,
            push: u64::from(limits.max_push_constants_size),
        }))
        // The API tells one number; banks are those of every current discrete device.
        .shared(Some(SharedCaps {
            per_group: shared,
            per_group_opt_in: shared,
            per_multiprocessor: shared,
            banks: 32,
            bank_width: 4,
        }))
}

/// Whole flushes of a block need its size to be a multiple of the atom.
fn granule(facts: &Facts) -> Align {
    power(facts.buffer_align).max(power(facts.limits.non_coherent_atom_size))
}

fn kind(flags: vk::MemoryPropertyFlags) -> HeapKind {
    use vk::MemoryPropertyFlags as F;
    if flags.contains(F::DEVICE_LOCAL | F::HOST_VISIBLE) {
        HeapKind::Unified
    } else if flags.contains(F::DEVICE_LOCAL) {
        HeapKind::Device
    } else {
        HeapKind::Staging
    }
}

fn host(flags: vk::MemoryPropertyFlags) -> HostAccess {
    use vk::MemoryPropertyFlags as F;
    if !flags.contains(F::HOST_VISIBLE) {
        HostAccess::None
    } else if !flags.contains(F::HOST_COHERENT) {
        HostAccess::Incoherent
    } else if flags.contains(F::HOST_CACHED) {
        HostAccess::Cached
    } else {
        HostAccess::Combined
    }
}

fn name(slot: Slot) -> String {
    use vk::MemoryPropertyFlags as F;
    const WORDS: [(vk::MemoryPropertyFlags, &str); 9] = [
        (F::DEVICE_LOCAL, "device-local"),
        (F::HOST_VISIBLE, "host-visible"),
        (F::HOST_COHERENT, "coherent"),
        (F::HOST_CACHED, "cached"),
        (F::LAZILY_ALLOCATED, "lazily-allocated"),
        (F::PROTECTED, "protected"),
        (F::DEVICE_COHERENT_AMD, "device-coherent"),
        (F::DEVICE_UNCACHED_AMD, "device-uncached"),
        (F::RDMA_CAPABLE_NV, "rdma-capable"),
    ];
    let words: Vec<&str> = WORDS
        .iter()
        .filter(|(flag, _)| slot.flags.contains(*flag))
        .map(|(_, word)| *word)
        .collect();
    let words = if words.is_empty() { "host, device only".to_owned() } else { words.join(" ") };
    format!("type {}: {words}", slot.memory_type)
}

/// Rounds a driver's alignment up to a power of two, in case it breaks its promise.
pub(crate) fn power(bytes: u64) -> Align {
    let bytes = bytes.max(1).checked_next_power_of_two().unwrap_or(1 << 63);
    Align::of(bytes)
}

#[cfg(test)]
mod layouts;
mod rank;
#[cfg(test)]
mod tests;
