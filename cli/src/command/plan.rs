//! `omniheap plan`: the offline planner.
use super::Failure;
use super::file;
use super::output::{self, Format};
use super::portfolio::Portfolio;
use super::replay::name_of;
use core::time::Duration;
use omniheap::plan::csv::{self, Table};
use omniheap::plan::{Plan, Progress, Status, svg, validate};
use serde::Serialize;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// No planning file is longer: ten million buffers fit.
const LONGEST_FILE: u64 = 1 << 30;

/// Place every buffer of a graph before anything runs: least peak, with a proof where there is one
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// CSV with columns id, lower, upper, size, and optionally alignment, gaps, hint, fixed, alias
    #[arg(value_name = "FILE.csv")]
    file: PathBuf,
    /// Bytes that there are (suffixes K, M, G, T); without it, the least is looked for
    #[arg(long, value_parser = output::bytes_argument)]
    capacity: Option<u64>,
    /// Seconds to look, at most
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    time_limit: Option<Duration>,
    /// Search with this many seeds in parallel; the same number gives the same plan, unless time runs out
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Write the table with a column `offset`; to standard output if it is `-`
    #[arg(long, value_name = "FILE.csv")]
    out: Option<PathBuf>,
    /// Draw time and memory; to standard output if it is `-`
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap plan graph.csv
  omniheap plan graph.csv --capacity 1M --out planned.csv --svg planned.svg

Exit codes: 0 planned, 1 no plan found in time, 2 bad input, 3 proven not to fit.";

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| "expected seconds, such as 10 or 0.5".into())
}

/// One result: the contract of `--json`.
#[derive(Debug, Serialize)]
struct Planned {
    name: String,
    buffers: usize,
    capacity: Option<u64>,
    lower_bound: u64,
    peak: u64,
    status: &'static str,
    seconds: f64,
    first_plan_seconds: f64,
}

/// Reads, plans, writes.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let file = arguments.file.display();
    let wrong = |error: &dyn core::fmt::Display| Failure::input(format!("{file}: {error}"));
    let piped = check_outputs(arguments, format)?;
    let text = read(&arguments.file)?;
    let table = csv::read(&text, arguments.capacity).map_err(|error| wrong(&error))?;
    drop(text);
    table.problem.check().map_err(|error| wrong(&error))?;
    let start = Instant::now();
    let (plan, first) = search(&table, arguments, format);
    let planned = Planned {
        name: name_of(&arguments.file),
        buffers: table.names.len(),
        capacity: arguments.capacity,
        lower_bound: plan.lower_bound(),
        peak: plan.peak(),
        status: status(&plan.status),
        seconds: start.elapsed().as_secs_f64(),
        first_plan_seconds: first.as_secs_f64(),
    };
    if format == Format::Json {
        output::print_json(&planned)?;
    }
    match &plan.status {
        Status::Infeasible { certificate } => {
            return Err(Failure::impossible(format!("{file}: {certificate}")));
        }
        Status::Undecided { excess } => {
            let line = format!("{file}: no plan found in time; the best needs {excess} bytes more");
            return Err(Failure::failed(line));
        }
        Status::Optimal | Status::Feasible { .. } => write(&table, &plan, arguments)?,
    }
    if format == Format::Text && piped == 0 { print(&planned) } else { Ok(()) }
}

/// Checks that no result overwrites another, and counts those that go to standard output.
fn check_outputs(arguments: &Arguments, format: Format) -> Result<usize, Failure> {
    let outputs = [arguments.out.as_deref(), arguments.svg.as_deref()];
    let piped = outputs.iter().flatten().filter(|path| is_stdout(path)).count();
    if piped + usize::from(format == Format::Json) > 1 {
        let line = "standard output has room for one result; write the others to files";
        return Err(Failure::input(line));
    }
    if let Some(picture) = &arguments.svg {
        output::keep_apart(picture, &[Some(&arguments.file), arguments.out.as_deref()])?;
    }
    Ok(piped)
}

/// Returns whether a path stands for standard output.
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a file that is text and not too long.
fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let wrong = |error: std::io::Error| {
        let advice = "check the path and its permissions";
        Failure::input(format!("{shown}: cannot read: {error}; {advice}"))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(LONGEST_FILE + 1).read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(Failure::input(format!("{shown}: longer than 1 GiB; plan fewer buffers")));
    }
    Ok(text)
}

/// Plans with every seed, and keeps the best; also says when the first plan was there.
fn search(table: &Table, arguments: &Arguments, format: Format) -> (Plan, Duration) {
    let bar = output::spinner(format, "planning");
    let show = |now: Progress| {
        bar.set_message(format!("peak {}, at least {}", now.peak, now.lower_bound));
    };
    let found = Portfolio {
        problem: &table.problem,
        threads: arguments.threads,
        time_limit: arguments.time_limit,
        show: &show,
    }
    .run();
    bar.finish_and_clear();
    found
}

const fn status(status: &Status) -> &'static str {
    match status {
        Status::Optimal => "optimal",
        Status::Feasible { .. } => "feasible",
        Status::Undecided { .. } => "undecided",
        Status::Infeasible { .. } => "infeasible",
    }
}

/// Checks the plan once more, and writes what was asked for.
fn write(table: &Table, plan: &Plan, arguments: &Arguments) -> Result<(), Failure> {
    validate(&table.problem, &plan.spots)
        .map_err(|flaw| Failure::failed(format!("the plan is wrong: {flaw}; report this")))?;
    let save = |path: &Path, content: String| match is_stdout(path) {
        true => output::print_line(content.trim_end()),
        false => file::write(path, &content).map(drop),
    };
    if let Some(path) = &arguments.out {
        let offsets: Vec<_> = plan.spots.iter().map(|spot| spot.offset).collect();
        save(path, csv::write(table, &offsets))?;
    }
    if let Some(path) = &arguments.svg {
        save(path, svg::draw(&table.problem, plan, &table.names))?;
    }
    Ok(())
}

fn print(planned: &Planned) -> Result<(), Failure> {
    output::print_line(&format!(
        "{}: {} buffers, peak {} bytes, at least {} are needed: {} ({:.3} s, first plan {:.3} s)",
        planned.name,
        planned.buffers,
        planned.peak,
        planned.lower_bound,
        planned.status,
        planned.seconds,
        planned.first_plan_seconds
    ))
}
