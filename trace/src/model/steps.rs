//! Whether a program goes on: its last step, replayed again and again.

use super::Model;
use super::pytorch::Place;
use super::sealed::Policy;
use crate::event::{AllocationId, Event, Op};
use crate::trace::Trace;
use std::collections::{HashMap, HashSet};

/// How many more times the last step is replayed. Fragmentation grows over the first steps: some programs fail at the tenth.
const REPEATS: u32 = 18;

/// Returns whether `model` serves every request of `trace`, and of its last step 18 more times, where the recorder marked steps.
///
/// What the last step leaves is freed where it freed what the step before had left, matched by size and stream. What
/// nothing frees is there once, however often the step is replayed: it may be state that the step has made for good,
/// such as an optimizer's that runs in every second step.
///
/// # Examples
/// ```
/// use omniheap_trace::{Limits, Trace, model};
/// let text = b"op,id,size,stream,time_us\na,0,100,0,0\nf,0,,0,1\n";
/// let trace = Trace::read(&text[..], &Limits::default())?;
/// assert!(model::completes(&trace, model::PyTorch::with_capacity(2 << 20)));
/// assert!(!model::completes(&trace, model::PyTorch::with_capacity(1 << 20)));
/// # Ok::<(), omniheap_trace::Error>(())
/// ```
pub fn completes(trace: &Trace, model: impl Model) -> bool {
    let places = vec![None; trace.allocations() as usize];
    let (before, heirs, stays) = (HashMap::new(), HashMap::new(), HashSet::new());
    let mut replay = Replay { model, places, before, heirs, stays };
    if !replay.serves(trace.events()) {
        return false;
    }
    let parts = |first| trace.events().split_at_checked(first as usize);
    let Some((earlier, step)) = trace.meta().last_step.and_then(parts) else {
        return true;
    };
    let left = left_by(step);
    replay.heirs = find_heirs(&left_by(earlier), step, &left);
    let passing: HashSet<_> = replay.heirs.values().copied().collect();
    replay.stays = left.iter().map(|(id, ..)| *id).filter(|id| !passing.contains(id)).collect();
    (0..REPEATS).all(|_| {
        let passing = passing.iter();
        replay.before =
            passing.filter_map(|id| Some((*id, replay.places[id.0 as usize].take()?))).collect();
        replay.serves(step)
    })
}

struct Replay<M> {
    model: M,
    places: Vec<Option<Place>>,
    /// What the step before left.
    before: HashMap<AllocationId, Place>,
    /// By allocations of earlier steps that the last one frees: which of its own the next step frees there.
    heirs: HashMap<AllocationId, AllocationId>,
    /// What the last step has made for good.
    stays: HashSet<AllocationId>,
}

impl<M: Policy> Replay<M> {
    /// Replays events up to the first request that fails; returns whether none did.
    fn serves(&mut self, events: &[Event]) -> bool {
        events.iter().all(|event| match event.op {
            Op::Allocate { id, .. } if self.stays.contains(&id) => true,
            Op::Allocate { id, size, stream, .. } => {
                let place = self.model.allocate(size, stream, &mut ());
                self.places[id.0 as usize] = place;
                place.is_some()
            }
            Op::FreeCompleted { id, .. } => {
                let place = self.heirs.get(&id).and_then(|heir| self.before.remove(heir));
                if let Some(place) = place.or_else(|| self.places[id.0 as usize].take()) {
                    self.model.free(place);
                }
                true
            }
            _ => true,
        })
    }
}

/// An allocation, its size and its stream.
type Left = (AllocationId, u64, u16);

/// Returns what is allocated in some events and not freed in them.
fn left_by(events: &[Event]) -> Vec<Left> {
    let mut left = Vec::new();
    let mut at = HashMap::new();
    for event in events {
        match event.op {
            Op::Allocate { id, size, stream, .. } => {
                at.insert(id, left.len());
                left.push(Some((id, size, stream.0)));
            }
            Op::FreeCompleted { id, .. } => {
                if let Some(at) = at.get(&id) {
                    left[*at] = None;
                }
            }
            _ => {}
        }
    }
    left.into_iter().flatten().collect()
}

/// Matches what a step frees of earlier steps with what it leaves itself.
fn find_heirs(
    earlier: &[Left],
    step: &[Event],
    left: &[Left],
) -> HashMap<AllocationId, AllocationId> {
    // The stream that frees may be another one than that which asked.
    let asked: HashMap<_, _> =
        earlier.iter().map(|&(id, size, stream)| (id, (size, stream))).collect();
    let mut heirs = HashMap::new();
    let mut free: HashMap<_, Vec<_>> = HashMap::new();
    for &(id, size, stream) in left.iter().rev() {
        free.entry((size, stream)).or_default().push(id);
    }
    for event in step {
        if let Op::FreeCompleted { id, .. } = event.op
            && let Some(heir) = asked.get(&id).and_then(|key| free.get_mut(key)?.pop())
        {
            heirs.insert(id, heir);
        }
    }
    heirs
}
