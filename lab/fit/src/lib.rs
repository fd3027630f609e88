#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batch;
mod change;
mod lives;
mod names;
pub mod onnx;
mod passes;
mod ranges;
mod repeats;

pub use batch::{BatchError, Difference, Lines, largest};
pub use change::{Change, NotKnown, Optimizer};
pub use names::Category;
pub use ranges::Ranges;
pub use repeats::completes;

use names::Names;
use omniheap_trace::model::{self, Model, Observe};
use omniheap_trace::{AllocationId, Op, Trace};
use serde::Serialize;

/// The most that an allocator holds from the driver for a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes held from the driver at peak.
    pub reserved_bytes: u64,
    /// The event that raised reserved bytes to their peak.
    pub event: usize,
    /// Requests that failed.
    pub refused: u64,
}

impl Peak {
    /// Replays `trace` through a model.
    ///
    /// # Examples
    /// ```
    /// use omniheap_fit::{Peak, Ranges};
    /// use omniheap_trace::{Limits, Trace};
    /// let text = b"op,id,size,stream,time_us\na,0,100,0,0\na,1,5000000,0,1\n";
    /// let trace = Trace::read(&text[..], &Limits::default())?;
    /// let peak = Peak::of(&trace, Ranges::expandable(u64::MAX));
    /// assert_eq!((peak.reserved_bytes, peak.event), (22 << 20, 1));
    /// # Ok::<(), omniheap_trace::Error>(())
    /// ```
    pub fn of(trace: &Trace, model: impl Model) -> Self {
        let mut watch = Watch::default();
        let outcome = model::replay(trace, model, &mut watch);
        Self { refused: outcome.oom, ..watch.peak }
    }
}

/// Remembers when reserved bytes were highest.
#[derive(Default)]
struct Watch {
    peak: Peak,
    held: u64,
}

impl Observe for Watch {
    fn reserved(&mut self, bytes: u64) {
        self.held = bytes;
    }
    fn replayed(&mut self, index: usize) {
        if self.held > self.peak.reserved_bytes {
            (self.peak.reserved_bytes, self.peak.event) = (self.held, index);
        }
    }
}

/// Live bytes after one event of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// The event, by its index.
    pub event: u64,
    /// Time of the event.
    pub time_us: u64,
    /// Whole label of the allocation that the event is about; empty for none.
    pub label: String,
    /// Bytes live then.
    pub live_bytes: u64,
    /// Those bytes by category, without categories that have none.
    pub categories: Vec<CategoryBytes>,
}

/// Bytes of one category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CategoryBytes {
    /// The category.
    pub category: Category,
    /// Live bytes.
    pub bytes: u64,
}

impl Moment {
    /// Adds up what is live when most bytes are.
    pub fn busiest(trace: &Trace) -> Self {
        let (mut live, mut most, mut at) = (0_u64, 0, 0);
        for (index, event) in trace.events().iter().enumerate() {
            match event.op {
                Op::Allocate { size, .. } => live += size,
                Op::FreeCompleted { size, .. } => live -= size,
                _ => {}
            }
            if live > most {
                (most, at) = (live, index);
            }
        }
        Self::at(trace, at)
    }

    /// Adds up what is live after event `index` of `trace`.
    pub fn at(trace: &Trace, index: usize) -> Self {
        let names = Names::new(trace.labels());
        let mut bytes = [0_u64; Category::ALL.len()];
        let of = |id: AllocationId| names.of(trace.label_of(id)).category as usize;
        for event in trace.events().iter().take(index.saturating_add(1)) {
            match event.op {
                Op::Allocate { id, size, .. } => bytes[of(id)] += size,
                Op::FreeCompleted { id, size, .. } => bytes[of(id)] -= size,
                _ => {}
            }
        }
        let with_bytes = Category::ALL.into_iter().zip(bytes).filter(|(_, bytes)| *bytes > 0);
        let event = trace.events().get(index);
        Self {
            event: index as u64,
            time_us: event.map_or(0, |event| event.time_us),
            label: event.and_then(|event| label(trace, &event.op)).unwrap_or_default(),
            live_bytes: bytes.iter().sum(),
            categories: with_bytes
                .map(|(category, bytes)| CategoryBytes { category, bytes })
                .collect(),
        }
    }
}

/// Returns the whole label of the allocation that an event is about; `None` for other events.
fn label(trace: &Trace, op: &Op) -> Option<String> {
    match *op {
        Op::Allocate { id, .. } | Op::FreeCompleted { id, .. } => {
            Some(trace.labels().path(trace.label_of(id)))
        }
        _ => None,
    }
}
