//! The demo as an HTML page.
use super::super::output;
use super::Demo;
use super::compact::Compaction;
use omniheap::Caps;
use omniheap::trace::Trace;
use omniheap::trace::report::{self, Defragmentation, Fact, Heap, ReportData};

/// Everything that the page shows: the recording, and the maps of the acts before and after.
pub(super) fn build(demo: &Demo, caps: &Caps, trace: &Trace) -> ReportData {
    let fact = |name: &str, value: &str| Fact { name: name.into(), value: value.into() };
    let mut facts = vec![
        fact("backend", demo.backend),
        fact("device", &demo.device),
        fact("driver", &demo.driver),
    ];
    facts.extend(demo.placements.iter().map(|one| fact(one.what(), &one.why())));
    let heap = |(id, heap): (omniheap::HeapId, &omniheap::seam::Heap)| Heap {
        id: id.0,
        name: heap.name.clone(),
        size: Some(heap.size),
    };
    let mut data = ReportData {
        facts,
        heaps: caps.heap_ids().map(heap).collect(),
        // Managers know where pages are mapped, which a recording does not say: their maps are shown instead.
        moments: Vec::new(),
        out_of_memory: Vec::new(),
        defragmentation: Vec::new(),
        ..report::from_trace(trace, "omniheap demo")
    };
    demo.compactions.iter().for_each(|one| add(&mut data, one));
    data
}

/// Adds the maps before and after, and the pass between them.
fn add(data: &mut ReportData, one: &Compaction) {
    let what = if one.requested_bytes > 0 { "the large request" } else { "defragmentation" };
    let title = |when: &str| format!("{} pool, {when} {what}", one.pools);
    let before = data.add_moment(&one.before, &title("before"), 0);
    let after = data.add_moment(&one.after, &title("after"), 0);
    data.defragmentation.push(Defragmentation {
        title: format!("{} pool of {}", one.pools, output::bytes(one.capacity_bytes)),
        moves: one.moves,
        moved_bytes: one.moved_bytes,
        before: Some(before),
        after: Some(after),
    });
}
