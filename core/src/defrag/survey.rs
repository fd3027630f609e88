//! What a lane holds, as the planner sees it.
#![forbid(unsafe_code)]
use super::plan::{Region, Resident};
use crate::pool::{Consent, Divider, Lane, LaneState, Pager, SlotId, Standing};
use crate::strategy::{BlockId, Key, Strategy, Tlsf};
use crate::{Align, Backend, Class, Sharing, Span};
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

/// No slot, or no region.
const NONE: u32 = u32::MAX;
/// Slots that are looked at while the lock is held.
const SLOTS_TOGETHER: usize = 4096;

/// The regions of a lane at one moment. What is done with them later is checked against what is then.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) regions: Vec<Region>,
    /// Where each region is in the list, by its number or by that of any of its pages; `NONE` where nothing was in it.
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

    /// Puts a region into the list; `numbers` are its own, or those of its pages.
    fn add(&mut self, numbers: Range<u64>, region: Region) -> Option<usize> {
        let at = u32::try_from(self.regions.len()).ok().filter(|at| *at != NONE)?;
        let [first, end] = [numbers.start, numbers.end].map(usize::try_from);
        let (first, end) = (first.ok()?, end.ok()?);
        if end > self.by_number.len() {
            self.by_number.resize(end, NONE);
        }
        self.by_number[first..end].fill(at);
        self.regions.push(region);
        Some(at as usize)
    }

    /// The regions that a span touches, for [`next`](Self::next).
    #[inline]
    pub(super) fn touched(&self, block: BlockId, span: Span) -> RangeInclusive<u64> {
        match self.page {
            Some(page) => span.offset / page..=(span.end() - 1) / page,
            None => u64::from(block.0)..=u64::from(block.0),
        }
    }

    /// The next region of those that a span touches; within, `None` for one that is not in the list.
    #[inline]
    pub(super) fn next(&self, touched: &mut RangeInclusive<u64>) -> Option<Option<usize>> {
        let at = self.find(touched.next()?);
        if let (Some(page), Some(at)) = (self.page, at) {
            let region = &self.regions[at];
            // What was made as one is one region.
            *touched = region.number + region.size / page..=*touched.end();
        }
        Some(at)
    }

    /// Notes a live span of pages; `resident` where it may move. Addresses without memory are no region.
    fn add_to_pages(&mut self, pager: &Pager, span: Span, resident: Option<Resident>) {
        let page = pager.page();
        let (mut number, last) = (span.offset / page, (span.end() - 1) / page);
        let moves = if resident.is_some() { span.size } else { 0 };
        while number <= last {
            let Some(at) = self.find(number).or_else(|| self.add_piece(pager, number)) else {
                return;
            };
            let region = &mut self.regions[at];
            let end = region.number + region.size / page;
            region.live = region.live.saturating_add(span.size);
            region.movable += u64::from(resident.is_some());
            region.begins += if region.number <= span.offset / page { moves } else { 0 };
            region.ends += if end > last { moves } else { 0 };
            match resident {
                Some(resident) => region.residents.push(resident),
                None => region.stays = true,
            }
            number = end;
        }
    }

    /// The region of a page, with the others that were made as one with it.
    #[cold]
    fn add_piece(&mut self, pager: &Pager, number: u64) -> Option<usize> {
        let pages = pager.piece_at(number)?;
        let size = (pages.end - pages.start) * pager.page();
        self.add(pages.clone(), Region { number: pages.start, size, ..Region::default() })
    }

    /// Notes a block in which something is live.
    fn add_block(&mut self, block: BlockId, size: u64, sums: Region) {
        let number = u64::from(block.0);
        if sums.live > 0 {
            self.add(number..number + 1, Region { number, size, ..sums });
        }
    }
}

/// The slot of each key, by the key's index.
#[derive(Debug, Default)]
pub(super) struct SlotsByKey(Vec<(u32, u32)>);

impl SlotsByKey {
    /// Makes room for keys of a strategy with so many pieces.
    fn reserve(&mut self, pieces: u64) {
        let length = usize::try_from(pieces).unwrap_or(0);
        if self.0.len() < length {
            self.0.resize(length, (NONE, 0));
        }
    }

