//! `omniheap plan`: the offline planner.
use super::Failure;
use super::file::{Output, read_text};
use super::onnx::{self, Dims};
use super::output::{self, Format};
use super::plan_file::{self, Program};
use super::portfolio::Portfolio;
use super::replay::name_of;
use super::tradeoff;
use crate::interrupt;
use core::time::Duration;
use omniheap::Align;
use omniheap::plan::csv::{self, Table};
use omniheap::plan::{Plan, Progress, Region, Status, header, problem_from_trace, svg, validate};
use omniheap::trace::{AllocationId, Trace};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// No planning file is longer: ten million buffers fit.
const LONGEST_FILE: u64 = 1 << 30;

/// Place every buffer of a graph before anything runs: least peak, with a proof where there is one
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// CSV with columns id, lower, upper, size, and optionally alignment, gaps, hint, fixed, alias, regions; or JSON, as `--plan`
    /// writes it; or a trace or snapshot, each allocation of which is a buffer; or an .onnx model, each tensor of which is one
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Bytes that there are (suffixes K, M, G, T); without it, the least is looked for
    #[arg(long, value_parser = output::bytes_argument)]
    capacity: Option<u64>,
    /// A region to place buffers in, once for each: its bytes or `any`, the alignment of its offsets, its cost per byte
    #[arg(long, value_name = "BYTES[:ALIGN[:COST]]", conflicts_with = "capacity", value_parser = parse_region)]
    region: Vec<Region>,
    #[command(flatten)]
    dims: Dims,
    /// The offsets of a trace's or a model's buffers are multiples of this; a table has its own alignments
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = parse_align)]
    align: Align,
    /// Seconds to look, at most
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) time_limit: Option<Duration>,
    /// Search with this many seeds in parallel; the same number gives the same plan, unless time runs out
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Check the offsets that the file has, and plan nothing
    #[arg(long, conflicts_with_all = ["out", "svg", "header", "plan", "time_limit"])]
    check: bool,
    /// Write the problem and its plan as JSON, which `--check` and a later run read; to standard output if it is `-`
    #[arg(long, value_name = "FILE.json")]
    plan: Option<PathBuf>,
    /// Write the table with a column `offset`; to standard output if it is `-`
    #[arg(long, value_name = "FILE.csv")]
    out: Option<PathBuf>,
    /// Draw time and memory; to standard output if it is `-`
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Write offsets and sizes as a C header, for programs without an allocator; to standard output if it is `-`
    #[arg(long, value_name = "FILE.h")]
    header: Option<PathBuf>,
}

impl Arguments {
    /// Returns the files to write.
    fn outputs(&self) -> [Option<&Path>; 4] {
        [&self.out, &self.svg, &self.header, &self.plan].map(Option::as_deref)
    }

    /// Returns whether standard output has one of them.
    pub(super) fn is_piped(&self) -> bool {
        self.outputs().into_iter().flatten().any(is_stdout)
    }
}

const EXAMPLES: &str = "\
Examples:
  omniheap plan graph.csv
  omniheap plan graph.csv --capacity 1M --out planned.csv --svg planned.svg --header planned.h
  omniheap plan graph.csv --region 1M:64 --region any:256:10 --plan planned.json
  omniheap plan planned.json --check
  omniheap plan snapshot.pickle --time-limit 10
  omniheap plan model.onnx --dim batch=8 --header model.h

Exit codes: 0 planned or checked, 1 no plan found in time or a wrong one, 2 bad input, 3 proven not to fit, 130 Ctrl-C ended the search: the best so
far is printed, and no file is written.";

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| "expected seconds, such as 10 or 0.5".into())
}

fn parse_region(text: &str) -> Result<Region, String> {
    let wrong = || "expected bytes or `any`, an alignment and a cost, such as 1M:64:2".to_owned();
    let mut parts = text.split(':');
    let capacity = match parts.next() {
        Some("any") => None,
        bytes => Some(bytes.and_then(output::parse_bytes).ok_or_else(wrong)?),
    };
    let mut number = |or| parts.next().map_or(Ok(or), |part| part.parse().map_err(|_| wrong()));
    let (align, cost) = (number(1)?, number(0)?);
    if align == 0 || parts.next().is_some() {
        return Err(wrong());
    }
    Ok(Region { capacity, align, cost })
}

fn parse_align(text: &str) -> Result<Align, String> {
    let align = output::parse_bytes(text).and_then(Align::new);
    align.ok_or_else(|| "expected a power of two, such as 256".into())
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
    /// Of a model, beside the buffers: they live always, and are not placed.
    weight_bytes: Option<u64>,
}

