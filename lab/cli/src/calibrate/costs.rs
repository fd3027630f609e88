//! Measures the cost of reads from each region, for a profile.
use super::bench::{Bench, Measured};
use super::lookup::{Lookup, PROBE_COUNT, probes};
use indicatif::ProgressBar;
use omniheap::{
    Caps,
    placement::{Cost, Keyword as _, Probe, Profile, Region, TableSize},
};
use omniheap_cli::Failure;
use omniheap_cli::output::{self, Format};
use serde::Serialize;

/// Items of one thread: little reuse and much.
const LOADS: [u32; 2] = [4, 16];

/// Threads of a group.
const GROUP: f64 = 256.0;

/// One probe with one table: what reads cost beside device memory, how fast they are, and the times themselves, with which
/// other rules can be judged where the device is not.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    device: String,
    probe: &'static str,
    pattern: &'static str,
    table_bytes: u64,
    /// Bytes of the table that one item reads.
    reads: u32,
    constant_percent: Option<u32>,
    shared_percent: Option<u32>,
    stage_percent: Option<u32>,
    /// With much reuse, as all others.
    device_gigabytes_per_second: Option<f64>,
    constant_gigabytes_per_second: Option<f64>,
    shared_gigabytes_per_second: Option<f64>,
    runs: Vec<Run>,
}

/// Times with this many items per thread.
#[derive(Debug, Serialize)]
struct Run {
    load: u32,
    items: u32,
    device_us: Option<f64>,
    constant_us: Option<f64>,
    shared_us: Option<f64>,
}

/// Costs of one probe for one table; none for regions that the device lacks.
struct Seen {
    constant: Option<f64>,
    shared: Option<(f64, f64)>,
    rates: [Option<f64>; 3],
}

/// A probe with one table, and its times with every load.
type Timed = (Lookup, Vec<Measured>);

/// Steps of the whole measurement.
pub(super) const STEPS: u64 = PROBE_COUNT as u64;

/// Measures every probe with every table.
pub(super) fn run(
    bench: &Bench,
    mut profile: Profile,
    bar: &ProgressBar,
    format: Format,
) -> Result<Profile, Failure> {
    let mut all: Vec<Timed> = Vec::new();
    for lookup in probes() {
        bar.set_message(format!(
            "{}, {}",
            lookup.table.name(),
            output::bytes(lookup.table.bytes())
        ));
        all.push((lookup, bench.measure(&lookup.table, &LOADS)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut lines = Vec::new();
    let mut last = None;
    for (lookup, measured) in &all {
        let (name, size) = (lookup.table.name(), TableSize::of(lookup.table.bytes()));
        let probe = Probe::from_word(name).expect("a test compares the lists");
        let seen = seen(lookup, measured, staging(&all, lookup.table.bytes()));
        let assumed = profile.cost(probe, size.most());
        // A table too large for a copy of its own is believed to behave as the largest that was copied.
        let known = last.filter(|(of, _)| *of == probe).map(|(_, shared)| shared);
        let shared = seen.shared.or(known);
        last = shared.map(|shared| (probe, shared));
        let (shared, stage) =
            shared.map_or((assumed.shared, assumed.stage), |(a, b)| (percent(a), percent(b)));
        let constant = seen.constant.map_or(assumed.constant, percent);
        profile = profile.with(probe, size, Cost { constant, shared, stage });
        lines.push(line(bench.manager.caps(), lookup, &seen, measured));
    }
    match format {
        Format::Json => lines.iter().try_for_each(output::print_json)?,
        Format::Text => show(&lines)?,
    }
    Ok(profile)
}

/// Returns the time of one item, in microseconds.
fn each(measured: &Measured, region: Region) -> Option<f64> {
    Some(measured.of(region)? / f64::from(measured.items))
}

/// Returns the time of one item, and what every group costs beside: `item + group / items of a group`, known for two loads.
fn solve(measured: &[Measured], region: Region) -> Option<(f64, f64)> {
    let (few, many) = (each(measured.first()?, region)?, each(measured.last()?, region)?);
    let [least, most] = LOADS.map(|load| GROUP * f64::from(load));
    let group = (few - many) / (least.recip() - most.recip());
    Some((many - group / most, group))
}

/// Returns the time to copy a table to shared memory. It does not depend on how the table is read, so it is the
/// median of all probes: in most of them it is a small difference of large times.
fn staging(all: &[Timed], bytes: u64) -> Option<f64> {
    let extra = |(_, measured): &Timed| {
        Some(solve(measured, Region::Shared)?.1 - solve(measured, Region::Device)?.1)
    };
    let of_size = all.iter().filter(|(lookup, _)| lookup.table.bytes() == bytes);
    let mut extras: Vec<f64> = of_size.filter_map(extra).collect();
    extras.sort_by(f64::total_cmp);
    extras.get(extras.len() / 2).map(|extra| extra.max(0.0))
}

/// Returns the costs of a probe: the time of a read relative to device memory, and of copying the table to shared memory
/// relative to reading each of its bytes once.
fn seen(probe: &Lookup, measured: &[Measured], staging: Option<f64>) -> Seen {
    let much = measured.last();
    let device = solve(measured, Region::Device).filter(|(item, _)| *item > 0.0);
    let shared = much.and_then(|much| each(much, Region::Shared));
    #[expect(clippy::cast_precision_loss, reason = "a table is small")]
    let items = probe.table.bytes() as f64 / f64::from(probe.reads);
    let shared = device.zip(shared).zip(staging).map(|(((item, group), shared), staging)| {
        // The cost of a group is the same from everywhere as from device memory.
        let read = shared - (staging + group) / (GROUP * f64::from(LOADS[1]));
        (100.0 * read / item, 100.0 * staging / (item * items))
    });
    let share = |region| Some(100.0 * much?.of(region)? / much?.of(Region::Device)?);
    let rate = |region| {
        let much = much?;
        Some(f64::from(much.items) * f64::from(probe.reads) / much.of(region)? / 1e3)
    };
    let regions = [Region::Device, Region::Constant, Region::Shared];
    Seen { constant: share(Region::Constant), shared, rates: regions.map(rate) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a profile holds"
)]
pub(super) fn percent(value: f64) -> u32 {
    value.round().clamp(0.0, 1_000_000.0) as u32
}

fn line(caps: &Caps, probe: &Lookup, seen: &Seen, measured: &[Measured]) -> Line {
    let run = |(load, measured): (&u32, &Measured)| Run {
        load: *load,
        items: measured.items,
        device_us: measured.of(Region::Device),
        constant_us: measured.of(Region::Constant),
        shared_us: measured.of(Region::Shared),
    };
    Line {
        backend: caps.device.backend,
        device: caps.device.name.clone(),
        probe: probe.table.name(),
        pattern: probe.pattern.word(),
        table_bytes: probe.table.bytes(),
        reads: probe.reads,
        constant_percent: seen.constant.map(percent),
        shared_percent: seen.shared.map(|(shared, _)| percent(shared)),
        stage_percent: seen.shared.map(|(_, stage)| percent(stage)),
        device_gigabytes_per_second: seen.rates[0],
        constant_gigabytes_per_second: seen.rates[1],
        shared_gigabytes_per_second: seen.rates[2],
        runs: LOADS.iter().zip(measured).map(run).collect(),
    }
}

fn show(lines: &[Line]) -> Result<(), Failure> {
    let number = |value: Option<u32>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let rate = |value: Option<f64>| value.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"));
    let row = |line: &Line| {
        vec![
            line.pattern.to_owned(),
            line.probe.to_owned(),
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
        "probe",
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
