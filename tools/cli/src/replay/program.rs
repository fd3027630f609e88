//! A trace made ready for replay: only what an allocator sees, with small numbers for what is live.
use omniheap::trace::{Op, Trace};
use omniheap::{Align, seam::Layout};

/// One step of a replay. 16 bytes, because millions of them pass through the cache of the measured allocator.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Allocate and keep it under a number that nothing live has.
    Allocate { align_log2: u8, stream: u16, number: u32, size: u64 },
    /// Free what is kept under a number.
    Free { number: u32 },
}

const _: () = assert!(size_of::<Step>() == 16);

impl Step {
    /// Returns the layout that an allocation asks for.
    #[inline]
    pub const fn layout(size: u64, align_log2: u8) -> Layout {
        Layout::new(size).align(Align::of(1 << align_log2))
    }
}

/// A trace, made ready.
#[derive(Debug)]
pub struct Program {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Numbers in use at most: `0..numbers`.
    pub numbers: u32,
    /// Streams: one more than the largest index.
    pub streams: u16,
    /// Allocations, requested frees and completed frees of the trace.
    pub events: u64,
}

impl Program {
    /// Keeps a trace's allocations and completed frees. A requested free changes nothing: until the free is complete,
    /// a stream may use the bytes.
    pub fn new(trace: &Trace) -> Self {
        let mut program = Self { steps: Vec::new(), numbers: 0, streams: 1, events: 0 };
        let mut number_of = vec![u32::MAX; trace.allocations() as usize];
        let mut spare = Vec::new();
        for event in trace.events() {
            match event.op {
                Op::Allocate { id, size, stream, align } => {
                    let number = spare.pop().unwrap_or_else(|| program.next_number());
                    number_of[id.0 as usize] = number;
                    let align_log2 = align.bytes().map_or(0, log2);
                    let step = Step::Allocate { align_log2, stream: stream.0, number, size };
                    program.steps.push(step);
                    program.streams = program.streams.max(stream.0.saturating_add(1));
                }
                Op::FreeCompleted { id, .. } => {
                    let number = number_of[id.0 as usize];
                    program.steps.push(Step::Free { number });
                    spare.push(number);
                }
                Op::FreeRequested { .. } => {}
                _ => continue,
            }
            program.events += 1;
        }
        program
    }

    fn next_number(&mut self) -> u32 {
        let number = self.numbers;
        self.numbers += 1;
        number
    }

    /// Returns the largest sum of bytes allocated and not yet freed, without the allocations at these steps.
    ///
    /// `failed` is in ascending order.
    pub fn peak_live(&self, failed: &[u32]) -> u64 {
        let mut sizes = vec![0; self.numbers as usize];
        let (mut live, mut peak) = (0_u128, 0);
        let mut failed = failed.iter().map(|step| *step as usize).peekable();
        for (at, step) in self.steps.iter().enumerate() {
            match *step {
                Step::Allocate { number, size, .. } => {
                    let served = failed.next_if_eq(&at).is_none();
                    sizes[number as usize] = if served { size } else { 0 };
                    live += u128::from(sizes[number as usize]);
                    peak = peak.max(live);
                }
                Step::Free { number } => live -= u128::from(sizes[number as usize]),
            }
        }
        u64::try_from(peak).unwrap_or(u64::MAX)
    }

    /// Says what became of requests that failed, at these steps: how many of how many, and the largest.
    pub fn describe(&self, failed: &[u32]) -> Failed {
        let size = |step: &Step| match *step {
            Step::Allocate { size, .. } => Some(size),
            Step::Free { .. } => None,
        };
        let largest = failed.iter().filter_map(|at| size(&self.steps[*at as usize])).max();
        let requests = self.steps.iter().filter_map(size).count();
        Failed { count: failed.len(), requests, largest: largest.unwrap_or(0) }
    }
}

/// Requests that failed in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub count: usize,
    /// Requests of the trace.
    pub requests: usize,
    /// Bytes of the largest one that failed.
    pub largest: u64,
}

impl core::fmt::Display for Failed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { count, requests, largest } = self;
        write!(f, "{count} of {requests} requests failed, the largest of {largest} bytes")
    }
}

/// Returns the exponent of a power of two.
fn log2(bytes: u64) -> u8 {
    u8::try_from(bytes.trailing_zeros()).expect("a u64 has at most 64 zeros")
}
