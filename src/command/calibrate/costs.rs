//! What reads cost from each region, measured for a profile.
use super::bench::{Bench, Measured};
use crate::command::Failure;
use crate::command::output::{self, Format};
use indicatif::ProgressBar;
use omniheap::shaders::{Lookup, PROBES};
use omniheap::{Caps, Cost, Pattern, Profile, Region, TableSize, Word as _};
use serde::Serialize;

const PATTERNS: [Pattern; 5] =
    [Pattern::Broadcast, Pattern::Uniform, Pattern::Coalesced, Pattern::Gathered, Pattern::Records];

/// Items of one thread: little reuse and much.
const LOADS: [u32; 2] = [4, 16];

/// One measured class: what reads cost beside device memory, and how fast they are.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    device: String,
    pattern: &'static str,
    table_bytes: u64,
    constant_percent: Option<u32>,
    shared_percent: Option<u32>,
    stage_percent: Option<u32>,
    /// With much reuse, as all others.
    device_gigabytes_per_second: Option<f64>,
    constant_gigabytes_per_second: Option<f64>,
    shared_gigabytes_per_second: Option<f64>,
}

/// What the probes of one class say; nothing of places that the device lacks.
#[derive(Default)]
struct Seen {
    constant: Option<f64>,
    shared: Option<(f64, f64)>,
    rates: [Option<f64>; 3],
}

/// Steps of the whole measurement.
pub(super) const STEPS: u64 = PROBES.len() as u64;

/// Measures every pattern and size.
pub(super) fn run(
    bench: &Bench,
    mut profile: Profile,
    bar: &ProgressBar,
    format: Format,
) -> Result<Profile, Failure> {
    let caps = bench.manager.caps();
    let mut lines = Vec::new();
    for pattern in PATTERNS {
        let (name, mut last) = (pattern.word(), None);
        for size in TableSize::ALL {
            bar.set_message(format!("{name}, {}", output::bytes(size.most())));
            let seen = measure(bench, pattern, size, bar)?;
            let assumed = profile.cost(pattern, size.most());
            // A table too large for a copy of its own is believed to behave as the largest that was copied.
            last = seen.shared.or(last);
            let (shared, stage) =
                last.map_or((assumed.shared, assumed.stage), |(a, b)| (percent(a), percent(b)));
            let constant = seen.constant.map_or(assumed.constant, percent);
            profile = profile.with(pattern, size, Cost { constant, shared, stage });
            lines.push(line(caps, name, size, &seen));
        }
    }
    bar.finish_and_clear();
    match format {
        Format::Json => lines.iter().try_for_each(output::print_json)?,
        Format::Text => show(&lines)?,
    }
    Ok(profile)
}

/// The mean of a pattern's probes in one size.
fn measure(
    bench: &Bench,
    pattern: Pattern,
    size: TableSize,
    bar: &ProgressBar,
) -> Result<Seen, Failure> {
    let is_of = |probe: &&Lookup| probe.pattern == pattern && probe.table.bytes() == size.most();
    let mut all = Vec::new();
    for probe in PROBES.iter().filter(is_of) {
        let measured = bench.measure(&probe.table, &LOADS)?;
        all.push(seen(probe, &measured[0], &measured[1]));
        bar.inc(1);
    }
    let mean = |part: &dyn Fn(&Seen) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(part).collect();
        #[expect(clippy::cast_precision_loss, reason = "one or two probes")]
        let count = values.len() as f64;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
    };
    let shared = mean(&|seen| Some(seen.shared?.0)).zip(mean(&|seen| Some(seen.shared?.1)));
    let rates = core::array::from_fn(|place| mean(&|seen: &Seen| seen.rates[place]));
    Ok(Seen { constant: mean(&|seen| seen.constant), shared, rates })
}

/// Solves for the cost of one read from shared memory and of bringing a byte there: the time is
/// `stage + shared × reuse`, known for two reuses.
fn seen(probe: &Lookup, little: &Measured, much: &Measured) -> Seen {
    let table = probe.table.bytes();
    #[expect(clippy::cast_precision_loss, reason = "a table is small")]
    let reuse = |load: u32| f64::from(256 * load) * f64::from(probe.reads) / table as f64;
    let share = |measured: &Measured, region| {
        Some(100.0 * measured.of(region)? / measured.of(Region::Device)?)
    };
    let (few, many) = (reuse(LOADS[0]), reuse(LOADS[1]));
    let solve = |(low, high): (f64, f64)| {
        let shared = ((high * many - low * few) / (many - few)).max(0.0);
        (shared, ((low - shared) * few).max(0.0))
    };
    let regions = [Region::Device, Region::Constant, Region::Shared];
    let bytes = f64::from(much.items) * f64::from(probe.reads);
    Seen {
        constant: share(much, Region::Constant),
        shared: share(little, Region::Shared).zip(share(much, Region::Shared)).map(solve),
        rates: regions.map(|region| Some(bytes / much.of(region)? / 1e3)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a profile holds"
)]
pub(super) fn percent(value: f64) -> u32 {
    value.round().clamp(0.0, 1_000_000.0) as u32
}

fn line(caps: &Caps, pattern: &'static str, size: TableSize, seen: &Seen) -> Line {
    Line {
        backend: caps.device.backend,
        device: caps.device.name.clone(),
        pattern,
        table_bytes: size.most(),
        constant_percent: seen.constant.map(percent),
        shared_percent: seen.shared.map(|(shared, _)| percent(shared)),
        stage_percent: seen.shared.map(|(_, stage)| percent(stage)),
        device_gigabytes_per_second: seen.rates[0],
        constant_gigabytes_per_second: seen.rates[1],
        shared_gigabytes_per_second: seen.rates[2],
    }
}

fn show(lines: &[Line]) -> Result<(), Failure> {
    let number = |value: Option<u32>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let rate = |value: Option<f64>| value.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"));
    let row = |line: &Line| {
        vec![
            line.pattern.to_owned(),
            output::bytes(line.table_bytes),
            rate(line.device_gigabytes_per_second),
            rate(line.constant_gigabytes_per_second),
            rate(line.shared_gigabytes_per_second),
            number(line.constant_percent),
            number(line.shared_percent),
            number(line.stage_percent),
        ]
    };
    let header = [
        "pattern",
        "table",
        "device GB/s",
        "constant GB/s",
        "shared GB/s",
        "constant %",
        "shared %",
        "staging %",
    ];
    output::print_line("reads; percent are of the time from device memory")?;
    output::print_line(&output::table(&header, &lines.iter().map(row).collect::<Vec<_>>()))
}
