//! Reads a problem: tables, JSON, traces, snapshots, models.
use super::arguments::Arguments;
use super::file::{self, Program};
use crate::onnx;
use crate::text::read_text;
use omniheap::Align;
use omniheap::schedule::problem_from_trace;
use omniheap::trace::{AllocationId, Trace};
use omniheap_cli::Failure;
use omniheap_plan::csv::{self, Table};

/// No planning file is longer: ten million buffers fit.
const LONGEST_FILE: u64 = 1 << 30;

/// Contents of a file.
pub(super) struct Loaded {
    pub(super) table: Table,
    pub(super) program: Program,
    /// Bytes of a model's weights.
    pub(super) weight_bytes: Option<u64>,
}

impl From<(Table, Program)> for Loaded {
    fn from((table, program): (Table, Program)) -> Self {
        Self { table, program, weight_bytes: None }
    }
}

/// Reads a table or the table of a trace or a model, and puts the regions in that were asked for.
pub(super) fn load(arguments: &Arguments) -> Result<Loaded, Failure> {
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
    if let Some(text) = text.as_ref().ok().filter(|text| file::is_json(text)) {
        let wrong = |wrong| Failure::input(format!("{shown}: {wrong}"));
        return file::read(text).map(Loaded::from).map_err(wrong);
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
