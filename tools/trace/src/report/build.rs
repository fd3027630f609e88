//! Builds the report of a trace.

use super::columns;
use super::data::{
    Comparison, Curve, Defragmentation, Fact, Figures, Heap, Label, Moment, Origin, PostMortem,
    ReportData,
};
use super::post_mortem::explain;
use super::state::State;
use crate::binary::{self, Record, Writer, copy_labels, request_of};
use crate::error::Error;
use crate::event::{Backing, Event, HeapId, Op, Rung};
use crate::label::{LabelId, Labels};
use crate::limits::Limits;
use crate::model::{self, Observe, PyTorch};
use crate::trace::{Ending, Meta, Source, Trace};

/// Failed requests and passes that a report explains; later ones are counted only.
const MAX_EXPLAINED: usize = 64;
/// Allocations that all maps together may draw; maps past that are left out, the last moment never.
const MAX_SPANS: usize = 100_000;

/// Builds the report of `trace`: its events, its last moment, its failed requests and its passes.
pub fn from_trace(trace: &Trace, title: &str) -> ReportData {
    let figures = figures(trace);
    let mut data = ReportData {
        schema: ReportData::SCHEMA,
        title: title.to_owned(),
        facts: facts(trace),
        figures,
        labels: list(trace.labels()),
        heaps: heaps(trace),
        events: Some(columns::pack(trace)),
        ..ReportData::default()
    };
    let mut walk = Walk { state: State::new(trace), data: &mut data, pass: None, spans: 0 };
    for event in trace.events() {
        walk.event(event);
    }
    walk.end(figures.duration_us);
    data
}

/// Builds the report of a trace that does not say where its allocations lie. A model of PyTorch's default policy places
/// them, so that a map can be drawn; the report names the model and keeps the recording's own figures.
///
/// # Errors
/// As [`bind_by_model`].
pub fn from_trace_by_model(
    trace: &Trace,
    title: &str,
    limits: &Limits,
) -> Result<ReportData, Error> {
    let mut data = from_trace(&bind_by_model(trace, limits)?, title);
    data.figures = figures(trace);
    data.placed_by_model = Some(PYTORCH.to_owned());
    Ok(data)
}

/// The policy that [`bind_by_model`] follows.
const PYTORCH: &str = "PyTorch's default policy";

fn figures(trace: &Trace) -> Figures {
    let summary = trace.summary();
    let recorded = summary.driver_calls > 0;
    Figures {
        events: requests(trace),
        allocations: summary.allocations,
        peak_live_bytes: summary.peak_live_bytes,
        peak_reserved_bytes: recorded.then_some(summary.peak_reserved_bytes),
        driver_calls: recorded.then_some(summary.driver_calls),
        oom: summary.oom,
        duration_us: summary.duration_us,
    }
}

impl Comparison {
    /// Models PyTorch's default policy on the events of `trace`.
    pub fn pytorch(trace: &Trace) -> Self {
        let mut reserved = ReservedCurve::new(trace);
        let outcome = model::replay(trace, PyTorch::unlimited(), &mut reserved);
        Self {
            name: PYTORCH.to_owned(),
            origin: Origin::Model,
            peak_reserved_bytes: outcome.peak_reserved_bytes,
            ratio: outcome.ratio(),
            curve: Some(Curve::new(&reserved.points)),
        }
    }
}

/// Collects the bytes that a model holds from the driver over time.
struct ReservedCurve<'t> {
    trace: &'t Trace,
    held: u64,
    /// Allocations and completed frees so far.
    requests: u64,
    points: Vec<(u64, u64)>,
}

impl<'t> ReservedCurve<'t> {
    fn new(trace: &'t Trace) -> Self {
        Self { trace, held: 0, requests: 0, points: Vec::new() }
    }
}

impl Observe for ReservedCurve<'_> {
    fn reserved(&mut self, bytes: u64) {
        self.held = bytes;
    }
    fn replayed(&mut self, index: usize) {
        if self.points.last().map_or(0, |&(_, held)| held) != self.held {
            self.points.push((self.requests, self.held));
        }
        let op = self.trace.events()[index].op;
        self.requests += u64::from(matches!(op, Op::Allocate { .. } | Op::FreeCompleted { .. }));
    }
}

/// Events that a program caused; the rest is what an allocator did about them.
fn requests(trace: &Trace) -> u64 {
    trace.events().iter().filter(|event| request_of(trace, &event.op).is_some()).count() as u64
}

fn facts(trace: &Trace) -> Vec<Fact> {
    let fact = |name: &str, value: &str| Fact { name: name.to_owned(), value: value.to_owned() };
    let source = match trace.meta().source {
        Source::Memory => "a trace in memory",
        Source::Csv => "CSV trace",
        Source::Binary => "omniheap recording",
        Source::PyTorch => "PyTorch memory snapshot",
        Source::Rmm => "RMM log",
        Source::Vma => "VMA statistics dump",
        Source::Onnx => "ONNX model",
    };
    let mut facts = vec![fact("source", source)];
    if !trace.meta().title.is_empty() {
        facts.push(fact("recording", &trace.meta().title));
    }
    if trace.meta().ending == Ending::CutOff {
        facts.push(fact("recording ends", "in the middle: the file was cut off"));
    }
    facts
}

/// Lists labels in the order of their ids.
pub(super) fn list(labels: &Labels) -> Vec<Label> {
    let ids = (1..=labels.len()).filter_map(|id| u32::try_from(id).ok()).map(LabelId);
    ids.map(|id| Label { parent: labels.parent(id).0, text: labels.text(id).to_owned() }).collect()
}

