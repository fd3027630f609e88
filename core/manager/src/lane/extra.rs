//! What is known of an allocation beyond its bytes, for the few that need it: names, further timelines, how it ends.
#![forbid(unsafe_code)]
use crate::event::AllocationId;
use crate::sleep::BackingStore;
use crate::{HeapId, Point, Privacy, Request, Sharing, Tag, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};

/// The longest name that is kept; longer ones are cut at a character.
const LONGEST_NAME: usize = 256;

/// Which slot, and which of the allocations that have had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What is known of one allocation beyond its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotExtra {
    /// For people.
    pub(crate) name: Option<Box<str>>,
    /// Timelines besides the lane's own that use the bytes.
    pub(crate) used_on: Vec<TimelineId>,
    /// How many times it slid by copies that nobody could wait for.
    pub(crate) unfollowed: u32,
    /// Whether the host accesses the bytes directly, outside every timeline's order: nothing on the device used them when they
    /// were handed out.
    pub(crate) host_access: bool,
    /// For reports: what kind of thing it is.
    pub(crate) tag: Option<Tag>,
    /// Whether it has a block of its own.
    pub(crate) sharing: Sharing,
    /// Whether its bytes may outlive it.
    pub(crate) privacy: Privacy,
    /// Whether it moves only where its owner is asked.
    pub(crate) consent: Consent,
    /// Whether its bytes are published: they are not written any more.
    pub(crate) published: bool,
    /// How it ends, when it was freed while a pass had it, or is a secret that is being zeroed.
    pub(crate) ending: Option<Ending>,
    /// Bytes of its guard that are looked at; zero for an allocation without one.
    pub(crate) sanitized: u64,
    /// Whether its guard is being looked at now: its bytes stay until that is done.
    pub(crate) looked_at: bool,
    /// What it has to do with heaps other than its lane's.
    pub(crate) residence: Residence,
}

impl SlotExtra {
    pub(super) fn set_name(&mut self, name: &str) {
        self.name = Some(name[..name.floor_char_boundary(LONGEST_NAME)].into());
    }

    /// Keeps what a request calls the allocation.
    pub(super) fn set_label(&mut self, request: &Request<'_>) {
        self.tag = request.tag;
        if let Some(name) = request.name {
            self.set_name(name);
        }
    }

    pub(super) fn add_use(&mut self, timeline: TimelineId) {
        if !self.used_on.contains(&timeline) {
            self.used_on.push(timeline);
        }
    }

    /// Whether it says nothing that a free must look at.
    pub(super) fn is_label(&self) -> bool {
        self.used_on.is_empty()
            && !self.host_access
            && self.sharing == Sharing::Shared
            && self.privacy == Privacy::Open
            && self.ending.is_none()
            && self.sanitized == 0
            && !self.looked_at
            && self.residence != Residence::Remote
    }

    /// Returns whether the order of its own timeline does not protect its bytes once they are free: they do not go back to the
    /// lane, or the host accesses them.
    pub(super) fn outruns_home(&self) -> bool {
        self.sharing == Sharing::Dedicated
            || self.residence == Residence::Remote
            || self.host_access
    }
}

/// Whether an allocation moves only in passes that ask its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Consent {
    #[default]
    Given,
    Needed,
}

impl Consent {
    /// Whether a pass that asks for `asked` may move what needs this.
    #[inline]
    pub(super) fn is_within(self, asked: Self) -> bool {
        self == Self::Given || self == asked
    }
}

/// What an allocation has to do with heaps other than its lane's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Residence {
    /// Nothing.
    #[default]
    Home,
    /// It is here because a better heap was full.
    Wishes(HeapId),
    /// Its bytes are in a lane of another heap.
    Remote,
    /// It holds bytes for a slot of another lane, which the owner has.
    ForRemote,
}

/// When the bytes of a freed allocation can be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After these points.
    After(Vec<Point>, Origin),
    /// Never: work on them could not be followed.
    Never,
}

impl Ending {
    /// At once.
    pub(super) const NOW: Self = Self::After(Vec::new(), Origin::Marked);
}

/// Where the points come from that something waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The manager marked them: everything that uses the bytes was submitted before.
    Marked,
    /// A caller named one: it may be still to come.
    Named,
}

/// Bytes of a freed allocation in a backing store.
pub(super) struct Stored {
    pub(super) store: Arc<dyn BackingStore>,
    pub(super) id: AllocationId,
}

impl Stored {
    /// Drops the bytes; call it without a lock.
    pub(super) fn forget(self) {
        self.store.forget(self.id);
    }
}
