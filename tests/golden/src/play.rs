//! Runs one program on a fresh manager and hashes what the observer sees.
use crate::Step;
use core::fmt;
use omniheap_core::{
    Align, Allocation, Backend, BlockNumber, Event, Layout, Manager, ManagerConfig, Observer,
    Remapping, Request, Rung, TimelineId,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Pools of pages, or of blocks.
    pub paged: bool,
    /// Timelines that the program's streams are spread over; one runs everything in the host's order.
    pub lanes: u16,
}

/// Figures of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The hash of every place, move, block and page, in order.
    pub places: u64,
    /// Driver calls that took or returned memory.
    pub calls: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Number of requests that each rung served, in the order of [`Rung::ALL`].
    pub rungs: Vec<u64>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { places, calls, failed, rungs } = self;
        write!(f, "places={places:016x} calls={calls} failed={failed} rungs={rungs:?}")
    }
}

/// Runs `steps` on a manager of `backend`.
///
/// # Panics
///
/// Panics when the device has no timelines, is lost, or a step names an allocation that does not live.
pub fn play<B: Backend>(backend: B, run: Run, steps: &[Step]) -> Figures {
    let seen = Arc::new(Seen::default());
    let manager = Manager::with_config(backend, config(run, Arc::clone(&seen)));
    let timelines = timelines(&manager, run.lanes);
    let (mut live, mut failed) = (HashMap::new(), 0);
    for step in steps {
        match *step {
            Step::Allocate { id, size, align_log2, stream } => {
                let mut request = Request::new(size);
                request.layout = Layout::new(size).align(Align::of(1 << align_log2));
                request.timeline = timelines[usize::from(stream) % timelines.len()];
                match manager.allocate(&request) {
                    Ok(allocation) => drop(live.insert(id, allocation)),
                    Err(error) if error.kind().is_out_of_memory() => failed += 1,
                    Err(error) => panic!("allocation {id} of {size} bytes: {error}"),
                }
            }
            Step::Free { id } => drop::<Option<Allocation<B>>>(live.remove(&id)),
            Step::Defragment => drop(manager.defragment().expect("no device is lost")),
            Step::Trim => drop(manager.trim().expect("no device is lost")),
        }
    }
    let calls = manager.report().driver_calls;
    let hash = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
    Figures { places: hash.value, calls, failed, rungs: hash.rungs.to_vec() }
}

fn config(run: Run, observer: Arc<Seen>) -> ManagerConfig {
    let mut config = ManagerConfig::default();
    // The hash depends on the program alone, not on how long calls took.
    config.remapping = Remapping::Always;
    config.pool.lanes = Some(1);
    let config = if run.paged { config } else { config.plain() };
    config.observed(observer)
}

fn timelines<B: Backend>(manager: &Manager<B>, lanes: u16) -> Vec<Option<TimelineId>> {
    if lanes == 1 {
        return vec![None];
    }
    let timelines = manager.backend().as_timelines().expect("a device with timelines");
    (0..lanes).map(|_| Some(timelines.open().expect("a device with timelines enough"))).collect()
}

/// Hashes what a manager does.
#[derive(Debug, Default)]
struct Seen(Mutex<Hash>);

/// FNV-1a over numbers, with block numbers in order of appearance: those of the process differ from run to run.
#[derive(Debug)]
struct Hash {
    value: u64,
    blocks: HashMap<BlockNumber, u64>,
    rungs: [u64; Rung::ALL.len()],
}

impl Default for Hash {
    fn default() -> Self {
        Self { value: 0xcbf2_9ce4_8422_2325, blocks: HashMap::new(), rungs: [0; Rung::ALL.len()] }
    }
}

impl Hash {
    fn add(&mut self, numbers: &[u64]) {
        for byte in numbers.iter().flat_map(|number| number.to_le_bytes()) {
            self.value = (self.value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn block(&mut self, block: BlockNumber) -> u64 {
        let next = self.blocks.len() as u64;
        *self.blocks.entry(block).or_insert(next)
    }
}

impl Observer for Seen {
    fn observe(&self, event: &Event<'_>) {
        let mut hash = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *event {
            Event::Allocate { id, block, offset, .. } => {
                let block = hash.block(block);
                hash.add(&[1, id.lane().into(), id.slot().into(), block, offset]);
            }
            Event::Free { id, .. } => hash.add(&[2, id.lane().into(), id.slot().into()]),
            Event::Move { id, block, offset } => {
                let block = hash.block(block);
                hash.add(&[3, id.lane().into(), id.slot().into(), block, offset]);
            }
            Event::TakeBlock { block, size, heap, .. } => {
                let block = hash.block(block);
                hash.add(&[4, block, size, heap.0.into()]);
            }
            Event::ReturnBlock { block } => {
                let block = hash.block(block);
                hash.add(&[5, block]);
            }
            Event::TakePages { heap, bytes } => hash.add(&[6, heap.0.into(), bytes]),
            Event::ReturnPages { heap, bytes } => hash.add(&[7, heap.0.into(), bytes]),
            Event::Climb { rung, .. } => hash.rungs[rung as usize] += 1,
            Event::Fail { size, .. } => hash.add(&[8, size]),
            _ => {}
        }
    }
}
