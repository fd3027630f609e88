//! A trace as the events of a snapshot: addresses in place of blocks and offsets.

use crate::event::{AllocationId, Backing, BlockId, HeapId, Op, Rung};
use crate::label::LabelId;
use crate::trace::Trace;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Address of the first segment.
const BASE: u64 = 0x7f00_0000_0000;
/// Base address of allocations without a known place.
const NOWHERE: u64 = 0x1000_0000_0000;
/// Segments begin at multiples of this, with at least as much between them.
const GRAIN: u64 = 2 << 20;

/// One event of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) action: &'static str,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u16,
    pub(super) time_us: u64,
    pub(super) label: LabelId,
}

/// State of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In use.
    Live,
    /// Its free was asked for.
    Pending,
}

/// A live allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    pub(super) size: u64,
    pub(super) label: LabelId,
    pub(super) state: State,
    stream: u16,
}

/// Returns the events one by one; afterwards it knows what is left.
#[derive(Debug)]
pub(super) struct History<'t> {
    trace: &'t Trace,
    next: usize,
    ready: VecDeque<Entry>,
    segments: BTreeMap<u64, u64>,
    /// Blocks with pages, by address: their bytes and heaps. Segments in them are where something was allocated and the memory not given back since.
    paged: BTreeMap<u64, (u64, HeapId)>,
    bases: HashMap<BlockId, u64>,
    live: BTreeMap<u64, Live>,
    places: HashMap<AllocationId, u64>,
    next_base: u64,
    next_nowhere: u64,
}

