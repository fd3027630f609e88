//! `omniheap fit`: will a step fit on a device, what is in the way, and what would help.
mod allocator;
mod model;
mod page;

use crate::onnx::{self, Dims};
use allocator::holds;
pub(super) use allocator::{Allocator, Origin};
use omniheap::trace::Trace;
use omniheap_cli::Failure;
use omniheap_cli::file::NewFile;
use omniheap_cli::file::{name_of, open_trace};
use omniheap_cli::interrupt;
use omniheap_cli::output::{self, Format};
use omniheap_fit::{Change, Moment, Peak};
use serde::Serialize;
use std::path::PathBuf;

/// Say whether a recorded step fits on a device: peak reserved, where, by category, and what each change would gain
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Traces of `omniheap.fit.record_step` or of any other recorder, PyTorch snapshots, or .onnx models; or the files of
    /// one model's weights: .safetensors, .index.json or .gguf
    #[arg(required = true, value_name = "TRACE|MODEL")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    context: model::Context,
    #[command(flatten)]
    dims: Dims,
    #[command(flatten)]
    room: Room,
    /// Draw live and reserved bytes, categories and the table
    #[arg(short, long, alias = "report", value_name = "FILE.html")]
    out: Option<PathBuf>,
}

/// The memory that there is, and the allocator that divides it.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes that the device has (suffixes K, M, G, T)
    #[arg(long, value_name = "BYTES", value_parser = at_least_one)]
    pub(super) capacity: u64,
    /// Bytes of them that the driver's context and libraries take
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = output::bytes_argument)]
    pub(super) fixed: u64,
    /// The allocator that serves the step
    #[arg(long, value_enum, default_value_t = Allocator::Torch)]
    pub(super) allocator: Allocator,
}

impl Room {
    /// Returns the bytes that the allocator may take.
    pub(super) fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.fixed)
    }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match output::bytes_argument(text)? {
        0 => Err("a device has at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

const EXAMPLES: &str = "\
Examples:
  omniheap fit step.omt --capacity 24G
  omniheap fit step.omt --capacity 24G --allocator expandable --out step.html
  omniheap fit snapshot.pickle --capacity 80G --fixed 523M --json
  omniheap fit model.gguf --context 8192 --capacity 24G
  omniheap fit model.onnx --dim batch=8 --capacity 24G

Exit codes: 0 fits, 1 does not fit, 2 bad input, 3 what is live exceeds the capacity, whatever the allocator,
130 Ctrl-C ended it: the answers so far are printed, and no page is written.";

/// One result: the contract of `--json`, with the schema docs/fit.schema.json.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) name: String,
    pub(super) allocator: Allocator,
    origin: Origin,
    capacity_bytes: u64,
    fixed_bytes: u64,
    pub(super) fits: bool,
    /// True if there is room for its peak without a limit.
    #[serde(skip)]
    holds: bool,
    /// Negative when the peak exceeds what there is.
    left_bytes: i64,
    pub(super) peak_reserved_bytes: u64,
    peak_live_bytes: u64,
    /// Moment at which most bytes are live.
    pub(super) peak: Moment,
    /// The peak reserved, less what is live then.
    unused_bytes: u64,
    /// Label of the allocation for which reserved bytes grew to their peak.
    grown_for: String,
    pub(super) changes: Vec<Row>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) change: String,
    pub(super) peak_reserved_bytes: Option<u64>,
    /// Reserved bytes that the change gains; negative when it needs more.
    pub(super) gained_bytes: Option<i64>,
    /// Live bytes that it gains: what is left of the gain when the allocator wastes nothing.
    gained_live_bytes: Option<i64>,
    pub(super) fits: Option<bool>,
    #[serde(skip)]
    holds: bool,
    /// Reason why the trace does not tell.
    pub(super) not_known: Option<String>,
}

