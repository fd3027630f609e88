//! `omniheap batch`: the largest batch that fits, from traces of a step at three batches.
use crate::fit::{Allocator, Room, not_empty};
use core::cell::Cell;
use omniheap::trace::Trace;
use omniheap_cli::Failure;
use omniheap_cli::file::open_trace;
use omniheap_cli::interrupt;
use omniheap_cli::output::{self, Format};
use omniheap_fit::{BatchError, Lines, Peak, largest};
use serde::Serialize;
use std::panic::resume_unwind;
use std::path::PathBuf;

/// Find the largest batch that fits: sizes are lines in the batch, checked on a third trace
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The batch, and a trace of the step at that batch; three or more for lines. Sequence lengths work as well
    #[arg(long = "trace", required = true, value_name = "BATCH:TRACE", value_parser = parse_trace)]
    traces: Vec<(u64, PathBuf)>,
    #[command(flatten)]
    room: Room,
    /// Look no farther than this batch
    #[arg(long, value_name = "BATCH", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    most: u64,
}

const EXAMPLES: &str = "\
Examples:
  omniheap batch --trace 2:a.omt --trace 4:b.omt --trace 8:c.omt --capacity 24G

Trace the answer once more before you rely on it; omniheap.fit.largest_batch does.

Exit codes: 0 found, 1 not even the smallest batch fits, 2 bad input, 130 Ctrl-C ended the search: the error says which
batch is known to fit.";

fn parse_trace(text: &str) -> Result<(u64, PathBuf), String> {
    let parts = text.split_once(':').and_then(|(batch, path)| Some((batch.parse().ok()?, path)));
    match parts {
        Some((batch, path)) if batch > 0 && !path.is_empty() => Ok((batch, path.into())),
        _ => Err("expected a batch from 1 on and a file, such as 8:step.omt".into()),
    }
}

/// One result: the contract of `--json`.
#[derive(Debug, Serialize)]
struct Found {
    allocator: Allocator,
    capacity_bytes: u64,
    fixed_bytes: u64,
    /// `None` when not even the smallest batch fits.
    largest_batch: Option<u64>,
    peak_reserved_bytes: Option<u64>,
    by: By,
    /// Reason why sizes are no lines in the batch: the first operator that differs.
    difference: Option<String>,
    /// Batch to trace next: the answer extrapolated from the two largest traces, unchecked.
    expected_batch: Option<u64>,
    /// Larger batches need less somewhere among the traces.
    falls: bool,
    traces: Vec<Traced>,
}

/// Source of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    /// From lines through every allocation's size.
    Lines,
    /// The largest of the traces that fits.
    Traces,
}

/// One of the traces.
#[derive(Debug, Serialize)]
struct Traced {
    batch: u64,
    peak_reserved_bytes: u64,
    /// Smallest capacity in which the trace completes, with cached memory returned when needed; to within 1/4096.
    least_capacity_bytes: u64,
    fits: bool,
}

/// Resolution of the least capacity: the size of an allocator's requests to the driver, or a share of what is reserved.
const GRAIN: u64 = 2 << 20;
const SHARE: u64 = 4096;

/// Reads every trace, then answers.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let mut traces = Vec::new();
    for (batch, path) in &arguments.traces {
        traces.push((*batch, not_empty(path, open_trace(path)?)?));
    }
    traces.sort_by_key(|(batch, _)| *batch);
    interrupt::watch();
    let found = find(&traces, arguments.room, arguments.most)?;
    output::print(format, &found, text)?;
    match found.largest_batch {
        Some(_) => Ok(()),
        None => Err(Failure::failed("not even the smallest batch fits; `omniheap fit` says why")),
    }
}

fn find(traces: &[(u64, Trace)], room: Room, most: u64) -> Result<Found, Failure> {
    let traced = replay_all(traces, room)?;
    let falls =
        traced.windows(2).any(|two| two[1].peak_reserved_bytes < two[0].peak_reserved_bytes);
    let (by, answer, difference, expected) = match Lines::new(traces) {
        Ok(lines) => (By::Lines, on_lines(&lines, room, start(&traced, room), most)?, None, None),
        Err(why @ (BatchError::Differs(_) | BatchError::TooFew(_))) => {
            let fitting = traced.iter().filter(|one| one.fits).max_by_key(|one| one.batch);
            let answer = fitting.map(|one| (one.batch, one.peak_reserved_bytes));
            let expected = expected(traces, room, start(&traced, room), most)?;
            (By::Traces, answer, Some(why.to_string()), expected)
        }
        Err(other) => return Err(Failure::input(other.to_string())),
    };
    Ok(Found {
        allocator: room.allocator,
        capacity_bytes: room.capacity,
        fixed_bytes: room.fixed,
        largest_batch: answer.map(|(batch, _)| batch),
        peak_reserved_bytes: answer.map(|(_, peak)| peak),
        by,
        difference,
        expected_batch: expected,
        falls,
        traces: traced,
    })
}

