//! `omniheap report`: a trace, or a manager's own report, as a picture or for other tools.
use super::Failure;
use super::output::{self, Format};
use super::replay::{name_of, open_trace};
use clap::ValueEnum;
use omniheap::trace::export::{chrome, prometheus, snapshot};
use omniheap::trace::report::{self, Comparison, ReportData};
use omniheap::trace::{Limits, Op, Trace, model};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

/// The picture of a trace, snapshot or report: one HTML page with a memory map and a timeline
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A trace, a snapshot, or a report in JSON
    #[arg(value_name = "TRACE|REPORT.json")]
    input: PathBuf,
    /// An earlier report of the same manager, in JSON: shows what moved between the two
    #[arg(long, value_name = "REPORT.json")]
    before: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value_t = Shape::Html)]
    shape: Shape,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  omniheap report run.csv.gz -o run.html
  omniheap report run.trace --shape perfetto -o run.json
  omniheap report after.json --before before.json -o defragmented.html";

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// One page that works from disk
    Html,
    /// The report's data, with the schema docs/report.schema.json
    Json,
    /// Trace events that Perfetto and Chrome open
    Perfetto,
    /// A snapshot that PyTorch's memory viewer opens
    Snapshot,
    /// Prometheus's text format
    Prometheus,
}

#[derive(Debug, Serialize)]
struct Written {
    name: String,
    file: String,
    bytes: u64,
}

/// What the input is.
enum Input {
    Trace(Box<Trace>),
    Report(Box<ReportData>),
}

/// Reads the input, writes the file.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    output::keep_apart(&arguments.out, &[Some(&arguments.input), arguments.before.as_deref()])?;
    let name = name_of(&arguments.input);
    let input = open(&arguments.input)?;
    let bytes = match (arguments.shape, &input) {
        (Shape::Perfetto, Input::Trace(trace)) => {
            save(&arguments.out, |file| chrome::write(trace, chrome::Detail::Allocations, file))?
        }
        (Shape::Snapshot, Input::Trace(trace)) => {
            save(&arguments.out, |file| snapshot::write(trace, file))?
        }
        (Shape::Perfetto | Shape::Snapshot, Input::Report(_)) => {
            let why = "is a report of one moment; events over time need a trace";
            return Err(Failure::input(format!("{}: {why}", arguments.input.display())));
        }
        (shape, _) => {
            let data = data(arguments, &name, input)?;
            save(&arguments.out, |file| match shape {
                Shape::Json => report::write_json(&data, file),
                Shape::Prometheus => prometheus::write(&prometheus::from_report(&data), file),
                _ => report::write_html(&data, file),
            })?
        }
    };
    let file = arguments.out.display().to_string();
    match format {
        Format::Json => output::print_json(&Written { name, file, bytes }),
        Format::Text => output::print_line(&format!("{file}: {}", output::bytes(bytes))),
    }
}

/// Opens a trace with a place for every allocation, or a report.
fn open(path: &Path) -> Result<Input, Failure> {
    if is_report(path) {
        return read_report(path).map(|data| Input::Report(Box::new(data)));
    }
    let recorded = open_trace(path)?;
    let placed = recorded.events().iter().any(|event| matches!(event.op, Op::Bind { .. }));
    // A trace that does not say where its allocations lie gets the places that PyTorch's policy would choose.
    let trace = if placed {
        recorded
    } else {
        report::bind_by_model(&recorded, &Limits::default())
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?
    };
    Ok(Input::Trace(Box::new(trace)))
}

/// Whether a file begins as reports in JSON do. Dumps of other programs are JSON too.
fn is_report(path: &Path) -> bool {
    let mut head = [0; 64];
    let read = File::open(path).and_then(|mut file| io::Read::read(&mut file, &mut head));
    let head = &head[..read.unwrap_or(0)];
    let plain: Vec<u8> = head.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    plain.starts_with(b"{\"schema\":")
}

fn read_report(path: &Path) -> Result<ReportData, Failure> {
    let failed =
        |error: &dyn core::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    report::read_json(BufReader::new(file)).map_err(|error| failed(&error))
}

fn data(arguments: &Arguments, name: &str, input: Input) -> Result<ReportData, Failure> {
    let mut data = match input {
        Input::Report(data) => *data,
        Input::Trace(trace) => {
            let mut data = report::from_trace(&trace, name);
            let outcome = model::pytorch(&trace);
            data.comparison.push(Comparison {
                name: "PyTorch's default policy (model)".into(),
                peak_reserved_bytes: outcome.peak_reserved_bytes,
                ratio: outcome.ratio(),
            });
            data
        }
    };
    if let Some(before) = &arguments.before {
        data.add_before(&read_report(before)?, "between the two reports");
    }
    Ok(data)
}

/// Writes a page and says how long it is.
pub(super) fn write(data: &ReportData, path: &Path) -> Result<u64, Failure> {
    save(path, |file| report::write_html(data, file))
}

fn save(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> io::Result<()>,
) -> Result<u64, Failure> {
    let failed = |error: io::Error| Failure::unwritable(path, &error);
    let file = File::create(path).map_err(failed)?;
    write(BufWriter::new(file)).map_err(failed)?;
    Ok(std::fs::metadata(path).map_err(failed)?.len())
}