/// Answers for every trace; all are read before the first answer.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let traces = open(arguments)?;
    let page = arguments.out.as_deref().map(|path| {
        if traces.len() > 1 {
            return Err(Failure::input("--out draws one trace; name one"));
        }
        let others: Vec<_> = arguments.files.iter().map(|file| Some(file.as_path())).collect();
        output::keep_apart(path, &others)?;
        NewFile::create(path)
    });
    let page = page.transpose()?;
    interrupt::watch();
    let mut answers = Vec::new();
    for (name, trace) in &traces {
        let go_on = || interrupt::check(answers.len(), traces.len(), "traces were answered");
        let answer = answer(name, trace, arguments.room, &go_on)?;
        output::print(format, &answer, text)?;
        answers.push(answer);
    }
    if let Some(file) = page {
        page::write(file, &traces[0].1, &answers[0])?;
    }
    answers.iter().map(verdict).find(Result::is_err).unwrap_or(Ok(()))
}

/// Reads traces, or the files of one model.
fn open(arguments: &Arguments) -> Result<Vec<(String, Trace)>, Failure> {
    if !arguments.files.iter().any(|path| onnx::is_named(path)) {
        arguments.dims.refuse_unless_model()?;
    }
    let models = arguments.files.iter().filter(|path| model::is_named(path)).count();
    if models == arguments.files.len() {
        let name = name_of(&arguments.files[0]);
        return Ok(vec![(name, model::open(&arguments.files, &arguments.context)?)]);
    }
    if models > 0 || arguments.context.is_given() {
        let why = "--context and model files do not go with traces; a trace says what was cached";
        return Err(Failure::input(why));
    }
    let read = |path: &PathBuf| {
        let trace = match onnx::is_named(path) {
            true => onnx::trace(path, &arguments.dims)?,
            false => open_trace(path)?,
        };
        Ok((name_of(path), not_empty(path, trace)?))
    };
    arguments.files.iter().map(read).collect()
}

/// Refuses a trace that would fit anywhere.
pub(super) fn not_empty(path: &std::path::Path, trace: Trace) -> Result<Trace, Failure> {
    if trace.allocations() > 0 {
        return Ok(trace);
    }
    let why = "allocates nothing; record a step that uses the device";
    Err(Failure::input(format!("{}: {why}", path.display())))
}

/// Answers for one trace; asks `go_on` before each replay.
fn answer(
    name: &str,
    trace: &Trace,
    room: Room,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    go_on()?;
    let peak = room.allocator.peak(name, trace)?;
    let moment = Moment::busiest(trace);
    let row = |change: Change| go_on().and_then(|()| row(name, trace, room, &peak, change));
    Ok(Answer {
        name: name.to_owned(),
        allocator: room.allocator,
        origin: room.allocator.origin(),
        capacity_bytes: room.capacity,
        fixed_bytes: room.fixed,
        fits: room.allocator.fits(trace, &peak, room.left())?,
        holds: holds(&peak, room.left()),
        left_bytes: difference(room.left(), peak.reserved_bytes),
        peak_reserved_bytes: peak.reserved_bytes,
        peak_live_bytes: trace.summary().peak_live_bytes,
        unused_bytes: peak.reserved_bytes.saturating_sub(moment.live_bytes),
        peak: moment,
        grown_for: Moment::at(trace, peak.event).label,
        changes: Change::table().into_iter().map(row).collect::<Result<_, _>>()?,
    })
}

fn row(
    name: &str,
    trace: &Trace,
    room: Room,
    before: &Peak,
    change: Change,
) -> Result<Row, Failure> {
    let shown = change.to_string();
    let changed = match change.apply(trace) {
        Ok(changed) => changed,
        Err(why) => {
            return Ok(Row {
                change: shown,
                peak_reserved_bytes: None,
                gained_bytes: None,
                gained_live_bytes: None,
                fits: None,
                holds: false,
                not_known: Some(why.to_string()),
            });
        }
    };
    let peak = room.allocator.peak(name, &changed)?;
    let live = |trace: &Trace| trace.summary().peak_live_bytes;
    Ok(Row {
        change: shown,
        peak_reserved_bytes: Some(peak.reserved_bytes),
        gained_bytes: Some(difference(before.reserved_bytes, peak.reserved_bytes)),
        gained_live_bytes: Some(difference(live(trace), live(&changed))),
        fits: Some(room.allocator.fits(&changed, &peak, room.left())?),
        holds: holds(&peak, room.left()),
        not_known: None,
    })
}

