//! A trace as the events of a snapshot: addresses in place of blocks and offsets.

use crate::event::{AllocationId, BlockId, Op, Rung};
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
    pub(super) fn live(&self, address: u64, size: u64) -> impl Iterator<Item = (u64, &Live)> {
        self.live.range(address..address.saturating_add(size)).map(|(&at, live)| (at, live))
    }

    fn step(&mut self, time_us: u64, op: &Op) {
        match *op {
            Op::Allocate { id, size, stream, .. } => {
                let address = self.bound_next(id).unwrap_or_else(|| self.nowhere(size));
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
            Op::BlockAllocate { block, size, .. } => {
                let base = self.next_base;
                self.next_base = base.saturating_add(size.saturating_add(2 * GRAIN) & !(GRAIN - 1));
                self.segments.insert(base, size);
                self.bases.insert(block, base);
                self.say("segment_alloc", base, size, time_us);
            }
            Op::BlockFree { block, size, .. } => {
                if let Some(base) = self.bases.remove(&block) {
                    self.segments.remove(&base);
                    self.say("segment_free", base, size, time_us);
                }
            }
            Op::OutOfMemory { size, rung: Rung::Failed, .. } => self.say("oom", 0, size, time_us),
            _ => {}
        }
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

    /// Returns the address that the binding right after an allocation gives it.
    fn bound_next(&self, id: AllocationId) -> Option<u64> {
        for event in &self.trace.events()[self.next..] {
            match event.op {
                Op::Bind { id: bound, block, offset } if bound == id => {
                    return self.bases.get(&block).map(|base| base.saturating_add(offset));
                }
                Op::BlockOffset { id: placed, .. } if placed == id => {}
                _ => return None,
            }
        }
        None
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
