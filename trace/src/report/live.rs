//! The report of a manager as it is now.

use super::data::{Defragmentation, Fact, Figures, Heap, MapBlock, MapSpan, Moment, SpanState};
use super::data::{Label, PostMortem, ReportData};
use super::post_mortem::explain;
use crate::label::{LabelId, Labels, tag_text};
use omniheap_core as core;
use omniheap_core::{BlockReport, Caps, Report, Rung, Shortage, SpanReport, Word as _};
use std::collections::{HashMap, HashSet};

/// Builds the report of a manager: `report` is its [`report`](omniheap_core::Manager::report), `caps` its device.
///
/// # Examples
/// ```
/// use omniheap_core::{Manager, Request};
/// use omniheap_host::Host;
/// use omniheap_trace::report;
/// let manager = Manager::new(Host::new());
/// let weights = manager.allocate(&Request::new(4096).name("weights"))?;
/// let data = report::from_manager(&manager.report(), manager.caps(), "my program");
/// assert_eq!(data.labels[0].text, "weights");
/// report::write_html(&data, std::io::sink())?;
/// # drop(weights);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn from_manager(report: &Report, caps: &Caps, title: &str) -> ReportData {
    let fact = |name: &str, value: &str| Fact { name: name.to_owned(), value: value.to_owned() };
    let device = &caps.device;
    let heap = |(id, heap): (omniheap_core::HeapId, &omniheap_core::Heap)| Heap {
        id: id.0,
        name: heap.name.clone(),
        size: Some(heap.size),
    };
    let mut labels = Labels::default();
    let moment = moment(report, "now", &mut labels);
    let totals = &report.totals;
    let mut facts = vec![
        fact("backend", device.backend),
        fact("device", &device.name),
        fact("driver", &device.driver),
        fact("live bytes", &totals.live_bytes.to_string()),
        fact("reserved bytes", &totals.reserved_bytes.to_string()),
        fact("moved bytes", &report.moved_bytes.to_string()),
    ];
    let rungs = Rung::ALL.iter().zip(report.rungs).filter(|(_, count)| *count > 0);
    facts.extend(
        rungs.map(|(rung, count)| fact(&format!("rung {}", rung.word()), &count.to_string())),
    );
    ReportData {
        schema: ReportData::SCHEMA,
        title: title.to_owned(),
        facts,
        figures: Figures {
            events: totals.allocated + totals.freed,
            allocations: totals.allocated,
            peak_live_bytes: totals.peak_live_bytes,
            peak_reserved_bytes: report.peak_reserved_bytes,
            driver_calls: report.driver_calls,
            oom: 0,
            duration_us: 0,
        },
        labels: list(&labels),
        heaps: caps.heap_ids().map(heap).collect(),
        moments: vec![moment],
        ..ReportData::default()
    }
}

fn moment(report: &Report, title: &str, labels: &mut Labels) -> Moment {
    let mut blocks = Vec::new();
    for pool in &report.pools {
        let held = pool.blocks.iter().map(|block| map_block(block, pool.heap.0, labels));
        blocks.extend(held.filter(|block| block.size > 0));
    }
    blocks.sort_by_key(|block| (block.heap, block.block));
    Moment { title: title.to_owned(), time_us: 0, blocks }
}

fn map_block(block: &BlockReport, heap: u8, labels: &mut Labels) -> MapBlock {
    let spans = block.live.iter().map(|live| map_span(live, labels)).collect();
    // Addresses behind the last byte of memory are not memory; a map of them would show nothing else.
    let ends = block.live.iter().map(|live| &live.span).chain(&block.holes);
    let end = ends.map(|span| span.offset + span.size).max().unwrap_or(0);
    MapBlock {
        block: u32::try_from(block.number.0).unwrap_or(u32::MAX),
        heap,
        size: end.min(block.size),
        spans,
    }
}

/// A span, under its tag and its name as in a trace.
fn map_span(live: &SpanReport, labels: &mut Labels) -> MapSpan {
    let mut label = LabelId::NONE;
    if let Some(tag) = live.tag {
        label = labels.intern(label, &tag_text(tag));
    }
    if let Some(name) = &live.name {
        label = labels.intern(label, name);
    }
    let state = match live.state {
        core::SpanState::Movable => SpanState::Live,
        core::SpanState::Pinned => SpanState::Pinned,
        core::SpanState::Deferred => SpanState::Pending,
    };
    MapSpan { offset: live.span.offset, size: live.span.size, label: label.0, state }
}

