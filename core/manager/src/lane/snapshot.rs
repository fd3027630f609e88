//! Snapshot of a lane: its extents, and the allocations in them that may move.
//!
//! An extent is what the driver takes back as a whole: a block, a page of a paged pool, or a group of pages that share one handle.
//! The snapshot is built in slices under the lane's lock. Whatever is done with it later is checked against the lane as it is then.
#![forbid(unsafe_code)]
use super::bytes::Bytes;
use super::extra::{Consent, Residence, SlotId};
use super::occupancy::{Found, Mobile, Occupancy, REMOTE, Slot, Standing};
use super::state::{Lane, State};
use crate::{Align, Backend, Class, ErrorKind, HeapId, Sharing, Span};
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};
use omniheap_strategy::pages::Pager;
use omniheap_strategy::{BlockId, Key, Tlsf};

/// An allocation that may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) slot: SlotId,
    pub(crate) block: BlockId,
    pub(crate) span: Span,
    pub(crate) align: Align,
    pub(crate) class: Class,
}

impl Resident {
    /// Bytes that it takes side by side with others of its alignment.
    pub(crate) fn packed_bytes(&self) -> u64 {
        self.align.up(self.span.size).unwrap_or(u64::MAX)
    }
}

/// An extent of a lane. The residents of blocks are looked up when it is the block's turn.
pub(crate) type Extent = omniheap_strategy::moves::Extent<Resident>;

/// No extent, or no slot.
const NONE: u32 = u32::MAX;
/// Slots that are read under one lock.
pub(super) const SLOTS_TOGETHER: usize = 4096;

/// The extents of a lane at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) extents: Vec<Extent>,
    /// Indices into `extents`, by extent number or by the number of any page of an extent; `NONE` for empty ones.
    by_number: Vec<u32>,
    page: Option<u64>,
}

impl Snapshot {
    pub(crate) const fn is_paged(&self) -> bool {
        self.page.is_some()
    }

    /// The index of an extent; `None` for an empty one.
    #[inline]
    pub(crate) fn find(&self, number: u64) -> Option<usize> {
        let at = *self.by_number.get(usize::try_from(number).ok()?)?;
        (at != NONE).then_some(at as usize)
    }

    /// Adds an extent; `numbers` are its own, or those of its pages.
    fn add(&mut self, numbers: Range<u64>, extent: Extent) -> Option<usize> {
        let at = u32::try_from(self.extents.len()).ok().filter(|at| *at != NONE)?;
        let [first, end] = [numbers.start, numbers.end].map(usize::try_from);
        let (first, end) = (first.ok()?, end.ok()?);
        if end > self.by_number.len() {
            self.by_number.resize(end, NONE);
        }
        self.by_number[first..end].fill(at);
        self.extents.push(extent);
        Some(at as usize)
    }

    /// The extents that a span touches, for [`next`](Self::next).
    #[inline]
    pub(crate) fn touched(&self, block: BlockId, span: Span) -> RangeInclusive<u64> {
        match self.page {
            Some(page) => span.offset / page..=(span.end() - 1) / page,
            None => u64::from(block.0)..=u64::from(block.0),
        }
    }

    /// The next extent that a span touches: its index, or `None` for an empty one.
    #[inline]
    pub(crate) fn next(&self, touched: &mut RangeInclusive<u64>) -> Option<Option<usize>> {
        let at = self.find(touched.next()?);
        if let (Some(page), Some(at)) = (self.page, at) {
            let extent = &self.extents[at];
            // A page group is one extent.
            *touched = extent.number + extent.size / page..=*touched.end();
        }
        Some(at)
    }

    /// Records a live span of pages; `resident` where it may move. Unmapped addresses have no extent.
    fn add_to_pages(&mut self, pager: &Pager, span: Span, resident: Option<Resident>) {
        let page = pager.page();
        let (mut number, last) = (span.offset / page, (span.end() - 1) / page);
        let moves = resident.map_or(0, |resident| resident.packed_bytes());
        while number <= last {
            let Some(at) = self.find(number).or_else(|| self.add_group(pager, number)) else {
                return;
            };
            let extent = &mut self.extents[at];
            let end = extent.number + extent.size / page;
            extent.live = extent.live.saturating_add(span.size);
            extent.movable += u64::from(resident.is_some());
            extent.begins += if extent.number <= span.offset / page { moves } else { 0 };
            extent.ends += if end > last { moves } else { 0 };
            match resident {
                Some(resident) => extent.residents.push(resident),
                None => extent.stays = true,
            }
            number = end;
        }
    }

