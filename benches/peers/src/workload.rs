//! Workloads: operations with dense slots, so that bookkeeping costs the same for every allocator.
use omniheap_trace::{Op, Trace};

/// Every size is a multiple of this, and every span starts at one.
pub const ALIGN: u64 = 256;

/// One operation on a slot.
#[derive(Clone, Copy)]
pub enum Step {
    Allocate { slot: u32, size: u64 },
    Free { slot: u32 },
}

/// A named sequence of operations.
pub struct Workload {
    pub name: String,
    pub steps: Vec<Step>,
    pub slots: usize,
    pub peak_live: u64,
    /// True if it counts as a trace or as churn.
    pub is_trace: bool,
}

impl Workload {
    /// Returns the allocations and completed frees of a trace.
    pub fn from_trace(name: &str, trace: &Trace) -> Self {
        let mut slot_of = vec![u32::MAX; trace.allocations() as usize];
        let (mut unused, mut next, mut steps) = (Vec::new(), 0, Vec::new());
        for event in trace.events() {
            match event.op {
                Op::Allocate { id, size, .. } => {
                    let slot = unused.pop().unwrap_or_else(|| {
                        next += 1;
                        next - 1
                    });
                    slot_of[id.0 as usize] = slot;
                    steps.push(Step::Allocate { slot, size: size.max(1).next_multiple_of(ALIGN) });
                }
                Op::FreeCompleted { id, .. } => {
                    let slot = slot_of[id.0 as usize];
                    unused.push(slot);
                    steps.push(Step::Free { slot });
                }
                _ => {}
            }
        }
        Self::new(name.to_owned(), steps, next as usize, true)
    }

    /// Random churn: `live` allocations of 256 B to 4 MiB, log-uniform, one freed and one made at a time.
    pub fn churn(live: u32, operations: u32) -> Self {
        let mut random = Random(88_172_645_463_325_252);
        let (mut steps, mut held) = (Vec::new(), Vec::new());
        let mut unused: Vec<u32> = (0..=live).rev().collect();
        for _ in 0..operations {
            if held.len() >= live as usize
                || (held.len() > live as usize / 2 && random.below(2) == 0)
            {
                let slot = held.swap_remove(random.below(held.len() as u64) as usize);
                unused.push(slot);
                steps.push(Step::Free { slot });
            } else {
                let power = 8.0 + random.below(1_000_000) as f64 / 1e6 * 14.0;
                let slot = unused.pop().expect("one more slot than live allocations");
                held.push(slot);
                steps.push(Step::Allocate {
                    slot,
                    size: (power.exp2() as u64).next_multiple_of(ALIGN),
                });
            }
        }
        Self::new(format!("churn of {live}"), steps, live as usize + 1, false)
    }

    fn new(name: String, steps: Vec<Step>, slots: usize, is_trace: bool) -> Self {
        let (mut sizes, mut live, mut peak_live) = (vec![0; slots], 0u64, 0);
        for step in &steps {
            match *step {
                Step::Allocate { slot, size } => {
                    sizes[slot as usize] = size;
                    live += size;
                    peak_live = peak_live.max(live);
                }
                Step::Free { slot } => live -= sizes[slot as usize],
            }
        }
        Self { name, steps, slots, peak_live, is_trace }
    }

    /// Returns the same operations with every size divided, for devices that really hold the bytes.
    pub fn scaled(&self, by: u64) -> Self {
        let scale = |step: &Step| match *step {
            Step::Allocate { slot, size } => {
                Step::Allocate { slot, size: (size / by).max(1).next_multiple_of(ALIGN) }
            }
            free @ Step::Free { .. } => free,
        };
        let steps = self.steps.iter().map(scale).collect();
        Self::new(self.name.clone(), steps, self.slots, self.is_trace)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
