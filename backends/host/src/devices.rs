//! The heaps of real devices, which differ in how their memory is divided.
use crate::caps::{Config, heap};
use omniheap_seam::{
    Align, Caps, ConstantCaps, DeviceInfo, Heap, HeapKind, HostAccess, KernelAccess, Mapper, Use,
};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Returns the heaps of real devices for [`Host::like`](crate::Host::like), so that a test meets every way to divide memory: a graphics card
/// with and without resizable BAR and an integrated GPU on Vulkan, a software device, wgpu with its own allocator and with ours, CUDA and HIP.
///
/// The first heap is the one where requests without hints go.
///
/// ```
/// use omniheap_host::{Host, real_devices};
/// use omniheap_seam::{Backend as _, HeapId};
///
/// for caps in real_devices() {
///     let device = Host::like(caps)?;
///     assert!(device.caps().is_device_memory(HeapId(0)), "{}", device.caps().device.name);
/// }
/// # Ok::<(), omniheap_seam::Error>(())
/// ```
#[must_use]
pub fn real_devices() -> Vec<Caps> {
    let device = |size| heap(HeapKind::Device, size).mapper(Mapper::Queue);
    let window = |size| heap(HeapKind::Unified, size).page(None).host(HostAccess::Combined);
    let own = |kind, physical| {
        let window = heap(kind, 24 * GIB).page(None).host(HostAccess::None);
        window.use_when(Use::OnRequest).physical(physical)
    };
    let constant = || heap(HeapKind::Constant, 64 << 10);
    let card = [device(24 * GIB), staging(HostAccess::Combined, 1), staging(HostAccess::Cached, 1)];
    let wgpu = |upload, read_back| {
        let plain = |kind| heap(kind, 24 * GIB).page(None).granule(Align::of(4));
        [
            plain(HeapKind::Device),
            plain(HeapKind::Constant).kernels(KernelAccess::ReadOnly),
            plain(HeapKind::Staging).host(HostAccess::Combined).physical(upload),
            plain(HeapKind::Staging).host(HostAccess::Cached).physical(read_back),
            plain(HeapKind::Device).kernels(KernelAccess::ReadOnly),
        ]
    };
    let driver = [device(24 * GIB).mapper(Mapper::Host), card[1].clone(), card[2].clone()];
    let managed = || heap(HeapKind::Unified, 24 * GIB).page(None);
    let with = |heaps: &[Heap], more: &[Heap]| [heaps, more].concat();
    let all = [
        ("Vulkan, card", with(&card, &[window(256 * MIB).physical(2)])),
        ("Vulkan, card with resizable BAR", with(&card, &[window(24 * GIB)])),
        ("Vulkan, integrated", vec![device(8 * GIB), window(8 * GIB), managed()]),
        ("Vulkan, software", vec![managed()]),
        ("wgpu, card with resizable BAR", wgpu(0, 1).into()),
        ("wgpu, integrated", wgpu(0, 0).into()),
        (
            "wgpu, card and memory of its own",
            with(&wgpu(1, 1), &[own(HeapKind::Device, 0), own(HeapKind::Staging, 1)]),
        ),
        ("CUDA", with(&driver, &[managed(), constant().physical(2)])),
        ("HIP", with(&driver, &[managed(), constant()])),
    ];
    all.into_iter().map(|(name, heaps)| caps(name, heaps)).collect()
}

fn staging(host: HostAccess, physical: u8) -> Heap {
    heap(HeapKind::Staging, 32 * GIB).host(host).physical(physical)
}

fn caps(name: &str, heaps: Vec<Heap>) -> Caps {
    let name = name.to_owned();
    let mut config = Config::new().device(DeviceInfo { name, ..DeviceInfo::default() });
    if heaps.iter().any(|heap| heap.kind == HeapKind::Constant) {
        let bank = 64 << 10;
        let align = Align::of(256);
        config = config.constant(ConstantCaps { bank, align, max_bind: bank, push: 128 });
    }
    heaps.into_iter().fold(config, Config::heap).into_caps()
}
