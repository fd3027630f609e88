//! Probes the driver: which memory types take our buffers, and where blocks begin.
#![forbid(unsafe_code)]
use crate::{
    caps::{Facts, Paging, Sparse, features::Feature},
    driver::{
        device::Device,
        objects::{Ask, Buffer, Kind, Memory, Share},
        physical::Physical,
    },
};
use ash::vk;
use omniheap_seam::Result;
use std::sync::Arc;

/// Blocks begin at multiples of this where addresses do not say otherwise: what tiled images ask for at most.
const BASE: u64 = 64 << 10;

/// Alignment of a memory object that needs no buffer. Offset zero meets the alignment of every resource, by the specification;
/// no resource asks for as much as this, but a program may.
const MEMORY_BASE: u64 = 1 << 30;

/// Collects everything that the translation reads.
pub(crate) fn facts(device: &Arc<Device>, physical: &Physical, paging: Paging) -> Result<Facts> {
    let needs = Buffer::create(device, BASE, Kind::Plain)?.requirements();
    let mut facts = Facts {
        device: physical.info.clone(),
        memory: physical.memory,
        limits: physical.limits,
        max_blocks: u64::MAX,
        max_allocation: physical.max_allocation,
        max_buffer: physical.max_buffer,
        buffer_types: needs.memory_type_bits,
        buffer_align: needs.alignment,
        base_align: [if device.has_queues() { BASE } else { MEMORY_BASE }; vk::MAX_MEMORY_TYPES],
        sparse: sparse(device, physical)?,
        paging,
    };
    // Without queues, blocks have no buffer, and so no address to measure.
    if device.has_queues() && device.features.has(Feature::BufferDeviceAddress) {
        let software = physical.kind == vk::PhysicalDeviceType::CPU;
        for (index, base) in (0u32..physical.memory.memory_type_count).zip(&mut facts.base_align) {
            let usable = needs.memory_type_bits & (1 << index) != 0;
            // Software devices take memory where the host has some: only what they promise holds.
            *base = match usable && !software {
                true => measure(device, index, needs.alignment),
                false => needs.alignment,
            };
        }
    }
    Ok(facts)
}

/// Returns the alignment of the addresses of a small and a larger block, within what was promised and what is needed.
fn measure(device: &Arc<Device>, memory_type: u32, promised: u64) -> u64 {
    let mut align = BASE;
    for size in [promised.max(256), 1 << 20] {
        // Types that need a feature, or are full, refuse: then only the promise holds.
        let address = address(device, memory_type, size).unwrap_or(promised);
        align = align.min(1 << address.trailing_zeros().min(63));
    }
    align.max(promised)
}

fn address(device: &Arc<Device>, memory_type: u32, size: u64) -> Result<u64> {
    let buffer = Buffer::create(device, size, Kind::Plain)?;
    let size = buffer.requirements().size;
    let (dedicated, share) = (None, Share::No);
    let memory =
        Memory::allocate(device, Ask { size, memory_type, priority: None, dedicated, share })?;
    buffer.bind(&memory)?;
    let address = buffer.address();
    drop(buffer);
    Ok(address)
}

fn sparse(device: &Arc<Device>, physical: &Physical) -> Result<Option<Sparse>> {
    if !device.features.has(Feature::SparseBuffers) || binder(device).is_none() {
        return Ok(None);
    }
    let needs = Buffer::create(device, 1 << 20, Kind::Sparse)?.requirements();
    let space = physical.limits.sparse_address_space_size;
    Ok(Some(Sparse { types: needs.memory_type_bits, align: needs.alignment, space }))
}

/// Returns the queue that binds: the last that can, so that the main timeline's work does not delay it.
pub(crate) fn binder(device: &Device) -> Option<usize> {
    let binds = vk::QueueFlags::SPARSE_BINDING;
    (0..device.queues.len()).rev().find(|queue| device.queues[*queue].flags.contains(binds))
}
