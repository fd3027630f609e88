//! `omniheap ranks`: one picture of all ranks of a job.
use super::Failure;
use super::file::NewFile;
use super::interrupt;
use super::output::{self, Format};
use super::report;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use omniheap::trace::ranks::{
    self, At, Digest, Doubled, Failure as Failed, Job, LabelBytes, Parting,
};
use omniheap::trace::ranks::{Problem, Spread, World};
use omniheap::trace::report::write_html;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// One picture of all ranks of a job, from a folder with one file per rank
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A folder of traces, PyTorch snapshots, reports in JSON or gathered digests, one for each rank
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Write a page with one band per rank
    #[arg(short, long, alias = "report", value_name = "JOB.html")]
    out: Option<PathBuf>,
    /// Write each rank's own page too, into the folder `JOB.ranks` beside the page, which links to them; digests have none
    #[arg(long, requires = "out")]
    pages: bool,
    /// Print the figures of one rank's file instead, at most 64 KiB: a folder of such digests gives the same picture
    #[arg(long, conflicts_with = "out")]
    digest: bool,
}

const EXAMPLES: &str = "\
The rank is that of the file's content, otherwise the number after `rank` in its name, otherwise the last number in its name.

Examples:
  omniheap ranks snapshots/
  omniheap ranks traces/ --out job.html --pages
  omniheap ranks traces/ --json | jq .worst
  omniheap ranks traces/rank3.trace --digest > digests/rank3.json";

/// Lines of one kind that the text shows.
const SHOWN: usize = 5;

#[derive(Serialize)]
struct Found<'a> {
    ranks: usize,
    spreads: Vec<Spread>,
    worst: Option<Worst<'a>>,
    parting: Option<Parting>,
    failure_count: u64,
    failures: Vec<Failed>,
    worlds: Vec<World>,
    missing_count: u64,
    missing: Vec<u32>,
    doubled: &'a [Doubled],
    problems: &'a [Problem],
    report: Option<String>,
}

#[derive(Serialize)]
struct Worst<'a> {
    rank: u32,
    peak_live_bytes: u64,
    label: Option<&'a LabelBytes>,
}

/// Reads the folder, prints the figures, writes the page.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    if arguments.digest {
        return digest(&arguments.folder);
    }
    let page = arguments.out.as_deref().map(NewFile::create).transpose()?;
    interrupt::watch();
    let (mut job, done, all) = open(&arguments.folder, format)?;
    let mut partial = interrupt::check(done, all, "files were read; no page is written");
    if let (Ok(()), true, Some(out)) = (&partial, arguments.pages, &arguments.out) {
        let written =
            write_pages(&mut job, &arguments.folder, &out.with_extension("ranks"), format)?;
        partial = interrupt::check(
            written,
            job.ranks().len(),
            "ranks have a page; the job's is not written",
        );
    }
    let (page, report) = match &partial {
        Ok(()) => (page, arguments.out.as_deref()),
        Err(_) => (None, None),
    };
    if let Some(page) = page {
        let title = arguments.folder.display().to_string();
        page.write(|sink| ranks::write_html(&job, &title, sink))?;
    }
    let found = found(&job, report);
    output::print(format, &found, text)?;
    partial
}

/// Writes the page of each rank into a folder, and has the job's page link to it. Returns how many ranks were seen to: Ctrl-C ends it early.
fn write_pages(
    job: &mut Job,
    ranks: &Path,
    folder: &Path,
    format: Format,
) -> Result<usize, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::unwritable(folder, &error))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files: Vec<_> = job.ranks().map(|(rank, it)| (rank, ranks.join(&it.origin))).collect();
    let bar = output::progress(format, files.len() as u64);
    let mut done = 0;
    for (rank, file) in files.iter().take_while(|_| !interrupt::is_wanted()) {
        // What gave a rank and is neither a trace nor a report is a digest.
        if let Ok(data) = report::read_data(file) {
            let page = format!("rank{rank}.html");
            NewFile::create(&folder.join(&page))?.write(|sink| write_html(&data, sink))?;
            job.link(*rank, format!("{name}/{page}"));
        }
        bar.inc(1);
        done += 1;
    }
    bar.finish_and_clear();
    Ok(done)
}

/// Prints what one file would add to the picture; the same with and without `--json`.
fn digest(file: &Path) -> Result<(), Failure> {
    let digest = Digest::open(file)
        .map_err(|problem| Failure::input(format!("{}: {}", file.display(), problem.why)))?;
    output::print_json(&digest)
}

