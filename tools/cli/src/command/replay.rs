//! `omniheap replay`: what a recorded workload would have needed.
use super::Failure;
use super::file::{name_of, open_trace};
use super::interrupt;
use super::output::{self, Format};
use crate::replay::{Capacity, Device, Kept, Paging, Played, Program, minimum, planned};
use clap::{Args, ValueEnum};
use omniheap::BackendKind;
use omniheap::trace::Trace;
use serde::Serialize;
use std::path::PathBuf;

/// Replay traces: peak live, peak reserved, their ratio, time per event, out-of-memory count
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Trace files: CSV `op,id,size,stream,time_us`, plain or gzip, or any other format that omniheap reads; `-` is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Backend to replay on; `none` counts only
    #[arg(long, value_enum, default_value_t = Where::Host)]
    backend: Where,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Bytes that the device has (suffixes K, M, G, T), or `min` for the least at which the trace completes
    #[arg(long, value_name = "BYTES|min", value_parser = parse_capacity)]
    capacity: Option<Wanted>,
    /// Build pools from pages, where the device can
    #[arg(long, value_enum, default_value_t = YesNo::Yes)]
    paged: YesNo,
    /// Number of replays; the fastest is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Also say what the trace needs when it is planned ahead
    #[arg(long)]
    planned: bool,
}

const EXAMPLES: &str = "\
Examples:
  omniheap replay run.csv.gz
  omniheap replay run.csv.gz --paged no --capacity min
  omniheap replay a.csv b.csv --backend cuda --json

Exit codes: 0 all good, 1 requests failed that --capacity does not explain: every one, or any without it, 2 bad input, 130 Ctrl-C.";

/// Backend of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    Host,
    Cuda,
    Hip,
    Vulkan,
    Wgpu,
    None,
}

impl Where {
    const fn kind(self) -> Option<BackendKind> {
        match self {
            Self::Host => Some(BackendKind::Host),
            Self::Cuda => Some(BackendKind::Cuda),
            Self::Hip => Some(BackendKind::Hip),
            Self::Vulkan => Some(BackendKind::Vulkan),
            Self::Wgpu => Some(BackendKind::Wgpu),
            Self::None => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// The capacity that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Bytes(u64),
    Minimum,
}

fn parse_capacity(text: &str) -> Result<Wanted, String> {
    if text == "min" {
        return Ok(Wanted::Minimum);
    }
    match output::parse_bytes(text) {
        Some(0) => Err("a device has at least 1 byte".into()),
        Some(bytes) => Ok(Wanted::Bytes(bytes)),
        None => Err("expected bytes, such as 8589934592, 8G or 1.5G, or `min`".into()),
    }
}

/// One result: the contract of `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    backend: &'static str,
    events: u64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    /// `None` when every request failed.
    ratio: Option<f64>,
    ns_per_event: f64,
    driver_calls: u64,
    driver_ns: u64,
    /// The driver's own peak, if it reports one.
    driver_peak_bytes: Option<u64>,
    oom: u64,
    min_capacity_bytes: Option<u64>,
    moved_bytes: u64,
    paged: bool,
    /// Sentence about requests that failed without a `--capacity` that explains it.
    #[serde(skip)]
    refused: Option<String>,
    /// Only with `--planned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned_peak_bytes: Option<u64>,
    /// Only with `--planned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned_ratio: Option<f64>,
}

/// Replays every trace; all are read before the first one runs.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let mut programs = Vec::new();
    for path in &arguments.traces {
        let trace = open_trace(path)?;
        programs.push((name_of(path), Program::new(&trace), arguments.planned.then_some(trace)));
    }
    let device = Device::open(arguments.backend.kind(), arguments.device)
        .map_err(|error| Failure::no_device(arguments.backend.kind(), arguments.device, error))?;
    interrupt::watch();
    let (mut outcomes, mut refused) = (Vec::new(), Vec::new());
    let mut done = 0;
    for (name, program, trace) in &programs {
        let Some(mut outcome) = replay(name, program, &device, arguments, format)? else { break };
        done += 1;
        if let Some(trace) = trace {
            let peak = keep_plan(name, trace, program, &device)?;
            outcome.planned_peak_bytes = Some(peak);
            outcome.planned_ratio = Some(output::ratio(peak, program.peak_live(&[])));
        }
        refused.extend(outcome.refused.take());
        match format {
            Format::Json => output::print_json(&outcome)?,
            Format::Text => outcomes.push(outcome),
        }
    }
    if format == Format::Text {
        print_table(&outcomes)?;
    }
    interrupt::check(done, programs.len(), "traces were replayed")?;
    if refused.is_empty() { Ok(()) } else { Err(Failure::failed(refused.join("; "))) }
}

