//! Capabilities of a device, read once and never changed.
use crate::Align;
use alloc::{string::String, vec::Vec};

/// Index into [`Caps::heaps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeapId(pub u8);

/// Kind of a heap: the place of its bytes, and who reaches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeapKind {
    /// Device memory; the default home.
    Device,
    /// Read-only for kernels, broadcast-cached, small.
    Constant,
    /// Host memory the device can reach.
    Staging,
    /// Reached fast by both sides: host-visible device memory, or memory that migrates on demand.
    Unified,
}

/// Access of the host to a heap's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostAccess {
    /// Not at all: only by transfers.
    None,
    /// Mapped; writes are combined and reads are slow. No flush needed.
    Combined,
    /// Mapped and cached; reads are fast. No flush needed.
    Cached,
    /// Mapped and cached, but not coherent: flush after writing, invalidate before reading.
    Incoherent,
}

impl HostAccess {
    /// Returns true if blocks of the heap can be mapped.
    #[must_use]
    pub const fn is_visible(self) -> bool {
        !matches!(self, Self::None)
    }
}

/// Condition under which a policy may choose a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Use {
    /// For every request it suits.
    #[default]
    Normal,
    /// Only when a request names it: protected, lazily backed or device-coherent memory.
    OnRequest,
}

/// Executor of page mappings of a heap: the host's own call, or a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mapper {
    /// The host's own call: done when it returns.
    #[default]
    Host,
    /// A queue: the host submits to it and waits for it, so a call may take as long as copying a gigabyte.
    Queue,
}

/// Access of kernels to the bytes of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelAccess {
    /// Read and write them.
    #[default]
    ReadWrite,
    /// Read them. A device that cannot bind a block as read-only and as writable in one launch has such a heap, so that
    /// data which kernels only read never shares a block with data that they write.
    ReadOnly,
    /// Nothing: only copies reach them. Data that kernels read is never placed in such a heap, unless a request names it or
    /// spills.
    None,
}

/// One kind of memory that a device has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heap {
    /// Kind of memory.
    pub kind: HeapKind,
    /// The vendor's own name for it, for people.
    pub name: String,
    /// Bytes in total.
    pub size: u64,
    /// Largest single block.
    pub max_block: u64,
    /// Guaranteed alignment of a block's base.
    pub align: Align,
    /// Every block's size is rounded up to a multiple of this.
    pub granule: Align,
    /// The size of a page, where blocks of this heap can be reserved and mapped page by page.
    pub page: Option<Align>,
    /// Executor of page mappings, where the heap has pages.
    pub mapper: Mapper,
    /// Granule of the block sizes that communication libraries can register, where
    /// [`Export::allocate_exportable`](crate::Export::allocate_exportable) makes such blocks in this heap.
    pub registrable: Option<Align>,
    /// Access of the host.
    pub host: HostAccess,
    /// Access of kernels.
    pub kernels: KernelAccess,
    /// Condition under which a policy may choose the heap.
    pub use_when: Use,
    /// Heaps with the same number share one physical memory, so their use adds up.
    pub physical: u8,
}

impl Heap {
    /// Describes a heap of `size` bytes. Chain the methods below for what differs from the defaults: blocks of up to the
    /// whole heap, aligned to 256 bytes and of any size; no pages; not visible to the host; physical memory 0.
    ///
    /// ```
    /// use omniheap_seam::{Heap, HeapKind, HostAccess};
    /// let heap = Heap::new(HeapKind::Staging, 1 << 30).name("pinned host").host(HostAccess::Cached);
    /// assert_eq!(heap.max_block, 1 << 30);
    /// ```
    #[must_use]
    pub const fn new(kind: HeapKind, size: u64) -> Self {
        Self {
            kind,
            name: String::new(),
            size,
            max_block: size,
            align: Align::of(256),
            granule: Align::ONE,
            page: None,
            mapper: Mapper::Host,
            registrable: None,
            host: HostAccess::None,
            kernels: KernelAccess::ReadWrite,
            use_when: Use::Normal,
            physical: 0,
        }
    }

    /// Sets the vendor's name for it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the largest block.
    #[must_use]
    pub const fn max_block(mut self, bytes: u64) -> Self {
        self.max_block = bytes;
        self
    }

    /// Sets the guaranteed alignment of a block's base.
    #[must_use]
    pub const fn align(mut self, align: Align) -> Self {
        self.align = align;
        self
    }

    /// Sets what block sizes are rounded up to.
    #[must_use]
    pub const fn granule(mut self, granule: Align) -> Self {
        self.granule = granule;
        self
    }

    /// Sets the page size; `None` where pages cannot be mapped.
    #[must_use]
    pub const fn page(mut self, page: Option<Align>) -> Self {
        self.page = page;
        self
    }

    /// Sets what maps its pages.
    #[must_use]
    pub const fn mapper(mut self, mapper: Mapper) -> Self {
        self.mapper = mapper;
        self
    }

    /// Sets what sizes of registrable blocks are multiples of; `None` where it has no such blocks.
    #[must_use]
    pub const fn registrable(mut self, granule: Option<Align>) -> Self {
        self.registrable = granule;
        self
    }

    /// Sets how the host reaches it.
    #[must_use]
    pub const fn host(mut self, host: HostAccess) -> Self {
        self.host = host;
        self
    }

    /// Sets what kernels may do with it.
    #[must_use]
    pub const fn kernels(mut self, kernels: KernelAccess) -> Self {
        self.kernels = kernels;
        self
    }

    /// Sets when a policy may choose it.
    #[must_use]
    pub const fn use_when(mut self, when: Use) -> Self {
        self.use_when = when;
        self
    }

