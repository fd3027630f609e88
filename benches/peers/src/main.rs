//! The same traces and churn through omniheap and its peers, in one run: a table of ratios, and JSON.
//!
//! `cargo run --release -- TRACE.csv.gz … [--json FILE]`, from this folder.
mod measure;
mod null;
mod offsets;
mod ours;
mod workload;

use measure::{Figures, measure};
use workload::Workload;

const REPEAT: u32 = 7;

fn main() {
    let mut traces = Vec::new();
    let mut json = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = arguments.next(),
            _ => traces.push(argument),
        }
    }
    let mut workloads: Vec<Workload> = traces.iter().map(|path| load(path)).collect();
    workloads.push(Workload::churn(10_000, 2_000_000));
    let table = compare(&workloads);
    print_table(&table);
    let churn = Workload::churn(2_000, 2_000_000);
    let scaling = ours::scaling(&churn);
    println!("two threads on one manager are {scaling:.2}x as fast as one");
    if let Some(path) = json {
        let rows: Vec<_> = table.iter().map(|row| row.json()).collect();
        let text = serde_json::json!({ "rows": rows, "two_threads": scaling }).to_string();
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

fn load(path: &str) -> Workload {
    let trace = omniheap_trace::Trace::open(path).unwrap_or_else(|error| {
        eprintln!("{path}: {error}");
        std::process::exit(2)
    });
    let name = std::path::Path::new(path).file_name().map_or(path, |name| name.to_str().unwrap_or(path));
    Workload::from_trace(name.trim_end_matches(".csv.gz"), &trace)
}

struct Row {
    peer: &'static str,
    workload: String,
    is_trace: bool,
    figures: Option<Figures>,
    peak_live: u64,
}

impl Row {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "peer": self.peer,
            "workload": self.workload,
            "ns": self.figures.map(|f| f.ns),
            "p999_ns": self.figures.map(|f| f.p999),
            "peak_reserved_over_live": self.figures.and_then(|f| f.reserved).map(|r| r as f64 / self.peak_live as f64),
        })
    }
}

fn compare(workloads: &[Workload]) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in workloads {
        let mut row = |peer, figures| {
            rows.push(Row {
                peer,
                workload: workload.name.clone(),
                is_trace: workload.is_trace,
                figures,
                peak_live: workload.peak_live,
            });
        };
        row("offset-allocator", measure(workload, REPEAT, offsets::OffsetAllocator::new));
        row("omniheap strategy", measure(workload, REPEAT, ours::Offsets::new));
        row("omniheap manager", measure(workload, REPEAT, ours::Whole::new));
        row("VMA virtual block", measure(workload, REPEAT, offsets::Virtual::new));
    }
    rows
}

fn print_table(rows: &[Row]) {
    println!("{:<22} {:<20} {:>8} {:>8} {:>10}", "workload", "peer", "ns/op", "p99.9", "vs offset");
    let mut base = 0.0;
    for row in rows {
        let Some(figures) = row.figures else {
            println!("{:<22} {:<20} failed", row.workload, row.peer);
            continue;
        };
        if row.peer == "offset-allocator" {
            base = figures.ns;
        }
        let ratio = figures.ns / base;
        println!("{:<22} {:<20} {:>8.1} {:>8.0} {:>9.2}x", row.workload, row.peer, figures.ns, figures.p999, ratio);
    }
    for peer in ["offset-allocator", "omniheap strategy", "omniheap manager", "VMA virtual block"] {
        let of = |name: &str| -> Vec<f64> {
            rows.iter().filter(|r| r.is_trace && r.peer == name).filter_map(|r| r.figures).map(|f| f.ns).collect()
        };
        let mean = |values: Vec<f64>| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len().max(1) as f64).exp();
        println!("traces, geometric mean {peer:<20} {:>8.1} ns  {:.2}x", mean(of(peer)), mean(of(peer)) / mean(of("offset-allocator")));
    }
}
