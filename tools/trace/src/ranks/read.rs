//! Reads what ranks left behind: traces, snapshots, reports in JSON, digests; a file, or a folder of them.

use super::digest::{Digest, Digester, Failed, LabelBytes, TEXT};
use super::job::{Job, Problem};
use super::launcher::rank_from_name;
use crate::error::{Error, ErrorKind, Position};
use crate::event::{Op, Rung};
use crate::label::{LabelId, tail};
use crate::limits::Limits;
use crate::report::{self, Label, MapSpan, Moment, PostMortem, ReportData};
use crate::step;
use crate::trace::{Ending, Trace};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

/// Events that one rank's file may hold: thousands of files are read one after the other, none of them whole for long.
const EVENTS: u64 = 16 << 20;
/// Rungs that a digest can name.
const RUNGS: usize = 16;
/// Bytes that decide how a file is read.
const HEAD: u64 = 64;

impl Digest {
    /// Returns the figures of a trace.
    pub fn of_trace(trace: &Trace) -> Self {
        let duration_us = trace.events().last().map_or(0, |event| event.time_us);
        let mut digester = Digester::new(duration_us);
        step::of_trace(trace).for_each(|(time, step)| digester.step(time, &step));
        let mut digest = digester.finish(|label| trace.labels().tail(LabelId(label), TEXT));
        digest.rungs = rungs_of_trace(trace);
        digest.cut_off = trace.meta().ending == Ending::CutOff;
        digest
    }

    /// Returns the figures of a report. One of a single moment has no band and no sequence.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] when its packed events are damaged, [`ErrorKind::OverLimit`] when there are more than 16 Mi.
    pub fn of_report(data: &ReportData) -> Result<Self, Error> {
        let mut digest = match &data.events {
            Some(events) => {
                let mut digester = Digester::new(data.figures.duration_us);
                for step in events.unpack(EVENTS)? {
                    let (time, step) = step?;
                    digester.step(time, &step);
                }
                digester.finish(|label| label_text(&data.labels, label))
            }
            None => of_moment(data),
        };
        digest.peak_live_bytes = data.figures.peak_live_bytes;
        digest.peak_reserved_bytes = data.figures.peak_reserved_bytes;
        if data.placed_by_model.is_some() {
            // Blocks that a model chose are not what the rank held.
            (digest.reserved_bytes, digest.reserved_band) = (None, Vec::new());
        }
        digest.failures = data.figures.oom;
        describe(&mut digest.failed, &data.out_of_memory);
        let fact = |name: &str| data.facts.iter().find(|fact| fact.name == name);
        let number = |name| fact(name).and_then(|fact| fact.value.parse().ok());
        (digest.rank, digest.world) = (number("rank"), number("world size"));
        let rungs = data.facts.iter().filter_map(|fact| {
            Some((fact.name.strip_prefix("rung ")?.to_owned(), fact.value.parse().ok()?))
        });
        digest.rungs = rungs.take(RUNGS).collect();
        digest.cut_off = fact("recording ends").is_some();
        Ok(digest)
    }

    /// Reads a trace, snapshot, report or digest. The rank is that of the content, otherwise that of `name`.
    ///
    /// # Errors
    /// As [`Trace::open`], [`report::read_json`] and [`Digest::of_report`].
    pub fn read(mut source: impl Read, name: &str) -> Result<Self, Error> {
        Self::read_from(&mut source, name)
    }

    /// Reads without generics, so that it is compiled once, and here.
    fn read_from(source: &mut dyn Read, name: &str) -> Result<Self, Error> {
        let mut head = Vec::new();
        let got = (&mut *source).take(HEAD).read_to_end(&mut head);
        got.map_err(|error| Error::new(Position::Input, error.into()))?;
        let plain: Vec<u8> = head.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
        let whole = BufReader::new(Cursor::new(head).chain(source));
        let mut digest = if plain.starts_with(b"{\"schema\":") {
            Self::of_report(&report::read_json(whole)?)?
        } else if plain.starts_with(b"{\"rank_schema\":") {
            read_digest(whole)?
        } else {
            let limits = Limits { events: EVENTS, ..Limits::default() };
            Self::of_trace(&Trace::read(whole, &limits)?)
        };
        digest.rank = digest.rank.or_else(|| rank_from_name(name));
        digest.origin = name[..name.floor_char_boundary(TEXT)].to_owned();
        Ok(digest)
    }

    /// Reads a file as [`read`](Self::read) does.
    ///
    /// # Errors
    /// The fault of the file, and its name.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let failed = |why: String| Problem { file: name.clone(), why };
        let file = File::open(path).map_err(|error| failed(format!("cannot read: {error}")))?;
        Self::read(file, &name).map_err(|error| failed(error.to_string()))
    }
}

