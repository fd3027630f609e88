//! `omniheap plan` for a program whose buffers may be recomputed or moved.
use super::arguments::Arguments;
use super::file::{self, Program};
use super::outputs::Outputs;
use omniheap_cli::Failure;
use omniheap_cli::file::name_of;
use omniheap_cli::output::{self, Format};
use omniheap_plan::csv::Table;
use omniheap_plan::{ActivationError, Choice, Options, Tradeoff, trade};
use serde::Serialize;
use std::time::Instant;

/// One result: the contract of `--json`.
#[derive(Debug, Default, Serialize)]
struct Traded {
    name: String,
    activations: usize,
    capacity: Option<u64>,
    status: &'static str,
    peak: Option<u64>,
    cost: Option<u64>,
    cost_lower_bound: Option<u64>,
    kept_bytes: u64,
    recomputed_bytes: u64,
    moved_bytes: u64,
    /// The tick at which the capacity is below what is needed whatever is chosen, and the bytes needed there.
    floor: Option<(u64, u64)>,
    seconds: f64,
}

/// Chooses, places, writes.
pub(super) fn run(
    arguments: &Arguments,
    mut table: Table,
    program: &Program,
    format: Format,
) -> Result<(), Failure> {
    let mut outputs = Outputs::open(arguments)?;
    let start = Instant::now();
    let options = Options { time_limit: arguments.time_limit, ..Options::default() };
    let found = trade(&table.problem, &program.activations, program.copies, &options);
    let mut traded = Traded {
        name: name_of(&arguments.file),
        activations: program.activations.len(),
        capacity: table.problem.regions[0].capacity,
        seconds: start.elapsed().as_secs_f64(),
        ..Traded::default()
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return Err(traded.refuse(arguments, &error, format)?),
    };
    traded.fill(&table, program, &found);
    rename(&mut table, program, &found);
    if let Some(output) = outputs.plan.take() {
        output.write(&file::write_traded(&table, program, &found)?)?;
    }
    outputs.write(&table, &found.plan, &traded.name)?;
    match format {
        Format::Json => output::print_json(&traded),
        Format::Text if arguments.is_piped() => Ok(()),
        Format::Text => print(&traded),
    }
}

/// Makes the table that of the changed program.
fn rename(table: &mut Table, program: &Program, found: &Tradeoff) {
    let first = table.names.len();
    table.problem = found.problem.clone();
    let scratch = |index: usize| format!("scratch {}", index - first);
    table.names.extend((first..found.problem.buffers.len()).map(scratch));
    for (each, second) in program.activations.iter().zip(&found.returns) {
        if let Some(second) = *second {
            table.names[second] = format!("{} again", table.names[each.buffer]);
        }
    }
    table.offsets = vec![None; table.names.len()];
    table.regions = vec![None; table.names.len()];
}

impl Traded {
    /// Prints why there are no choices, where that is a result, and returns the failure.
    fn refuse(
        mut self,
        arguments: &Arguments,
        error: &ActivationError,
        format: Format,
    ) -> Result<Failure, Failure> {
        let text = format!("{}: {error}", arguments.file.display());
        let (status, failure) = match *error {
            ActivationError::Floor { tick, bytes, .. } => {
                self.floor = Some((tick, bytes));
                ("infeasible", Failure::impossible(text))
            }
            ActivationError::NotFound => ("undecided", Failure::failed(text)),
            _ => return Ok(Failure::input(text)),
        };
        self.status = status;
        if format == Format::Json {
            output::print_json(&self)?;
        }
        Ok(failure)
    }

    fn fill(&mut self, table: &Table, program: &Program, found: &Tradeoff) {
        let is_proven = found.cost == found.lower_bound;
        self.status = if is_proven { "optimal" } else { "feasible" };
        self.peak = Some(found.plan.peak());
        (self.cost, self.cost_lower_bound) = (Some(found.cost), Some(found.lower_bound));
        for (each, choice) in program.activations.iter().zip(&found.choices) {
            let sum = match choice {
                Choice::Keep => &mut self.kept_bytes,
                Choice::Recompute => &mut self.recomputed_bytes,
                Choice::Move => &mut self.moved_bytes,
            };
            *sum += table.problem.buffers[each.buffer].size;
        }
    }
}

fn print(traded: &Traded) -> Result<(), Failure> {
    output::print_line(&format!(
        "{}: {} activations: {} bytes kept, {} recomputed, {} moved; peak {} bytes; cost {}, at least {} is needed: {} ({:.3} s)",
        traded.name,
        traded.activations,
        traded.kept_bytes,
        traded.recomputed_bytes,
        traded.moved_bytes,
        traded.peak.unwrap_or(0),
        traded.cost.unwrap_or(0),
        traded.cost_lower_bound.unwrap_or(0),
        traded.status,
        traded.seconds
    ))
}
