//! The figures of a trace that need no allocator: what was live and what was reserved, at peak.

use crate::event::{Backing, Op};
use crate::trace::Trace;
use serde::Serialize;

/// Counts and peaks over a whole trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Events of every kind.
    pub events: u64,
    /// Allocations made.
    pub allocations: u64,
    /// Streams that are named: one more than the largest index.
    pub streams: u32,
    /// Largest sum of bytes that were allocated and whose free was not complete.
    pub peak_live_bytes: u64,
    /// Largest sum of bytes that were allocated and not yet asked to be freed.
    pub peak_held_bytes: u64,
    /// Largest number of allocations live at once.
    pub peak_live: u64,
    /// Bytes live when the trace ends.
    pub final_live_bytes: u64,
    /// Largest sum of blocks and pages held from the driver, where the trace records them; else 0.
    pub peak_reserved_bytes: u64,
    /// Times a block or pages were taken from or given back to the driver.
    pub driver_calls: u64,
    /// Requests that failed for want of memory.
    pub oom: u64,
    /// Time of the last event.
    pub duration_us: u64,
}

impl Trace {
    /// Walks the events once and returns their counts and peaks.
    pub fn summary(&self) -> Summary {
        let mut sum = Summary {
            events: self.events().len() as u64,
            allocations: u64::from(self.allocations()),
            duration_us: self.events().last().map_or(0, |event| event.time_us),
            ..Summary::default()
        };
        let mut now = Now::default();
        // Marks the allocations whose free was asked for before it completed; `held` falls once only.
        let mut requested = vec![false; self.allocations() as usize];
        for event in self.events() {
            sum.streams = sum.streams.max(streams_up_to(&event.op));
            now.apply(&event.op, &mut requested, &mut sum);
        }
        sum.final_live_bytes = now.live_bytes;
        sum
    }
}

/// One more than the index of the stream that an event names.
fn streams_up_to(op: &Op) -> u32 {
    match *op {
        Op::Allocate { stream, .. }
        | Op::FreeRequested { stream, .. }
        | Op::FreeCompleted { stream, .. }
        | Op::Use { stream, .. }
        | Op::OutOfMemory { stream, .. } => u32::from(stream.0) + 1,
        _ => 0,
    }
}

#[derive(Default)]
struct Now {
    live: u64,
    live_bytes: u64,
    held_bytes: u64,
    reserved_bytes: u64,
}

impl Now {
    fn apply(&mut self, op: &Op, requested: &mut [bool], sum: &mut Summary) {
        match *op {
            Op::Allocate { size, .. } => {
                self.live += 1;
                self.live_bytes += size;
                self.held_bytes += size;
                sum.peak_live = sum.peak_live.max(self.live);
                sum.peak_live_bytes = sum.peak_live_bytes.max(self.live_bytes);
                sum.peak_held_bytes = sum.peak_held_bytes.max(self.held_bytes);
            }
            Op::FreeRequested { id, size, .. } => {
                requested[id.0 as usize] = true;
                self.held_bytes -= size;
            }
            Op::FreeCompleted { id, size, .. } => {
                self.live -= 1;
                self.live_bytes -= size;
                self.held_bytes -= if requested[id.0 as usize] { 0 } else { size };
            }
            Op::BlockAllocate { size: bytes, backing: Backing::Memory, .. }
            | Op::PagesTake { bytes, .. } => {
                self.reserved_bytes += bytes;
                sum.driver_calls += 1;
                sum.peak_reserved_bytes = sum.peak_reserved_bytes.max(self.reserved_bytes);
            }
            Op::BlockFree { size: bytes, backing: Backing::Memory, .. }
            | Op::PagesReturn { bytes, .. } => {
                self.reserved_bytes -= bytes;
                sum.driver_calls += 1;
            }
            Op::BlockAllocate { .. }
            | Op::BlockFree { .. }
            | Op::HostPagesTake { .. }
            | Op::HostPagesReturn { .. } => sum.driver_calls += 1,
            Op::OutOfMemory { rung: crate::Rung::Failed, .. } => sum.oom += 1,
            _ => {}
        }
    }
}