/// Replays one trace; `None` when the user wants to end.
fn replay(
    name: &str,
    program: &Program,
    device: &Device,
    arguments: &Arguments,
    format: Format,
) -> Result<Option<Outcome>, Failure> {
    let paging = if arguments.paged == YesNo::Yes { Paging::Wanted } else { Paging::Off };
    let bar = output::progress(format, u64::from(arguments.repeat));
    bar.set_message(name.to_owned());
    let min_capacity_bytes = match arguments.capacity {
        Some(Wanted::Minimum) => {
            let found = minimum(device, program, paging, || {
                bar.inc_length(1);
                bar.inc(1);
            })?;
            Some(found)
        }
        _ => None,
    };
    let capacity = match (arguments.capacity, min_capacity_bytes) {
        (Some(Wanted::Bytes(bytes)), _) | (_, Some(bytes)) => Capacity::Bytes(bytes),
        _ => Capacity::Whole,
    };
    // At its least capacity a trace moves bytes that nobody wrote: accounts say all there is to say.
    let emptied = min_capacity_bytes.is_some().then(|| device.emptied()).transpose()?;
    let device = emptied.as_ref().unwrap_or(device);
    let runs = (0..arguments.repeat).take_while(|_| !interrupt::is_wanted()).map(|_| {
        bar.inc(1);
        device.play(program, capacity, paging)
    });
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let paged = device.is_paged(paging)?;
    bar.finish_and_clear();
    if runs.len() < arguments.repeat as usize {
        return Ok(None);
    }
    let played = runs.iter().min_by_key(|run| run.time).expect("it ran at least once");
    let mut outcome = outcome(name, arguments.backend, program, played, min_capacity_bytes, paged);
    outcome.refused = refused(name, program, played, arguments.capacity);
    Ok(Some(outcome))
}

/// Returns what is said of requests that failed: where none was served, or where nobody limited the device.
fn refused(
    name: &str,
    program: &Program,
    played: &Played,
    capacity: Option<Wanted>,
) -> Option<String> {
    let failed = program.describe(&played.failed);
    let advice = match capacity {
        _ if failed.count == 0 => return None,
        Some(_) if failed.count < failed.requests => return None,
        Some(_) => "raise --capacity",
        None => "replay it on a device that has more memory",
    };
    Some(format!("{name}: {failed}; {advice}"))
}

/// Plans a trace and replays it by the plan; returns the most that was held from the driver.
pub(super) fn keep_plan(
    name: &str,
    trace: &Trace,
    program: &Program,
    device: &Device,
) -> Result<u64, Failure> {
    let wrong = |why: &dyn core::fmt::Display| Failure::failed(format!("{name}: {why}"));
    let Some(schedule) = planned(trace).map_err(|error| wrong(&error))? else { return Ok(0) };
    match device.keep(program, &schedule).map_err(|error| wrong(&error))? {
        Kept { peak_reserved, deviations: 0 } => Ok(peak_reserved),
        Kept { deviations, .. } => Err(wrong(&format!(
            "{deviations} requests left the plan of their own trace; report this"
        ))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds for people")]
fn outcome(
    name: &str,
    backend: Where,
    program: &Program,
    played: &Played,
    min_capacity_bytes: Option<u64>,
    paged: bool,
) -> Outcome {
    let live = program.peak_live(&played.failed);
    Outcome {
        name: name.to_owned(),
        backend: backend.kind().map_or("none", BackendKind::name),
        events: program.events,
        peak_live_bytes: live,
        peak_reserved_bytes: played.peak_reserved,
        ratio: (live > 0 || played.failed.is_empty())
            .then(|| output::ratio(played.peak_reserved, live)),
        ns_per_event: played.time.as_nanos() as f64 / program.events.max(1) as f64,
        driver_calls: played.driver_calls,
        driver_ns: u64::try_from(played.driver_time.as_nanos()).unwrap_or(u64::MAX),
        driver_peak_bytes: played.driver_peak,
        oom: played.failed.len() as u64,
        min_capacity_bytes,
        moved_bytes: played.moved,
        paged,
        refused: None,
        planned_peak_bytes: None,
        planned_ratio: None,
    }
}

fn print_table(outcomes: &[Outcome]) -> Result<(), Failure> {
    let header = [
        "trace",
        "events",
        "peak live",
        "peak reserved",
        "ratio",
        "ns/event",
        "calls",
        "oom",
        "least",
        "planned",
        "ratio",
    ];
    let row = |one: &Outcome| {
        vec![
            one.name.clone(),
            one.events.to_string(),
            output::bytes(one.peak_live_bytes),
            output::bytes(one.peak_reserved_bytes),
            one.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}")),
            format!("{:.1}", one.ns_per_event),
            one.driver_calls.to_string(),
            one.oom.to_string(),
            one.min_capacity_bytes.map_or_else(|| "-".into(), output::bytes),
            one.planned_peak_bytes.map_or_else(|| "-".into(), output::bytes),
            one.planned_ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}")),
        ]
    };
    let rows: Vec<_> = outcomes.iter().map(row).collect();
    if let Some(first) = outcomes.first() {
        let pools = if first.paged { "paged" } else { "plain" };
        output::print_line(&format!("backend {}, {pools} pools\n", first.backend))?;
    }
    output::print_line(&output::table(&header, &rows))
}
