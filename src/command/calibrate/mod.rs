//! `omniheap calibrate`: measures on this device what the placement rules assume.
mod bench;

use super::Failure;
use super::choice::Backend;
use super::output::{self, Format};
use bench::{Bench, PER_THREAD, Time};
use clap::Args;
use omniheap::shaders::{LOOKUPS, Placed};
use omniheap::{BackendKind, Pattern, Region, Request, Writer, open};
use serde::Serialize;

/// Measure on this device what the placement rules assume
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The backend whose device is measured
    #[arg(long, value_enum, default_value_t = Backend::Host)]
    backend: Backend,
    /// Which device of that backend
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Only kernels whose name contains this
    #[arg(long)]
    filter: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap calibrate --backend cuda
  omniheap calibrate --backend vulkan --filter palette --json";

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
    agree: bool,
}

/// How a lookup reads its table: the pattern, and rows per item.
fn reading(kernel: &Placed) -> (Pattern, &'static str, u32) {
    match kernel.name() {
        "polynomial" | "centroids" | "bodies" | "segments" => {
            (Pattern::Broadcast, "broadcast", kernel.rows)
        }
        "material" => (Pattern::Broadcast, "broadcast", 1),
        "window" | "dither" => (Pattern::Coalesced, "coalesced", 1),
        "twiddle" => (Pattern::Gathered, "gathered", kernel.rows.ilog2()),
        "interpolate" => (Pattern::Gathered, "gathered", 2),
        "search" => (Pattern::Gathered, "gathered", kernel.rows.ilog2()),
        "substitute" => (Pattern::Gathered, "gathered", 16),
        "chain" => (Pattern::Gathered, "gathered", 8),
        _ => (Pattern::Gathered, "gathered", 1),
    }
}

/// Measures every lookup.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let kind: BackendKind = arguments.backend.kind();
    let device = open(kind, arguments.device)
        .map_err(|error| Failure::no_device(Some(kind), arguments.device, error))?;
    if device.as_launch().is_none() {
        return Err(Failure::failed(format!("backend {kind} runs no kernels on this device")));
    }
    let bench = Bench::open(&device)?;
    let wanted = |kernel: &&Placed| {
        arguments.filter.as_ref().is_none_or(|part| kernel.name().contains(part.as_str()))
    };
    let kernels: Vec<_> = LOOKUPS.iter().filter(wanted).collect();
    let bar = output::progress(format, kernels.len() as u64);
    let mut lines = Vec::new();
    for kernel in kernels {
        bar.set_message(kernel.name());
        let line = line(&bench, kind, kernel)?;
        if format == Format::Json {
            output::print_json(&line)?;
        }
        lines.push(line);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if format == Format::Text { show(&lines) } else { Ok(()) }
}

fn line(bench: &Bench, kind: BackendKind, kernel: &Placed) -> Result<Line, Failure> {
    let measured = bench.measure(kernel)?;
    let (pattern, name, reads) = reading(kernel);
    let reuse = 256 * PER_THREAD * reads / kernel.rows;
    let request = Request::new(kernel.bytes()).writer(Writer::HostOnce).pattern(pattern);
    let chosen = bench.manager.explain(&request)?.placement.region;
    let of = |region| {
        measured.times.iter().find(|time| time.region == region).map(|time| time.microseconds)
    };
    let faster = |a: &&Time, b: &&Time| a.microseconds.total_cmp(&b.microseconds);
    let best = measured.times.iter().min_by(faster).copied();
    let best = best.ok_or_else(|| Failure::failed("nothing was measured"))?;
    let taken = of(chosen).or_else(|| of(Region::Device)).unwrap_or(best.microseconds);
    Ok(Line {
        backend: kind.name(),
        kernel: kernel.name(),
        table_bytes: kernel.bytes(),
        pattern: name,
        reuse,
        device_us: of(Region::Device),
        constant_us: of(Region::Constant),
        shared_us: of(Region::Shared),
        chosen: format!("{chosen:?}").to_lowercase(),
        best: format!("{:?}", best.region).to_lowercase(),
        regret: taken / best.microseconds,
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