    /// Adds the extent of a page: its whole page group.
    #[cold]
    fn add_group(&mut self, pager: &Pager, number: u64) -> Option<usize> {
        let pages = pager.group_at(number)?;
        let size = (pages.end - pages.start) * pager.page();
        self.add(pages.clone(), Extent::new(pages.start, size))
    }

    /// Adds the extent of a block.
    #[cold]
    fn add_block<B: Backend>(&mut self, bytes: &Bytes<B>, block: BlockId) -> usize {
        let number = u64::from(block.0);
        let (size, stays) = (bytes.block(block).size(), bytes.sharing(block) == Sharing::Dedicated);
        let extent = Extent { stays, ..Extent::new(number, size) };
        self.add(number..number + 1, extent).expect("blocks have numbers of 31 bits")
    }

    /// Sorts the extents by number; they were added in the order of the slots.
    fn sort(&mut self) {
        if self.extents.is_sorted_by_key(|extent| extent.number) {
            return;
        }
        self.extents.sort_by_key(|extent| extent.number);
        let places = (0u32..).zip(&self.extents);
        for (at, extent) in places {
            let pages = self.page.map_or(1, |page| extent.size / page);
            let numbers = extent.number..extent.number + pages;
            // Every number was a position in this table when the extent was added.
            for number in numbers {
                self.by_number[usize::try_from(number).expect("added before")] = at;
            }
        }
    }
}

/// The progress of a snapshot, which is taken in slices so that no thread waits long for the lane.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    next_slot: usize,
    /// Extents whose holes were read; `None` where holes are not wanted.
    holes: Option<usize>,
}

impl Scan {
    /// A scan of everything, holes included.
    pub(crate) const fn with_holes() -> Self {
        Self { next_slot: 0, holes: Some(0) }
    }

    /// Returns true at the start of the first scan.
    pub(crate) const fn is_first(&self) -> bool {
        self.next_slot == 0 && self.holes.is_none()
    }

    /// A scan of the holes only.
    pub(crate) const fn holes_only() -> Self {
        Self { next_slot: usize::MAX, holes: Some(0) }
    }
}

