//! Facts about an allocation beyond its bytes, for the few that need them: names, further timelines, the end.
//!
//! An allocation that lies in a farther heap because a better one was full keeps its *wish*: the heap that a recall
//! moves it to.
#![forbid(unsafe_code)]
use crate::event::AllocationId;
use crate::sleep::BackingStore;
use crate::{HeapId, Point, Privacy, Request, Sharing, Tag, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use omniheap_strategy::Grant;

/// The longest name that is kept; longer ones are cut at a character.
const LONGEST_NAME: usize = 256;

/// A slot, and one of the allocations that have had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Facts about one allocation beyond its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotExtra {
    /// Name for people.
    pub(crate) name: Option<Box<str>>,
    /// Timelines besides the lane's own that use the bytes.
    pub(crate) used_on: Vec<TimelineId>,
    /// Number of copies of it, of slides and of passes, that nobody could wait for.
    pub(crate) unfollowed: u32,
    /// Whether the host accesses the bytes directly, outside every timeline's order: nothing on the device used them when they
    /// were handed out.
    pub(crate) host_access: bool,
    /// Tag for reports: the kind of thing that it is.
    pub(crate) tag: Option<Tag>,
    /// `Dedicated` if it has a block of its own.
    pub(crate) sharing: Sharing,
    /// `Secret` if its bytes must not outlive it.
    pub(crate) privacy: Privacy,
    /// `Needed` if it moves only where its owner is asked.
    pub(crate) consent: Consent,
    /// True if its bytes are published: they are not written any more.
    pub(crate) published: bool,
    /// End of an allocation that was freed while a pass had it, or is a secret that is being zeroed.
    pub(crate) ending: Option<Ending>,
    /// Bytes of its guard that are looked at; zero for an allocation without one.
    pub(crate) sanitized: u64,
    /// True if its guard is being looked at now: its bytes stay until that is done.
    pub(crate) looked_at: bool,
    /// Relation to heaps other than its lane's.
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

    /// Returns true if it holds at most a name and a tag, which a free need not look at.
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

/// Consent of an owner to moves: given for all passes, or needed in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Consent {
    #[default]
    Given,
    Needed,
}

impl Consent {
    /// Returns true if a pass that asks for `asked` may move what needs this.
    #[inline]
    pub(super) fn is_within(self, asked: Self) -> bool {
        self == Self::Given || self == asked
    }
}

/// Relation of an allocation to heaps other than its lane's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Residence {
    /// Nothing.
    #[default]
    Home,
    /// The bytes are here because a better heap was full; they wish to be in this one, and a recall brings them there.
    Wishes(HeapId),
    /// Its bytes are in a lane of another heap.
    Remote,
    /// The bytes here belong to a slot of another lane, which the owner has.
    ForRemote,
}

/// Condition under which the bytes of a freed allocation can be reused.
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

/// Source of the points that something waits for.
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

/// Bytes of a freed secret that no fill has reached.
pub(super) struct Kept {
    pub(super) grant: Grant,
    /// The allocation that still has them, freed; none where they are held.
    pub(super) slot: Option<SlotId>,
    /// A point behind all their uses, once it was needed.
    pub(super) after: Option<Point>,
}
