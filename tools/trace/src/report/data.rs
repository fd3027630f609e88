//! Data of a report, in bytes and in microseconds since the recording began.

use serde::{Deserialize, Serialize};

/// Everything that a report shows. Empty lists are simply not shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportData {
    /// Version of this structure; [`ReportData::SCHEMA`].
    pub schema: u32,
    /// Title of the report.
    pub title: String,
    /// Backend, device, date: whatever the reader should know.
    pub facts: Vec<Fact>,
    /// Counts and peaks, as recorded.
    pub figures: Figures,
    /// The policy that chose the blocks and places in `events` and `moments` when the recording has none: those are
    /// then a model, not what happened. `None` when they were recorded.
    pub placed_by_model: Option<String>,
    /// Bytes that other allocators reserve for the same events.
    pub comparison: Vec<Comparison>,
    /// Names and tags; label `n` is at index `n - 1`, and 0 is no label.
    pub labels: Vec<Label>,
    /// The heaps that blocks are of.
    pub heaps: Vec<Heap>,
    /// Every event, packed; absent in a report of one moment.
    pub events: Option<Columns>,
    /// Maps of single moments.
    pub moments: Vec<Moment>,
    /// Requests that failed.
    pub out_of_memory: Vec<PostMortem>,
    /// Passes that moved allocations.
    pub defragmentation: Vec<Defragmentation>,
    /// Answer to whether the program fits a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Changes of the program, and the reserved bytes that each would gain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<Gain>,
}

impl ReportData {
    /// The version that this crate writes.
    pub const SCHEMA: u32 = 2;
}

/// A line of the page's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Such as `device`.
    pub name: String,
    /// Such as `NVIDIA H200`.
    pub value: String,
}

/// Counts and peaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Requests: allocations, frees asked for, frees complete, failures.
    pub events: u64,
    /// Allocations made.
    pub allocations: u64,
    /// Largest sum of live bytes.
    pub peak_live_bytes: u64,
    /// Largest sum of bytes held from the driver, where recorded.
    pub peak_reserved_bytes: Option<u64>,
    /// Blocks and pages taken and given back, where recorded.
    pub driver_calls: Option<u64>,
    /// Requests that failed.
    pub oom: u64,
    /// Time of the last event.
    pub duration_us: u64,
}

/// Bytes that another allocator reserves for the recorded events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The allocator.
    pub name: String,
    /// Origin of the figures.
    pub origin: Origin,
    /// Bytes held from the driver at peak.
    pub peak_reserved_bytes: u64,
    /// Peak reserved ÷ peak live.
    pub ratio: f64,
    /// Bytes held from the driver over time, where known.
    pub curve: Option<Curve>,
}

/// Origin of another allocator's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Computed from a model of its policy.
    Model,
    /// Measured while the allocator itself served the events.
    Replay,
}

/// A name or tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The label above, always an earlier one; 0 at the top.
    pub parent: u32,
    /// Its text.
    pub text: String,
}

/// A heap of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heap {
    /// Its number.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// Its bytes, where known.
    pub size: Option<u64>,
}

/// Blocks and allocations at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Such as `end` or `before defragmentation`.
    pub title: String,
    /// Time of the moment.
    pub time_us: u64,
    /// Bytes held from the driver, heap by heap. Blocks of pages span more addresses than this.
    pub reserved: Vec<HeapBytes>,
    /// Blocks held then.
    pub blocks: Vec<MapBlock>,
}

impl Moment {
    /// Returns the bytes held from the driver, over all heaps.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved.iter().fold(0, |sum, heap| sum.saturating_add(heap.bytes))
    }
}

/// Bytes of one heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeapBytes {
    /// The heap.
    pub heap: u8,
    /// Its bytes.
    pub bytes: u64,
}

/// One block of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapBlock {
    /// The block's number, unique over the report.
    pub block: u32,
    /// The heap it is of.
    pub heap: u8,
    /// Bytes of addresses that the map shows.
    pub size: u64,
    /// Allocations by offset; bytes between are free or unmapped.
    pub spans: Vec<MapSpan>,
    /// Unmapped addresses, by offset. `None` if the block is made of pages whose places were not recorded
    /// mapped.
    pub unmapped: Option<Vec<Gap>>,
}

/// Addresses of a block that have no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Offset inside the block.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// One allocation of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapSpan {
    /// Offset inside the block.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Its label; 0 for none.
    pub label: u32,
    /// State of the bytes.
    pub state: SpanState,
}

/// State of an allocation's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanState {
    /// In use; may be moved.
    Live,
    /// In use; may not be moved.
    Pinned,
    /// Freed by the program, waiting for a stream.
    Pending,
}

