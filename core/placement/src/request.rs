//! Requests: size, alignment and intended use of an allocation.
use crate::words::{
    Access, Coherence, Contents, Dependence, Grow, Lifetime, Mobility, Pattern, Privacy,
    Registration, Sharing, Spill, Substitution, Usage, Work, Writer,
};
use omniheap_seam::{Align, Class, HeapId, Layout, TimelineId};

/// A label that groups allocations in reports: weights, frames, textures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

/// A request for memory: layout, intended use and name.
///
/// Build it by chaining. The default is device memory that kernels write and read.
///
/// ```
/// use omniheap_placement::{Access, Request, Writer};
/// use omniheap_seam::Align;
/// let upload = Request::new(4096).align(Align::of(256)).writer(Writer::HostPerFrame).name("uniforms");
/// assert_eq!(upload.layout.size, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Bytes and alignment.
    pub layout: Layout,
    /// Kind of resource (linear or tiled), for the spacing between neighbours in a block.
    pub class: Class,
    /// Writer of the data.
    pub writer: Writer,
    /// Reader of the data.
    pub access: Access,
    /// Access pattern of the kernels that read it.
    pub pattern: Pattern,
    /// Arithmetic per element that those kernels do.
    pub work: Work,
    /// Dependence of their reads on earlier reads.
    pub dependence: Dependence,
    /// Average number of times a workgroup reads each byte; 0 means less than once.
    pub reuse: u32,
    /// Number of bytes that one workgroup reads; `None` means all of them.
    pub touches: Option<u64>,
    /// Requirement for host-coherent memory.
    pub coherence: Coherence,
    /// Permission to use another region than the best one.
    pub substitution: Substitution,
    /// Permission to fall back to host memory when every suitable heap is full.
    pub spill: Spill,
    /// Expected lifetime.
    pub lifetime: Lifetime,
    /// Permission to share a block with other allocations.
    pub sharing: Sharing,
    /// Requirement for memory that communication libraries can register.
    pub registration: Registration,
    /// Permission for defragmentation to move it.
    pub mobility: Mobility,
    /// Initial contents.
    pub contents: Contents,
    /// Zeroing on free.
    pub privacy: Privacy,
    /// Permission to ask the driver for more memory.
    pub grow: Grow,
    /// Heap to use; overrides the policy.
    pub heap: Option<HeapId>,
    /// Timeline that uses and frees the allocation in order. Without one, free it only when no work uses it.
    pub timeline: Option<TimelineId>,
    /// Label that groups allocations in reports.
    pub tag: Option<Tag>,
    /// Name shown in reports and traces.
    pub name: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// Requests `size` bytes of device memory.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self {
            layout: Layout::new(size),
            class: Class::Linear,
            writer: Writer::Device,
            access: Access::Device,
            pattern: Pattern::Coalesced,
            work: Work::Any,
            dependence: Dependence::Any,
            reuse: 1,
            touches: None,
            coherence: Coherence::Any,
            substitution: Substitution::Allowed,
            spill: Spill::Forbidden,
            lifetime: Lifetime::Persistent,
            sharing: Sharing::Shared,
            registration: Registration::Any,
            mobility: Mobility::Movable,
            contents: Contents::Any,
            privacy: Privacy::Open,
            grow: Grow::Allowed,
            heap: None,
            timeline: None,
            tag: None,
            name: None,
        }
    }

    /// Sets writer and reader to those of a common use.
    ///
    /// For an upload on a timeline ([`on`](Self::on)), the bytes are reused for host access only after the timeline has passed
    /// the free. So `Allocation::map` neither waits nor overwrites data that the device still reads. Allocate one upload per
    /// frame and drop it after submitting: with N frames in flight, N allocations take turns without driver calls.
    #[must_use]
    pub const fn usage(self, usage: Usage) -> Self {
        match usage {
            Usage::Device => self.writer(Writer::Device).access(Access::Device),
            Usage::Upload => self.writer(Writer::HostPerFrame).access(Access::Device),
            Usage::Readback => self.writer(Writer::Device).access(Access::Host),
            Usage::Unified => self.writer(Writer::Device).access(Access::Both),
        }
    }

    /// Sets size and alignment.
    #[must_use]
    pub const fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets the alignment.
    #[must_use]
    pub const fn align(mut self, align: Align) -> Self {
        self.layout.align = align;
        self
    }

    /// Sets the kind of resource: linear or tiled.
    #[must_use]
    pub const fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Sets the writer of the data.
    #[must_use]
    pub const fn writer(mut self, writer: Writer) -> Self {
        self.writer = writer;
        self
    }

    /// Sets the reader of the data.
    #[must_use]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the access pattern of kernels.
    #[must_use]
    pub const fn pattern(mut self, pattern: Pattern) -> Self {
        self.pattern = pattern;
        self
    }

    /// Sets how much arithmetic kernels do per element they read.
    #[must_use]
    pub const fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// Sets whether a read depends on the one before it.
    #[must_use]
    pub const fn dependence(mut self, dependence: Dependence) -> Self {
        self.dependence = dependence;
        self
    }

    /// Sets how often a workgroup reads each byte on average; 0 means less than once.
    #[must_use]
    pub const fn reuse(mut self, reuse: u32) -> Self {
        self.reuse = reuse;
        self
    }

    /// Sets how many bytes of the allocation one workgroup reads (default: all of it).
    #[must_use]
    pub const fn touches(mut self, bytes: u64) -> Self {
        self.touches = Some(bytes);
        self
    }

    /// Fails the request instead of using another region than the best one.
    #[must_use]
    pub const fn no_substitute(mut self) -> Self {
        self.substitution = Substitution::Forbidden;
        self
    }

    /// Requires host-coherent memory, which needs no flush or invalidation.
    #[must_use]
    pub const fn coherent(mut self) -> Self {
        self.coherence = Coherence::Needed;
        self
    }

    /// Allows host memory when every suitable heap is full. Kernels are slow there; the placement says so.
    #[must_use]
    pub const fn may_spill(mut self) -> Self {
        self.spill = Spill::Allowed;
        self
    }

    /// Sets the expected lifetime.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Makes the allocation dedicated: a block of its own.
    #[must_use]
    pub const fn dedicated(mut self) -> Self {
        self.sharing = Sharing::Dedicated;
        self
    }

    /// Keeps the allocation at one address; defragmentation never moves it.
    #[must_use]
    pub const fn pinned(mut self) -> Self {
        self.mobility = Mobility::Pinned;
        self
    }

    /// Makes the allocation one that communication libraries can register (NCCL, RDMA, symmetric memory): one driver handle of
    /// its own that can be exported, dedicated and pinned. It never moves and never sleeps.
    ///
    /// Its bytes are rounded up to [`Heap::registrable`](omniheap_seam::Heap::registrable), so small allocations waste memory.
    /// Deregister the memory before you free it.
    #[must_use]
    pub const fn registrable(mut self) -> Self {
        self.registration = Registration::Needed;
        self.dedicated().pinned()
    }

    /// Fills the memory with zeros before the allocation is returned.
    #[must_use]
    pub const fn zeroed(mut self) -> Self {
        self.contents = Contents::Zero;
        self
    }

    /// Zeroes the memory on free. Also pins it, because a move would leave a copy behind.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.privacy = Privacy::Secret;
        self.pinned()
    }

    /// Allows moves only in defragmentation passes whose caller decides about each move.
    #[must_use]
    pub const fn moved_on_consent(mut self) -> Self {
        self.mobility = Mobility::OnConsent;
        self
    }

    /// Uses only memory that the pools already hold; never asks the driver.
    #[must_use]
    pub const fn no_grow(mut self) -> Self {
        self.grow = Grow::Never;
        self
    }

    /// Sets the heap; overrides the policy.
    #[must_use]
    pub const fn heap(mut self, heap: HeapId) -> Self {
        self.heap = Some(heap);
        self
    }

    /// Sets the timeline that uses and frees the allocation in order.
    ///
    /// Device work and the manager's transfers run in that order, so the timeline can reuse freed bytes at once. Host access
    /// through `Allocation::map` does not: name the host as writer or reader in the request, and it gets bytes that no earlier
    /// work uses. Mapping other memory may wait.
    #[must_use]
    pub const fn on(mut self, timeline: TimelineId) -> Self {
        self.timeline = Some(timeline);
        self
    }

    /// Sets the label that groups allocations in reports.
    #[must_use]
    pub const fn tag(mut self, tag: Tag) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Sets the name shown in reports and traces.
    #[must_use]
    pub const fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// Returns whether the request has no hints, so that it goes to device memory, or to the heap that it names, without asking the
    /// policy.
    #[inline]
    #[must_use]
    pub const fn is_usual(&self) -> bool {
        matches!(self.writer, Writer::Device)
            && matches!(self.access, Access::Device)
            && matches!(self.sharing, Sharing::Shared)
            && matches!(self.mobility, Mobility::Movable)
            && matches!(self.contents, Contents::Any)
            && matches!(self.privacy, Privacy::Open)
    }

    /// Returns whether the host writes or reads the bytes directly.
    #[must_use]
    pub const fn is_for_host(&self) -> bool {
        !matches!(self.writer, Writer::Device) || !matches!(self.access, Access::Device)
    }

    /// Returns whether the request has a name or a tag.
    #[inline]
    #[must_use]
    pub const fn is_labelled(&self) -> bool {
        self.tag.is_some() || self.name.is_some()
    }

    /// Returns whether the request has neither hints nor a name.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.is_usual() && !self.is_labelled()
    }

    /// Returns whether the host accesses the bytes directly and the request forbids flushes.
    pub(crate) const fn must_be_coherent(&self) -> bool {
        let host = !matches!(
            (self.writer, self.access),
            (Writer::Device | Writer::HostOnce, Access::Device)
        );
        host && matches!(self.coherence, Coherence::Needed)
    }
}

/// A request for an array of that use: `Manager::allocate_slice` sets its size.
impl From<Usage> for Request<'_> {
    fn from(usage: Usage) -> Self {
        Self::new(0).usage(usage)
    }
}