    #[inline]
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
    pub(super) slots: SlotsByKey,
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
        if scan.next_slot == 0 {
            let usage = tlsf.usage();
            slots.reserve(usage.live + usage.holes);
        }
        if state.slots.visit(scan.next_slot, SLOTS_TOGETHER, |id, slot| slots.note(id, slot.key)) {
            scan.next_slot += SLOTS_TOGETHER;
            return Seen::Part;
        }
        let id = BlockId(scan.next_block);
        let Some(held) = state.blocks.get(id.0 as usize) else { return Seen::All };
        scan.next_block += 1;
        let Some(held) = held else { return Seen::Part };
        let asks = if held.sharing == Sharing::Dedicated { None } else { Some(asks) };
        let find = |key, class| match (state.mobile(&scan.slots, key, class), asks) {
            (Found::Mobile(mobile), Some(asks)) if mobile.consent.is_within(asks) => Some(mobile),
            _ => None,
        };
        match &state.pager {
            Some(pager) => tlsf.for_each_in(id, |key, span, holds| {
                let Some(class) = holds else { return };
                let mobile = find(key, class);
                let resident = mobile.map(|mobile| self.resident(mobile, id, span, class));
                survey.add_to_pages(pager, span, resident);
            }),
            None => survey.add_block(id, held.block.size(), sums(tlsf, id, find)),
        }
        Seen::Part
    }

    fn resident(&self, mobile: Mobile, block: BlockId, span: Span, class: Class) -> Resident {
        let align = mobile.align.unwrap_or(self.shared.unit);
        Resident { slot: mobile.slot, block, span, align, class }
    }

    /// What is in a block, lowest first. What came after the scan is not among it.
    pub(super) fn look_into(&self, block: BlockId, slots: &SlotsByKey, asks: Consent) -> Inside {
        let mut inside = Inside::default();
        let state = self.state.lock();
        let Divider::General(tlsf) = &state.divider else { return inside };
        tlsf.for_each_in(block, |key, span, holds| match holds {
            None => inside.holes.push((key, span)),
            Some(class) => match state.mobile(slots, key, class) {
                Found::Mobile(mobile) if mobile.consent.is_within(asks) => {
                    inside.residents.push(self.resident(mobile, block, span, class));
                }
                Found::Mobile(_) | Found::Held => inside.held = true,
                Found::Nothing => {}
            },
        });
        inside
    }
}

/// Adds up what is in a block.
fn sums(tlsf: &Tlsf, block: BlockId, find: impl Fn(Key, Class) -> Option<Mobile>) -> Region {
    let mut sums = Region::default();
    tlsf.for_each_in(block, |key, span, holds| match holds {
        None => {
            sums.free += span.size;
            sums.largest_hole = sums.largest_hole.max(span.size);
        }
        Some(class) => {
            sums.live += span.size;
            match find(key, class) {
                Some(_) => sums.movable += 1,
                None => sums.stays = true,
            }
        }
    });
    sums
}

/// What is in a block.
#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) residents: Vec<Resident>,
    pub(super) holes: Vec<(Key, Span)>,
    /// Whether something in it holds on to its place.
    pub(super) held: bool,
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

/// What is live under a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// An allocation that may move.
    Mobile(Mobile),
    /// One that may not, now.
    Held,
    /// A pager's run, a place that a pass holds or something leaves, or an allocation newer than the list of slots.
    Nothing,
}

impl<B: Backend> LaneState<B> {
    /// What is live under a key.
    #[inline]
    pub(super) fn mobile(&self, slots: &SlotsByKey, key: Key, class: Class) -> Found {
        let Some(id) = slots.get(key) else { return Found::Nothing };
        let Some(slot) = self.slots.get(id).ok().filter(|slot| slot.key == key) else {
            return Found::Nothing;
        };
        match slot.standing() {
            Standing::Free => {}
            Standing::OnItsWay => return Found::Nothing,
            Standing::Held => return Found::Held,
        }
        let note = if slot.is_noted() { self.notes.get(id.index) } else { None };
        let consent = match (class, note.map(|note| note.consent)) {
            // Only the device knows what the bytes of a tiled image mean elsewhere.
            (Class::Tiled, _) | (_, Some(Consent::Needed)) => Consent::Needed,
            _ => Consent::Given,
        };
        Found::Mobile(Mobile { slot: id, align: note.and_then(|note| note.align), consent })
    }
}
