//! Real devices by their public limits.
use omniheap_seam::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) fn heap(kind: HeapKind, size: u64, host: HostAccess) -> Heap {
    Heap::new(kind, size).name("test").granule(Align::of(256)).host(host)
}

fn device(name: &str, heaps: Vec<Heap>, constant: ConstantCaps, shared: SharedCaps) -> Caps {
    let device = DeviceInfo { name: name.into(), ..DeviceInfo::default() };
    Caps::new(device, heaps)
        .max_blocks(4096)
        .atom(Align::of(64))
        .constant(Some(constant))
        .shared(Some(shared))
}

pub(crate) fn shared(per_group: u64, opt_in: u64, whole: u64) -> SharedCaps {
    SharedCaps {
        per_group,
        per_group_opt_in: opt_in,
        per_multiprocessor: whole,
        banks: 32,
        bank_width: 4,
    }
}

fn uniform(range: u64, align: u64, push: u64) -> ConstantCaps {
    ConstantCaps { bank: range, align: Align::new(align).expect("a power"), max_bind: range, push }
}

/// Returns a compute device with a bank of constants and memory that migrates.
pub(crate) fn h200() -> Caps {
    let heaps = vec![
        heap(HeapKind::Device, 140 * GIB, HostAccess::None),
        heap(HeapKind::Staging, 256 * GIB, HostAccess::Combined),
        heap(HeapKind::Staging, 256 * GIB, HostAccess::Cached),
        heap(HeapKind::Unified, 140 * GIB, HostAccess::Cached),
        heap(HeapKind::Constant, 64 * KIB, HostAccess::None),
    ];
    let limits = shared(48 * KIB, 227 * KIB, 228 * KIB);
    device("H200, compute", heaps, uniform(64 * KIB, 256, 0), limits)
}

/// Returns a compute device whose constants are any memory that kernels only read.
pub(crate) fn rx_7900() -> Caps {
    let heaps = vec![
        heap(HeapKind::Device, 24 * GIB, HostAccess::None),
        heap(HeapKind::Staging, 64 * GIB, HostAccess::Cached),
        heap(HeapKind::Unified, 24 * GIB, HostAccess::Cached),
        heap(HeapKind::Constant, 2 * GIB, HostAccess::None),
    ];
    let limits = shared(64 * KIB, 64 * KIB, 128 * KIB);
    device("RX 7900 XTX, compute", heaps, uniform(2 * GIB, 16, 0), limits)
}

/// Returns a graphics device with all its memory behind a window.
pub(crate) fn rtx_4090() -> Caps {
    window("RTX 4090, graphics", 24 * GIB)
}

/// Returns the same with the window of older machines.
pub(crate) fn small_window() -> Caps {
    window("RTX 2080, graphics, small window", 214 * MIB)
}

fn window(name: &str, size: u64) -> Caps {
    let heaps = vec![
        heap(HeapKind::Device, 24 * GIB, HostAccess::None),
        heap(HeapKind::Unified, size, HostAccess::Combined),
        heap(HeapKind::Staging, 48 * GIB, HostAccess::Combined),
        heap(HeapKind::Staging, 48 * GIB, HostAccess::Cached),
    ];
    device(name, heaps, uniform(64 * KIB, 64, 256), shared(48 * KIB, 48 * KIB, 100 * KIB))
}

/// One memory for both sides.
pub(crate) fn intel_integrated() -> Caps {
    let heaps = vec![heap(HeapKind::Unified, 16 * GIB, HostAccess::Cached)];
    let limits = shared(64 * KIB, 64 * KIB, 128 * KIB);
    device("Iris Xe, graphics", heaps, uniform(128 * MIB, 64, 256), limits)
}

/// One memory for both sides, small uniform ranges.
pub(crate) fn phone() -> Caps {
    let heaps = vec![heap(HeapKind::Unified, 8 * GIB, HostAccess::Combined)];
    let limits = shared(32 * KIB, 32 * KIB, 32 * KIB);
    device("Adreno 740, graphics", heaps, uniform(64 * KIB, 64, 256), limits)
}

/// Returns the capabilities that every browser gives.
pub(crate) fn web() -> Caps {
    let heaps = vec![
        heap(HeapKind::Device, 256 * MIB * 4, HostAccess::None),
        heap(HeapKind::Constant, 256 * MIB * 4, HostAccess::None),
        heap(HeapKind::Staging, 256 * MIB * 4, HostAccess::None).kernels(KernelAccess::None),
        heap(HeapKind::Device, 256 * MIB * 4, HostAccess::None).kernels(KernelAccess::ReadOnly),
    ];
    device(
        "WebGPU default limits",
        heaps,
        uniform(64 * KIB, 256, 0),
        shared(16 * KIB, 16 * KIB, 16 * KIB),
    )
}

/// Returns a compute device that gives all its shared memory without being asked.
pub(crate) fn mi300x() -> Caps {
    let heaps = vec![
        heap(HeapKind::Device, 192 * GIB, HostAccess::None),
        heap(HeapKind::Staging, 512 * GIB, HostAccess::Cached),
        heap(HeapKind::Unified, 192 * GIB, HostAccess::Cached),
        heap(HeapKind::Constant, 2 * GIB, HostAccess::None),
    ];
    let limits = shared(64 * KIB, 64 * KIB, 64 * KIB);
    device("MI300X, compute", heaps, uniform(2 * GIB, 16, 0), limits)
}

/// Returns a phone whose cached memory needs flushes.
pub(crate) fn lazy_phone() -> Caps {
    let heaps = vec![
        heap(HeapKind::Unified, 8 * GIB, HostAccess::Combined),
        heap(HeapKind::Unified, 8 * GIB, HostAccess::Incoherent),
    ];
    let limits = shared(32 * KIB, 32 * KIB, 32 * KIB);
    device("Mali-G78, graphics", heaps, uniform(64 * KIB, 64, 128), limits)
}

/// Returns all of these devices.
pub(crate) fn all() -> Vec<Caps> {
    vec![
        h200(),
        mi300x(),
        rx_7900(),
        rtx_4090(),
        small_window(),
        intel_integrated(),
        phone(),
        lazy_phone(),
        web(),
    ]
}
