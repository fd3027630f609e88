//! Models of other allocators' policies: what they would have reserved for a trace. Numbers only, no memory. PyTorch's default is here; the
//! laboratory's `omniheap-fit` has more.

mod pytorch;

use crate::event::{AllocationId, Op, StreamId};
use crate::trace::Trace;
pub use pytorch::{BlockOrder, PyTorch};
use serde::Serialize;

/// Result of replaying a trace with a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Bytes as asked for, live at peak.
    pub peak_live_bytes: u64,
    /// Bytes held from the driver at peak.
    pub peak_reserved_bytes: u64,
    /// Blocks taken from and given back to the driver.
    pub driver_calls: u64,
    /// Requests that failed; their frees are skipped.
    pub oom: u64,
}

impl Outcome {
    /// Peak reserved ÷ peak live: 1 is perfect. 1 for a trace without allocations.
    pub fn ratio(&self) -> f64 {
        if self.peak_live_bytes == 0 {
            1.0
        } else {
            self.peak_reserved_bytes as f64 / self.peak_live_bytes as f64
        }
    }
}

/// Sees what a model decides, while it decides; every method does nothing unless it is implemented.
///
/// Models without blocks tell only what they reserve and refuse.
pub trait Observe {
    /// Block `block` of `size` bytes was taken from the driver.
    fn block_allocated(&mut self, block: u32, size: u64) {
        let _ = (block, size);
    }
    /// Block `block` was given back to the driver; its number may be used again.
    fn block_freed(&mut self, block: u32) {
        let _ = block;
    }
    /// The allocation lies at `offset` of `block`.
    fn bound(&mut self, id: AllocationId, block: u32, offset: u64) {
        let _ = (id, block, offset);
    }
    /// The allocation of `size` bytes failed.
    fn refused(&mut self, id: AllocationId, size: u64) {
        let _ = (id, size);
    }
    /// Bytes held from the driver changed to this sum.
    fn reserved(&mut self, bytes: u64) {
        let _ = bytes;
    }
    /// The event of this index was replayed; comes after the others.
    fn replayed(&mut self, index: usize) {
        let _ = index;
    }
}

/// Watches nothing.
impl Observe for () {}

/// Replays `trace` through PyTorch's default policy on a device without limit.
///
/// # Examples
/// ```
/// use omniheap_trace::{Limits, Trace, model};
/// let text = b"op,id,size,stream,time_us\na,0,100,0,0\nf,0,,0,1\n";
/// let trace = Trace::read(&text[..], &Limits::default())?;
/// assert_eq!(model::pytorch(&trace).peak_reserved_bytes, 2 << 20);
/// # Ok::<(), omniheap_trace::Error>(())
/// ```
pub fn pytorch(trace: &Trace) -> Outcome {
    replay(trace, PyTorch::unlimited(), &mut ())
}

/// Place of a live allocation, by the number that its model gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub u32);

/// A policy that [`replay`] can follow.
pub trait Model {
    /// Serves a request, and tells `observer` what that takes from the driver; `None` where it fails.
    fn allocate(
        &mut self,
        size: u64,
        stream: StreamId,
        observer: &mut impl Observe,
    ) -> Option<Place>;
    /// Takes back what [`allocate`](Self::allocate) gave.
    fn free(&mut self, place: Place);
    /// Returns block and offset of a place, where the policy has blocks.
    fn locate(&self, place: Place) -> Option<(u32, u64)>;
    /// Returns address and bytes of a place.
    fn extent(&self, place: Place) -> (u64, u64);
    /// Returns the most bytes that were held from the driver.
    fn peak_reserved_bytes(&self) -> u64;
    /// Returns how often memory was taken from the driver and given back to it.
    fn driver_calls(&self) -> u64;
}

/// Replays `trace` through `model` and tells `observer` each decision.
pub fn replay(trace: &Trace, mut model: impl Model, observer: &mut impl Observe) -> Outcome {
    let mut outcome = Outcome::default();
    let mut places = vec![None; trace.allocations() as usize];
    let mut live = 0_u64;
    for (index, event) in trace.events().iter().enumerate() {
        match event.op {
            Op::Allocate { id, size, stream, .. } => match model.allocate(size, stream, observer) {
                Some(place) => {
                    places[id.0 as usize] = Some(place);
                    live += size;
                    outcome.peak_live_bytes = outcome.peak_live_bytes.max(live);
                    if let Some((block, offset)) = model.locate(place) {
                        observer.bound(id, block, offset);
                    }
                }
                None => {
                    outcome.oom += 1;
                    observer.refused(id, size);
                }
            },
            Op::FreeCompleted { id, size, .. } => {
                if let Some(place) = places[id.0 as usize].take() {
                    live -= size;
                    model.free(place);
                }
            }
            _ => {}
        }
        observer.replayed(index);
    }
    outcome.peak_reserved_bytes = model.peak_reserved_bytes();
    outcome.driver_calls = model.driver_calls();
    outcome
}
