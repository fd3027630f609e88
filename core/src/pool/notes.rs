//! What a lane remembers of the few allocations that are more than bytes: names and further timelines.
#![forbid(unsafe_code)]
use crate::{Align, Point, Privacy, TimelineId};
use alloc::{borrow::ToOwned, boxed::Box, collections::BTreeMap, vec::Vec};

/// The longest name that is kept; longer ones are cut at a character.
const LONGEST_NAME: usize = 256;

/// What is known of one allocation beyond its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    /// For people.
    pub(crate) name: Option<Box<str>>,
    /// Timelines besides the lane's own that use the bytes.
    pub(crate) used_on: Vec<TimelineId>,
    /// Alignment above the pool's own.
    pub(crate) align: Option<Align>,
    /// In whose order the bytes are used, where the lane of another lent them.
    pub(crate) home: Option<Home>,
    /// For reports: what kind of thing it is.
    pub(crate) tag: Option<Tag>,
    /// Whether its bytes may outlive it.
    pub(crate) privacy: Privacy,
    /// Whether it moves only where its owner is asked.
    pub(crate) consent: Consent,
    /// How it ends, when it was freed while a pass had it.
    pub(crate) ending: Option<Ending>,
}

/// Whether an allocation moves only in passes that ask its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Consent {
    #[default]
    Given,
    Needed,
}

/// When the bytes of a freed allocation are anyone's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After these points.
    After(Vec<Point>),
    /// Never: work on them could not be followed.
    Never,
}

/// In whose order bytes are used that another's lane lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The host's: they are freed when they are out of use.
    Host,
    /// A timeline's.
    Timeline(TimelineId),
}

/// A label that groups allocations in reports: weights, frames, textures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

/// Notes by slot index.
#[derive(Debug)]
pub(crate) struct Notes(BTreeMap<u32, Note>);

impl Notes {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Note> {
        self.0.get(&slot)
    }

    pub(crate) fn set_name(&mut self, slot: u32, name: &str) {
        let mut end = name.len().min(LONGEST_NAME);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        self.0.entry(slot).or_default().name = Some(name[..end].to_owned().into_boxed_str());
    }

    pub(crate) fn add_use(&mut self, slot: u32, timeline: TimelineId) {
        let used_on = &mut self.0.entry(slot).or_default().used_on;
        if !used_on.contains(&timeline) {
            used_on.push(timeline);
        }
    }

    pub(crate) fn set_home(&mut self, slot: u32, home: Home) {
        self.0.entry(slot).or_default().home = Some(home);
    }

    /// Makes an entry, so that a free looks closer.
    pub(crate) fn mark(&mut self, slot: u32) {
        self.0.entry(slot).or_default();
    }

    pub(crate) fn set_align(&mut self, slot: u32, align: Align) {
        self.0.entry(slot).or_default().align = Some(align);
    }

    pub(crate) fn set_tag(&mut self, slot: u32, tag: Tag) {
        self.0.entry(slot).or_default().tag = Some(tag);
    }

    pub(crate) fn set_privacy(&mut self, slot: u32, privacy: Privacy) {
        self.0.entry(slot).or_default().privacy = privacy;
    }

    pub(crate) fn set_consent(&mut self, slot: u32, consent: Consent) {
        self.0.entry(slot).or_default().consent = consent;
    }

    pub(crate) fn set_ending(&mut self, slot: u32, ending: Ending) {
        self.0.entry(slot).or_default().ending = Some(ending);
    }

    pub(crate) fn take_ending(&mut self, slot: u32) -> Option<Ending> {
        self.0.get_mut(&slot)?.ending.take()
    }

    pub(crate) fn forget(&mut self, slot: u32) {
        self.0.remove(&slot);
    }
}