fn heaps(trace: &Trace) -> Vec<Heap> {
    let mut ids: Vec<u8> = Vec::new();
    for event in trace.events() {
        if let Op::BlockAllocate { heap: HeapId(id), .. } | Op::PagesTake { heap: HeapId(id), .. } =
            event.op
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    ids.into_iter().map(|id| Heap { id, name: format!("heap {id}"), size: None }).collect()
}

/// Passes over the events and keeps the moments that matter.
struct Walk<'t, 'd> {
    state: State<'t>,
    data: &'d mut ReportData,
    pass: Option<Pass>,
    /// Allocations in the maps kept so far.
    spans: usize,
}

/// A run of moves without anything in between.
struct Pass {
    before: Moment,
    moves: u64,
    moved_bytes: u64,
    time_us: u64,
}

impl Walk<'_, '_> {
    fn event(&mut self, event: &Event) {
        match event.op {
            Op::Move { id, .. } => {
                if self.pass.is_none() && self.data.defragmentation.len() < MAX_EXPLAINED {
                    let before = self.state.moment("before defragmentation", event.time_us);
                    self.pass = Some(Pass { before, moves: 0, moved_bytes: 0, time_us: 0 });
                }
                if let Some(pass) = &mut self.pass {
                    pass.moves += 1;
                    pass.moved_bytes += self.state.size_of(id);
                    pass.time_us = event.time_us;
                }
            }
            Op::OutOfMemory { size, stream, rung: Rung::Failed } => {
                self.close_pass();
                self.failed(event.time_us, size, stream.0);
            }
            _ => self.close_pass(),
        }
        self.state.apply(&event.op);
    }

    fn end(mut self, time_us: u64) {
        self.close_pass();
        let last = self.state.moment("end", time_us);
        if !last.blocks.is_empty() {
            self.data.moments.push(last);
        }
    }

    fn failed(&mut self, time_us: u64, size: u64, stream: u16) {
        if self.data.out_of_memory.len() >= MAX_EXPLAINED {
            return;
        }
        let moment = self.state.moment("request failed", time_us);
        let mut found: PostMortem = explain(&moment, size, stream, self.state.live_bytes);
        found.moment = self.keep(moment);
        self.data.out_of_memory.push(found);
    }

    fn close_pass(&mut self) {
        let Some(pass) = self.pass.take() else { return };
        let after = self.state.moment("after defragmentation", pass.time_us);
        let (before, after) = (self.keep(pass.before), self.keep(after));
        let title = format!("pass {}", self.data.defragmentation.len() + 1);
        let (moves, moved_bytes) = (pass.moves, pass.moved_bytes);
        self.data.defragmentation.push(Defragmentation {
            title,
            moves,
            moved_bytes,
            before,
            after,
        });
    }

    fn keep(&mut self, moment: Moment) -> Option<u32> {
        self.spans += moment.blocks.iter().map(|block| block.spans.len()).sum::<usize>();
        if moment.blocks.is_empty() || self.spans > MAX_SPANS {
            return None;
        }
        self.data.moments.push(moment);
        u32::try_from(self.data.moments.len() - 1).ok()
    }
}

/// Adds the blocks and places that PyTorch's default policy would choose to a trace that has none.
///
/// # Errors
/// Fails when the result passes `limits`, such as more blocks held at once than a trace can number.
pub fn bind_by_model(trace: &Trace, limits: &Limits) -> Result<Trace, Error> {
    let (recorder, blocks) = (Writer::new(Vec::new()), Vec::new());
    let mut binder = Binder { trace, recorder, blocks, binding: None };
    copy_labels(trace.labels(), &mut binder.recorder);
    model::replay(trace, PyTorch::unlimited(), &mut binder);
    let file = binder
        .recorder
        .finish()
        .map_err(|error| Error::new(crate::Position::Input, error.into()))?;
    let mut bound = binary::read(&file[..], limits)?;
    bound.meta = Meta { last_step: bound.meta.last_step, ..trace.meta.clone() };
    Ok(bound)
}

/// Records the trace anew, with what the model decides.
struct Binder<'t> {
    trace: &'t Trace,
    recorder: Writer<Vec<u8>>,
    /// Blocks taken for the event that is being replayed: they come before it.
    blocks: Vec<Record>,
    /// Its binding: it comes after it.
    binding: Option<Record>,
}

impl Observe for Binder<'_> {
    fn block_allocated(&mut self, block: u32, size: u64) {
        let (block, heap, backing) = (block.into(), HeapId(0), Backing::Memory);
        self.blocks.push(Record::BlockAllocate { block, size, heap, backing });
    }
    fn block_freed(&mut self, block: u32) {
        self.blocks.push(Record::BlockFree { block: block.into() });
    }
    fn bound(&mut self, id: crate::AllocationId, block: u32, offset: u64) {
        self.binding = Some(Record::Bind { id: id.0.into(), block: block.into(), offset });
    }
    fn replayed(&mut self, index: usize) {
        let event = self.trace.events()[index];
        let request = request_of(self.trace, &event.op);
        if self.trace.is_step(index) {
            self.recorder.record(event.time_us, &Record::Step);
        }
        for record in self.blocks.drain(..).chain(request).chain(self.binding.take()) {
            self.recorder.record(event.time_us, &record);
        }
    }
}
