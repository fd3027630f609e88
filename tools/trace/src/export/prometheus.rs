//! Prometheus's text format: what a scrape of a manager or a report answers.

use crate::report::{Figures, Heap, Moment, ReportData};
use std::io::{self, Write};

/// Prometheus metric type.
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
    /// Metric type.
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
    write_to(metrics, &mut sink)
}

/// Is not generic, so that it is compiled once, and here.
fn write_to(metrics: &[Metric], sink: &mut dyn Write) -> io::Result<()> {
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

/// Returns the figures of a report, and reserved and live bytes per heap at its end. Values that were not recorded are left out,
/// and so is what a model chose.
pub fn from_report(data: &ReportData) -> Vec<Metric> {
    let mut metrics = figures(&data.figures);
    if let Some(moment) = data.moments.last().filter(|_| data.placed_by_model.is_none()) {
        let (name, help) = ("omniheap_reserved_bytes", "Blocks and pages held from the driver.");
        let of = |heap: &Heap| of_heap(name, help, heap, reserved(moment, heap));
        metrics.extend(data.heaps.iter().map(of));
        let (name, help) = ("omniheap_live_bytes", "Bytes of live allocations.");
        metrics.extend(data.heaps.iter().map(|heap| of_heap(name, help, heap, live(moment, heap))));
    }
    metrics
}

fn figures(figures: &Figures) -> Vec<Metric> {
    let known = [
        (
            "omniheap_peak_live_bytes",
            "Largest sum of live bytes.",
            Kind::Gauge,
            Some(figures.peak_live_bytes),
        ),
        (
            "omniheap_peak_reserved_bytes",
            "Largest sum of blocks held.",
            Kind::Gauge,
            figures.peak_reserved_bytes,
        ),
        (
            "omniheap_allocations_total",
            "Allocations made.",
            Kind::Counter,
            Some(figures.allocations),
        ),
        (
            "omniheap_driver_calls_total",
            "Blocks taken and given back.",
            Kind::Counter,
            figures.driver_calls,
        ),
        ("omniheap_out_of_memory_total", "Requests that failed.", Kind::Counter, Some(figures.oom)),
    ];
    let metrics = known.into_iter();
    metrics.filter_map(|(name, help, kind, value)| Some(metric(name, help, kind, value?))).collect()
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

/// Returns the bytes of a heap that were held from the driver.
fn reserved(moment: &Moment, heap: &Heap) -> u64 {
    moment.reserved.iter().find(|held| held.heap == heap.id).map_or(0, |held| held.bytes)
}

/// Returns the bytes of a heap that were live.
fn live(moment: &Moment, heap: &Heap) -> u64 {
    let blocks = moment.blocks.iter().filter(|block| block.heap == heap.id);
    blocks.flat_map(|block| &block.spans).fold(0, |sum, span| sum.saturating_add(span.size))
}

fn of_heap(name: &str, help: &str, heap: &Heap, bytes: u64) -> Metric {
    let labels = vec![("heap".to_owned(), heap.name.clone())];
    Metric { labels, ..metric(name, help, Kind::Gauge, bytes) }
}
