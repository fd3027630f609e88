//! The page of a job: figures over all ranks, and one band for each.

use super::digest::{BAND, Digest, LabelBytes};
use super::job::{At, Doubled, Failure, Job, Parting, Problem, Spread, World};
use crate::report::write_page;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Ranks that the page draws; with them it stays below 5 MiB. Figures are of all ranks.
const DRAWN: usize = 2000;
/// Files that one list of the page names.
const NAMED: usize = 100;
const SCRIPTS: [&str; 4] = [
    include_str!("../report/page/base/units.js"),
    include_str!("../report/page/base/dom.js"),
    include_str!("../report/page/base/colors.js"),
    include_str!("page/ranks.js"),
];

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    ranks: usize,
    spreads: Vec<Spread>,
    worst: Option<Worst<'a>>,
    parting: Option<Parting>,
    worlds: Vec<World>,
    missing_count: u64,
    missing: Vec<u32>,
    failure_count: u64,
    failures: Vec<Failure>,
    doubled_count: usize,
    doubled: &'a [Doubled],
    problem_count: usize,
    problems: &'a [Problem],
    /// The largest value of any band: what 255 stands for.
    scale: u64,
    rows: Vec<Row<'a>>,
    pages: &'a BTreeMap<u32, String>,
}

#[derive(Serialize)]
struct Worst<'a> {
    at: At,
    label: Option<&'a LabelBytes>,
}

#[derive(Serialize)]
struct Row<'a> {
    rank: u32,
    origin: &'a str,
    cut_off: bool,
    peak_live: u64,
    peak_reserved: Option<u64>,
    failures: u64,
    label: &'a str,
    label_bytes: u64,
    duration_us: u64,
    /// Live bytes over the run, two hexadecimal digits a part; empty in a report of one moment.
    band: String,
}

/// Writes the page of a job. Of more than 2,000 ranks it draws those that failed, the worst, and an even choice of the others.
///
/// # Errors
/// Those of `sink`.
pub fn write_html(job: &Job, title: &str, mut sink: impl Write) -> io::Result<()> {
    write_to(job, title, &mut sink)
}

/// Writes without generics, so that it is compiled once, and here.
fn write_to(job: &Job, title: &str, sink: &mut dyn Write) -> io::Result<()> {
    let bands = job.ranks().flat_map(|(_, digest)| digest.live_band.iter().copied());
    let scale = bands.max().unwrap_or(0).max(1);
    let (missing_count, missing) = job.missing();
    let (failure_count, failures) = job.failures();
    let page = Page {
        title,
        ranks: job.ranks().len(),
        spreads: job.spreads(),
        worst: job.worst().map(|(at, label)| Worst { at, label }),
        parting: job.parting(),
        worlds: job.worlds(),
        missing_count,
        missing,
        failure_count,
        failures,
        doubled_count: job.doubled().len(),
        doubled: &job.doubled()[..job.doubled().len().min(NAMED)],
        problem_count: job.problems().len(),
        problems: &job.problems()[..job.problems().len().min(NAMED)],
        scale,
        rows: rows(job, scale),
        pages: job.pages(),
    };
    let json = serde_json::to_string(&page).map_err(io::Error::other)?;
    write_page(title, &json, &SCRIPTS, sink)
}

fn rows(job: &Job, scale: u64) -> Vec<Row<'_>> {
    let worst = job.worst().map(|(at, _)| at.rank);
    let step = job.ranks().len().div_ceil(DRAWN / 2).max(1);
    let mut failed = 0;
    let drawn = job.ranks().enumerate().filter(|(index, (rank, digest))| {
        let stands_out = Some(*rank) == worst || digest.failures > 0;
        failed += usize::from(stands_out);
        index % step == 0 || (stands_out && failed <= DRAWN / 2)
    });
    drawn.map(|(_, (rank, digest))| row(rank, digest, scale)).collect()
}

fn row(rank: u32, digest: &Digest, scale: u64) -> Row<'_> {
    let largest = digest.largest_label.as_ref();
    Row {
        rank,
        origin: &digest.origin,
        cut_off: digest.cut_off,
        peak_live: digest.peak_live_bytes,
        peak_reserved: digest.peak_reserved_bytes,
        failures: digest.failures,
        label: largest.map_or("", |label| &label.label),
        label_bytes: largest.map_or(0, |label| label.bytes),
        duration_us: digest.duration_us,
        band: hexadecimal(&digest.live_band, scale),
    }
}

fn hexadecimal(band: &[u64], scale: u64) -> String {
    let level = |bytes: &u64| u128::from(*bytes) * 255 / u128::from(scale);
    band.iter().map(level).fold(String::with_capacity(2 * BAND), |mut text, level| {
        text += &format!("{level:02x}");
        text
    })
}
