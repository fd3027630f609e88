//! What is wanted, in intent rather than in heaps.
use crate::{Align, Class, HeapId, Layout, Tag, TimelineId};

/// What a policy chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Region {
    /// Device memory: the default home.
    Device,
    /// Read-only, broadcast-cached, small.
    Constant,
    /// On-chip memory of one group; a layout of a launch, not an allocation.
    Shared,
    /// Host memory that the device reaches.
    Staging,
    /// Reached fast by both sides.
    Unified,
}

/// Who writes the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Writer {
    /// Kernels.
    #[default]
    Device,
    /// The host, once, before kernels read.
    HostOnce,
    /// The host, again for every frame or step.
    HostPerFrame,
}

/// Who reads the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Kernels.
    #[default]
    Device,
    /// The host, after the device wrote them.
    Host,
    /// Both, all the time.
    Both,
}

/// How kernels read the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Neighbouring lanes read neighbouring addresses.
    #[default]
    Coalesced,
    /// Every lane reads the same address.
    Broadcast,
    /// Every lane reads where it likes.
    Gathered,
    /// A group reads the same tile many times.
    Tiled,
}

/// How long the bytes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until freed, and nobody knows when.
    #[default]
    Persistent,
    /// One frame or step.
    Frame,
    /// One kernel.
    Kernel,
}

/// Whether an allocation may share its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// With other allocations.
    #[default]
    Shared,
    /// With nobody: its own driver object, at offset zero.
    Dedicated,
}

/// Whether defragmentation may move an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// While nobody holds its binding.
    #[default]
    Movable,
    /// Only in passes that ask its owner, who has native objects bound to its place.
    OnConsent,
    /// Never: its address stays as long as it lives.
    Pinned,
}

/// What an allocation holds before anyone writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Whatever its domain left there.
    #[default]
    Any,
    /// Zeros, padding included.
    Zero,
}

/// Whether an allocation's bytes may outlive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Privacy {
    /// Within its domain.
    #[default]
    Open,
    /// Never: they are zeroed when it is freed, and not copied about before.
    Secret,
}

/// Whether the driver may be asked for more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Driver {
    /// When nothing that is held fits.
    #[default]
    Allowed,
    /// Never: only what is held already.
    Forbidden,
}

/// Whether another region may serve where the best one is missing or too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Substitution {
    /// Yes, and the placement says so.
    #[default]
    Allowed,
    /// No: the request fails instead.
    Forbidden,
}

/// What is wanted: layout, intended use, name. Built by chaining; the default is device memory.
///
/// ```
/// use omniheap_core::{Access, Align, Request, Writer};
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
    /// How often a group reads each of its bytes, on average.
    pub reuse: u32,
    /// Whether another region may serve.
    pub substitution: Substitution,
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
            reuse: 1,
            substitution: Substitution::Allowed,
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

    /// Read so often by a group, each byte on average.
    #[must_use]
    pub const fn reuse(mut self, reuse: u32) -> Self {
        self.reuse = reuse;
        self
    }

    /// From the region that suits it best, or from none.
    #[must_use]
    pub const fn no_substitute(mut self) -> Self {
        self.substitution = Substitution::Forbidden;
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

    /// Moved only where its owner is asked: by [`Manager::begin_defragment`](crate::Manager::begin_defragment).
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
    pub(crate) const fn is_usual(&self) -> bool {
        matches!(self.writer, Writer::Device)
            && matches!(self.access, Access::Device)
            && matches!(self.sharing, Sharing::Shared)
            && matches!(self.mobility, Mobility::Movable)
            && matches!(self.contents, Contents::Any)
            && matches!(self.privacy, Privacy::Open)
            && self.heap.is_none()
    }

    /// Whether the request says what it is called.
    #[inline]
    pub(crate) const fn is_labelled(&self) -> bool {
        self.tag.is_some() || self.name.is_some()
    }

    /// Whether the request says nothing but how many bytes.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_usual() && !self.is_labelled()
    }
}
