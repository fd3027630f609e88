//! What a lane holds, as the planner sees it.
#![forbid(unsafe_code)]
use super::plan::{Region, Resident};
use crate::pool::{Consent, Divider, Lane, LaneState, SlotId};
use crate::strategy::{BlockId, Grant, Key, PieceState, Tlsf};
use crate::{Align, Backend, Class, Sharing, Span};
use alloc::vec::Vec;

/// No slot.
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
    /// The regions that a span touches; `None` for one that nothing was in.
    pub(super) fn touched(
        &self,
        block: BlockId,
        span: Span,
    ) -> impl Iterator<Item = Option<usize>> + '_ {
        self.numbers(block, span).map(|number| self.find(number))
    }

    pub(super) const fn is_paged(&self) -> bool {
        self.page.is_some()
    }

    fn find(&self, number: u64) -> Option<usize> {
        let at = *self.by_number.get(usize::try_from(number).ok()?)?;
        (at != NONE).then_some(at as usize)
    }

    /// The region of this number, made where there is none yet.
    fn region(&mut self, number: u64, size: u64) -> Option<&mut Region> {
        let at = usize::try_from(number).ok()?;
        if at >= self.by_number.len() {
            self.by_number.resize(at + 1, NONE);
        }
        if self.by_number[at] == NONE {
            self.by_number[at] = u32::try_from(self.regions.len()).ok()?;
            let (live, stays, residents) = (0, false, Vec::new());
            self.regions.push(Region { number, size, live, stays, residents });
        }
        self.regions.get_mut(self.by_number[at] as usize)
    }

    fn numbers(&self, block: BlockId, span: Span) -> core::ops::RangeInclusive<u64> {
        match self.page {
            Some(page) => span.offset / page..=(span.end() - 1) / page,
            None => u64::from(block.0)..=u64::from(block.0),
        }
    }

    /// Notes a live span; `resident` where it may move.
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
}

/// A survey in the making: a part at a time, so that nobody waits long for the lane.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The slot of each key, by the key's index.
    slots: Vec<(u32, u32)>,
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
        if state.slots.visit(scan.next_slot, SLOTS_TOGETHER, |id, slot| scan.note(id, slot.key)) {
            scan.next_slot += SLOTS_TOGETHER;
            return Seen::Part;
        }
        let id = BlockId(scan.next_block);
        let Some(held) = state.blocks.get(id.0 as usize) else { return Seen::All };
        scan.next_block += 1;
        let Some(held) = held else { return Seen::Part };
        let size = survey.page.unwrap_or_else(|| held.block.size());
        let alone = held.sharing == Sharing::Dedicated;
        tlsf.for_each_in(id, &mut |piece| {
            let PieceState::Live(key) = piece.state else { return };
            let resident = state
                .resident(tlsf, &scan.slots, key, self.shared.unit)
                .filter(|(_, consent)| !alone && (*consent == Consent::Given || asks == *consent))
                .map(|(resident, _)| resident);
            survey.add(id, piece.span, size, resident);
        });
        Seen::Part
    }
}

impl Scan {
    fn note(&mut self, id: SlotId, key: Key) {
        let at = key.index as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, (NONE, 0));
        }
        self.slots[at] = (id.index, id.generation);
    }
}

impl<B: Backend> LaneState<B> {
    /// What is live under a key and may move, and whether its owner wants to be asked.
    fn resident(
        &self,
        tlsf: &Tlsf,
        slots: &[(u32, u32)],
        key: Key,
        unit: Align,
    ) -> Option<(Resident, Consent)> {
        let (index, generation) = *slots.get(key.index as usize)?;
        let slot = SlotId { index, generation };
        // A key without a slot is a pager's run, a place that a pass holds, or newer than the scan.
        if index == NONE || !self.slots.may_move(slot) || self.slots.get(slot).ok()?.key != key {
            return None;
        }
        let Grant { block, span, .. } = crate::strategy::Strategy::grant(tlsf, key).ok()?;
        let class = tlsf.class(key).ok()?;
        let note = self.notes.get(index);
        let align = note.and_then(|note| note.align).unwrap_or(unit);
        let consent = match (class, note.map(|note| note.consent)) {
            // Only the device knows what the bytes of a tiled image mean elsewhere.
            (Class::Tiled, _) | (_, Some(Consent::Needed)) => Consent::Needed,
            _ => Consent::Given,
        };
        Some((Resident { slot, block, span, align, class }, consent))
    }
}
