//! `omniheap report`: a trace, or a manager's own report, as a picture or for other tools.
use super::Failure;
use super::file::{NewFile, is_standard, name_of, source};
use super::interrupt;
use super::output::{self, Format};
use clap::ValueEnum;
use omniheap::trace::export::{chrome, snapshot};
use omniheap::trace::report::{self, ReportData};
use omniheap::trace::{Limits, Trace};
use omniheap_cli::page::{is_placed, page_of};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Cursor, Read as _, Write};
use std::path::{Path, PathBuf};

/// The picture of a trace, snapshot or report: one HTML page with a memory map and a timeline
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A trace, a snapshot, or a report in JSON; `-` is standard input. Several are shown beside each other
    #[arg(value_name = "RUN", required = true)]
    inputs: Vec<PathBuf>,
    /// An earlier report of the same manager, in JSON: shows what moved between the two
    #[arg(long, value_name = "REPORT.json")]
    before: Option<PathBuf>,
    /// Kind of output
    #[arg(long, alias = "shape", value_enum, default_value_t = Kind::Html)]
    format: Kind,
    /// The file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  omniheap report run.csv.gz -o run.html
  omniheap report before.trace after.trace -o both.html
  omniheap report run.trace --format perfetto -o run.json
  omniheap report after.json --before before.json -o defragmented.html";

/// Kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// One page that works from disk
    Html,
    /// The report's data, with the schema docs/report.schema.json
    Json,
    /// Trace events that Perfetto and Chrome open
    Perfetto,
    /// A snapshot that PyTorch's memory viewer opens
    Snapshot,
}

#[derive(Debug, Serialize)]
struct Written {
    name: String,
    file: String,
    bytes: u64,
}

/// Kind of input.
enum Input {
    Trace(Box<Trace>),
    Report(Box<ReportData>),
}

/// Finished output.
enum Content {
    Html(Vec<ReportData>),
    Json(Box<ReportData>),
    Perfetto(Box<Trace>),
    Snapshot(Box<Trace>),
}

impl Content {
    fn write(&self, sink: impl Write) -> io::Result<()> {
        match self {
            Self::Html(runs) => report::write_runs(runs, sink),
            Self::Json(data) => report::write_json(data, sink),
            Self::Perfetto(trace) => chrome::write(trace, chrome::Detail::Allocations, sink),
            Self::Snapshot(trace) => snapshot::write(trace, sink),
        }
    }
}

/// Reads the input, writes the file.
pub(super) fn run(arguments: Arguments, format: Format) -> Result<(), Failure> {
    let inputs = arguments.inputs.iter().map(|input| Some(input.as_path()));
    let read: Vec<_> = inputs.chain([arguments.before.as_deref()]).collect();
    output::keep_apart(&arguments.out, &read)?;
    let out = arguments.out.clone();
    // Before the work, so that a wrong name costs none.
    let file = (!is_standard(&out)).then(|| NewFile::create(&out)).transpose()?;
    let names: Vec<_> = arguments.inputs.iter().map(|input| name_of(input)).collect();
    let bar = output::spinner(format, "reading and drawing");
    let content = interrupt::run(move || content(&arguments));
    bar.finish_and_clear();
    let content = content??;
    let Some(file) = file else { return print(&content) };
    let bytes = file.write(|file| content.write(file))?;
    let file = out.display().to_string();
    output::print(format, &Written { name: names.join(" | "), file, bytes }, |it| {
        format!("{}: {}", it.file, output::bytes(it.bytes))
    })
}

/// Writes to standard output.
fn print(content: &Content) -> Result<(), Failure> {
    output::written(content.write(BufWriter::new(io::stdout().lock())))
}

/// Reads a report or a trace: reports in JSON begin in one way. Dumps of other programs are JSON too.
fn open(path: &Path) -> Result<Input, Failure> {
    let failed =
        |error: &dyn core::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let (mut source, mut head) = (source(path)?, Vec::new());
    let read = source.by_ref().take(64).read_to_end(&mut head);
    read.map_err(|error| Failure::unreadable(path, &error))?;
    let plain: Vec<u8> = head.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let whole = Cursor::new(head).chain(source);
    if plain.starts_with(b"{\"schema\":") {
        let data = report::read_json(BufReader::new(whole)).map_err(|error| failed(&error))?;
        return Ok(Input::Report(Box::new(data)));
    }
    let trace = Trace::read(whole, &Limits::default()).map_err(|error| failed(&error))?;
    Ok(Input::Trace(Box::new(trace)))
}

fn content(arguments: &Arguments) -> Result<Content, Failure> {
    let [path] = &arguments.inputs[..] else { return several(arguments) };
    let unusable =
        |error: omniheap::trace::Error| Failure::input(format!("{}: {error}", path.display()));
    Ok(match (arguments.format, open(path)?) {
        (Kind::Perfetto, Input::Trace(trace)) => Content::Perfetto(trace),
        // PyTorch's viewer needs places; a trace without them gets those of PyTorch's policy.
        (Kind::Snapshot, Input::Trace(trace)) if !is_placed(&trace) => {
            let placed = report::bind_by_model(&trace, &Limits::default()).map_err(unusable)?;
            Content::Snapshot(Box::new(placed))
        }
        (Kind::Snapshot, Input::Trace(trace)) => Content::Snapshot(trace),
        (Kind::Perfetto | Kind::Snapshot, Input::Report(_)) => {
            let why = "is a report of one moment; events over time need a trace";
            return Err(Failure::input(format!("{}: {why}", path.display())));
        }
        (kind, input) => {
            let data = add_before(arguments, data_of(input, path)?)?;
            if kind == Kind::Json {
                Content::Json(Box::new(data))
            } else {
                Content::Html(vec![data])
            }
        }
    })
}

/// Reads several runs for one page.
fn several(arguments: &Arguments) -> Result<Content, Failure> {
    if arguments.format != Kind::Html || arguments.before.is_some() {
        let why = "several runs make one page, and nothing else; name one run, or leave out `--format` and `--before`";
        return Err(Failure::input(why));
    }
    let runs = arguments.inputs.iter().map(|path| read_data(path));
    runs.collect::<Result<_, _>>().map(Content::Html)
}

/// Reads a trace, a snapshot or a report as the data of a page.
pub(super) fn read_data(path: &Path) -> Result<ReportData, Failure> {
    data_of(open(path)?, path)
}

/// Returns the data of a page; a trace is replayed for it.
fn data_of(input: Input, path: &Path) -> Result<ReportData, Failure> {
    match input {
        Input::Report(data) => Ok(*data),
        Input::Trace(trace) => page_of(&trace, &name_of(path))
            .map_err(|error| Failure::input(format!("{}: {error}", path.display()))),
    }
}

/// Prepends the report of `--before`, if there is one.
fn add_before(arguments: &Arguments, mut data: ReportData) -> Result<ReportData, Failure> {
    if let Some(before) = &arguments.before {
        data.add_before(&read_report(before)?, "between the two reports");
    }
    Ok(data)
}

fn read_report(path: &Path) -> Result<ReportData, Failure> {
    let failed =
        |error: &dyn core::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    report::read_json(BufReader::new(file)).map_err(|error| failed(&error))
}
