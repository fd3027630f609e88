//! What a lane holds, as the planner sees it.
#![forbid(unsafe_code)]
use super::plan::{Region, Resident};
use crate::pool::{Consent, Divider, Lane, LaneState, SlotId, Standing};
use crate::strategy::{BlockId, Key};
use crate::{Align, Backend, Class, Sharing, Span};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// No slot, or no region.
const NONE: u32 = u32::MAX;
/// Slots that are looked at while the lock is held.
const SLOTS_TOGETHER: usize = 4096;

/// The regions of a lane at one moment. What is done with them later is checked against what is then.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) regions: Vec<Region>,
    /// Where each region is in the list, by its number; `NONE` where nothing was in it.
    by_number: Vec<u32>,
    page: Option<u64>,
}

impl Survey {
    pub(super) const fn is_paged(&self) -> bool {
        self.page.is_some()
    }

    /// Where a region is in the list; `None` for one that nothing was in.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<usize> {
        let at = *self.by_number.get(usize::try_from(number).ok()?)?;
        (at != NONE).then_some(at as usize)
    }

    /// The region of this number, made where there is none yet.
    #[inline]
    fn region(&mut self, number: u64, size: u64) -> Option<&mut Region> {
        let at = usize::try_from(number).ok()?;
        if self.by_number.get(at).is_none_or(|at| *at == NONE) {
            self.make(number, at, size)?;
        }
        self.regions.get_mut(self.by_number[at] as usize)
    }

    #[cold]
    fn make(&mut self, number: u64, at: usize, size: u64) -> Option<()> {
        if at >= self.by_number.len() {
            self.by_number.resize(at + 1, NONE);
        }
        self.by_number[at] = u32::try_from(self.regions.len()).ok()?;
        self.regions.push(Region { number, size, ..Region::default() });
        Some(())
    }

    /// The numbers of the regions that a span touches.
    #[inline]
    pub(super) fn numbers(&self, block: BlockId, span: Span) -> RangeInclusive<u64> {
        match self.page {
            Some(page) => span.offset / page..=(span.end() - 1) / page,
            None => u64::from(block.0)..=u64::from(block.0),
        }
    }

    /// Notes a live span; `resident` where it may move.
    #[inline]
    fn add(&mut self, block: BlockId, span: Span, size: u64, resident: Option<Resident>) {
        for number in self.numbers(block, span) {
            let Some(region) = self.region(number, size) else { continue };
            region.live = region.live.saturating_add(span.size);
            match resident {
                Some(resident) => region.residents.push(resident),
                None => region.stays = true,
            }
        }
    }

    /// Notes the holes of a block in which something is live: what pages have free is not theirs to tell.
    fn note_holes(&mut self, block: BlockId, free: u64, largest: u64) {
        if self.page.is_none()
            && let Some(at) = self.find(u64::from(block.0))
        {
            (self.regions[at].free, self.regions[at].largest_hole) = (free, largest);
        }
    }
}

/// The slot of each key, by the key's index.
#[derive(Debug, Default)]
pub(super) struct SlotsByKey(Vec<(u32, u32)>);

impl SlotsByKey {
    pub(super) fn note(&mut self, id: SlotId, key: Key) {
        let at = key.index as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, (NONE, 0));
        }
        self.0[at] = (id.index, id.generation);
    }

    /// The slot of a key, or of an earlier key with the same index.
    #[inline]
    fn get(&self, key: Key) -> Option<SlotId> {
        let (index, generation) = *self.0.get(key.index as usize)?;
        (index != NONE).then_some(SlotId { index, generation })
    }
}

/// A survey in the making: a part at a time, so that nobody waits long for the lane.
#[derive(Debug, Default)]
pub(super) struct Scan {
    slots: SlotsByKey,
    next_slot: usize,
    next_block: u32,
}

/// Whether a scan has seen everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Part,
    All,
}

impl<B: Backend> Lane<B> {
    /// An empty survey of this lane.
    pub(super) fn survey(&self) -> Survey {
        Survey { page: self.shared.page(), ..Survey::default() }
    }

    /// Looks at the next part of what the lane holds: some slots, and later a block.
    pub(super) fn scan(&self, scan: &mut Scan, survey: &mut Survey, asks: Consent) -> Seen {
        let state = self.state.lock();
        let Divider::General(tlsf) = &state.divider else { return Seen::All };
        let slots = &mut scan.slots;
        if state.slots.visit(scan.next_slot, SLOTS_TOGETHER, |id, slot| slots.note(id, slot.key)) {
            scan.next_slot += SLOTS_TOGETHER;
            return Seen::Part;
        }
        let id = BlockId(scan.next_block);
        let Some(held) = state.blocks.get(id.0 as usize) else { return Seen::All };
        scan.next_block += 1;
        let Some(held) = held else { return Seen::Part };
        let size = survey.page.unwrap_or_else(|| held.block.size());
        let alone = held.sharing == Sharing::Dedicated;
        let (unit, mut free, mut largest) = (self.shared.unit, 0, 0);
        tlsf.for_each_in(id, |key, span, holds| {
            let Some(class) = holds else {
                (free, largest) = (free + span.size, span.size.max(largest));
                return;
            };
            let mobile = state.mobile(&scan.slots, key, class).filter(|_| !alone);
            let resident = mobile.filter(|mobile| mobile.consent.is_within(asks)).map(|mobile| {
                let Mobile { slot, align, .. } = mobile;
                Resident { slot, block: id, span, align: align.unwrap_or(unit), class }
            });
            survey.add(id, span, size, resident);
        });
        survey.note_holes(id, free, largest);
        Seen::Part
    }
}

/// An allocation that may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mobile {
    pub(super) slot: SlotId,
    /// Its alignment, where that is above the pool's own.
    pub(super) align: Option<Align>,
    /// Whether its owner wants to be asked.
    pub(super) consent: Consent,
}

impl<B: Backend> LaneState<B> {
    /// What is live under a key, where it may move.
    ///
    /// A key without a slot is a pager's run, a place that a pass holds, or newer than the list of slots.
    #[inline]
    pub(super) fn mobile(&self, slots: &SlotsByKey, key: Key, class: Class) -> Option<Mobile> {
        let id = slots.get(key)?;
        let slot = self.slots.get(id).ok()?;
        if slot.key != key || slot.standing() != Standing::Free {
            return None;
        }
        let note = if slot.is_noted() { self.notes.get(id.index) } else { None };
        let consent = match (class, note.map(|note| note.consent)) {
            // Only the device knows what the bytes of a tiled image mean elsewhere.
            (Class::Tiled, _) | (_, Some(Consent::Needed)) => Consent::Needed,
            _ => Consent::Given,
        };
        Some(Mobile { slot: id, align: note.and_then(|note| note.align), consent })
    }
}