fn rungs_of_trace(trace: &Trace) -> BTreeMap<String, u64> {
    let mut rungs = BTreeMap::new();
    for event in trace.events() {
        if let Op::OutOfMemory { rung, .. } = event.op
            && rung != Rung::Failed
        {
            *rungs.entry(format!("{rung:?}").to_ascii_lowercase()).or_default() += 1;
        }
    }
    rungs
}

fn of_moment(data: &ReportData) -> Digest {
    let moment = data.moments.last();
    let spans = |moment: &Moment| -> Vec<MapSpan> {
        moment.blocks.iter().flat_map(|block| &block.spans).copied().collect()
    };
    let spans = moment.map(spans).unwrap_or_default();
    let mut labels: HashMap<u32, u64> = HashMap::new();
    for span in &spans {
        let held = labels.entry(span.label).or_default();
        *held = held.saturating_add(span.size);
    }
    let largest = labels
        .into_iter()
        .filter(|(label, _)| *label > 0)
        .max_by_key(|&(label, bytes)| (bytes, core::cmp::Reverse(label)));
    Digest {
        rank_schema: Digest::SCHEMA,
        requests: data.figures.events,
        duration_us: data.figures.duration_us,
        live_bytes: spans.iter().fold(0, |sum, span| sum.saturating_add(span.size)),
        reserved_bytes: moment.map(Moment::reserved_bytes),
        largest_label: largest
            .map(|(label, bytes)| LabelBytes { label: label_text(&data.labels, label), bytes }),
        ..Digest::default()
    }
}

/// Takes over what a report says of the failed requests.
fn describe(failed: &mut Vec<Failed>, found: &[PostMortem]) {
    let of = |each: &PostMortem| Failed {
        time_us: each.time_us,
        requested: each.size,
        live: each.live_bytes,
        reserved: each.reserved_bytes,
        largest_hole: each.largest_hole.map(|hole| hole.size),
    };
    if !found.is_empty() {
        *failed = found.iter().take(16).map(of).collect();
    }
}

/// Returns the path of a report's label, its beginning cut off where it is long.
fn label_text(labels: &[Label], label: u32) -> String {
    // A parent always comes before its children, so this ends.
    tail(label, TEXT, |at| {
        let label = (at as usize).checked_sub(1).and_then(|index| labels.get(index))?;
        Some((label.parent, label.text.as_str()))
    })
}

fn read_digest(source: impl Read) -> Result<Digest, Error> {
    let malformed = |what| Error::new(Position::Input, ErrorKind::Malformed(what));
    let mut text = Vec::new();
    let most = Digest::MAX_BYTES as u64;
    let read = source.take(most + 1).read_to_end(&mut text);
    read.map_err(|error| Error::new(Position::Input, error.into()))?;
    if text.len() as u64 > most {
        let kind = ErrorKind::OverLimit { what: "bytes of a rank digest", limit: most };
        return Err(Error::new(Position::Input, kind));
    }
    let versioned: Option<Version> = serde_json::from_slice(&text).ok();
    let version = versioned.ok_or_else(|| malformed("rank digest: not whole, or not JSON"))?;
    if version.rank_schema != Digest::SCHEMA {
        return Err(malformed("rank digest: of another version; gather it again with this one"));
    }
    let digest: Digest = serde_json::from_slice(&text)
        .map_err(|_| malformed("rank digest: not JSON of its schema"))?;
    digest.check().map_err(malformed)?;
    Ok(digest)
}

#[derive(serde::Deserialize)]
struct Version {
    rank_schema: u32,
}

impl Job {
    /// Reads every file of a folder, on all cores. `progress` is called after each, from any thread, with the number of files that
    /// were read and of all. When it breaks, no further file is begun.
    ///
    /// Files that cannot be read, or have no rank, become problems of the job. Hidden files and folders inside are left out.
    ///
    /// # Errors
    /// Fails when the folder cannot be listed.
    pub fn open(
        folder: &Path,
        progress: impl Fn(usize, usize) -> ControlFlow<()> + Sync,
    ) -> io::Result<Self> {
        let files = list(folder)?;
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            let mut read = Vec::new();
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                read.push(Digest::open(file));
                if progress(done.fetch_add(1, Ordering::Relaxed) + 1, files.len()).is_break() {
                    next.store(files.len(), Ordering::Relaxed);
                }
            }
            read
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len());
        let read = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            // Without this the ranks that the thread had read would be missing without a word.
            let read = |read: thread::Result<_>| read.unwrap_or_else(|panic| resume_unwind(panic));
            joined.flat_map(read).collect::<Vec<_>>()
        });
        Ok(Self::new(read))
    }
}

/// Returns the files of a folder, in order of their names.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in folder.read_dir()? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort_unstable();
    Ok(files)
}
