//! A manager's state as the report's data: for JSON, for the HTML page, and for other languages.
use omniheap_core::{Backend, BlockReport, Manager, PoolReport, Rung, Span};
use omniheap_trace::report::{
    Fact, Figures, Heap, Label, MapBlock, MapSpan, Moment, ReportData, SpanState,
};
use std::collections::BTreeMap;

/// What a manager holds right now, as `docs/report.schema.json` describes it.
///
/// # Examples
///
/// ```
/// use omniheap::{Manager, Request, host::Host, picture};
/// let manager = Manager::new(Host::new());
/// let weights = manager.allocate(&Request::new(4096).name("weights"))?;
/// let data = picture(&manager, "my engine");
/// assert_eq!(data.labels[0].text, "weights");
/// # drop(weights);
/// # Ok::<(), omniheap::AllocateError>(())
/// ```
pub fn picture<B: Backend>(manager: &Manager<B>, title: &str) -> ReportData {
    let (caps, report) = (manager.caps(), manager.report());
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let mut facts = vec![
        fact("device", caps.device.name.clone()),
        fact("driver", caps.device.driver.clone()),
        fact("live bytes", report.totals.live_bytes.to_string()),
        fact("reserved bytes", report.totals.reserved_bytes.to_string()),
        fact("moved bytes", report.moved_bytes.to_string()),
    ];
    let rungs = Rung::ALL.iter().zip(report.rungs).filter(|(_, count)| *count > 0);
    facts.extend(rungs.map(|(rung, count)| fact(&format!("rung {rung:?}"), count.to_string())));
    let mut labels = Labels::default();
    let moment =
        Moment { title: "now".into(), time_us: 0, blocks: blocks(&report.pools, &mut labels) };
    ReportData {
        schema: ReportData::SCHEMA,
        title: title.into(),
        facts,
        figures: Figures {
            events: report.totals.allocated + report.totals.freed,
            allocations: report.totals.allocated,
            peak_live_bytes: report.totals.peak_live_bytes,
            peak_reserved_bytes: report.peak_reserved_bytes,
            driver_calls: report.driver_calls,
            ..Figures::default()
        },
        heaps: caps
            .heap_ids()
            .map(|(id, heap)| Heap { id: id.0, name: heap.name.clone(), size: Some(heap.size) })
            .collect(),
        labels: labels.list,
        moments: vec![moment],
        ..ReportData::default()
    }
}

/// The names of allocations, each once.
#[derive(Default)]
struct Labels {
    list: Vec<Label>,
    numbers: BTreeMap<String, u32>,
}

impl Labels {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.list.push(Label { parent: 0, text: text.into() });
        let number = u32::try_from(self.list.len()).unwrap_or(0);
        self.numbers.insert(text.into(), number);
        number
    }
}

fn blocks(pools: &[PoolReport], labels: &mut Labels) -> Vec<MapBlock> {
    let all =
        pools.iter().flat_map(|pool| pool.blocks.iter().map(move |block| (pool.heap.0, block)));
    (0..).zip(all).map(|(number, (heap, block))| map_block(number, heap, block, labels)).collect()
}

fn map_block(number: u32, heap: u8, block: &BlockReport, labels: &mut Labels) -> MapBlock {
    let mut span = |(span, name): &(Span, Option<String>)| MapSpan {
        offset: span.offset,
        size: span.size,
        label: name.as_deref().map_or(0, |name| labels.number(name)),
        state: SpanState::Live,
    };
    MapBlock {
        block: number,
        heap,
        size: block.size,
        spans: block.live.iter().map(&mut span).collect(),
    }
}
