//! `omniheap plan`: the offline planner.
mod arguments;
mod file;
mod load;
mod outputs;
mod portfolio;
mod tradeoff;

pub(super) use arguments::Arguments;
use core::time::Duration;
use load::{Loaded, load};
use omniheap_cli::Failure;
use omniheap_cli::file::name_of;
use omniheap_cli::interrupt;
use omniheap_cli::output::{self, Format};
use omniheap_plan::csv::Table;
use omniheap_plan::{Plan, Progress, Status};
use outputs::{Outputs, check_outputs};
use portfolio::Portfolio;
use serde::Serialize;
use std::time::Instant;

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
    /// Weights of a model, beside the buffers: they live always, and are not placed.
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
    let peak = file::check(table, &arguments.file.display())?;
    let (name, buffers) = (name_of(&arguments.file), table.names.len());
    if format == Format::Json {
        return output::print_json(&Checked { name, buffers, peak, status: "valid" });
    }
    let name = output::shown(&name);
    output::print_line(&format!("{name}: {buffers} buffers, peak {peak} bytes: the plan is valid"))
}

/// Plans with every seed, and keeps the best; also says when the first plan was there, and whether Ctrl-C ended the search.
fn search(table: &Table, arguments: &Arguments, format: Format) -> (Plan, Duration, bool) {
    let bar = output::spinner(format, "planning");
    let show = |now: Progress| {
        bar.set_message(format!("peak {}, at least {}", now.peak, now.lower_bound));
    };
    let portfolio = Portfolio {
        problem: &table.problem,
        threads: arguments.threads(),
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

fn print(planned: &Planned) -> Result<(), Failure> {
    let weights = planned.weight_bytes;
    let beside =
        weights.map_or(String::new(), |bytes| format!("; weights {bytes} bytes beside it"));
    output::print_line(&format!(
        "{}: {} buffers, peak {} bytes, at least {} are needed: {} ({:.3} s, first plan {:.3} s){beside}",
        output::shown(&planned.name),
        planned.buffers,
        planned.peak,
        planned.lower_bound,
        planned.status,
        planned.seconds,
        planned.first_plan_seconds
    ))
}
