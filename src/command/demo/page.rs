//! The demo as an HTML page.
use super::Demo;
use super::compact::Compaction;
use omniheap::trace::report::{
    Defragmentation, Fact, Figures, Heap, MapBlock, MapSpan, Moment, ReportData, SpanState,
};
use omniheap::{BlockReport, Caps, HeapKind, SpanReport};

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
        figures: Figures::default(),
        heaps: caps.heap_ids().map(heap).collect(),
        ..ReportData::default()
    };
    let home = caps.heap_ids().find(|(_, heap)| heap.kind == HeapKind::Device);
    let home = home.map_or(0, |(id, _)| id.0);
    demo.compactions.iter().for_each(|one| add(&mut data, one, home));
    data
}

/// Adds the maps before and after, and the pass between them.
fn add(data: &mut ReportData, one: &Compaction, heap: u8) {
    let index = |count: usize| u32::try_from(count).ok();
    let before = index(data.moments.len());
    for (title, blocks) in [("before", &one.before), ("after", &one.after)] {
        let first = data.moments.iter().map(|moment| moment.blocks.len()).sum::<usize>();
        let blocks =
            (first..).zip(blocks).map(|(number, block)| map_block(number, block, heap)).collect();
        let what = if one.requested_bytes > 0 { "the large request" } else { "defragmentation" };
        let title = format!("{} pool, {title} {what}", one.pools);
        data.moments.push(Moment { title, time_us: data.moments.len() as u64, blocks });
    }
    data.defragmentation.push(Defragmentation {
        title: format!("{} pool", one.pools),
        moves: one.moves,
        moved_bytes: one.moved_bytes,
        before,
        after: before.map(|before| before + 1),
    });
}

fn map_block(number: usize, block: &BlockReport, heap: u8) -> MapBlock {
    let span = |SpanReport { span, .. }: &SpanReport| MapSpan {
        offset: span.offset,
        size: span.size,
        label: 0,
        state: SpanState::Live,
    };
    MapBlock {
        block: u32::try_from(number).unwrap_or(u32::MAX),
        heap,
        size: block.size,
        spans: block.live.iter().map(span).collect(),
    }
}
