//! How much time the policy's choices lose: every lookup in every place.
use super::bench::{Bench, Time};
use crate::command::Failure;
use crate::command::output::{self, Format};
use omniheap::shaders::{LOOKUPS, Placed};
use omniheap::{Pattern, Region, Request, Writer, policy_for};
use serde::Serialize;

/// Items of one thread.
const LOAD: u32 = 8;

/// One lookup: what the policy chose, and what was fastest.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    kernel: &'static str,
    table_bytes: u64,
    pattern: &'static str,
    reuse: u32,
    device_us: Option<f64>,
    constant_us: Option<f64>,
    shared_us: Option<f64>,
    chosen: String,
    best: String,
    regret: f64,
    /// Whether every place gave the same numbers.
    agree: bool,
}

/// How a lookup reads its table: the pattern, and rows for one item.
fn reading(kernel: &Placed) -> (&'static str, Pattern, u32) {
    let gathered = |reads| ("gathered", Pattern::Gathered, reads);
    match kernel.name() {
        "polynomial" | "centroids" | "bodies" | "segments" => {
            ("broadcast", Pattern::Broadcast, kernel.rows)
        }
        "material" => ("broadcast", Pattern::Broadcast, 1),
        "window" | "dither" => ("coalesced", Pattern::Coalesced, 1),
        "twiddle" | "search" => gathered(kernel.rows.ilog2()),
        "interpolate" => gathered(2),
        "substitute" => gathered(16),
        "chain" => gathered(8),
        _ => gathered(1),
    }
}

/// Measures every lookup whose name contains `filter`.
pub(super) fn run(bench: &Bench, filter: Option<&str>, format: Format) -> Result<(), Failure> {
    let wanted = |kernel: &&Placed| filter.is_none_or(|part| kernel.name().contains(part));
    let kernels: Vec<_> = LOOKUPS.iter().filter(wanted).collect();
    let bar = output::progress(format, kernels.len() as u64);
    let mut lines = Vec::new();
    for kernel in kernels {
        bar.set_message(kernel.name());
        let line = line(bench, kernel)?;
        if format == Format::Json {
            output::print_json(&line)?;
        }
        lines.push(line);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if format == Format::Text { show(&lines) } else { Ok(()) }
}

fn line(bench: &Bench, kernel: &Placed) -> Result<Line, Failure> {
    let measured = bench.measure(kernel, LOAD)?;
    let (name, pattern, reads) = reading(kernel);
    let reuse = 256 * LOAD * reads / kernel.rows;
    let request = Request::new(kernel.bytes()).writer(Writer::HostOnce).pattern(pattern);
    let caps = bench.manager.caps();
    let placed = policy_for(caps).place(&request.reuse(reuse), caps)?;
    let faster = |a: &&Time, b: &&Time| a.microseconds.total_cmp(&b.microseconds);
    let best = measured.times.iter().min_by(faster).copied();
    let best = best.ok_or_else(|| Failure::failed("nothing was measured"))?;
    // A region without a variant of this kernel is served from device memory.
    let taken = measured.of(placed.region).or_else(|| measured.of(Region::Device));
    Ok(Line {
        backend: caps.device.backend,
        kernel: kernel.name(),
        table_bytes: kernel.bytes(),
        pattern: name,
        reuse,
        device_us: measured.of(Region::Device),
        constant_us: measured.of(Region::Constant),
        shared_us: measured.of(Region::Shared),
        chosen: format!("{:?}", placed.region).to_lowercase(),
        best: format!("{:?}", best.region).to_lowercase(),
        regret: taken.unwrap_or(best.microseconds) / best.microseconds,
        agree: measured.agree,
    })
}

fn show(lines: &[Line]) -> Result<(), Failure> {
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
    let row = |line: &Line| {
        vec![
            line.kernel.to_owned(),
            line.table_bytes.to_string(),
            line.pattern.to_owned(),
            line.reuse.to_string(),
            number(line.device_us),
            number(line.constant_us),
            number(line.shared_us),
            line.chosen.clone(),
            line.best.clone(),
            format!("{:.3}", line.regret),
            if line.agree { "yes" } else { "NO" }.to_owned(),
        ]
    };
    let header = [
        "kernel",
        "bytes",
        "pattern",
        "reuse",
        "device µs",
        "constant µs",
        "shared µs",
        "chosen",
        "best",
        "regret",
        "agree",
    ];
    output::print_line(&output::table(&header, &lines.iter().map(row).collect::<Vec<_>>()))?;
    let mut regrets: Vec<f64> = lines.iter().map(|line| line.regret).collect();
    regrets.sort_by(f64::total_cmp);
    let middle = regrets.get(regrets.len() / 2).copied().unwrap_or(1.0);
    let worst = regrets.last().copied().unwrap_or(1.0);
    output::print_line(&format!("regret: median {middle:.3}, worst {worst:.3}"))
}