/// Reads, plans, writes.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    check_outputs(arguments, format)?;
    let Loaded { table, program, weight_bytes } = load(arguments)?;
    let wrong = |error| Failure::input(format!("{}: {error}", arguments.file.display()));
    table.problem.check().map_err(wrong)?;
    if arguments.check {
        check(arguments, &table, format)
    } else if program.activations.is_empty() {
        place(arguments, &table, weight_bytes, format)
    } else {
        tradeoff::run(arguments, table, &program, format)
    }
}

/// Plans a problem as it is.
fn place(
    arguments: &Arguments,
    table: &Table,
    weight_bytes: Option<u64>,
    format: Format,
) -> Result<(), Failure> {
    let file = arguments.file.display();
    let outputs = Outputs::open(arguments)?;
    let start = Instant::now();
    interrupt::watch();
    let (plan, first, is_partial) = search(table, arguments, format);
    let planned = Planned {
        name: name_of(&arguments.file),
        buffers: table.names.len(),
        capacity: table.problem.regions[0].capacity,
        lower_bound: plan.lower_bound(),
        peak: plan.peak(),
        status: status(&plan.status),
        seconds: start.elapsed().as_secs_f64(),
        first_plan_seconds: first.as_secs_f64(),
        weight_bytes,
    };
    if format == Format::Json {
        output::print_json(&planned)?;
    }
    if is_partial {
        return Err(interrupted(&planned, &plan.status));
    }
    match &plan.status {
        Status::Infeasible { certificate } => {
            return Err(Failure::impossible(format!("{file}: {certificate}")));
        }
        Status::Undecided { excess } => {
            let line = format!("{file}: no plan found in time; the best needs {excess} bytes more");
            return Err(Failure::failed(line));
        }
        Status::Optimal | Status::Feasible { .. } => outputs.write(table, &plan, &planned.name)?,
    }
    if format == Format::Text && !arguments.is_piped() { print(&planned) } else { Ok(()) }
}

/// Says how far an interrupted search came.
fn interrupted(planned: &Planned, status: &Status) -> Failure {
    let Planned { name, peak, lower_bound, .. } = planned;
    let found = match status {
        Status::Undecided { excess } => format!("no plan yet; the best needs {excess} bytes more"),
        _ => format!("the best plan so far has peak {peak}, and at least {lower_bound} are needed"),
    };
    let line = format!("interrupted: the result is partial, {name}: {found}; no file is written");
    Failure::interrupted(line)
}

/// One check: the contract of `--json`.
#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    buffers: usize,
    peak: u64,
    status: &'static str,
}

/// Checks the plan that a file has.
fn check(arguments: &Arguments, table: &Table, format: Format) -> Result<(), Failure> {
    let peak = plan_file::check(table, &arguments.file.display())?;
    let (name, buffers) = (name_of(&arguments.file), table.names.len());
    if format == Format::Json {
        return output::print_json(&Checked { name, buffers, peak, status: "valid" });
    }
    output::print_line(&format!("{name}: {buffers} buffers, peak {peak} bytes: the plan is valid"))
}

