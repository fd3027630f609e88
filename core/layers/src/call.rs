//! The calls of the seam, as data.
use omniheap_seam::{HeapId, Point, TimelineId};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// Kind of a call of the seam.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum CallKind {
            $($(#[doc = $doc])* $name,)*
        }

        impl CallKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

kinds! {
    /// [`Backend::allocate`](omniheap_seam::Backend::allocate).
    Allocate,
    /// [`Backend::free`](omniheap_seam::Backend::free).
    Free,
    /// [`Backend::wait_idle`](omniheap_seam::Backend::wait_idle).
    WaitIdle,
    /// [`Map::map`](omniheap_seam::Map::map).
    Map,
    /// [`Map::flush`](omniheap_seam::Map::flush).
    Flush,
    /// [`Map::invalidate`](omniheap_seam::Map::invalidate).
    Invalidate,
    /// [`Transfer::write`](omniheap_seam::Transfer::write).
    Write,
    /// [`Transfer::read`](omniheap_seam::Transfer::read).
    Read,
    /// [`Transfer::fill`](omniheap_seam::Transfer::fill).
    Fill,
    /// [`Transfer::copy`](omniheap_seam::Transfer::copy).
    Copy,
    /// [`Timelines::open`](omniheap_seam::Timelines::open).
    Open,
    /// [`Timelines::close`](omniheap_seam::Timelines::close).
    Close,
    /// [`Timelines::mark`](omniheap_seam::Timelines::mark).
    Mark,
    /// [`Timelines::reached`](omniheap_seam::Timelines::reached).
    Reached,
    /// [`Timelines::wait`](omniheap_seam::Timelines::wait).
    Wait,
    /// [`Timelines::order`](omniheap_seam::Timelines::order).
    Order,
    /// [`Remap::reserve`](omniheap_seam::Remap::reserve).
    Reserve,
    /// [`Remap::create`](omniheap_seam::Remap::create).
    Create,
    /// [`Remap::destroy`](omniheap_seam::Remap::destroy).
    Destroy,
    /// [`Remap::create_on_host`](omniheap_seam::Remap::create_on_host).
    CreateOnHost,
    /// [`Remap::destroy_on_host`](omniheap_seam::Remap::destroy_on_host).
    DestroyOnHost,
    /// [`Remap::map_pages`](omniheap_seam::Remap::map_pages).
    MapPages,
    /// [`Remap::unmap_pages`](omniheap_seam::Remap::unmap_pages).
    UnmapPages,
    /// [`DriverBudget::budget`](omniheap_seam::DriverBudget::budget).
    Budget,
    /// [`Export::allocate_exportable`](omniheap_seam::Export::allocate_exportable).
    AllocateExportable,
    /// [`Export::export`](omniheap_seam::Export::export).
    Export,
    /// [`Export::import`](omniheap_seam::Export::import).
    Import,
    /// [`Launch::load`](omniheap_seam::Launch::load).
    Load,
    /// [`Launch::unload`](omniheap_seam::Launch::unload).
    Unload,
    /// [`Launch::launch`](omniheap_seam::Launch::launch).
    Launch,
}

impl CallKind {
    /// Returns true if the call takes memory from the driver or gives it back: the calls that cost microseconds.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        matches!(self, Self::Free | Self::Reserve | Self::Create | Self::Destroy)
            || matches!(self, Self::CreateOnHost | Self::DestroyOnHost)
            || matches!(self, Self::MapPages | Self::UnmapPages)
            || self.makes_block()
    }

    /// Returns true if the call takes a block of its own bytes from the driver.
    #[must_use]
    pub const fn makes_block(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateExportable | Self::Import)
    }

    /// Returns true if the call gives something up that is gone whatever the answer says.
    #[must_use]
    pub const fn gives_up(self) -> bool {
        matches!(self, Self::Free | Self::Destroy | Self::UnmapPages | Self::Close)
            || matches!(self, Self::DestroyOnHost | Self::Unload)
    }
}

/// One call of the seam. Fields that a kind does not have are zero or `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Kind of the call.
    pub kind: CallKind,
    /// The heap it is about.
    pub heap: Option<HeapId>,
    /// The timeline it is about.
    pub timeline: Option<TimelineId>,
    /// Bytes: of the block as its heap rounds it, of the pages, or of the transfer.
    pub size: u64,
    /// Pages, moves of one copy, or arguments of a launch.
    pub count: u64,
    /// The number the layer gave the block.
    pub block: u64,
    /// Kind of the call that had made the block; only for a free.
    pub origin: Option<CallKind>,
    /// Point that is waited for; only for a wait or an order.
    pub point: Option<Point>,
}

impl Call {
    pub(super) const fn new(kind: CallKind) -> Self {
        let (heap, timeline, origin, point) = (None, None, None, None);
        Self { kind, heap, timeline, size: 0, count: 0, block: 0, origin, point }
    }
    pub(super) const fn heap(self, heap: HeapId) -> Self {
        Self { heap: Some(heap), ..self }
    }
    pub(super) const fn on(self, timeline: TimelineId) -> Self {
        Self { timeline: Some(timeline), ..self }
    }
    pub(super) const fn after(self, point: Point) -> Self {
        Self { point: Some(point), ..self }
    }
    pub(super) const fn size(self, size: u64) -> Self {
        Self { size, ..self }
    }
    pub(super) const fn count(self, count: u64) -> Self {
        Self { count, ..self }
    }
    pub(super) const fn block(self, block: u64) -> Self {
        Self { block, ..self }
    }

    /// Creates a call about the block that `origin` made.
    pub(super) const fn about(kind: CallKind, origin: &Self) -> Self {
        Self { kind, origin: Some(origin.kind), count: 0, ..*origin }
    }
}