fn list(labels: &Labels) -> Vec<Label> {
    let ids = (1..=labels.len()).filter_map(|id| u32::try_from(id).ok()).map(LabelId);
    ids.map(|id| Label { parent: labels.parent(id).0, text: labels.text(id).to_owned() }).collect()
}

impl ReportData {
    /// Adds why a request failed: `shortage` is what its error says, and the last moment the map of then.
    pub fn add_failure(&mut self, shortage: &Shortage) {
        let Some(moment) = self.moments.last() else { return };
        let (live, reserved) = (shortage.live, shortage.reserved);
        let mut found = explain(moment, shortage.requested, 0, live, reserved);
        found.fits_after_defragment = shortage.fits_after_defragment;
        found.moment = u32::try_from(self.moments.len() - 1).ok();
        self.out_of_memory.push(found);
        self.figures.oom += 1;
    }

    /// Puts the last moment of an earlier report of the same manager, and what failed then, before those of this one:
    /// the two sides of a pass. What lies elsewhere now counts as moved.
    pub fn add_before(&mut self, before: &Self, title: &str) {
        let (Some(was), Some(is)) = (before.moments.last(), self.moments.last()) else { return };
        let (moves, moved_bytes) = moved(was, before, is, self);
        let mut was = was.clone();
        "before".clone_into(&mut was.title);
        let labels = self.adopt(&before.labels);
        let adopted = |label: u32| labels.get(label as usize).copied().unwrap_or(0);
        let spans = was.blocks.iter_mut().flat_map(|block| &mut block.spans);
        spans.for_each(|span| span.label = adopted(span.label));
        self.moments.insert(0, was);
        let passes =
            self.defragmentation.iter_mut().flat_map(|pass| [&mut pass.before, &mut pass.after]);
        let failures = self.out_of_memory.iter_mut().map(|failure| &mut failure.moment);
        passes.chain(failures).flatten().for_each(|moment| *moment += 1);
        let after = u32::try_from(self.moments.len() - 1).ok();
        let pass =
            Defragmentation { title: title.to_owned(), moves, moved_bytes, before: Some(0), after };
        self.defragmentation.insert(0, pass);
        for failure in &before.out_of_memory {
            let mut failure = PostMortem { moment: Some(0), ..failure.clone() };
            failure.blockers.iter_mut().for_each(|blocker| blocker.label = adopted(blocker.label));
            self.out_of_memory.push(failure);
        }
        self.figures.oom += before.figures.oom;
    }

    /// Takes over labels of another report; says what each is here, that of no label first.
    fn adopt(&mut self, labels: &[Label]) -> Vec<u32> {
        let mut known: HashMap<(u32, String), u32> = HashMap::new();
        for (number, label) in (1..).zip(&self.labels) {
            known.insert((label.parent, label.text.clone()), number);
        }
        let mut adopted = vec![0];
        for label in labels {
            let parent = adopted.get(label.parent as usize).copied().unwrap_or(0);
            let next = u32::try_from(self.labels.len() + 1).unwrap_or(u32::MAX);
            let number = *known.entry((parent, label.text.clone())).or_insert(next);
            if number == next {
                self.labels.push(Label { parent, text: label.text.clone() });
            }
            adopted.push(number);
        }
        adopted
    }
}

/// How many allocations, and bytes of them, lie where none like them lay before.
fn moved(was: &Moment, before: &ReportData, is: &Moment, now: &ReportData) -> (u64, u64) {
    fn each<'a>(
        moment: &'a Moment,
        data: &'a ReportData,
    ) -> impl Iterator<Item = (u32, u64, u64, &'a str)> {
        let name = |label: u32| {
            let index = (label as usize).checked_sub(1);
            index.and_then(|at| data.labels.get(at)).map_or("", |label| label.text.as_str())
        };
        let spans = move |block: &'a MapBlock| {
            block
                .spans
                .iter()
                .map(move |span| (block.block, span.offset, span.size, name(span.label)))
        };
        moment.blocks.iter().flat_map(spans)
    }
    let old: HashSet<_> = each(was, before).collect();
    let new = each(is, now).filter(|place| !old.contains(place));
    new.fold((0, 0), |(count, bytes), (_, _, size, _)| (count + 1, bytes + size))
}