impl<B: Backend> Lane<B> {
    /// An empty snapshot of this lane.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { page: self.shared.page(), ..Snapshot::default() }
    }

    /// Takes the next slice of the snapshot: some slots, and later the holes of a block. Returns whether it is complete.
    pub(crate) fn scan(
        &self,
        scan: &mut Scan,
        snapshot: &mut Snapshot,
        slots: &mut SlotsByBlock,
        asks: Consent,
    ) -> bool {
        let state = self.state.lock_flushed();
        let (known, Some(tlsf)) = (&state.occupancy, state.bytes.general()) else { return true };
        let seen = match state.bytes.pages() {
            Some((pager, _)) => known.visit(scan.next_slot, SLOTS_TOGETHER, |id, slot| {
                self.note_in_pages(known, tlsf, pager, (id, slot), snapshot, asks);
            }),
            None => self.note_in_blocks(&state, tlsf, scan.next_slot, snapshot, slots, asks),
        };
        if seen {
            scan.next_slot += SLOTS_TOGETHER;
            return false;
        }
        if scan.next_slot != usize::MAX {
            scan.next_slot = usize::MAX;
            drop(state);
            snapshot.sort();
            slots.sort();
            return false;
        }
        let next = scan.holes.as_mut().filter(|_| !snapshot.is_paged());
        let Some(next) = next.filter(|next| **next < snapshot.extents.len()) else {
            return true;
        };
        let extent = &mut snapshot.extents[*next];
        let number = u32::try_from(extent.number).expect("blocks have numbers of 31 bits");
        tlsf.for_each_in(BlockId(number), |_, span, holds| {
            if holds.is_none() {
                extent.free += span.size;
                extent.largest_hole = extent.largest_hole.max(span.size);
            }
        });
        *next += 1;
        false
    }

    /// Records a slot of a lane of pages. `known` are the allocations of this lane, under its lock.
    fn note_in_pages(
        &self,
        known: &Occupancy,
        tlsf: &Tlsf,
        pager: &Pager,
        (id, slot): (SlotId, &Slot),
        snapshot: &mut Snapshot,
        asks: Consent,
    ) {
        let Ok((grant, class)) = tlsf.granted(slot.key) else { return };
        if grant.block != pager.block() {
            return; // A block of its own has no pages.
        }
        let resident = match known.mobile(id, slot, class) {
            Found::Mobile(mobile) if mobile.consent.is_within(asks) => {
                Some(self.resident(mobile, grant.block, grant.span, class))
            }
            _ => None,
        };
        snapshot.add_to_pages(pager, grant.span, resident);
    }

    /// Records some slots of a lane of blocks; returns whether there were any. `state` is the locked state of this lane.
    fn note_in_blocks(
        &self,
        state: &State<B>,
        tlsf: &Tlsf,
        from: usize,
        snapshot: &mut Snapshot,
        slots: &mut SlotsByBlock,
        asks: Consent,
    ) -> bool {
        slots.seen.reserve(SLOTS_TOGETHER);
        state.occupancy.visit(from, SLOTS_TOGETHER, |id, slot| {
            let Ok((grant, class)) = tlsf.granted(slot.key) else { return };
            let known = snapshot.by_number.get(grant.block.0 as usize).filter(|at| **at != NONE);
            let at = match known {
                Some(at) => *at as usize,
                None => snapshot.add_block(&state.bytes, grant.block),
            };
            let extent = &mut snapshot.extents[at];
            let moves = if slot.has_extra() || class == Class::Tiled {
                matches!(state.occupancy.mobile(id, slot, class), Found::Mobile(mobile) if mobile.consent.is_within(asks))
            } else {
                slot.standing() == Standing::Free
            };
            extent.live += grant.span.size;
            extent.movable += u64::from(moves);
            extent.stays |= !moves;
            slots.seen.push((grant.block.0, id.index));
        })
    }

    /// The allocations that spilled here from another heap, with the heap that suits them best.
    pub(crate) fn spilled(&self) -> Vec<(Resident, HeapId)> {
        let mut found = Vec::new();
        for from in (0..).step_by(SLOTS_TOGETHER) {
            let state = self.state.lock();
            let (known, Some(tlsf)) = (&state.occupancy, state.bytes.general()) else {
                return found;
            };
            let seen = known.visit(from, SLOTS_TOGETHER, |id, slot| {
                let extra = known.extra_of(id, slot);
                let Some(Residence::Wishes(wished)) = extra.map(|extra| extra.residence) else {
                    return;
                };
                let Ok((grant, class)) = tlsf.granted(slot.key) else { return };
                if let Found::Mobile(mobile) = known.mobile(id, slot, class) {
                    found.push((self.resident(mobile, grant.block, grant.span, class), wished));
                }
            });
            if !seen {
                break;
            }
        }
        found
    }

    fn resident(&self, mobile: Mobile, block: BlockId, span: Span, class: Class) -> Resident {
        Resident { slot: mobile.slot, block, span, align: mobile.align, class }
    }

    /// The contents of a block, unordered, without allocations newer than the scan.
    pub(crate) fn look_into(
        &self,
        block: BlockId,
        slots: &SlotsByBlock,
        asks: Consent,
        with_holes: bool,
    ) -> Inside {
        let slots = slots.of(block);
        let mut inside = Inside { residents: Vec::with_capacity(slots.len()), ..Inside::default() };
        let state = self.state.lock_flushed();
        let Some(tlsf) = state.bytes.general() else { return inside };
        for index in slots {
            let Some((id, slot)) = state.occupancy.at(*index) else { continue };
            let Ok((grant, class)) = tlsf.granted(slot.key) else { continue };
            if grant.block != block {
                continue; // Another allocation has the slot now, or this one has moved.
            }
            match state.occupancy.mobile(id, slot, class) {
                Found::Mobile(mobile) if mobile.consent.is_within(asks) => {
                    inside.residents.push(self.resident(mobile, block, grant.span, class));
                }
                Found::Mobile(_) | Found::Held => inside.held = true,
                Found::Nothing => {}
            }
        }
        if with_holes {
            tlsf.for_each_in(block, |key, span, holds| {
                if holds.is_none() {
                    inside.holes.push((key, span));
                }
            });
        }
        inside
    }
}

