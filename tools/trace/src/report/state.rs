//! Blocks and what lies in them, event by event.

use super::data::{HeapBytes, MapBlock, MapSpan, Moment, SpanState};
use crate::event::{AllocationId, Backing, BlockId, Op};
use crate::trace::Trace;
use std::collections::{BTreeMap, HashMap};

/// Place of an allocation: the block's number in the whole trace, and the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) block: u32,
    pub(super) offset: u64,
}

/// A live allocation.
#[derive(Debug, Clone, Copy)]
struct Live {
    size: u64,
    spot: Option<Spot>,
    state: SpanState,
}

/// A held block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) size: u64,
    pub(super) heap: u8,
    pub(super) backing: Backing,
}

impl Held {
    /// Draws the block. Of a block of pages, the map shows addresses up to the end of the last allocation.
    fn map(&self, block: u32, spans: Vec<MapSpan>) -> MapBlock {
        let (size, unmapped) = match self.backing {
            Backing::Memory => (self.size, Some(Vec::new())),
            Backing::Pages => {
                (spans.iter().map(|span| span.offset + span.size).max().unwrap_or(0), None)
            }
        };
        MapBlock { block, heap: self.heap, size, spans, unmapped }
    }
}

/// Returns the bytes that a block itself holds.
const fn memory(size: u64, backing: Backing) -> u64 {
    match backing {
        Backing::Memory => size,
        Backing::Pages => 0,
    }
}

/// Blocks and allocations after some events.
#[derive(Debug)]
pub(super) struct State<'t> {
    trace: &'t Trace,
    live: HashMap<AllocationId, Live>,
    /// Held blocks by number.
    pub(super) held: BTreeMap<u32, Held>,
    /// Map from the trace's reused ids to numbers that are never reused.
    instances: HashMap<BlockId, u32>,
    next_instance: u32,
    last_freed: u32,
    pub(super) live_bytes: u64,
    /// Bytes held from the driver, by heap.
    reserved: BTreeMap<u8, u64>,
}

impl<'t> State<'t> {
    pub(super) fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            live: HashMap::new(),
            held: BTreeMap::new(),
            instances: HashMap::new(),
            next_instance: 0,
            last_freed: 0,
            live_bytes: 0,
            reserved: BTreeMap::new(),
        }
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match *op {
            Op::Allocate { id, size, .. } => {
                self.live_bytes += size;
                self.live.insert(id, Live { size, spot: None, state: SpanState::Live });
            }
            Op::FreeRequested { id, .. } => {
                if let Some(live) = self.live.get_mut(&id) {
                    live.state = SpanState::Pending;
                }
            }
            Op::FreeCompleted { id, size, .. } => {
                self.live_bytes -= size;
                self.live.remove(&id);
            }
            Op::Bind { id, block, offset } | Op::Move { id, block, offset } => {
                let spot = Spot { block: self.instance(block), offset };
                if let Some(live) = self.live.get_mut(&id) {
                    live.spot = Some(spot);
                }
            }
            Op::BlockAllocate { block, size, heap, backing } => {
                self.take(heap.0, memory(size, backing));
                self.instances.insert(block, self.next_instance);
                self.held.insert(self.next_instance, Held { size, heap: heap.0, backing });
                self.next_instance += 1;
            }
            Op::PagesTake { bytes, heap } => self.take(heap.0, bytes),
            Op::PagesReturn { bytes, heap } => self.give_back(heap.0, bytes),
            Op::BlockFree { block, size, backing } => {
                self.last_freed = self.instance(block);
                if let Some(held) = self.held.remove(&self.last_freed) {
                    self.give_back(held.heap, memory(size, backing));
                }
                self.instances.remove(&block);
            }
            _ => {}
        }
    }

    /// Saturates, as [`Self::give_back`] does: readers check the sum over all heaps only, and a hostile trace may take
    /// pages of one heap and return those of another.
    fn take(&mut self, heap: u8, bytes: u64) {
        let held = self.reserved.entry(heap).or_default();
        *held = held.saturating_add(bytes);
    }

    fn give_back(&mut self, heap: u8, bytes: u64) {
        let held = self.reserved.entry(heap).or_default();
        *held = held.saturating_sub(bytes);
    }

    /// Returns the number of a held block.
    pub(super) fn instance(&self, block: BlockId) -> u32 {
        *self.instances.get(&block).expect("a trace names a block only while it is held")
    }

    /// Returns the number of the block that the last event gave back.
    pub(super) fn last_freed(&self) -> u32 {
        self.last_freed
    }

    /// Returns the bytes of a live allocation.
    pub(super) fn size_of(&self, id: AllocationId) -> u64 {
        self.live.get(&id).map_or(0, |live| live.size)
    }

    /// Returns the map of this moment. Allocations whose place is unknown are not in it.
    pub(super) fn moment(&self, title: &str, time_us: u64) -> Moment {
        let mut spans: HashMap<u32, Vec<MapSpan>> = HashMap::new();
        for (&id, live) in &self.live {
            if let Some(spot) = live.spot.filter(|spot| self.held.contains_key(&spot.block)) {
                let label = self.trace.label_of(id).0;
                let span =
                    MapSpan { offset: spot.offset, size: live.size, label, state: live.state };
                spans.entry(spot.block).or_default().push(span);
            }
        }
        let blocks = self.held.iter().map(|(&block, held)| {
            let mut spans = spans.remove(&block).unwrap_or_default();
            spans.sort_unstable_by_key(|span| (span.offset, span.size, span.label));
            held.map(block, spans)
        });
        let reserved = self.reserved.iter().map(|(&heap, &bytes)| HeapBytes { heap, bytes });
        let (blocks, reserved) = (blocks.collect(), reserved.collect());
        Moment { title: title.to_owned(), time_us, reserved, blocks }
    }
}
