//! All events in a few columns, each delta-coded, compressed and in base64: small enough for one page.

use super::base64;
use super::data::{Columns, Curve};
use super::state::State;
use crate::event::{Backing, HeapId, Op, Residence, StreamId};
use crate::trace::Trace;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

impl Curve {
    /// Packs a curve. A point says how many allocations and completed frees came before it, and how many bytes are held
    /// from then on; points are in order.
    pub fn new(points: &[(u64, u64)]) -> Self {
        let (mut steps, mut bytes, mut last) = (Vec::new(), Vec::new(), 0);
        for &(at, held) in points {
            put(&mut steps, at.saturating_sub(last));
            put(&mut bytes, held);
            last = at.max(last);
        }
        Self { count: points.len() as u64, steps: squeeze(&steps), bytes: squeeze(&bytes) }
    }
}

/// The columns while they grow.
#[derive(Default)]
struct Raw {
    count: u64,
    allocations: u64,
    last_us: u64,
    kinds: Vec<u8>,
    steps: Vec<u8>,
    sizes: Vec<u8>,
    labels: Vec<u8>,
    streams: Vec<u8>,
    backs: Vec<u8>,
    blocks: Vec<u8>,
    offsets: Vec<u8>,
}

/// Packs the events of `trace`.
pub(super) fn pack(trace: &Trace) -> Columns {
    let mut raw = Raw::default();
    let mut state = State::new(trace);
    let events = trace.events();
    for (index, event) in events.iter().enumerate() {
        state.apply(&event.op);
        let kind = raw.numbers(trace, &state, index);
        if let Some(kind) = kind {
            raw.kinds.push(kind);
            put(&mut raw.steps, event.time_us - raw.last_us);
            raw.last_us = event.time_us;
            raw.count += 1;
        }
    }
    raw.finish()
}

impl Raw {
    /// Writes the numbers of event `index` and returns its kind; `None` for events that are not packed.
    fn numbers(&mut self, trace: &Trace, state: &State<'_>, index: usize) -> Option<u8> {
        let events = trace.events();
        match events[index].op {
            Op::Allocate { id, size, stream, .. } => {
                self.allocation(size, trace.label_of(id).0, stream);
                self.binding(state, trace.bound_next(index + 1, id));
                Some(0)
            }
            Op::FreeCompleted { id, .. } => self.back(id.0, 1),
            Op::FreeRequested { id, .. } => {
                let at_once = matches!(events.get(index + 1), Some(next) if next.time_us == events[index].time_us
                    && matches!(next.op, Op::FreeCompleted { id: other, .. } if other == id));
                if at_once { None } else { self.back(id.0, 6) }
            }
            Op::BlockAllocate { size, heap, backing: Backing::Memory, .. } => {
                self.taken(size, heap, 2)
            }
            Op::BlockAllocate { size, heap, .. } => self.taken(size, heap, 9),
            Op::PagesTake { bytes, heap } => self.taken(bytes, heap, 7),
            Op::PagesReturn { bytes, heap } => self.taken(bytes, heap, 8),
            Op::HostPagesTake { bytes, heap } => self.taken(bytes, heap, 11),
            Op::HostPagesReturn { bytes, heap } => self.taken(bytes, heap, 12),
            Op::BlockFree { .. } => {
                put(&mut self.blocks, state.last_freed().into());
                Some(3)
            }
            Op::OutOfMemory { size, stream, rung: crate::Rung::Failed } => {
                put(&mut self.sizes, size);
                put(&mut self.streams, stream.0.into());
                Some(4)
            }
            Op::Bind { id, .. } if bound_before(&events[..index], id) => None,
            Op::Bind { id, block, offset } | Op::Move { id, block, offset } => {
                put(&mut self.blocks, state.instance(block).into());
                put(&mut self.offsets, offset);
                self.back(id.0, 5)
            }
            Op::Reside { block, residence } => self.reside(state.instance(block), residence),
            Op::BlockOffset { .. } | Op::Use { .. } | Op::OutOfMemory { .. } => None,
        }
    }

    fn taken(&mut self, size: u64, heap: HeapId, kind: u8) -> Option<u8> {
        put(&mut self.sizes, size);
        put(&mut self.blocks, heap.0.into());
        Some(kind)
    }

    fn reside(&mut self, block: u32, residence: Residence) -> Option<u8> {
        put(&mut self.blocks, block.into());
        put(&mut self.sizes, residence as u64);
        Some(10)
    }

    fn allocation(&mut self, size: u64, label: u32, stream: StreamId) {
        self.allocations += 1;
        put(&mut self.sizes, size);
        put(&mut self.labels, label.into());
        put(&mut self.streams, stream.0.into());
    }

    fn binding(&mut self, state: &State<'_>, place: Option<(crate::BlockId, u64)>) {
        match place {
            Some((block, offset)) => {
                put(&mut self.blocks, u64::from(state.instance(block)) + 1);
                put(&mut self.offsets, offset);
            }
            None => put(&mut self.blocks, 0),
        }
    }

    fn back(&mut self, id: u32, kind: u8) -> Option<u8> {
        put(&mut self.backs, self.allocations - u64::from(id));
        Some(kind)
    }

    fn finish(self) -> Columns {
        Columns {
            count: self.count,
            kinds: squeeze(&self.kinds),
            steps: squeeze(&self.steps),
            sizes: squeeze(&self.sizes),
            labels: squeeze(&self.labels),
            streams: squeeze(&self.streams),
            backs: squeeze(&self.backs),
            blocks: squeeze(&self.blocks),
            offsets: squeeze(&self.offsets),
        }
    }
}

/// Returns whether a binding of `id` after these events is the one that its allocation was packed with.
fn bound_before(before: &[crate::Event], id: crate::AllocationId) -> bool {
    let last = before
        .iter()
        .rev()
        .find(|event| !matches!(event.op, Op::BlockOffset { id: placed, .. } if placed == id));
    last.is_some_and(
        |event| matches!(event.op, Op::Allocate { id: allocated, .. } if allocated == id),
    )
}

fn squeeze(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(6));
    encoder.write_all(bytes).expect("a vector takes every byte");
    base64::encode(&encoder.finish().expect("a vector takes every byte"))
}

fn put(out: &mut Vec<u8>, value: u64) {
    crate::binary::put_varint(out, value);
}