fn difference(from: u64, less: u64) -> i64 {
    i64::try_from(i128::from(from) - i128::from(less)).unwrap_or(i64::MIN)
}

/// Ends with the exit code that says whether it fits.
fn verdict(answer: &Answer) -> Result<(), Failure> {
    if answer.fits {
        return Ok(());
    }
    let room = answer.capacity_bytes.saturating_sub(answer.fixed_bytes);
    let (name, has) = (&answer.name, output::bytes(room));
    if answer.peak_live_bytes > room {
        let live = output::bytes(answer.peak_live_bytes);
        let line = format!("{name}: does not fit: {live} are live at once, and there are {has}");
        return Err(Failure::impossible(line));
    }
    let (who, takes) = (answer.allocator.title(), output::bytes(answer.peak_reserved_bytes));
    Err(Failure::failed(format!(
        "{name}: does not fit: {who} fails within {has}, even when it returns what it keeps; without a limit it takes {takes}"
    )))
}

/// Returns bytes for people, with a sign.
pub(super) fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", output::bytes(bytes.unsigned_abs()))
}

fn text(answer: &Answer) -> String {
    let share =
        |bytes: u64| format!("{:.1} %", 100.0 * output::ratio(bytes, answer.peak_reserved_bytes));
    let verdict = in_words(answer.fits, answer.holds);
    let mut rows: Vec<_> = answer
        .peak
        .categories
        .iter()
        .map(|each| {
            vec![each.category.word().to_owned(), output::bytes(each.bytes), share(each.bytes)]
        })
        .collect();
    let unused = answer.unused_bytes;
    rows.push(vec!["reserved, not live".into(), output::bytes(unused), share(unused)]);
    let room = answer.capacity_bytes.saturating_sub(answer.fixed_bytes);
    let changes: Vec<_> = answer.changes.iter().map(cells).collect();
    let named =
        |label: &str| if label.is_empty() { "no label".to_owned() } else { output::shown(label) };
    format!(
        "{}: {verdict}\n  {}: peak {} without a limit, {} are here, {} left\n  most is live at event {}: {}\n  reserved last grew for {}\n\n{}\n\n{}\n",
        output::shown(&answer.name),
        answer.allocator.title(),
        output::bytes(answer.peak_reserved_bytes),
        output::bytes(room),
        signed(answer.left_bytes),
        answer.peak.event,
        named(&answer.peak.label),
        named(&answer.grown_for),
        output::table(&["at the peak", "bytes", "share"], &rows),
        output::table(&["change", "gains", "of live", "then"], &changes),
    )
}

/// Words the outcome; `holds` where there is room for what the allocator takes as long as nothing limits it.
const fn in_words(fits: bool, holds: bool) -> &'static str {
    match (fits, holds) {
        (true, true) => "fits",
        (true, false) => "fits, once the allocator returns what it keeps",
        (false, false) => "does not fit",
        (false, true) => "fits at first, and not in later steps or at other addresses",
    }
}

/// One change.
fn cells(row: &Row) -> Vec<String> {
    let Some(gained) = row.gained_bytes else {
        let why = row.not_known.clone().unwrap_or_default();
        return vec![row.change.clone(), "-".into(), "-".into(), why];
    };
    let then = in_words(row.fits == Some(true), row.holds);
    let live = signed(row.gained_live_bytes.unwrap_or(0));
    vec![row.change.clone(), signed(gained), live, then.into()]
}
