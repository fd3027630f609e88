//! `omniheap report`: a trace as one HTML page.
use super::Failure;
use super::output::{self, Format};
use super::replay::{name_of, open_trace};
use omniheap::trace::report::{self, Comparison, ReportData};
use omniheap::trace::{Limits, Op, model};
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// The picture of a trace or snapshot: one HTML page with a memory map and a timeline
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  omniheap report run.csv.gz -o run.html")]
pub(super) struct Arguments {
    /// A trace or a snapshot
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html")]
    out: PathBuf,
}

#[derive(Debug, Serialize)]
struct Written {
    name: String,
    file: String,
    bytes: u64,
}

/// Reads the trace, writes the page.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let recorded = open_trace(&arguments.trace)?;
    let name = name_of(&arguments.trace);
    let placed = recorded.events().iter().any(|event| matches!(event.op, Op::Bind { .. }));
    // A trace that does not say where its allocations lie gets the places that PyTorch's policy would choose.
    let trace = if placed {
        recorded
    } else {
        report::bind_by_model(&recorded, &Limits::default())
            .map_err(|error| Failure::input(format!("{}: {error}", arguments.trace.display())))?
    };
    let mut data = report::from_trace(&trace, &name);
    let outcome = model::pytorch(&trace);
    data.comparison.push(Comparison {
        name: "PyTorch's default policy (model)".into(),
        peak_reserved_bytes: outcome.peak_reserved_bytes,
        ratio: outcome.ratio(),
    });
    let bytes = write(&data, &arguments.out)?;
    let file = arguments.out.display().to_string();
    match format {
        Format::Json => output::print_json(&Written { name, file, bytes }),
        Format::Text => output::print_line(&format!("{file}: {}", output::bytes(bytes))),
    }
}

/// Writes a page and says how long it is.
pub(super) fn write(data: &ReportData, path: &Path) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let file = File::create(path).map_err(failed)?;
    report::write_html(data, BufWriter::new(file)).map_err(failed)?;
    Ok(std::fs::metadata(path).map_err(failed)?.len())
}
