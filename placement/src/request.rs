//! What is wanted, in intent rather than in heaps.
use crate::words::{
    Access, Coherence, Contents, Dependence, Driver, Lifetime, Mobility, Pattern, Privacy, Sharing,
    Spill, Substitution, Work, Writer,
};
use omniheap_seam::{Align, Class, HeapId, Layout, TimelineId};

/// A label that groups allocations in reports: weights, frames, textures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

/// What is wanted: layout, intended use, name. Built by chaining; the default is device memory.
///
/// ```
/// use omniheap_placement::{Access, Request, Writer};
/// use omniheap_seam::Align;
/// let upload = Request::new(4096).align(Align::of(256)).writer(Writer::HostPerFrame).name("uniforms");
/// assert_eq!(upload.layout.size, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Bytes and alignment.
    pub layout: Layout,
    /// What may stand beside it.
    pub class: Class,
    /// Who writes it.
    pub writer: Writer,
    /// Who reads it.
    pub access: Access,
    /// How kernels read it.
    pub pattern: Pattern,
    /// What kernels do beside reading it.
    pub work: Work,
    /// Whether their reads wait for each other.
    pub dependence: Dependence,
    /// How often a group reads each of its bytes, on average; 0 is less than once.
    pub reuse: u32,
    /// Bytes of it that one group reads; `None` for all of them.
    pub touches: Option<u64>,
    /// Whether host and device see each other's writes without being asked to look.
    pub coherence: Coherence,
    /// Whether another region may serve.
    pub substitution: Substitution,
    /// Whether host memory may serve where every permitted heap is full.
    pub spill: Spill,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Whether it may share a block.
    pub sharing: Sharing,
    /// Whether it may move.
    pub mobility: Mobility,
    /// What it holds at first.
    pub contents: Contents,
    /// Whether its bytes may outlive it.
    pub privacy: Privacy,
    /// Whether the driver may be asked.
    pub driver: Driver,
    /// Exactly this heap, whatever the policy says.
    pub heap: Option<HeapId>,
    /// The timeline in whose order it is used and freed; without one, it is freed only when out of use.
    pub timeline: Option<TimelineId>,
    /// Groups it in reports.
    pub tag: Option<Tag>,
    /// Shown in reports and traces.
    pub name: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// `size` bytes of device memory.
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
            mobility: Mobility::Movable,
            contents: Contents::Any,
            privacy: Privacy::Open,
            driver: Driver::Allowed,
            heap: None,
            timeline: None,
            tag: None,
            name: None,
        }
    }

    /// Bytes that the host writes for every frame and kernels read.
    ///
    /// With [`on`](Self::on), freed bytes are handed to another request for host access only once the timeline has passed
    /// the free, so `Allocation::map` neither waits nor overwrites what the device still reads. Allocate one
    /// for each frame and drop it after submitting: with N frames in flight, N of them take turns without driver calls.
    #[must_use]
    pub const fn upload(size: u64) -> Self {
        Self::new(size).writer(Writer::HostPerFrame)
    }

    /// Bytes that kernels write and the host reads.
    #[must_use]
    pub const fn read_back(size: u64) -> Self {
        Self::new(size).access(Access::Host)
    }

    /// At a multiple of `align`.
    #[must_use]
    pub const fn align(mut self, align: Align) -> Self {
        self.layout.align = align;
        self
    }

    /// Beside neighbours of this class.
    #[must_use]
    pub const fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Written by `writer`.
    #[must_use]
    pub const fn writer(mut self, writer: Writer) -> Self {
        self.writer = writer;
        self
    }

    /// Read by `access`.
    #[must_use]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Read by kernels in this pattern.
    #[must_use]
    pub const fn pattern(mut self, pattern: Pattern) -> Self {
        self.pattern = pattern;
        self
    }

    /// Read by kernels that do so much beside.
    #[must_use]
    pub const fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// Read by kernels whose reads wait for each other, or do not.
    #[must_use]
    pub const fn dependence(mut self, dependence: Dependence) -> Self {
        self.dependence = dependence;
        self
    }

    /// Read so often by a group, each byte on average; 0 is less than once.
    #[must_use]
    pub const fn reuse(mut self, reuse: u32) -> Self {
        self.reuse = reuse;
        self
    }

    /// Of which one group reads only so many bytes: what caches see of it.
    #[must_use]
    pub const fn touches(mut self, bytes: u64) -> Self {
        self.touches = Some(bytes);
        self
    }

    /// From the region that suits it best, or from none.
    #[must_use]
    pub const fn no_substitute(mut self) -> Self {
        self.substitution = Substitution::Forbidden;
        self
    }

    /// Seen by the other side as soon as one side wrote it, without a flush.
    #[must_use]
    pub const fn coherent(mut self) -> Self {
        self.coherence = Coherence::Needed;
        self
    }

    /// From host memory rather than from nowhere: slow for kernels, and the placement says so.
    #[must_use]
    pub const fn may_spill(mut self) -> Self {
        self.spill = Spill::Allowed;
        self
    }

    /// Alive for so long.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// With its own driver object.
    #[must_use]
    pub const fn dedicated(mut self) -> Self {
        self.sharing = Sharing::Dedicated;
        self
    }

    /// Where its address stays as long as it lives.
    #[must_use]
    pub const fn pinned(mut self) -> Self {
        self.mobility = Mobility::Pinned;
        self
    }

    /// Holding zeros at first.
    #[must_use]
    pub const fn zeroed(mut self) -> Self {
        self.contents = Contents::Zero;
        self
    }

    /// Zeroed when it is freed; it never moves, because a move leaves a copy behind.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.privacy = Privacy::Secret;
        self.pinned()
    }

    /// Moved only where its owner is asked: by a defragmentation that its caller decides move by move.
    #[must_use]
    pub const fn moved_on_consent(mut self) -> Self {
        self.mobility = Mobility::OnConsent;
        self
    }

    /// Only from memory that is held already.
    #[must_use]
    pub const fn held_only(mut self) -> Self {
        self.driver = Driver::Forbidden;
        self
    }

    /// From exactly this heap.
    #[must_use]
    pub const fn heap(mut self, heap: HeapId) -> Self {
        self.heap = Some(heap);
        self
    }

    /// Used and freed in this timeline's order.
    ///
    /// Device work and the manager's transfers run in that order, so freed bytes are reusable on the timeline at once. Host
    /// access through `Allocation::map` does not run in it: requests that name the host as writer or reader get
    /// bytes whose earlier users have passed. Say so in the request; a map of other memory may have to wait.
    #[must_use]
    pub const fn on(mut self, timeline: TimelineId) -> Self {
        self.timeline = Some(timeline);
        self
    }

    /// Grouped under `tag` in reports.
    #[must_use]
    pub const fn tag(mut self, tag: Tag) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Called `name` in reports.
    #[must_use]
    pub const fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// Whether the request says nothing of its use, so that it goes to device memory without a decision.
    #[inline]
    #[must_use]
    pub const fn is_usual(&self) -> bool {
        matches!(self.writer, Writer::Device)
            && matches!(self.access, Access::Device)
            && matches!(self.sharing, Sharing::Shared)
            && matches!(self.mobility, Mobility::Movable)
            && matches!(self.contents, Contents::Any)
            && matches!(self.privacy, Privacy::Open)
            && self.heap.is_none()
    }

    /// Whether the host writes or reads the bytes itself.
    #[must_use]
    pub const fn is_for_host(&self) -> bool {
        !matches!(self.writer, Writer::Device) || !matches!(self.access, Access::Device)
    }

    /// Whether the request says what it is called.
    #[inline]
    #[must_use]
    pub const fn is_labelled(&self) -> bool {
        self.tag.is_some() || self.name.is_some()
    }

    /// Whether the request says nothing but how many bytes.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.is_usual() && !self.is_labelled()
    }
}
