//! Prometheus's text format: what a scrape of a manager or a report answers.

use crate::report::{Heap, MapBlock, Moment, ReportData};
use std::io::{self, Write};

/// Whether a number may fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It may.
    Gauge,
    /// It only grows.
    Counter,
}

/// One number with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Letters, digits and `_`, such as `omniheap_live_bytes`; other characters are written as `_`.
    pub name: String,
    /// One sentence.
    pub help: String,
    /// Whether it may fall.
    pub kind: Kind,
    /// Names and values that tell it from its siblings.
    pub labels: Vec<(String, String)>,
    /// The number.
    pub value: f64,
}

/// Writes `metrics`. Those of one name must follow each other: help and type come once for them.
///
/// # Errors
/// What `sink` returns.
pub fn write(metrics: &[Metric], mut sink: impl Write) -> io::Result<()> {
    let mut last = "";
    for metric in metrics {
        let name = word(&metric.name);
        if last != metric.name {
            let kind = if metric.kind == Kind::Gauge { "gauge" } else { "counter" };
            writeln!(
                sink,
                "# HELP {name} {}",
                metric.help.replace('\\', "\\\\").replace('\n', "\\n")
            )?;
            writeln!(sink, "# TYPE {name} {kind}")?;
        }
        last = &metric.name;
        write!(sink, "{name}")?;
        for (index, (key, value)) in metric.labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(sink, "{}{}=\"{value}\"", if index == 0 { "{" } else { "," }, word(key))?;
        }
        writeln!(sink, "{} {}", if metric.labels.is_empty() { "" } else { "}" }, metric.value)?;
    }
    sink.flush()
}

fn word(name: &str) -> String {
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if word.starts_with(|c: char| c.is_ascii_digit()) { format!("_{word}") } else { word }
}

/// The figures of a report, and per heap what is reserved and live at its last moment.
pub fn from_report(data: &ReportData) -> Vec<Metric> {
    let figures = &data.figures;
    let plain = [
        (
            "omniheap_peak_live_bytes",
            "Largest sum of live bytes.",
            Kind::Gauge,
            figures.peak_live_bytes,
        ),
        (
            "omniheap_peak_reserved_bytes",
            "Largest sum of blocks held.",
            Kind::Gauge,
            figures.peak_reserved_bytes,
        ),
        ("omniheap_allocations_total", "Allocations made.", Kind::Counter, figures.allocations),
        (
            "omniheap_driver_calls_total",
            "Blocks taken and given back.",
            Kind::Counter,
            figures.driver_calls,
        ),
        ("omniheap_out_of_memory_total", "Requests that failed.", Kind::Counter, figures.oom),
    ];
    let mut metrics: Vec<Metric> = plain
        .into_iter()
        .map(|(name, help, kind, value)| metric(name, help, kind, value))
        .collect();
    if let Some(moment) = data.moments.last() {
        let reserved = |block: &MapBlock| block.size;
        let live = |block: &MapBlock| block.spans.iter().map(|span| span.size).sum();
        let (name, help) = ("omniheap_reserved_bytes", "Blocks held from the driver.");
        metrics.extend(data.heaps.iter().map(|heap| of_heap(name, help, heap, moment, reserved)));
        let (name, help) = ("omniheap_live_bytes", "Bytes of live allocations.");
        metrics.extend(data.heaps.iter().map(|heap| of_heap(name, help, heap, moment, live)));
    }
    metrics
}

fn metric(name: &str, help: &str, kind: Kind, value: u64) -> Metric {
    Metric {
        name: name.to_owned(),
        help: help.to_owned(),
        kind,
        labels: Vec::new(),
        value: value as f64,
    }
}

/// A sum over the blocks of one heap.
fn of_heap(
    name: &str,
    help: &str,
    heap: &Heap,
    moment: &Moment,
    of: impl Fn(&MapBlock) -> u64,
) -> Metric {
    let sum = moment.blocks.iter().filter(|block| block.heap == heap.id).map(of).sum();
    let labels = vec![("heap".to_owned(), heap.name.clone())];
    Metric { labels, ..metric(name, help, Kind::Gauge, sum) }
}
