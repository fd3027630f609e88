//! Caps of the host device: a default, or any device that a test describes.
use crate::driver;
use omniheap_seam::{
    Align, Caps, ConstantCaps, DeviceInfo, ErrorKind, Heap, HeapKind, HostAccess, InsideBlock,
    Result, SharedCaps,
};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Returns a heap of `size` bytes with the usual limits of its kind; chain the methods of [`Heap`] for what should differ.
///
/// Device heaps are reached by transfers only and have 2 MiB pages
/// and registrable blocks of such sizes; staging and unified heaps are cached; a constant
/// heap is as small as its size says. Every heap starts in physical memory 0.
#[must_use]
pub fn heap(kind: HeapKind, size: u64) -> Heap {
    let (name, host) = match kind {
        HeapKind::Constant => ("constant", HostAccess::None),
        HeapKind::Staging => ("staging", HostAccess::Cached),
        HeapKind::Unified => ("unified", HostAccess::Cached),
        _ => ("device", HostAccess::None),
    };
    let paged = cfg!(target_os = "linux") && matches!(kind, HeapKind::Device | HeapKind::Unified);
    Heap::new(kind, size)
        .name(name)
        .align(Align::of(4 * KIB))
        .granule(Align::of(if kind == HeapKind::Constant { 256 } else { 4 * KIB }))
        .page(paged.then_some(Align::of(2 * MIB)))
        .registrable(paged.then_some(Align::of(2 * MIB)))
        .host(host)
}

/// Options of a [`Host`](crate::Host). Created by [`Host::builder`](crate::Host::builder).
#[derive(Clone, Debug)]
pub struct Config {
    caps: Caps,
}

impl Config {
    pub(crate) fn new() -> Self {
        let device = DeviceInfo {
            backend: "host",
            name: "host memory".into(),
            driver: std::env::consts::OS.into(),
            uuid: None,
        };
        let caps = Caps::new(device, Vec::new()).max_blocks(32 * KIB).atom(Align::of(64));
        Self { caps }
    }

    /// Returns all of this machine's memory as device, staging and unified heap, and a small constant heap.
    pub(crate) fn usual() -> Self {
        let ram = driver::ram().max(MIB);
        let bank = 64 * KIB;
        let constant = heap(HeapKind::Constant, bank).physical(1);
        Self::new()
            .heap(heap(HeapKind::Device, ram))
            .heap(heap(HeapKind::Staging, ram))
            .heap(heap(HeapKind::Unified, ram))
            .heap(constant)
            .constant(ConstantCaps { bank, align: Align::of(256), max_bind: bank, push: 128 })
            .shared(SharedCaps {
                per_group: 48 * KIB,
                per_group_opt_in: 96 * KIB,
                per_multiprocessor: 128 * KIB,
                banks: 32,
                bank_width: 4,
            })
    }

    /// Adds a heap; see [`heap`] for one to start from.
    #[must_use]
    pub fn heap(mut self, heap: Heap) -> Self {
        self.caps.heaps.push(heap);
        self
    }

    /// Sets the identity of the device.
    #[must_use]
    pub fn device(mut self, device: DeviceInfo) -> Self {
        self.caps.device = device;
        self
    }

    /// Sets how many blocks may live at once.
    #[must_use]
    pub const fn max_blocks(mut self, count: u64) -> Self {
        self.caps.max_blocks = count;
        self
    }

    /// Sets what offsets and sizes of transfers are multiples of.
    #[must_use]
    pub const fn copy_align(mut self, align: Align) -> Self {
        self.caps.copy.align = align;
        self
    }

    /// Sets whether source and destination of a copy may lie in one block.
    #[must_use]
    pub const fn inside_block(mut self, inside: InsideBlock) -> Self {
        self.caps.copy.inside_block = inside;
        self
    }

    /// Sets how far unlike neighbours stay apart.
    #[must_use]
    pub const fn neighbour_granularity(mut self, granularity: Align) -> Self {
        self.caps.neighbour_granularity = granularity;
        self
    }

    /// Sets what flushes and invalidations are multiples of.
    #[must_use]
    pub const fn atom(mut self, atom: Align) -> Self {
        self.caps.atom = atom;
        self
    }

    /// Gives the device a constant region.
    #[must_use]
    pub const fn constant(mut self, constant: ConstantCaps) -> Self {
        self.caps.constant = Some(constant);
        self
    }

    /// Gives the device a shared region.
    #[must_use]
    pub const fn shared(mut self, shared: SharedCaps) -> Self {
        self.caps.shared = Some(shared);
        self
    }

    pub(crate) fn into_caps(self) -> Caps {
        self.caps
    }
}

/// Refuses what host memory cannot act out.
pub(crate) fn check(caps: &Caps) -> Result<()> {
    let heaps = &caps.heaps;
    if heaps.is_empty() || heaps.len() > 256 {
        return Err(ErrorKind::InvalidConfig.because("a device has 1 to 256 `heaps`"));
    }
    if caps.max_blocks == 0 {
        return Err(ErrorKind::InvalidConfig.because("`max_blocks` is 0"));
    }
    heaps.iter().try_for_each(check_heap)
}

fn check_heap(heap: &Heap) -> Result<()> {
    let os_page = driver::os_page();
    if heap.page.is_some() && !cfg!(target_os = "linux") {
        return Err(ErrorKind::Unsupported.into());
    }
    let whole_pages = heap.page.is_none_or(|page| page.get() >= os_page);
    // Above a gibibyte the spare addresses that alignment costs are no longer negligible, nor are the bytes of a granule.
    let steps = [Some(heap.align), Some(heap.granule), heap.registrable];
    let sane = steps.iter().flatten().all(|step| step.get() <= 1 << 30);
    if heap.size == 0 || heap.max_block == 0 || !whole_pages || !sane {
        return Err(ErrorKind::InvalidConfig.because(
            "a heap needs a `size`, a `max_block`, a `page` of at least the system's, and an `align`, a `granule` and a \
             `registrable` of at most 1 GiB",
        ));
    }
    Ok(())
}