/// Replays the traces beside each other.
fn replay_all(traces: &[(u64, Trace)], room: Room) -> Result<Vec<Traced>, Failure> {
    std::thread::scope(|scope| {
        let each = traces.iter().map(|(batch, trace)| {
            scope.spawn(move || {
                let (peak, fits) = replayed(trace, room)?;
                let least_capacity_bytes = least_capacity(trace, &peak, room.allocator)?;
                let peak_reserved_bytes = peak.reserved_bytes;
                Ok(Traced { batch: *batch, peak_reserved_bytes, least_capacity_bytes, fits })
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().map(|one| one.join().unwrap_or_else(|why| resume_unwind(why))).collect()
    })
}

/// Returns the first batch of the search on lines, from the least capacities of the two largest traces.
fn start(traced: &[Traced], room: Room) -> u64 {
    let [.., low, high] = traced else { return 1 };
    let grown = high.least_capacity_bytes.saturating_sub(low.least_capacity_bytes);
    let left = i128::from(room.left()) - i128::from(low.least_capacity_bytes);
    let more = left.saturating_mul(i128::from(high.batch - low.batch)) / i128::from(grown.max(1));
    u64::try_from(more.saturating_add(i128::from(low.batch))).unwrap_or(1)
}

/// Extrapolates the largest batch from the two largest traces. `None` if their programs differ.
fn expected(
    traces: &[(u64, Trace)],
    room: Room,
    start: u64,
    most: u64,
) -> Result<Option<u64>, Failure> {
    let [.., (low, first), (high, last)] = traces else { return Ok(None) };
    match Lines::unchecked((*low, first), (*high, last)) {
        Ok(lines) => Ok(on_lines(&lines, room, start, most)?.map(|(batch, _)| batch)),
        Err(_) => Ok(None),
    }
}

fn replayed(trace: &Trace, room: Room) -> Result<(Peak, bool), Failure> {
    let peak = room.allocator.peak("the trace", trace)?;
    let fits = room.allocator.fits(trace, &peak, room.left())?;
    Ok((peak, fits))
}

/// Finds about the smallest capacity in which the trace completes. Assumes that larger ones do too.
fn least_capacity(trace: &Trace, peak: &Peak, allocator: Allocator) -> Result<u64, Failure> {
    let mut high = peak.reserved_bytes;
    let mut low = trace.summary().peak_live_bytes.min(high);
    // Later steps may take more than those that are in the trace.
    while peak.refused == 0 && high < u64::MAX && !allocator.may_fit(trace, peak, high)? {
        go_on(0)?;
        (low, high) = (high, high.saturating_mul(2).max(GRAIN));
    }
    while high - low > GRAIN.max(peak.reserved_bytes / SHARE) {
        go_on(0)?;
        let middle = low + (high - low) / 2;
        let fits = allocator.may_fit(trace, peak, middle)?;
        (low, high) = if fits { (low, middle) } else { (middle, high) };
    }
    Ok(high)
}

/// Fails if the user wants to end before the search does.
fn go_on(fitting: u64) -> Result<(), Failure> {
    if !interrupt::is_wanted() {
        return Ok(());
    }
    let known = match fitting {
        0 => "no batch is known to fit".to_owned(),
        batch => format!("batch {batch} fits, and larger ones were not all tried"),
    };
    Err(Failure::interrupted(format!("interrupted: the result is partial, {known}")))
}

/// Returns the largest batch on the lines, and its peak.
fn on_lines(
    lines: &Lines<'_>,
    room: Room,
    start: u64,
    most: u64,
) -> Result<Option<(u64, u64)>, Failure> {
    let fitting = Cell::new(0);
    let at = |batch: u64| match lines.at(batch) {
        Ok(trace) => replayed(&trace, room).map(Some),
        // Beyond what the lines describe there is nothing to say.
        Err(BatchError::OffTheLine { .. } | BatchError::TooLarge(_)) => Ok(None),
        Err(other) => Err(Failure::input(other.to_string())),
    };
    let fits = |batch| {
        go_on(fitting.get())?;
        let fits = at(batch)?.is_some_and(|(_, fits)| fits);
        fitting.set(if fits { fitting.get().max(batch) } else { fitting.get() });
        Ok::<_, Failure>(fits)
    };
    let Some(batch) = largest(start, most, fits)? else { return Ok(None) };
    Ok(at(batch)?.map(|(peak, _)| (batch, peak.reserved_bytes)))
}

fn text(found: &Found) -> String {
    let room = output::bytes(found.capacity_bytes.saturating_sub(found.fixed_bytes));
    let who = found.allocator.title();
    let mut lines = match (found.largest_batch, found.peak_reserved_bytes) {
        (Some(batch), Some(peak)) => {
            vec![format!("largest batch {batch}: {who} needs {} of {room}", output::bytes(peak))]
        }
        _ => vec![format!("no batch fits {room} with {who}")],
    };
    lines.extend(match (found.by, &found.difference) {
        (By::Lines, _) => Some(
            "every size is a line in the batch; trace this batch once more before you rely on it"
                .into(),
        ),
        (By::Traces, why) => why.as_ref().map(|why| format!("the largest that was traced: {why}")),
    });
    if found.falls {
        lines.push(
            "a larger batch needs less memory than a smaller one: an operator chooses by size"
                .into(),
        );
    }
    let row = |one: &Traced| {
        let fits = if one.fits { "fits" } else { "does not fit" };
        vec![one.batch.to_string(), output::bytes(one.peak_reserved_bytes), fits.to_owned()]
    };
    let rows: Vec<_> = found.traces.iter().map(row).collect();
    lines.extend([String::new(), output::table(&["batch", "peak reserved", ""], &rows)]);
    lines.join("\n")
}
