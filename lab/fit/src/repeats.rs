//! Test that a program can keep running: replays its last step many times.

use omniheap_trace::model::{Model, Place};
use omniheap_trace::{AllocationId, Event, Op, Trace};
use std::collections::{HashMap, HashSet};

/// Number of times that the last step is replayed again. Fragmentation grows over the first steps: some programs fail
/// at the tenth.
const REPEATS: u32 = 18;

/// Returns whether `model` serves every request of `trace`, and, if steps are marked, of 18 more repeats of the last step.
///
/// Each repeat frees what the one before left, where the last step freed an older allocation of the same size and stream.
/// An allocation that no step frees is made once only: it may be state that the step created, such as that of an
/// optimizer that runs in every second step.
///
/// # Examples
/// ```
/// use omniheap_fit::completes;
/// use omniheap_trace::{Limits, Trace, model::PyTorch};
/// let text = b"op,id,size,stream,time_us\na,0,100,0,0\nf,0,,0,1\n";
/// let trace = Trace::read(&text[..], &Limits::default())?;
/// assert!(completes(&trace, PyTorch::with_capacity(2 << 20)));
/// assert!(!completes(&trace, PyTorch::with_capacity(1 << 20)));
/// # Ok::<(), omniheap_trace::Error>(())
/// ```
pub fn completes(trace: &Trace, model: impl Model) -> bool {
    let places = vec![None; trace.allocations() as usize];
    let (before, replacements, stays) = (HashMap::new(), HashMap::new(), HashSet::new());
    let mut replay = Replay { model, places, before, replacements, stays };
    if !replay.serves(trace.events()) {
        return false;
    }
    let parts = |first| trace.events().split_at_checked(first as usize);
    let Some((earlier, step)) = trace.meta().last_step.and_then(parts) else {
        return true;
    };
    let left = left_by(step);
    replay.replacements = find_replacements(&left_by(earlier), step, &left);
    let replaced: HashSet<_> = replay.replacements.values().copied().collect();
    replay.stays = left.iter().map(|(id, ..)| *id).filter(|id| !replaced.contains(id)).collect();
    replay.repeats(step, &replaced)
}

struct Replay<M> {
    model: M,
    places: Vec<Option<Place>>,
    /// Allocations that the step before left.
    before: HashMap<AllocationId, Place>,
    /// For each older allocation that the last step frees: the allocation of that step that takes its role, and is freed in its place one step later.
    replacements: HashMap<AllocationId, AllocationId>,
    /// Allocations that the last step makes and no later one frees.
    stays: HashSet<AllocationId>,
}

impl<M: Model> Replay<M> {
    /// Repeats the last step; returns whether no request failed. Ends early once a repeat changes nothing, because all later ones do the same.
    fn repeats(&mut self, step: &[Event], replaced: &HashSet<AllocationId>) -> bool {
        let mut state = self.state(replaced);
        for _ in 0..REPEATS {
            let left = replaced.iter();
            self.before =
                left.filter_map(|id| Some((*id, self.places[id.0 as usize].take()?))).collect();
            if !self.serves(step) {
                return false;
            }
            let before = core::mem::replace(&mut state, self.state(replaced));
            if before == state {
                break;
            }
        }
        true
    }

    /// All that may differ between the ends of two repeats, because free pieces lie between the others: calls of the driver, and where the allocations
    /// are that the next repeat frees.
    fn state(&self, replaced: &HashSet<AllocationId>) -> (u64, Vec<Option<(u64, u64)>>) {
        let places = replaced.iter().map(|id| self.places[id.0 as usize]);
        (self.model.driver_calls(), places.map(|place| Some(self.model.extent(place?))).collect())
    }

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
                let place = self
                    .replacements
                    .get(&id)
                    .and_then(|replacement| self.before.remove(replacement));
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

/// Returns what these events allocate and do not free.
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

/// Matches each older allocation that the step frees with one that it leaves, of the same size and stream.
fn find_replacements(
    earlier: &[Left],
    step: &[Event],
    left: &[Left],
) -> HashMap<AllocationId, AllocationId> {
    // Compare the streams that allocated: the one that frees may be another.
    let asked: HashMap<_, _> =
        earlier.iter().map(|&(id, size, stream)| (id, (size, stream))).collect();
    let mut replacements = HashMap::new();
    let mut free: HashMap<_, Vec<_>> = HashMap::new();
    for &(id, size, stream) in left.iter().rev() {
        free.entry((size, stream)).or_default().push(id);
    }
    for event in step {
        if let Op::FreeCompleted { id, .. } = event.op
            && let Some(replacement) = asked.get(&id).and_then(|key| free.get_mut(key)?.pop())
        {
            replacements.insert(id, replacement);
        }
    }
    replacements
}
