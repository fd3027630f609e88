//! Memory layouts of real devices, from public reports, as test data.
use super::{Facts, Paging, Sparse};
use ash::vk;
use omniheap_seam::DeviceInfo;

/// Memory properties of a device: heap sizes, then `(heap, flags)` of every memory type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    pub(crate) heaps: &'static [u64],
    pub(crate) types: &'static [(u32, u32)],
    /// Memory types that buffers accept.
    pub(crate) buffers: u32,
}

const DL: u32 = 0x1;
const HV: u32 = 0x2;
const HC: u32 = 0x4;
const CACHED: u32 = 0x8;
const LAZY: u32 = 0x10;
const PROTECTED: u32 = 0x20;
const AMD: u32 = 0xc0;
const MIB: u64 = 1 << 20;

/// `GeForce RTX 2070 Super`, a 246 MiB window (iree-org/iree#5268). Types 0 to 6 are host memory for spilling: one is for
/// buffers, one for images, the rest for depth formats (KhronosGroup/Vulkan-Docs#938).
pub(crate) const NVIDIA_SMALL_BAR: Reported = Reported {
    heaps: &[8_589_934_592, 25_235_137_536, 257_949_696],
    types: &[
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (0, DL),
        (1, HV | HC),
        (1, HV | HC | CACHED),
        (2, DL | HV | HC),
    ],
    buffers: 0b111_1000_0001,
};

/// Quadro RTX 6000, no window at all (jgbit/vuda#14).
pub(crate) const NVIDIA_NO_BAR: Reported = Reported {
    heaps: &[25_769_803_776, 151_053_456_384],
    types: &[
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (0, DL),
        (0, DL),
        (1, HV | HC),
        (1, HV | HC | CACHED),
    ],
    buffers: 0b110_1000_0001,
};

/// NVIDIA with the whole memory in the window, as drivers since 2022 list it.
pub(crate) const NVIDIA_RESIZABLE_BAR: Reported = Reported {
    heaps: &[24_564 * MIB, 64_000 * MIB],
    types: &[(1, 0), (0, DL), (1, HV | HC), (1, HV | HC | CACHED), (0, DL | HV | HC)],
    buffers: 0b11111,
};

/// An H200 with driver 580, as the device itself reported: the types of the row above, and a host heap of 94.4 GiB.
pub(crate) const H200: Reported = Reported {
    heaps: &[143_771 * MIB, 96_666 * MIB],
    types: NVIDIA_RESIZABLE_BAR.types,
    buffers: 0b11111,
};

/// Memory types of AMD's devices; the second half repeats the first, device-coherent.
const AMD_TYPES: [(u32, u32); 8] = [
    (0, DL),
    (1, HV | HC),
    (2, DL | HV | HC),
    (1, HV | HC | CACHED),
    (0, DL | AMD),
    (1, HV | HC | AMD),
    (2, DL | HV | HC | AMD),
    (1, HV | HC | CACHED | AMD),
];

/// AMD discrete, 256 MiB window (nowrep/obs-vkcapture#6).
pub(crate) const AMD_DISCRETE: Reported = Reported {
    heaps: &[8_321_499_136, 8_573_157_376, 268_435_456],
    types: &AMD_TYPES,
    buffers: 0xff,
};

/// AMD integrated, 768 MiB carved out (`GpuZelenograd/memtest_vulkan#22`); types 8 to 15 repeat and take no resource.
pub(crate) const AMD_APU: Reported = Reported {
    heaps: &[805_306_368, 7_752_122_368, 268_435_456],
    types: [AMD_TYPES, AMD_TYPES].as_flattened(),
    buffers: 0xff,
};

/// Intel UHD 620 with a shared last-level cache: one heap, one type (GPUOpen-Effects/FidelityFX-FSR2#87).
pub(crate) const INTEL_SHARED_CACHE: Reported =
    Reported { heaps: &[8_000 * MIB], types: &[(0, DL | HV | HC | CACHED)], buffers: 1 };

/// Intel without one: cached memory is not coherent (Traverse-Research/gpu-allocator#311).
pub(crate) const INTEL_NO_SHARED_CACHE: Reported = Reported {
    heaps: &[32_000 * MIB],
    types: &[(0, DL), (0, DL | HV | HC), (0, DL | HV | CACHED)],
    buffers: 0b111,
};

/// Apple M1 through `MoltenVK` (KhronosGroup/MoltenVK#2292).
pub(crate) const APPLE: Reported = Reported {
    heaps: &[17_179_869_184],
    types: &[(0, DL), (0, DL | HV | HC | CACHED), (0, DL | HV | CACHED), (0, DL | LAZY)],
    buffers: 0b0111,
};

/// Mesa's lavapipe.
pub(crate) const LAVAPIPE: Reported =
    Reported { heaps: &[2_147_483_648], types: &[(0, DL | HV | HC | CACHED)], buffers: 1 };

/// No one device: protected and lazily backed types beside plain ones, as phones have them.
pub(crate) const PHONE: Reported = Reported {
    heaps: &[3_826_401_280, 268_435_456],
    types: &[
        (0, DL),
        (0, DL | HV | CACHED),
        (0, DL | HV | HC),
        (0, DL | HV | HC | CACHED),
        (1, DL | PROTECTED),
        (0, DL | LAZY),
    ],
    buffers: 0b1_1111,
};

pub(crate) const ALL: [Reported; 11] = [
    NVIDIA_SMALL_BAR,
    NVIDIA_NO_BAR,
    NVIDIA_RESIZABLE_BAR,
    H200,
    AMD_DISCRETE,
    AMD_APU,
    INTEL_SHARED_CACHE,
    INTEL_NO_SHARED_CACHE,
    APPLE,
    LAVAPIPE,
    PHONE,
];

impl Reported {
    /// Returns the facts of such a device, with the limits that most report.
    pub(crate) fn facts(self) -> Facts {
        let mut memory = vk::PhysicalDeviceMemoryProperties::default();
        for (to, (heap, flags)) in memory.memory_types.iter_mut().zip(self.types) {
            to.heap_index = *heap;
            to.property_flags = vk::MemoryPropertyFlags::from_raw(*flags);
            memory.memory_type_count += 1;
        }
        for (to, size) in memory.memory_heaps.iter_mut().zip(self.heaps) {
            to.size = *size;
            memory.memory_heap_count += 1;
        }
        let limits = vk::PhysicalDeviceLimits {
            max_uniform_buffer_range: 65_536,
            max_push_constants_size: 256,
            max_compute_shared_memory_size: 49_152,
            min_uniform_buffer_offset_alignment: 64,
            buffer_image_granularity: 1024,
            non_coherent_atom_size: 64,
            ..Default::default()
        };
        Facts {
            device: DeviceInfo { backend: "vulkan", ..DeviceInfo::default() },
            memory,
            limits,
            max_blocks: 4096,
            max_allocation: 4 << 30,
            max_buffer: u64::MAX,
            buffer_types: self.buffers,
            buffer_align: 16,
            base_align: [65_536; vk::MAX_MEMORY_TYPES],
            sparse: Some(Sparse { types: self.buffers, align: 65_536, space: 1 << 40 }),
            paging: Paging::DeviceOnly,
        }
    }
}
