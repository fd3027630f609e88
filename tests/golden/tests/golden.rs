//! Compares the places of today with the recorded ones: see the crate's documentation.
//!
//! `OMNIHEAP_TRACES` names a folder of traces to play beside the shapes; without it their lines show as ignored.
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_core::{Backend as _, Caps, HeapKind};
use omniheap_golden::{Figures, Run, Step, peak_live, play, shapes};
use omniheap_host::{Host, heap};
use omniheap_null::Null;
use omniheap_trace::{Op, Trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

/// The recorded lines, sorted by name.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden.txt");
/// Unit to which every size is rounded up.
const UNIT: u64 = 256;
/// A heap that nothing fills.
const WIDE: u64 = 64 << 30;

/// One line of the file: a name, and how to obtain its figures.
struct Line {
    name: String,
    figures: Box<dyn Fn() -> Figures + Send>,
}

fn main() {
    let arguments = Arguments::from_args();
    let folder = env::var_os("OMNIHEAP_TRACES").map(PathBuf::from);
    let mut lines: Vec<Line> =
        shapes::all().into_iter().flat_map(|(name, steps)| of(name, steps)).collect();
    lines.extend(folder.iter().flat_map(|folder| of_traces(folder)));
    if env::var_os("OMNIHEAP_GOLDEN").is_some_and(|value| value == "renew") {
        renew(lines);
        return;
    }
    let recorded = recorded();
    let known: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    let missing = recorded.keys().filter(|name| !known.contains(name));
    let mut trials: Vec<Trial> =
        missing.map(|name| Trial::test(name.clone(), || Ok(())).with_ignored_flag(true)).collect();
    trials.extend(lines.into_iter().map(|line| trial(line, &recorded)));
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(line: Line, recorded: &BTreeMap<String, String>) -> Trial {
    let Line { name, figures } = line;
    let expected = recorded.get(&name).cloned();
    Trial::test(name, move || {
        let expected = expected.ok_or("not recorded: run `cargo xtask golden`")?;
        let found = figures().to_string();
        if found == expected {
            return Ok(());
        }
        Err(Failed::from(format!("recorded {expected}\nfound    {found}")))
    })
}

/// A program with both kinds of pools, one and eight lanes, much memory and little, on host memory and on none.
///
/// Host memory runs its timelines on threads of its own, so runs with eight lanes are for the device without bytes only.
fn of(name: &str, steps: Vec<Step>) -> Vec<Line> {
    let steps: Arc<[Step]> = steps.into();
    let tight = (peak_live(&steps, UNIT) + (4 << 20)).next_multiple_of(2 << 20);
    let mut lines = Vec::new();
    for (paged, pools) in [(false, "plain"), (true, "paged")] {
        for lanes in [1, 8] {
            for (size, capacity) in [(WIDE, "wide"), (tight, "tight")] {
                let run = Run { paged, lanes };
                let named = |device: &str| format!("{name}/{pools}/{lanes}/{capacity}/{device}");
                let with = Arc::clone(&steps);
                let figures = move || play(Null::new(caps(size)), run, &with);
                lines.push(Line { name: named("null"), figures: Box::new(figures) });
                if lanes == 1 {
                    let with = Arc::clone(&steps);
                    let host = move || Host::like(caps(size)).expect("heaps that nothing touches");
                    let figures = move || play(host(), run, &with);
                    lines.push(Line { name: named("host"), figures: Box::new(figures) });
                }
            }
        }
    }
    lines
}

/// One heap of device memory.
fn caps(size: u64) -> Caps {
    let mut caps = Host::new().caps().clone();
    caps.heaps = vec![heap(HeapKind::Device, size)];
    caps
}

/// The traces of a folder, on the device without bytes.
fn of_traces(folder: &Path) -> Vec<Line> {
    let entries = fs::read_dir(folder).expect("OMNIHEAP_TRACES names a folder");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".csv.gz"));
    paths.sort();
    let lines = paths.iter().flat_map(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().replace(".csv.gz", ""));
        of(&format!("trace_{}", name.unwrap_or_default()), steps_of(path))
    });
    lines.filter(|line| line.name.ends_with("null")).collect()
}

/// The allocations and completed frees of a trace.
fn steps_of(path: &Path) -> Vec<Step> {
    let trace = Trace::open(path).expect("a trace");
    let step = |op: Op| match op {
        Op::Allocate { id, size, stream, align } => Some(Step::Allocate {
            id: id.0,
            size,
            align_log2: align.bytes().map_or(0, |bytes| u8::try_from(bytes.ilog2()).unwrap_or(0)),
            stream: stream.0,
        }),
        Op::FreeCompleted { id, .. } => Some(Step::Free { id: id.0 }),
        _ => None,
    };
    trace.events().iter().filter_map(|event| step(event.op)).collect()
}

fn recorded() -> BTreeMap<String, String> {
    let text = fs::read_to_string(RECORDED).unwrap_or_default();
    let split = |line: &str| line.split_once(' ').map(|(name, rest)| (name.into(), rest.into()));
    text.lines().filter_map(split).collect()
}

/// Writes today's figures; lines that today's run does not have, such as those of absent traces, stay.
fn renew(lines: Vec<Line>) {
    let mut all = recorded();
    for Line { name, figures } in lines {
        all.insert(name, figures().to_string());
    }
    let text: String = all.iter().map(|(name, figures)| format!("{name} {figures}\n")).collect();
    fs::write(RECORDED, text).expect("the file can be written");
}