impl<'t> History<'t> {
    pub(super) fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            next: 0,
            ready: VecDeque::new(),
            segments: BTreeMap::new(),
            paged: BTreeMap::new(),
            bases: HashMap::new(),
            live: BTreeMap::new(),
            places: HashMap::new(),
            next_base: BASE,
            next_nowhere: NOWHERE,
        }
    }

    /// Returns the segments held now: address and size.
    pub(super) fn segments(&self) -> Vec<(u64, u64)> {
        self.segments.iter().map(|(&address, &size)| (address, size)).collect()
    }

    /// Returns the live allocations in `size` bytes at `address`.
    pub(super) fn live(
        &self,
        address: u64,
        size: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Live)> {
        self.live.range(address..address.saturating_add(size)).map(|(&at, live)| (at, live))
    }

    fn step(&mut self, time_us: u64, op: &Op) {
        match *op {
            Op::Allocate { id, size, stream, .. } => {
                let bound = self.trace.bound_next(self.next, id);
                let base =
                    bound.and_then(|(block, at)| Some(self.bases.get(&block)?.saturating_add(at)));
                let address = base.unwrap_or_else(|| self.nowhere(size));
                let live = Live {
                    size,
                    label: self.trace.label_of(id),
                    state: State::Live,
                    stream: stream.0,
                };
                self.settle(time_us, id, address, live);
            }
            Op::FreeRequested { id, .. } => self.free(time_us, id, &["free_requested"]),
            Op::FreeCompleted { id, .. } => {
                self.free(time_us, id, &["free_requested", "free_completed"]);
            }
            Op::Bind { id, block, offset } | Op::Move { id, block, offset } => {
                self.relocate(time_us, id, self.bases[&block].saturating_add(offset));
            }
            Op::BlockAllocate { block, size, heap, backing } => {
                self.take_block(time_us, block, (size, heap), backing);
            }
            Op::BlockFree { block, size, .. } => self.free_block(time_us, block, size),
            Op::PagesReturn { bytes, heap } | Op::HostPagesReturn { bytes, heap } => {
                self.unmap_empty(time_us, bytes, heap);
            }
            Op::OutOfMemory { size, rung: Rung::Failed, .. } => self.say("oom", 0, size, time_us),
            _ => {}
        }
    }

    fn take_block(
        &mut self,
        time_us: u64,
        block: BlockId,
        (size, heap): (u64, HeapId),
        backing: Backing,
    ) {
        let base = self.next_base;
        self.next_base = base.saturating_add(size.saturating_add(2 * GRAIN) & !(GRAIN - 1));
        self.bases.insert(block, base);
        if backing == Backing::Pages {
            self.paged.insert(base, (size, heap));
        } else {
            self.segments.insert(base, size);
            self.say("segment_alloc", base, size, time_us);
        }
    }

    fn free_block(&mut self, time_us: u64, block: BlockId, size: u64) {
        let Some(base) = self.bases.remove(&block) else { return };
        if self.paged.remove(&base).is_some() {
            self.unmap(time_us, base, size);
        } else {
            self.segments.remove(&base);
            self.say("segment_free", base, size, time_us);
        }
    }

    /// Makes segments for an allocation in a block with pages. A trace says how many pages there are, but not where.
    fn map(&mut self, time_us: u64, address: u64, size: u64) {
        let Some((&base, &(whole, _))) = self.paged.range(..=address).next_back() else { return };
        let end = address.saturating_add(size).saturating_add(GRAIN - 1) & !(GRAIN - 1);
        let (mut at, end) = (address & !(GRAIN - 1), end.min(base.saturating_add(whole)));
        while at < end {
            let before = self
                .segments
                .range(..=at)
                .next_back()
                .map(|(&from, &size)| (from, from.saturating_add(size)));
            match before.filter(|(_, last)| *last > at) {
                Some((_, last)) => at = last,
                None => {
                    let after = self.segments.range(at..end).next().map_or(end, |(&from, _)| from);
                    self.say("segment_map", at, after - at, time_us);
                    let from = before.filter(|(_, last)| *last == at).map_or(at, |(from, _)| from);
                    let joined = self.segments.remove(&after).unwrap_or(0);
                    self.segments.insert(from, after - from + joined);
                    at = after;
                }
            }
        }
    }

    /// Removes these bytes from the segments.
    fn unmap(&mut self, time_us: u64, address: u64, size: u64) {
        let end = address.saturating_add(size);
        while let Some((&from, &whole)) = self.segments.range(..end).next_back() {
            let (start, last) = (from.max(address), from.saturating_add(whole).min(end));
            if start >= last {
                return;
            }
            self.segments.remove(&from);
            for (at, to) in [(from, start), (last, from.saturating_add(whole))] {
                if at < to {
                    self.segments.insert(at, to - at);
                }
            }
            self.say("segment_unmap", start, last - start, time_us);
        }
    }

    /// Removes this many empty bytes from the segments of a heap's blocks with pages, highest addresses first.
    fn unmap_empty(&mut self, time_us: u64, mut bytes: u64, heap: HeapId) {
        let is_paged = |address: u64| {
            self.paged
                .range(..=address)
                .next_back()
                .is_some_and(|(base, (size, of))| *of == heap && address - base < *size)
        };
        let mut empty = Vec::new();
        for (&from, &size) in self.segments.iter().rev().filter(|(at, _)| is_paged(**at)) {
            let live = self.live(from, size).map(|(at, live)| (at, at.saturating_add(live.size)));
            let mut end = from.saturating_add(size);
            for (at, behind) in live.rev().chain([(from, from)]) {
                if bytes == 0 {
                    break;
                }
                let start = behind.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX);
                let start = start.max(end.saturating_sub(bytes));
                if start < end {
                    empty.push((start, end - start));
                    bytes -= end - start;
                }
                end = at & !(GRAIN - 1);
            }
        }
        empty.into_iter().for_each(|(at, size)| self.unmap(time_us, at, size));
    }

    fn say(&mut self, action: &'static str, address: u64, size: u64, time_us: u64) {
        self.ready.push_back(Entry {
            action,
            address,
            size,
            stream: 0,
            time_us,
            label: LabelId::NONE,
        });
    }

    fn tell(&mut self, action: &'static str, address: u64, live: Live, time_us: u64) {
        let Live { size, stream, label, .. } = live;
        self.ready.push_back(Entry { action, address, size, stream, time_us, label });
    }

    fn nowhere(&mut self, size: u64) -> u64 {
        let address = self.next_nowhere;
        self.next_nowhere = address.saturating_add(size.saturating_add(511) & !511);
        address
    }

    /// Makes `id` live at `address`; where something else lives there, elsewhere.
    fn settle(&mut self, time_us: u64, id: AllocationId, address: u64, live: Live) {
        let address =
            if self.live.contains_key(&address) { self.nowhere(live.size) } else { address };
        self.map(time_us, address, live.size);
        self.live.insert(address, live);
        self.places.insert(id, address);
        self.tell("alloc", address, live, time_us);
    }

    fn relocate(&mut self, time_us: u64, id: AllocationId, address: u64) {
        if self.places.get(&id) == Some(&address) {
            return;
        }
        let Some(live) = self.places.get(&id).and_then(|old| self.live.get(old)).copied() else {
            return;
        };
        self.free(time_us, id, &["free_requested", "free_completed"]);
        self.settle(time_us, id, address, live);
    }

    /// Writes those of `actions` that were not written before; the last one ends the allocation.
    fn free(&mut self, time_us: u64, id: AllocationId, actions: &[&'static str]) {
        let Some(&address) = self.places.get(&id) else { return };
        let Some(live) = self.live.get_mut(&address) else { return };
        let was = live.state;
        live.state = State::Pending;
        let live = *live;
        for action in
            actions.iter().filter(|action| was == State::Live || **action == "free_completed")
        {
            self.tell(action, address, live, time_us);
        }
        if actions.contains(&"free_completed") {
            self.live.remove(&address);
            self.places.remove(&id);
        }
    }
}

impl Iterator for History<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            let event = *self.trace.events().get(self.next)?;
            self.next += 1;
            self.step(event.time_us, &event.op);
        }
    }
}