/// Checks that no result overwrites another or what is read, and that standard output gets one at most.
fn check_outputs(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let outputs: Vec<_> = arguments.outputs().into_iter().flatten().collect();
    let piped = outputs.iter().filter(|path| is_stdout(path)).count();
    if piped + usize::from(format == Format::Json) > 1 {
        let line = "standard output has room for one result; write the others to files";
        return Err(Failure::input(line));
    }
    for (number, path) in outputs.iter().enumerate().filter(|(_, path)| !is_stdout(path)) {
        let others = outputs[..number].iter().copied().chain([arguments.file.as_path()]);
        output::keep_apart(path, &others.map(Some).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Returns whether a path stands for standard output.
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a file says.
struct Loaded {
    table: Table,
    program: Program,
    /// Of a model.
    weight_bytes: Option<u64>,
}

impl From<(Table, Program)> for Loaded {
    fn from((table, program): (Table, Program)) -> Self {
        Self { table, program, weight_bytes: None }
    }
}

/// Reads a table or the table of a trace or a model, and puts the regions in that were asked for.
fn load(arguments: &Arguments) -> Result<Loaded, Failure> {
    let mut loaded = load_file(arguments)?;
    let problem = &mut loaded.table.problem;
    if let Some(capacity) = arguments.capacity {
        problem.regions[0].capacity = Some(capacity);
    }
    if !arguments.region.is_empty() {
        problem.regions.clone_from(&arguments.region);
    }
    Ok(loaded)
}

fn load_file(arguments: &Arguments) -> Result<Loaded, Failure> {
    let path = &arguments.file;
    let shown = path.display();
    if onnx::is_named(path) {
        let tensors = onnx::read(path, &arguments.dims)?;
        let table = onnx::table(&tensors, arguments.align);
        let weight_bytes = Some(tensors.weight_bytes());
        return Ok(Loaded { table, program: Program::default(), weight_bytes });
    }
    arguments.dims.refuse_unless_model()?;
    let text = read_text(path, LONGEST_FILE, "plan fewer buffers");
    if let Some(text) = text.as_ref().ok().filter(|text| plan_file::is_json(text)) {
        let wrong = |wrong| Failure::input(format!("{shown}: {wrong}"));
        return plan_file::read(text).map(Loaded::from).map_err(wrong);
    }
    match (text.map(|text| csv::read(&text, None)), Trace::open(path)) {
        (Ok(Ok(table)), _) => Ok((table, Program::default()).into()),
        (_, Ok(trace)) => Ok((table_of(&trace, arguments.align), Program::default()).into()),
        (Err(failure), Err(_)) => Err(failure),
        (Ok(Err(wrong)), Err(other)) => {
            Err(Failure::input(format!("{shown}: {wrong}; as a trace: {other}")))
        }
    }
}

/// Returns the table of a trace: buffers have the numbers and the labels of its allocations.
fn table_of(trace: &Trace, align: Align) -> Table {
    let problem = problem_from_trace(trace, align);
    let name = |id: u32| match trace.labels().path(trace.label_of(AllocationId(id))) {
        path if path.is_empty() => id.to_string(),
        path => format!("{id} {}", path.replace(|c: char| c == ',' || c.is_control(), " ")),
    };
    let names: Vec<_> = (0..trace.allocations()).map(name).collect();
    Table::unplaced(problem, names)
}

/// Plans with every seed, and keeps the best; also says when the first plan was there, and whether Ctrl-C ended the search.
fn search(table: &Table, arguments: &Arguments, format: Format) -> (Plan, Duration, bool) {
    let bar = output::spinner(format, "planning");
    let show = |now: Progress| {
        bar.set_message(format!("peak {}, at least {}", now.peak, now.lower_bound));
    };
    let portfolio = Portfolio {
        problem: &table.problem,
        threads: arguments.threads,
        time_limit: arguments.time_limit,
        show: &show,
    };
    let (plan, first) = portfolio.run();
    bar.finish_and_clear();
    let is_partial = interrupt::is_wanted() && !portfolio.is_answer(&plan);
    (plan, first, is_partial)
}

const fn status(status: &Status) -> &'static str {
    match status {
        Status::Optimal => "optimal",
        Status::Feasible { .. } => "feasible",
        Status::Undecided { .. } => "undecided",
        Status::Infeasible { .. } => "infeasible",
    }
}

/// Results that were asked for.
pub(super) struct Outputs {
    table: Option<Output>,
    picture: Option<Output>,
    header: Option<Output>,
    pub(super) plan: Option<Output>,
}

impl Outputs {
    pub(super) fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Output::open).transpose();
        Ok(Self {
            table: open(&arguments.out)?,
            picture: open(&arguments.svg)?,
            header: open(&arguments.header)?,
            plan: open(&arguments.plan)?,
        })
    }

    /// Checks the plan once more, and writes what was asked for.
    pub(super) fn write(self, table: &Table, plan: &Plan, name: &str) -> Result<(), Failure> {
        validate(&table.problem, &plan.spots)
            .map_err(|flaw| Failure::failed(format!("the plan is wrong: {flaw}; report this")))?;
        if let Some(output) = self.table {
            output.write(&csv::write_spots(table, &plan.spots))?;
        }
        if let Some(output) = self.picture {
            output.write(&svg::draw(&table.problem, plan, &table.names))?;
        }
        if let Some(output) = self.plan {
            output.write(&plan_file::write(table, plan)?)?;
        }
        match self.header {
            Some(output) => output.write(&header::write(&table.problem, plan, &table.names, name)),
            None => Ok(()),
        }
    }
}

fn print(planned: &Planned) -> Result<(), Failure> {
    let weights = planned.weight_bytes;
    let beside =
        weights.map_or(String::new(), |bytes| format!("; weights {bytes} bytes beside it"));
    output::print_line(&format!(
        "{}: {} buffers, peak {} bytes, at least {} are needed: {} ({:.3} s, first plan {:.3} s){beside}",
        planned.name,
        planned.buffers,
        planned.peak,
        planned.lower_bound,
        planned.status,
        planned.seconds,
        planned.first_plan_seconds
    ))
}