    /// Sets the number of the physical memory behind it.
    #[must_use]
    pub const fn physical(mut self, physical: u8) -> Self {
        self.physical = physical;
        self
    }
}

/// Rules for device-to-device copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCaps {
    /// Offsets and sizes of every write, read, fill and copy are multiples of this.
    pub align: Align,
    /// Rule for copies whose source and destination lie in one block.
    pub inside_block: InsideBlock,
}

/// Rule for copies whose source and destination lie in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsideBlock {
    /// Allowed, as long as the ranges do not overlap.
    Allowed,
    /// Forbidden: go through a bounce block.
    Forbidden,
}

/// Limits of the constant region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantCaps {
    /// Bytes in one bank.
    pub bank: u64,
    /// Alignment of a constant span's start.
    pub align: Align,
    /// Most bytes one binding can show to a kernel.
    pub max_bind: u64,
    /// Bytes that travel with the launch itself, zero where there are none.
    pub push: u64,
}

/// Limits of the shared region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedCaps {
    /// Bytes one group may use without asking.
    pub per_group: u64,
    /// Bytes one group may use when the launch opts in.
    pub per_group_opt_in: u64,
    /// Bytes of one multiprocessor, divided among its resident groups.
    pub per_multiprocessor: u64,
    /// Banks that serve different words at the same time.
    pub banks: u32,
    /// Bytes of one bank's word.
    pub bank_width: u32,
}

/// Returns the identity of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The backend's name: one lower-case word.
    pub backend: &'static str,
    /// The device's own name.
    pub name: String,
    /// Driver or runtime, with its version.
    pub driver: String,
    /// Identity across backends and processes, where the driver tells.
    pub uuid: Option<[u8; 16]>,
}

/// A device's memory, described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// Returns the identity of the device.
    pub device: DeviceInfo,
    /// Every heap, best first within a kind.
    pub heaps: Vec<Heap>,
    /// Live blocks the driver tolerates.
    pub max_blocks: u64,
    /// Rules for copies.
    pub copy: CopyCaps,
    /// Unlike neighbours ([`crate::Class`]) in one block stay this far apart.
    pub neighbour_granularity: Align,
    /// Flushes and invalidations cover whole multiples of this.
    pub atom: Align,
    /// Limits of the constant region; `None` where the device has none.
    pub constant: Option<ConstantCaps>,
    /// Limits of the shared region; `None` where kernels have none.
    pub shared: Option<SharedCaps>,
}

impl Caps {
    /// Describes a device with these heaps. Chain the methods below for what differs from the defaults: any number of
    /// blocks, copies of single bytes, no neighbour spacing, no atom, neither constant nor shared memory.
    #[must_use]
    pub const fn new(device: DeviceInfo, heaps: Vec<Heap>) -> Self {
        Self {
            device,
            heaps,
            max_blocks: u64::MAX,
            copy: CopyCaps { align: Align::ONE, inside_block: InsideBlock::Allowed },
            neighbour_granularity: Align::ONE,
            atom: Align::ONE,
            constant: None,
            shared: None,
        }
    }

    /// Sets how many live blocks the driver tolerates.
    #[must_use]
    pub const fn max_blocks(mut self, count: u64) -> Self {
        self.max_blocks = count;
        self
    }

    /// Sets how copies behave.
    #[must_use]
    pub const fn copy(mut self, copy: CopyCaps) -> Self {
        self.copy = copy;
        self
    }

    /// Sets how far apart unlike neighbours in one block stay.
    #[must_use]
    pub const fn neighbour_granularity(mut self, granularity: Align) -> Self {
        self.neighbour_granularity = granularity;
        self
    }

    /// Sets what flushes and invalidations cover whole multiples of.
    #[must_use]
    pub const fn atom(mut self, atom: Align) -> Self {
        self.atom = atom;
        self
    }

    /// Sets the limits of constant memory; `None` where there is none.
    #[must_use]
    pub const fn constant(mut self, limits: Option<ConstantCaps>) -> Self {
        self.constant = limits;
        self
    }

    /// Sets the limits of shared memory; `None` where there is none.
    #[must_use]
    pub const fn shared(mut self, limits: Option<SharedCaps>) -> Self {
        self.shared = limits;
        self
    }

    /// Returns the heap with this id, if the device has it.
    #[must_use]
    pub fn heap(&self, id: HeapId) -> Option<&Heap> {
        self.heaps.get(usize::from(id.0))
    }

    /// Returns every heap with its id.
    pub fn heap_ids(&self) -> impl Iterator<Item = (HeapId, &Heap)> {
        (0u8..).map(HeapId).zip(&self.heaps)
    }

    /// Returns whether a heap lies in the memory of the device, which limits and quotas of the device count: unless its physical memory has
    /// staging heaps alone. On a device without any other heap, every heap does.
    ///
    /// ```
    /// use omniheap_seam::{Caps, DeviceInfo, Heap, HeapId, HeapKind};
    /// let heaps = [(HeapKind::Device, 0), (HeapKind::Unified, 0), (HeapKind::Staging, 0), (HeapKind::Staging, 1)];
    /// let heaps = heaps.map(|(kind, physical)| Heap::new(kind, 1 << 30).physical(physical));
    /// let caps = Caps::new(DeviceInfo::default(), heaps.into());
    /// assert_eq!([0, 1, 2, 3].map(|heap| caps.is_device_memory(HeapId(heap))), [true, true, true, false]);
    /// ```
    #[must_use]
    pub fn is_device_memory(&self, heap: HeapId) -> bool {
        let Some(heap) = self.heap(heap) else { return false };
        let mut others = self.heaps.iter().filter(|it| it.kind != HeapKind::Staging).peekable();
        others.peek().is_none() || others.any(|it| it.physical == heap.physical)
    }
}
