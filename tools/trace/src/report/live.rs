//! The report of a manager as it is now.

use super::build::list;
use super::data::{
    Defragmentation, Fact, Figures, Gap, Heap, HeapBytes, Label, MapBlock, MapSpan, Moment,
    PostMortem, ReportData, SpanState,
};
use super::post_mortem::explain;
use crate::label::{LabelId, Labels, tag_text};
use omniheap_core as core;
use omniheap_core::{
    BlockReport, Caps, Keyword as _, PoolReport, Report, Rung, Shortage, SpanReport,
};
use std::collections::{BTreeMap, HashMap, HashSet};

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
    let mut facts = vec![
        fact("backend", device.backend),
        fact("device", &device.name),
        fact("driver", &device.driver),
    ];
    let rungs = Rung::ALL.iter().zip(report.rungs).filter(|(_, count)| *count > 0);
    facts.extend(
        rungs.map(|(rung, count)| fact(&format!("rung {}", rung.word()), &count.to_string())),
    );
    let totals = &report.totals;
    if totals.away_bytes > 0 {
        facts.push(fact("asleep", &format!("{} live bytes are away", totals.away_bytes)));
    }
    let mut data = ReportData {
        schema: ReportData::SCHEMA,
        title: title.to_owned(),
        facts,
        figures: Figures {
            events: totals.allocated + totals.freed,
            allocations: totals.allocated,
            peak_live_bytes: totals.peak_live_bytes,
            peak_reserved_bytes: Some(report.peak_reserved_bytes),
            driver_calls: Some(report.driver_calls),
            oom: 0,
            duration_us: 0,
        },
        heaps: heaps(caps),
        ..ReportData::default()
    };
    data.add_moment(report, "now", 0);
    data
}

/// Returns the heaps of a device.
fn heaps(caps: &Caps) -> Vec<Heap> {
    let heap = |(id, heap): (core::HeapId, &core::Heap)| Heap {
        id: id.0,
        name: heap.name.clone(),
        size: Some(heap.size),
    };
    caps.heap_ids().map(heap).collect()
}

fn moment(report: &Report, title: &str, time_us: u64, labels: &mut Labels) -> Moment {
    let mut blocks: Vec<MapBlock> =
        report.pools.iter().flat_map(|pool| map_pool(pool, labels)).collect();
    blocks.sort_by_key(|block| (block.heap, block.block));
    let mut reserved: BTreeMap<u8, u64> = BTreeMap::new();
    for pool in &report.pools {
        *reserved.entry(pool.heap.0).or_default() += pool.totals.reserved_bytes;
    }
    let reserved = reserved.into_iter().map(|(heap, bytes)| HeapBytes { heap, bytes }).collect();
    Moment { title: title.to_owned(), time_us, reserved, blocks }
}

/// Draws the blocks of a pool that have memory.
fn map_pool(pool: &PoolReport, labels: &mut Labels) -> Vec<MapBlock> {
    let addresses: u64 = pool.blocks.iter().map(|block| block.size).sum();
    // A pool that spans more addresses than it holds bytes is made of pages.
    let gaps = if addresses > pool.totals.reserved_bytes { gaps } else { |_: &_| Vec::new() };
    let map = |block: &BlockReport| MapBlock {
        block: u32::try_from(block.number.0).unwrap_or(u32::MAX),
        heap: pool.heap.0,
        size: end(block),
        spans: block.live.iter().map(|live| map_span(live, labels)).collect(),
        unmapped: Some(gaps(block)),
    };
    pool.blocks.iter().map(map).filter(|block| block.size > 0).collect()
}

/// Returns the end of the last byte of memory. Addresses behind it would make a map show nothing else.
fn end(block: &BlockReport) -> u64 {
    pieces(block).map(|span| span.offset + span.size).max().unwrap_or(0).min(block.size)
}

fn pieces(block: &BlockReport) -> impl Iterator<Item = &core::Span> {
    block.live.iter().map(|live| &live.span).chain(&block.holes)
}

/// Addresses of a block of pages that are neither live nor free: no memory is mapped there.
fn gaps(block: &BlockReport) -> Vec<Gap> {
    let mut pieces: Vec<_> = pieces(block).collect();
    pieces.sort_unstable_by_key(|span| span.offset);
    let (mut gaps, mut end) = (Vec::new(), 0);
    for span in pieces {
        if span.offset > end {
            gaps.push(Gap { offset: end, size: span.offset - end });
        }
        end = end.max(span.offset + span.size);
    }
    gaps
}

/// Returns a span, under its tag and its name as in a trace.
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

impl ReportData {
    /// Adds the map of a manager as `report` shows it, and returns its index in `moments`.
    pub fn add_moment(&mut self, report: &Report, title: &str, time_us: u64) -> u32 {
        let mut labels = Labels::default();
        let mut moment = moment(report, title, time_us, &mut labels);
        relabel(&mut moment, &self.adopt(&list(&labels)));
        self.moments.push(moment);
        u32::try_from(self.moments.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds why a request failed: `shortage` is what its error says, and the last moment the map of then.
    pub fn add_failure(&mut self, shortage: &Shortage) {
        let Some(moment) = self.moments.last() else { return };
        let mut found = explain(moment, shortage.requested, 0, shortage.live);
        found.reserved_bytes = shortage.reserved;
        found.free_bytes = shortage.reserved.saturating_sub(shortage.live);
        found.fits_after_defragment = shortage.fits_after_defragment;
        found.moment = u32::try_from(self.moments.len() - 1).ok();
        self.out_of_memory.push(found);
        self.figures.oom += 1;
    }

    /// Prepends the last moment of an earlier report of the same manager, and its failures, to those of this one:
    /// the two sides of a pass. What lies elsewhere now counts as moved.
    pub fn add_before(&mut self, before: &Self, title: &str) {
        let (Some(was), Some(is)) = (before.moments.last(), self.moments.last()) else { return };
        let (moves, moved_bytes) = moved(was, before, is, self);
        let mut was = was.clone();
        "before".clone_into(&mut was.title);
        let labels = self.adopt(&before.labels);
        let adopted = |label: u32| labels.get(label as usize).copied().unwrap_or(0);
        relabel(&mut was, &labels);
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

/// Replaces the labels of a moment's spans by those of another report: `labels[n]` is label `n` there.
fn relabel(moment: &mut Moment, labels: &[u32]) {
    for span in moment.blocks.iter_mut().flat_map(|block| &mut block.spans) {
        span.label = labels.get(span.label as usize).copied().unwrap_or(0);
    }
}

/// Returns the number and bytes of allocations that moved.
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