/// A free run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hole {
    /// The block it is in.
    pub block: u32,
    /// Offset inside the block.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// An allocation that keeps a hole from being larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocker {
    /// Its label; 0 for none.
    pub label: u32,
    /// Its bytes.
    pub size: u64,
}

/// Explanation of a failed request, and of what would have helped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostMortem {
    /// Time of the request.
    pub time_us: u64,
    /// Bytes asked for.
    pub size: u64,
    /// The stream that asked.
    pub stream: u16,
    /// Bytes live then.
    pub live_bytes: u64,
    /// Bytes held from the driver then.
    pub reserved_bytes: u64,
    /// Bytes held and not live.
    pub free_bytes: u64,
    /// The largest free run, where places are known.
    pub largest_hole: Option<Hole>,
    /// The allocations on either side of it.
    pub blockers: Vec<Blocker>,
    /// Bytes of blocks with nothing in them: what a trim gives back.
    pub trimmable_bytes: u64,
    /// True if trimmed blocks would cover the request.
    pub fits_after_trim: bool,
    /// True if the free bytes of one heap, gathered in one place, would cover it.
    pub fits_after_defragment: bool,
    /// The map of that moment, by its index in `moments`.
    pub moment: Option<u32>,
}

/// Answer to whether a program fits a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// True if it does.
    pub fits: bool,
    /// The device's memory.
    pub capacity_bytes: u64,
    /// Bytes that are left at the peak; negative where they are lacking.
    pub left_bytes: i64,
    /// Bytes that the allocator reserves at the peak.
    pub peak_reserved_bytes: u64,
    /// The allocator.
    pub allocator: String,
}

/// Bytes that a change of the program would gain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// The change, in words.
    pub change: String,
    /// Reserved bytes at peak that it saves; negative when it needs more. `None` where the trace does not tell.
    pub gained_bytes: Option<i64>,
    /// True if the program fits then.
    pub fits: Option<bool>,
    /// Reason why the trace does not tell.
    pub not_known: Option<String>,
}

/// One pass that moved allocations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defragmentation {
    /// Such as `pass 1`.
    pub title: String,
    /// Allocations moved.
    pub moves: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// The map before, by its index in `moments`.
    pub before: Option<u32>,
    /// The map after, by its index in `moments`.
    pub after: Option<u32>,
}

/// Every event of a trace. A column is base64 of zlib of its numbers; `kinds` has one byte an event, the others hold
/// variable-length numbers (seven bits a byte, low bits first) for the events that have them, in order of events.
///
/// | kind | event | numbers |
/// |---|---|---|
/// | 0 | allocate | `sizes`, `labels`, `streams`, `blocks` (its block + 1, or 0), and if it has a block `offsets` |
/// | 1 | free | `backs`: allocations made so far minus the allocation's own number |
/// | 2 | block taken | `sizes`, `blocks`: the heap |
/// | 3 | block given back | `blocks`: its number |
/// | 4 | request failed | `sizes`, `streams` |
/// | 5 | bound later, or moved | `backs`, `blocks`, `offsets` |
/// | 6 | free asked for, not yet complete | `backs` |
/// | 7 | pages taken | `sizes`, `blocks`: the heap |
/// | 8 | pages given back | `sizes`, `blocks`: the heap |
/// | 9 | block of addresses taken, whose bytes are pages | `sizes`, `blocks`: the heap |
/// | 10 | what lies in a block left the device, or came back | `blocks`: its number, `sizes`: where it is, as a [`Residence`](crate::Residence) |
/// | 11 | pages of host memory taken, where there was no device memory | `sizes`, `blocks`: the heap |
/// | 12 | pages of host memory given back | `sizes`, `blocks`: the heap |
///
/// Allocations and blocks are numbered from 0 in order of birth. `steps` has the time since the event before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Events in all.
    pub count: u64,
    /// One byte an event.
    pub kinds: String,
    /// Microseconds since the event before.
    pub steps: String,
    /// Bytes.
    pub sizes: String,
    /// Labels.
    pub labels: String,
    /// Streams.
    pub streams: String,
    /// Distance back to the allocation's event.
    pub backs: String,
    /// Blocks and heaps.
    pub blocks: String,
    /// Offsets inside blocks.
    pub offsets: String,
}

/// Bytes that an allocator holds from the driver while it serves the events: a step curve, packed as [`Columns`] are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Points in all.
    pub count: u64,
    /// Allocations and completed frees since the point before.
    pub steps: String,
    /// Bytes held from this point on.
    pub bytes: String,
}
