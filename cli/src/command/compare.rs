//! `omniheap compare`: other allocators and ours on the same events, in one table.
use super::Failure;
use super::output::{self, Format};
use super::replay::{keep_plan, name_of, open_trace};
use crate::replay::{Capacity, Device, Paging, Program};
use omniheap::trace::{Trace, model};
use serde::Serialize;
use std::path::PathBuf;
use std::thread;

/// One table: what the recording allocator reserved, a model of PyTorch's policy, ours plain, ours paged, ours planned
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  omniheap compare run.csv.gz\n  omniheap compare snapshot.pickle --json"
)]
pub(super) struct Arguments {
    /// A trace, or a snapshot that holds one
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
}

/// One allocator's figures.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    allocator: &'static str,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    ratio: f64,
    driver_calls: u64,
    oom: u64,
}

/// Replays the trace through every allocator.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let trace = open_trace(&arguments.trace)?;
    let name = name_of(&arguments.trace);
    let rows = rows(&name, &trace)?;
    if format == Format::Json {
        return rows.iter().try_for_each(output::print_json);
    }
    let cells = |row: &Row| {
        vec![
            row.allocator.to_owned(),
            output::bytes(row.peak_reserved_bytes),
            format!("{:.4}", row.ratio),
            row.driver_calls.to_string(),
            row.oom.to_string(),
        ]
    };
    let live = rows.first().map_or(0, |row| row.peak_live_bytes);
    output::print_line(&format!("{name}, {} live at peak\n", output::bytes(live)))?;
    let cells: Vec<_> = rows.iter().map(cells).collect();
    let header = ["allocator", "peak reserved", "ratio", "calls", "oom"];
    output::print_line(&output::table(&header, &cells))
}

fn rows(name: &str, trace: &Trace) -> Result<Vec<Row>, Failure> {
    let program = Program::new(trace);
    let live = program.peak_live(&[]);
    let row = |allocator, reserved, driver_calls, oom| Row {
        name: name.to_owned(),
        allocator,
        peak_live_bytes: live,
        peak_reserved_bytes: reserved,
        ratio: output::ratio(reserved, live),
        driver_calls,
        oom,
    };
    let recorded = trace.summary();
    let mut rows = Vec::new();
    if recorded.peak_reserved_bytes > 0 {
        let (calls, oom) = (recorded.driver_calls, recorded.oom);
        rows.push(row("as recorded", recorded.peak_reserved_bytes, calls, oom));
    }
    let device = Device::open(None, 0)?;
    let play = |paging| device.play(&program, Capacity::Whole, paging);
    // Every allocator on a core of its own, as far as there are cores.
    let (torch, plain, paged, kept) = thread::scope(|scope| {
        let torch = scope.spawn(|| model::pytorch(trace));
        let plain = scope.spawn(|| play(Paging::Off));
        let paged = scope.spawn(|| play(Paging::Wanted));
        let kept = keep_plan(name, trace, &program, &device);
        (finished(torch.join()), finished(plain.join()), finished(paged.join()), kept)
    });
    let (reserved, calls) = (torch.peak_reserved_bytes, torch.driver_calls);
    rows.push(row("PyTorch's policy (model)", reserved, calls, torch.oom));
    for (allocator, played) in
        [("omniheap, plain pools", plain?), ("omniheap, paged pools", paged?)]
    {
        let oom = played.failed.len() as u64;
        rows.push(row(allocator, played.peak_reserved, played.driver_calls, oom));
    }
    rows.push(row("omniheap, planned ahead", kept?, 1, 0));
    Ok(rows)
}

/// Returns the result of a thread, or panics with its panic.
pub(super) fn finished<T>(outcome: thread::Result<T>) -> T {
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
