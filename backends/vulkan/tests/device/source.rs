//! Blocks from an engine's own allocator.
#![expect(unsafe_code, reason = "hands one device to two allocators")]
use crate::rig::{MAIN, Rig, free, normal, pattern, read, write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{Backend, ErrorKind, Result};
use omniheap_vulkan::{
    Existing, Feature, MemorySource, Piece, Vulkan,
    ash::{self, vk},
};
use std::sync::{Arc, Mutex};

crate::cases! {
    blocks_come_from_an_engines_allocator if |_| true;
}

/// One memory object for each memory type, given out from its start.
#[derive(Debug)]
struct Engine {
    device: Device,
    arenas: Mutex<Vec<Arena>>,
    live: AtomicU64,
    addresses: bool,
}

struct Device(ash::Device);

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Device")
    }
}

#[derive(Debug)]
struct Arena {
    types: u32,
    memory: vk::DeviceMemory,
    mapped: Option<Pointer>,
    used: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pointer(core::ptr::NonNull<core::ffi::c_void>);
// SAFETY: an address.
unsafe impl Send for Pointer {}

const ARENA: u64 = 4 << 20;

impl Engine {
    fn arena(&self, types: u32) -> Result<Arena> {
        let index = types.trailing_zeros();
        let mut flags =
            vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut info =
            vk::MemoryAllocateInfo::default().allocation_size(ARENA).memory_type_index(index);
        if self.addresses {
            info = info.push_next(&mut flags);
        }
        // SAFETY: the device is alive, and the backend asked for this memory type.
        let memory = unsafe { self.device.0.allocate_memory(&info, None) };
        let memory = memory.map_err(|_| ErrorKind::OutOfDeviceMemory)?;
        // SAFETY: allocated just above, mapped once; refused where the host does not see it.
        let mapped =
            unsafe { self.device.0.map_memory(memory, 0, ARENA, vk::MemoryMapFlags::empty()) };
        let mapped = mapped.ok().and_then(core::ptr::NonNull::new).map(Pointer);
        Ok(Arena { types, memory, mapped, used: 0 })
    }
}

// SAFETY: pieces of one arena follow each other, aligned; host-visible arenas stay mapped.
unsafe impl MemorySource for Engine {
    fn allocate(&self, asked: vk::MemoryRequirements) -> Result<Piece> {
        let mut arenas = self.arenas.lock().unwrap();
        let types = asked.memory_type_bits;
        if arenas.iter().all(|arena| arena.types != types) {
            arenas.push(self.arena(types)?);
        }
        let arena = arenas.iter_mut().find(|arena| arena.types == types).unwrap();
        let offset = arena.used.next_multiple_of(asked.alignment);
        if offset + asked.size > ARENA {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        arena.used = offset + asked.size;
        self.live.fetch_add(1, Relaxed);
        let at = usize::try_from(offset).unwrap();
        // SAFETY: the piece lies in the mapped arena.
        let mapped = arena.mapped.map(|Pointer(start)| unsafe { start.byte_add(at) });
        Ok(Piece { memory: arena.memory, offset, mapped, token: offset })
    }

    unsafe fn free(&self, _: Piece) {
        self.live.fetch_sub(1, Relaxed);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for arena in self.arenas.get_mut().unwrap().drain(..) {
            // SAFETY: every block that it fed is gone, and the device is idle.
            unsafe { self.device.0.free_memory(arena.memory, None) };
        }
    }
}

fn guest(rig: &Rig, owner: &Vulkan) -> (Vulkan, Arc<Engine>) {
    let enabled: Vec<_> = [Feature::TimelineSemaphore, Feature::BufferDeviceAddress]
        .into_iter()
        .filter(|feature| owner.has(*feature))
        .collect();
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let existing = Existing {
        entry: owner.ash_entry().cloned().unwrap(),
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: owner.ash_device().clone(),
        queues: &[(family, queue)],
        enabled: &enabled,
    };
    let (device, addresses) =
        (Device(owner.ash_device().clone()), owner.has(Feature::BufferDeviceAddress));
    let engine = Engine { device, arenas: Mutex::default(), live: AtomicU64::new(0), addresses };
    let source = Arc::new(engine);
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile.
    let guest = unsafe { Vulkan::wrap(existing, rig.options) }.unwrap();
    // SAFETY: the engine allocates on the same device.
    (unsafe { guest.with_source(source.clone()) }, source)
}

fn blocks_come_from_an_engines_allocator(rig: &Rig) {
    let owner = rig.open();
    let (guest, source) = guest(rig, &owner);
    let mut blocks = Vec::new();
    for (n, heap) in (0u64..).zip(normal(&guest).into_iter().cycle().take(12)) {
        let block = guest.allocate(heap, 30_000 + n).unwrap();
        write(&guest, &block, 1, &pattern(n, 20_000));
        blocks.push(block);
    }
    assert_eq!(source.live.load(Relaxed), 12);
    assert!(blocks.iter().any(|block| block.memory_offset() > 0), "they share driver memory");
    for (n, block) in (0u64..).zip(&blocks) {
        assert!(read(&guest, block, 1, 20_000) == pattern(n, 20_000), "block {n}");
    }
    let visible = guest.caps().heap_ids().find(|(_, heap)| heap.host.is_visible());
    let (heap, _) = visible.expect("every device shows the host some memory");
    let block = guest.allocate(heap, 4096).unwrap();
    write(&guest, &block, 0, b"seen");
    guest.wait_idle().unwrap();
    let map = guest.as_map().expect("always");
    let start = map.map(&block).unwrap();
    map.invalidate(&block, 0, guest.caps().atom.get()).unwrap();
    // SAFETY: four bytes of a mapped block, on an idle device.
    assert_eq!(unsafe { core::slice::from_raw_parts(start.as_ptr(), 4) }, b"seen");
    free(&guest, block).unwrap();
    drop(blocks);
    assert_eq!(source.live.load(Relaxed), 0, "all went back");
}