/// The contents of a block.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    pub(crate) residents: Vec<Resident>,
    /// Its holes, lowest first, with the keys to carve them; only where asked for.
    pub(crate) holes: Vec<(Key, Span)>,
    /// True if an allocation in it may not move.
    pub(crate) held: bool,
}

/// The slots of each block.
#[derive(Debug, Default)]
pub(crate) struct SlotsByBlock {
    /// Pairs of block and slot, in the order of the scan.
    pub(crate) seen: Vec<(u32, u32)>,
    /// Slots sorted by block.
    slots: Vec<u32>,
    /// The end of each block's slots in `slots`, by block number.
    ends: Vec<usize>,
}

impl SlotsByBlock {
    /// Clears the table, but keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.seen.clear();
        self.slots.clear();
        self.ends.clear();
    }

    /// The number of slots that fit into its memory.
    pub(crate) fn capacity(&self) -> usize {
        self.seen.capacity().max(self.slots.capacity())
    }

    /// Sorts the slots by block.
    pub(crate) fn sort(&mut self) {
        let seen = core::mem::take(&mut self.seen);
        let blocks = seen.iter().map(|(block, _)| *block as usize + 1).max().unwrap_or(0);
        self.ends.resize(blocks, 0);
        seen.iter().for_each(|(block, _)| self.ends[*block as usize] += 1);
        let mut first = 0;
        for end in &mut self.ends {
            (*end, first) = (first, first + *end);
        }
        self.slots.resize(seen.len(), 0);
        for (block, slot) in &seen {
            let end = &mut self.ends[*block as usize];
            self.slots[*end] = *slot;
            *end += 1;
        }
        self.seen = seen;
    }

    /// The slots of one block.
    pub(crate) fn of(&self, block: BlockId) -> &[u32] {
        let end = |block: usize| self.ends.get(block).copied();
        let block = block.0 as usize;
        let first = block.checked_sub(1).and_then(end).unwrap_or(0);
        &self.slots[first..end(block).unwrap_or(first)]
    }
}

/// The slot of each key, by the key's index.
#[derive(Debug)]
pub(super) struct SlotsByKey(Vec<(u32, u32)>);

impl SlotsByKey {
    /// The slots of a lane, or `OutOfHostMemory`.
    pub(super) fn new(known: &Occupancy) -> Result<Self, ErrorKind> {
        let mut by_key = Vec::new();
        for (id, slot) in known.iter().filter(|(_, slot)| slot.key != REMOTE) {
            let at = slot.key.index() as usize;
            if at >= by_key.len() {
                let missing = at + 1 - by_key.len();
                by_key.try_reserve(missing).map_err(|_| ErrorKind::OutOfHostMemory)?;
                by_key.resize(at + 1, (NONE, 0));
            }
            by_key[at] = (id.index, id.generation);
        }
        Ok(Self(by_key))
    }

    /// The slot of a key, or of an older key with the same index.
    #[inline]
    fn get(&self, key: Key) -> Option<SlotId> {
        let (index, generation) = *self.0.get(key.index() as usize)?;
        (index != NONE).then_some(SlotId { index, generation })
    }

    /// Looks at the allocation of a key.
    #[inline]
    pub(super) fn find(&self, known: &Occupancy, key: Key, class: Class) -> Found {
        let Some(id) = self.get(key) else { return Found::Nothing };
        match known.get(id) {
            Ok(slot) if slot.key == key => known.mobile(id, slot, class),
            _ => Found::Nothing,
        }
    }
}
