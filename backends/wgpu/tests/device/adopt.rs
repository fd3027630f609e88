//! Blocks over foreign memory.
#![expect(unsafe_code, reason = "plays the other allocator")]
use crate::{
    Check, Target,
    blocks::{CONSTANT, DEVICE, READ_BACK, UPLOAD, free, kind},
    bytes::{MAIN, at, bytes_of},
};
use ash::vk;
use core::sync::atomic::{AtomicU32, Ordering};
use omniheap_core::{Backend, ErrorKind, Move, Transfer};
use omniheap_wgpu::Wgpu;
use std::sync::Arc;
use wgpu::hal::api::Vulkan;

pub(crate) const CASES: &[(&str, Check)] = &[
    ("adopted_memory_is_used_and_released", adopted_memory_is_used_and_released),
    ("what_cannot_be_adopted_is_refused", what_cannot_be_adopted_is_refused),
];

/// A buffer and its memory, as another allocator has them.
#[derive(Clone)]
struct Foreign {
    device: ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
}

impl Foreign {
    /// Makes one, or none where wgpu does not run on Vulkan.
    fn new(backend: &Wgpu, size: u64) -> Option<Self> {
        // SAFETY: nothing is destroyed through the guard.
        let hal = unsafe { backend.device().as_hal::<Vulkan>() }?;
        let device = hal.raw_device().clone();
        let create = vk::BufferCreateInfo::default().size(size).usage(usages());
        // SAFETY: the device is there, and the description is complete.
        let buffer = unsafe { device.create_buffer(&create, None) }.expect("small");
        // SAFETY: the buffer was made above.
        let needs = unsafe { device.get_buffer_memory_requirements(buffer) };
        let allocate = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(needs.memory_type_bits.trailing_zeros());
        // SAFETY: the type is one that the buffer takes.
        let memory = unsafe { device.allocate_memory(&allocate, None) }.expect("small");
        // SAFETY: both were made above, for each other.
        unsafe { device.bind_buffer_memory(buffer, memory, 0) }.expect("they fit");
        Some(Self { device, buffer, memory })
    }

    fn destroy(&self) {
        // SAFETY: called once, after wgpu released it.
        unsafe { self.device.destroy_buffer(self.buffer, None) };
        // SAFETY: the only buffer over it is gone.
        unsafe { self.device.free_memory(self.memory, None) };
    }
}

/// Everything that the first heap asks for.
fn usages() -> vk::BufferUsageFlags {
    use vk::BufferUsageFlags as Usage;
    let copies = Usage::TRANSFER_SRC | Usage::TRANSFER_DST;
    let shapes = Usage::VERTEX_BUFFER | Usage::INDEX_BUFFER | Usage::INDIRECT_BUFFER;
    copies | shapes | Usage::UNIFORM_BUFFER | Usage::STORAGE_BUFFER
}

fn adopted_memory_is_used_and_released(target: &Target) {
    let backend = (target.open)();
    for heap in [DEVICE, CONSTANT] {
        let Some(foreign) = Foreign::new(&backend, 4096) else {
            return eprintln!("[{}] not on Vulkan: nothing to adopt", target.label);
        };
        let released = Arc::new(AtomicU32::new(0));
        let (count, mine) = (Arc::clone(&released), foreign.clone());
        let release = move || {
            mine.destroy();
            count.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: made above for this device, with all usages, and only wgpu uses it.
        let block = unsafe { backend.adopt(foreign.buffer, heap, 4096, release) };
        let block = block.expect("it is whole");
        let own = backend.allocate(DEVICE, 4096).expect("small");
        backend.fill(MAIN, at(&block, 0), 4096, 0x5A).expect("in range");
        backend.write(MAIN, at(&block, 100), &[1; 24]).expect("in range");
        let all = Move { from: at(&block, 0), to: at(&own, 0), size: 4096 };
        backend.copy(MAIN, &[all]).expect("in range");
        let mut expected = [0x5A; 4096];
        expected[100..124].fill(1);
        assert_eq!(bytes_of(&backend, &own), expected);
        assert_eq!(released.load(Ordering::SeqCst), 0, "released while it is used");
        free(&backend, block);
        backend.wait_idle().expect("there");
        assert_eq!(released.load(Ordering::SeqCst), 1);
    }
}

fn what_cannot_be_adopted_is_refused(target: &Target) {
    let backend = (target.open)();
    let refused = |heap, size| {
        let foreign = Foreign::new(&backend, 4096);
        let buffer = foreign.as_ref().map_or(vk::Buffer::null(), |foreign| foreign.buffer);
        let release = move || foreign.iter().for_each(Foreign::destroy);
        // SAFETY: made for this device, or refused because there is none.
        kind(unsafe { backend.adopt(buffer, heap, size, release) })
    };
    assert_eq!(refused(DEVICE, 0), Some(ErrorKind::ZeroSize));
    assert_eq!(refused(DEVICE, 4095), Some(ErrorKind::Misaligned));
    assert_eq!(refused(UPLOAD, 4096), Some(ErrorKind::NotMappable));
    assert_eq!(refused(READ_BACK, 4096), Some(ErrorKind::NotMappable));
    assert_eq!(refused(omniheap_core::HeapId(5), 4096), Some(ErrorKind::NoSuchHeap));
    if Foreign::new(&backend, 4096).inspect(Foreign::destroy).is_none() {
        assert_eq!(refused(DEVICE, 4096), Some(ErrorKind::Unsupported));
    }
}
