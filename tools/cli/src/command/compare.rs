//! `omniheap compare`: other allocators and ours on the same events, in one table.
use super::Failure;
use super::file::{name_of, open_trace};
use super::interrupt;
use super::output::{self, Format};
use super::replay::keep_plan;
use crate::replay::{Capacity, Device, Paging, Program};
use indicatif::ProgressBar;
use omniheap::trace::{Trace, model};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

/// One table: what the recording allocator reserved, a model of PyTorch's policy, ours plain, ours paged, ours planned
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  omniheap compare run.csv.gz\n  omniheap compare snapshot.pickle --json"
)]
pub(super) struct Arguments {
    /// A trace, or a snapshot that holds one; `-` is standard input
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

/// Figures of one allocator.
struct Figures {
    reserved: u64,
    driver_calls: u64,
    oom: u64,
}

/// Trace that every allocator replays.
struct Work {
    name: String,
    trace: Trace,
    program: Program,
    device: Device,
}

impl Work {
    fn play(&self, paging: Paging) -> Result<Figures, Failure> {
        let played = self.device.play(&self.program, Capacity::Whole, paging)?;
        let (reserved, driver_calls) = (played.peak_reserved, played.driver_calls);
        Ok(Figures { reserved, driver_calls, oom: played.failed.len() as u64 })
    }

    fn model(&self) -> Figures {
        let told = model::pytorch(&self.trace);
        let (reserved, driver_calls) = (told.peak_reserved_bytes, told.driver_calls);
        Figures { reserved, driver_calls, oom: told.oom }
    }

    fn plan(&self) -> Result<Figures, Failure> {
        let reserved = keep_plan(&self.name, &self.trace, &self.program, &self.device)?;
        Ok(Figures { reserved, driver_calls: 1, oom: 0 })
    }

    fn row(&self, allocator: &'static str, live: u64, figures: &Figures) -> Row {
        Row {
            name: self.name.clone(),
            allocator,
            peak_live_bytes: live,
            peak_reserved_bytes: figures.reserved,
            ratio: output::ratio(figures.reserved, live),
            driver_calls: figures.driver_calls,
            oom: figures.oom,
        }
    }
}

/// An allocator's replay.
type Play = fn(&Work) -> Result<Figures, Failure>;

/// Every allocator that replays the trace.
const ALLOCATORS: [(&str, Play); 4] = [
    ("PyTorch's policy (model)", |work| Ok(work.model())),
    ("omniheap, plain pools", |work| work.play(Paging::Off)),
    ("omniheap, paged pools", |work| work.play(Paging::Wanted)),
    ("omniheap, planned ahead", Work::plan),
];

/// Replays the trace through every allocator.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let bar = output::progress(format, ALLOCATORS.len() as u64);
    bar.set_message("reading");
    let trace = open_trace(&arguments.trace)?;
    let name = name_of(&arguments.trace);
    bar.set_message("allocators");
    let program = Program::new(&trace);
    let work = Arc::new(Work { name, trace, program, device: Device::open(None, 0)? });
    let live = work.program.peak_live(&[]);
    interrupt::watch();
    let replayed = replay(&work, &bar);
    let mut rows: Vec<_> = recorded(&work.trace)
        .iter()
        .map(|figures| work.row("as recorded", live, figures))
        .collect();
    let (ended, mut failed) = (replayed.iter().flatten().count(), Vec::new());
    for ((allocator, _), one) in ALLOCATORS.iter().zip(replayed) {
        match one {
            Some(Ok(figures)) => rows.push(work.row(allocator, live, &figures)),
            Some(Err(why)) => failed.push(format!("{allocator} has no figures: {why}")),
            None => {}
        }
    }
    print(&work.name, live, &rows, format)?;
    interrupt::check(ended, ALLOCATORS.len(), "allocators have replayed")?;
    if failed.is_empty() { Ok(()) } else { Err(Failure::failed(failed.join("; "))) }
}

/// Figures of the recording allocator, if the trace has them.
fn recorded(trace: &Trace) -> Option<Figures> {
    let told = trace.summary();
    let (reserved, driver_calls) = (told.peak_reserved_bytes, told.driver_calls);
    (reserved > 0).then_some(Figures { reserved, driver_calls, oom: told.oom })
}

/// Every allocator on a core of its own, as far as there are cores; after Ctrl-C, those that have ended.
fn replay(
    work: &Arc<Work>,
    bar: &ProgressBar,
) -> [Option<Result<Figures, Failure>>; ALLOCATORS.len()] {
    let plays = ALLOCATORS.map(|(_, play)| {
        let work = Arc::clone(work);
        thread::spawn(move || play(&work))
    });
    interrupt::wait(|| {
        let done = plays.iter().filter(|play| play.is_finished()).count();
        bar.set_position(done as u64);
        done == plays.len()
    });
    bar.finish_and_clear();
    let mut figures = [const { None }; ALLOCATORS.len()];
    for (one, play) in figures.iter_mut().zip(plays) {
        // The end of the process ends the others.
        if play.is_finished() {
            *one = Some(finished(play.join()));
        }
    }
    figures
}

fn print(name: &str, live: u64, rows: &[Row], format: Format) -> Result<(), Failure> {
    if format == Format::Text {
        let (name, live) = (output::shown(name), output::bytes(live));
        output::print_line(&format!("{name}, {live} live at peak\n"))?;
    }
    let header = ["allocator", "peak reserved", "ratio", "calls", "oom"];
    output::print_rows(format, rows, &header, |row| {
        let [calls, oom] = [row.driver_calls, row.oom].map(|count| count.to_string());
        let reserved = output::bytes(row.peak_reserved_bytes);
        vec![row.allocator.into(), reserved, format!("{:.4}", row.ratio), calls, oom]
    })
}

/// Returns the result of a thread, or panics with its panic.
fn finished<T>(outcome: thread::Result<T>) -> T {
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
