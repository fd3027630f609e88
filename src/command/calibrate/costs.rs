//! What reads cost from each region, measured for a profile.
use super::bench::{Bench, Measured};
use super::uploads;
use crate::command::Failure;
use crate::command::output::{self, Format};
use omniheap::shaders::{LOOKUPS, Placed};
use omniheap::{Caps, Cost, Pattern, Profile, Region, TableSize, profile_path, write_profile};
use serde::Serialize;
use std::path::Path;

/// The lookups that stand for a pattern, and rows that each reads for an item.
const SAMPLES: [(&str, Pattern, &[Sample]); 3] = [
    ("broadcast", Pattern::Broadcast, &[("polynomial", 0), ("centroids", 0)]),
    ("coalesced", Pattern::Coalesced, &[("window", 1)]),
    ("gathered", Pattern::Gathered, &[("substitute", 16), ("chain", 8)]),
];

/// A lookup and the rows that it reads for one item; zero for all rows.
type Sample = (&'static str, u32);

/// Items of one thread: little reuse and much.
const LOADS: [u32; 2] = [1, 16];

/// One measured class.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    device: String,
    pattern: &'static str,
    table_bytes: u64,
    constant_percent: u32,
    shared_percent: u32,
    stage_percent: u32,
}

/// Measures every pattern and size, and writes the profile.
pub(super) fn run(bench: &Bench, out: Option<&Path>, format: Format) -> Result<(), Failure> {
    let caps = bench.manager.caps();
    let path = match out {
        Some(path) => path.to_path_buf(),
        None => profile_path(caps).ok_or_else(|| Failure::input("no home folder: give --out"))?,
    };
    let bar = output::progress(format, 9);
    let (mut profile, mut lines) = (Profile::ASSUMED, Vec::new());
    for (name, pattern, samples) in SAMPLES {
        for size in TableSize::ALL {
            bar.set_message(format!("{name} {size:?}"));
            let assumed = profile.cost(pattern, size.most());
            let Some((bytes, cost)) = measure(bench, samples, size, assumed)? else { continue };
            profile = profile.with(pattern, size, cost);
            lines.push(line(caps, name, bytes, cost));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    write_profile(&path, &profile).map_err(|error| Failure::unwritable(&path, &error))?;
    match format {
        Format::Json => lines.iter().try_for_each(output::print_json)?,
        Format::Text => show(&lines)?,
    }
    uploads::run(bench, format)?;
    if format == Format::Text {
        output::print_line(&format!("written to {}", path.display()))?;
    }
    Ok(())
}

/// The mean cost of a pattern's samples in one size.
fn measure(
    bench: &Bench,
    samples: &[Sample],
    size: TableSize,
    assumed: Cost,
) -> Result<Option<(u64, Cost)>, Failure> {
    let mut costs = Vec::new();
    let mut bytes = 0;
    for (name, reads) in samples {
        let of = |kernel: &&Placed| kernel.name() == *name && TableSize::of(kernel.bytes()) == size;
        let Some(kernel) = LOOKUPS.iter().find(of) else { continue };
        let reads = if *reads == 0 { kernel.rows } else { *reads };
        let little = bench.measure(kernel, LOADS[0])?;
        let much = bench.measure(kernel, LOADS[1])?;
        bytes = kernel.bytes();
        costs.push(cost(kernel, reads, &little, &much, assumed));
    }
    let count = costs.len() as u64;
    let mean = |part: fn(&Cost) -> u32| {
        let sum: u64 = costs.iter().map(|cost| u64::from(part(cost))).sum();
        u32::try_from(sum.checked_div(count)?).ok()
    };
    let mean = (mean(|c| c.constant), mean(|c| c.shared), mean(|c| c.stage));
    let (Some(constant), Some(shared), Some(stage)) = mean else { return Ok(None) };
    Ok(Some((bytes, Cost { constant, shared, stage })))
}

/// Solves for the cost of one read from shared memory and of bringing a byte there: the time is
/// `stage + shared × reuse`, known for two reuses. Places that the device lacks keep what is assumed.
fn cost(kernel: &Placed, reads: u32, little: &Measured, much: &Measured, assumed: Cost) -> Cost {
    let reuse = |load: u32| f64::from(256 * load * reads) / f64::from(kernel.rows);
    let share = |measured: &Measured, region| {
        Some(100.0 * measured.of(region)? / measured.of(Region::Device)?)
    };
    let constant = share(much, Region::Constant).map_or(assumed.constant, percent);
    let (Some(low), Some(high)) = (share(little, Region::Shared), share(much, Region::Shared))
    else {
        return Cost { constant, ..assumed };
    };
    let (few, many) = (reuse(LOADS[0]), reuse(LOADS[1]));
    let shared = ((high * many - low * few) / (many - few)).max(0.0);
    let stage = ((low - shared) * few).max(0.0);
    Cost { constant, shared: percent(shared), stage: percent(stage) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a profile holds"
)]
fn percent(value: f64) -> u32 {
    value.round().clamp(0.0, 1_000_000.0) as u32
}

fn line(caps: &Caps, pattern: &'static str, table_bytes: u64, cost: Cost) -> Line {
    Line {
        backend: caps.device.backend,
        device: caps.device.name.clone(),
        pattern,
        table_bytes,
        constant_percent: cost.constant,
        shared_percent: cost.shared,
        stage_percent: cost.stage,
    }
}

fn show(lines: &[Line]) -> Result<(), Failure> {
    let row = |line: &Line| {
        vec![
            line.pattern.to_owned(),
            output::bytes(line.table_bytes),
            line.constant_percent.to_string(),
            line.shared_percent.to_string(),
            line.stage_percent.to_string(),
        ]
    };
    let header = ["pattern", "table", "constant %", "shared %", "staging %"];
    output::print_line("reads in percent of the time from device memory")?;
    output::print_line(&output::table(&header, &lines.iter().map(row).collect::<Vec<_>>()))
}