/// Reads the folder; also says how many files were read, and of how many: Ctrl-C ends it early.
fn open(folder: &Path, format: Format) -> Result<(Job, usize, usize), Failure> {
    let shown = folder.display();
    let bar = output::progress(format, 0);
    let (read, listed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        read.fetch_max(done, Relaxed);
        listed.store(all, Relaxed);
        if interrupt::is_wanted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let job = Job::open(folder, progress);
    bar.finish_and_clear();
    let job = job.map_err(|error| {
        Failure::input(format!("{shown}: cannot list: {error}; name a folder of ranks' files"))
    })?;
    if job.ranks().len() > 0 {
        return Ok((job, read.into_inner(), listed.into_inner()));
    }
    let why = job.problems().first().map_or_else(
        || "there is no file in it".to_owned(),
        |problem| format!("{}: {}", problem.file, problem.why),
    );
    Err(Failure::input(format!("{shown}: no rank could be read: {why}")))
}

fn found<'a>(job: &'a Job, report: Option<&Path>) -> Found<'a> {
    let (missing_count, missing) = job.missing();
    let (failure_count, failures) = job.failures();
    let worst = |(at, label): (At, Option<&'a LabelBytes>)| Worst {
        rank: at.rank,
        peak_live_bytes: at.value,
        label,
    };
    Found {
        ranks: job.ranks().len(),
        spreads: job.spreads(),
        worst: job.worst().map(worst),
        parting: job.parting(),
        failure_count,
        failures,
        worlds: job.worlds(),
        missing_count,
        missing,
        doubled: job.doubled(),
        problems: job.problems(),
        report: report.map(|path| path.display().to_string()),
    }
}

fn text(found: &Found<'_>) -> String {
    let amount = |spread: &Spread, value: u64| {
        if spread.is_bytes { output::bytes(value) } else { value.to_string() }
    };
    let rows = found.spreads.iter().map(|it| {
        let at = |at: At| format!("{} (rank {})", amount(it, at.value), at.rank);
        vec![it.name.clone(), at(it.min), at(it.median), at(it.max), amount(it, it.total)]
    });
    let header = format!("{} ranks", found.ranks);
    let rows: Vec<_> = rows.collect();
    let mut lines = vec![output::table(&[&header, "smallest", "median", "largest", "sum"], &rows)];
    lines.extend(found.worst.as_ref().map(worst_line));
    lines.push(parting_line(found.parting.as_ref()));
    lines.extend(shortened(&found.failures, found.failure_count, failure_line));
    lines.extend(gaps(found));
    lines.extend(found.report.as_ref().map(|file| format!("page: {file}")));
    lines.join("\n")
}

fn worst_line(worst: &Worst<'_>) -> String {
    let label = worst.label.map_or_else(String::new, |label| {
        format!("; {} of it in {}", output::bytes(label.bytes), output::shown(&label.label))
    });
    format!("worst: rank {}, peak {}{label}", worst.rank, output::bytes(worst.peak_live_bytes))
}

fn parting_line(parting: Option<&Parting>) -> String {
    let Some(parting) = parting else { return "all recorded ranks make the same requests".into() };
    let (after, before) = (parting.after, parting.before);
    let apart = listed(&parting.apart, parting.apart_count);
    format!(
        "ranks part between requests {after} and {before}: {} together, apart: {apart}",
        parting.together
    )
}

fn failure_line(it: &Failed) -> String {
    let (request, size) = (&it.request, output::bytes);
    let others = |name: &str, spread: &Option<Spread>| {
        spread.as_ref().map_or_else(String::new, |it| {
            let (min, median, max) = (it.min.value, it.median.value, it.max.value);
            format!("; {name} in the others {}, {}, {}", size(min), size(median), size(max))
        })
    };
    format!(
        "rank {} failed after {} µs: asked for {}, missed {}, had {} live{}{}",
        it.rank,
        request.time_us,
        size(request.requested),
        size(it.missing),
        size(request.live),
        others("live", &it.others_live),
        others("free", &it.others_free)
    )
}

/// Lines on what the picture lacks.
fn gaps(found: &Found<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if found.missing_count > 0 {
        lines.push(format!("missing ranks: {}", listed(&found.missing, found.missing_count)));
    }
    if found.worlds.len() > 1 {
        let world = |it: &World| format!("{} ({} ranks)", it.size, it.ranks);
        let worlds: Vec<_> = found.worlds.iter().map(world).collect();
        lines.push(format!("the world size changed: {}", worlds.join(", ")));
    }
    let doubled = |it: &Doubled| {
        let (kept, left_out) = (output::shown(&it.kept), output::shown(&it.left_out));
        format!("rank {} twice: {kept} counts, {left_out} does not", it.rank)
    };
    lines.extend(shortened(found.doubled, found.doubled.len() as u64, doubled));
    let problem =
        |it: &Problem| format!("not used: {}: {}", output::shown(&it.file), output::shown(&it.why));
    lines.extend(shortened(found.problems, found.problems.len() as u64, problem));
    lines
}

fn listed(ranks: &[u32], count: u64) -> String {
    let named: Vec<_> = ranks.iter().take(16).map(u32::to_string).collect();
    let more =
        if count > named.len() as u64 { format!(", … ({count} in all)") } else { "".into() };
    named.join(", ") + &more
}

/// The first lines, and how many more there are.
fn shortened<T>(items: &[T], count: u64, line: impl Fn(&T) -> String) -> Vec<String> {
    let mut lines: Vec<String> = items.iter().take(SHOWN).map(line).collect();
    let rest = count.saturating_sub(lines.len() as u64);
    if rest > 0 {
        lines.push(format!("  … and {rest} more; --json lists them"));
    }
    lines
}
