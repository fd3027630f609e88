//! The demo as an HTML page.
use super::super::output;
use super::Demo;
use super::compact::Compaction;
use omniheap::trace::report::{
    Defragmentation, Fact, Figures, Heap, MapBlock, MapSpan, Moment, ReportData, SpanState,
};
use omniheap::{BlockReport, Caps, HeapKind, Report, SpanReport};

/// Everything that the page shows.
pub(super) fn build(demo: &Demo, caps: &Caps) -> ReportData {
    let fact = |name: &str, value: &str| Fact { name: name.into(), value: value.into() };
    let mut facts = vec![
        fact("backend", demo.backend),
        fact("device", &demo.device),
        fact("driver", &demo.driver),
    ];
    facts.extend(demo.placements.iter().map(|one| fact(one.what(), &one.why())));
    let heap = |(id, heap): (omniheap::HeapId, &omniheap::Heap)| Heap {
        id: id.0,
        name: heap.name.clone(),
        size: Some(heap.size),
    };
    let mut data = ReportData {
        schema: ReportData::SCHEMA,
        title: "omniheap demo".into(),
        facts,
        figures: figures(&demo.compactions),
        heaps: caps.heap_ids().map(heap).collect(),
        ..ReportData::default()
    };
    let home = caps.heap_ids().find(|(_, heap)| heap.kind == HeapKind::Device);
    let home = home.map_or(0, |(id, _)| id.0);
    demo.compactions.iter().for_each(|one| add(&mut data, one, home));
    data
}

/// What the acts with maps did, together.
fn figures(acts: &[Compaction]) -> Figures {
    let mut sum = Figures::default();
    for Report { totals, peak_reserved_bytes, driver_calls, .. } in
        acts.iter().map(|act| &act.report)
    {
        sum.events += totals.allocated + totals.freed;
        sum.allocations += totals.allocated;
        sum.driver_calls += driver_calls;
        sum.peak_live_bytes = sum.peak_live_bytes.max(totals.peak_live_bytes);
        sum.peak_reserved_bytes = sum.peak_reserved_bytes.max(*peak_reserved_bytes);
    }
    sum.oom = acts.iter().filter(|act| act.refused_because.is_some()).count() as u64;
    sum
}

/// Adds the maps before and after, and the pass between them.
fn add(data: &mut ReportData, one: &Compaction, heap: u8) {
    let index = |count: usize| u32::try_from(count).ok();
    let before = index(data.moments.len());
    for (title, blocks) in [("before", &one.before), ("after", &one.after)] {
        let blocks = blocks.iter().map(|block| map_block(block, heap)).collect();
        let what = if one.requested_bytes > 0 { "the large request" } else { "defragmentation" };
        let title = format!("{} pool, {title} {what}", one.pools);
        data.moments.push(Moment { title, time_us: data.moments.len() as u64, blocks });
    }
    data.defragmentation.push(Defragmentation {
        title: format!("{} pool of {}", one.pools, output::bytes(one.capacity_bytes)),
        moves: one.moves,
        moved_bytes: one.moved_bytes,
        before,
        after: before.map(|before| before + 1),
    });
}

fn map_block(block: &BlockReport, heap: u8) -> MapBlock {
    let span = |SpanReport { span, .. }: &SpanReport| MapSpan {
        offset: span.offset,
        size: span.size,
        label: 0,
        state: SpanState::Live,
    };
    // A reservation has more addresses than memory: what lies behind its last byte is not shown.
    let live = block.live.iter().map(|one| one.span.end());
    let end = live.chain(block.holes.iter().map(|hole| hole.end())).max();
    MapBlock {
        block: u32::try_from(block.number.0).unwrap_or(u32::MAX),
        heap,
        size: end.unwrap_or(block.size),
        spans: block.live.iter().map(span).collect(),
    }
}
