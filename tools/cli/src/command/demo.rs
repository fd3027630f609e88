//! `omniheap demo`: the whole job on one device, with a proof at the end.
mod acts;
mod record;

use super::Failure;
use super::choice::Backend;
use super::file::NewFile;
use super::interrupt;
use super::output::{self, Format, bytes};
use acts::{Compaction, Placed, Reuse};
use omniheap::report::{Observer, Report};
use omniheap::trace::report::{self, Defragmentation, ReportData};
use omniheap::trace::{Recorder, Trace};
use omniheap::{AnyBackend, Backend as _, open, open_best, placement::config_for};
use record::Bytes;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// The main job on the best device here: place, upload, reuse, fragment, defragment, verify
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The backend; without it, the best device here, and host memory if there is none
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Number of the device
    #[arg(long, default_value_t = 0, requires = "backend")]
    device: u32,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html", default_value = "omniheap-demo.html")]
    out: PathBuf,
    /// Record everything that the managers do, for `omniheap report` and `omniheap replay`
    #[arg(long, value_name = "FILE.trace|FILE.csv")]
    record: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap demo
  omniheap demo --backend vulkan --out vulkan.html
  omniheap demo --record demo.trace";

/// Cells of a map.
const CELLS: u64 = 64;

/// Results of the demo.
#[derive(Debug, Serialize)]
struct Demo {
    backend: &'static str,
    device: String,
    driver: String,
    /// Origin of the profile.
    rules: String,
    placements: Vec<Placed>,
    reuse: Reuse,
    compactions: Vec<Compaction>,
    /// Bytes that were compared with what was written.
    verified_bytes: u64,
    html: String,
}

/// Plays every act, prints what happened, writes the page.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let kept = arguments.record.as_deref();
    output::keep_apart(&arguments.out, &[kept])?;
    let page = NewFile::create(&arguments.out)?;
    let device = device(arguments)?;
    // Before the first act, so that a wrong name costs no work.
    let kept = kept.map(|path| NewFile::create(path).map(|file| (path, file))).transpose()?;
    let bytes = Bytes::default();
    let recorder = bytes.recorder();
    let mut demo = play(kept.is_some(), &device, &recorder, format)?;
    demo.html = arguments.out.display().to_string();
    let trace = bytes.finish(&recorder)?;
    if let Some((path, file)) = kept {
        bytes.keep(path, file, &trace)?;
    }
    let data = picture(&demo, &trace);
    page.write(|file| report::write_html(&data, file))?;
    output::print(format, &demo, text)
}

fn device(arguments: &Arguments) -> Result<AnyBackend, Failure> {
    let Some(backend) = arguments.backend else { return Ok(open_best()?) };
    open(backend.kind(), arguments.device)
        .map_err(|error| Failure::no_device(Some(backend.kind()), arguments.device, error))
}

/// Plays the acts on another thread, so that Ctrl-C ends them.
fn play(
    is_kept: bool,
    device: &AnyBackend,
    recorder: &Arc<Recorder>,
    format: Format,
) -> Result<Demo, Failure> {
    let (device, recorder) = (AnyBackend::clone(device), Arc::clone(recorder));
    let bar = output::spinner(format, "placing, reusing, compacting");
    let played = interrupt::run(move || acts(is_kept, &device, &recorder));
    bar.finish_and_clear();
    played?
}

fn acts(is_kept: bool, device: &AnyBackend, recorder: &Arc<Recorder>) -> Result<Demo, Failure> {
    let (plain, rules) = config_for(device.caps());
    let config = plain.clone().observed(Arc::<Recorder>::clone(recorder) as Arc<dyn Observer>);
    // Recording costs more than what the second act measures: only who asks for everything pays.
    let timed = if is_kept { &config } else { &plain };
    let (placements, placed_bytes) = acts::place(device, &config)?;
    let reuse = acts::reuse(device, timed)?;
    let stages = acts::stages(device);
    let compactions = stages.iter().map(|stage| acts::compact(device, &config, stage));
    let compactions = compactions.collect::<Result<Vec<_>, _>>()?;
    let info = &device.caps().device;
    Ok(Demo {
        backend: info.backend,
        device: info.name.clone(),
        driver: info.driver.clone(),
        rules: rules.to_string(),
        verified_bytes: placed_bytes
            + compactions.iter().map(Compaction::verified_bytes).sum::<u64>(),
        placements,
        reuse,
        compactions,
        html: String::new(),
    })
}

fn text(demo: &Demo) -> String {
    let placed = |one: &Placed| {
        vec![format!("  {}", one.what), bytes(one.size), one.region.into(), one.reason.clone()]
    };
    let placements: Vec<_> = demo.placements.iter().map(placed).collect();
    let Reuse { timelines, rounds, driver_calls_first_round, driver_calls_later, .. } = demo.reuse;
    let compactions: String = demo.compactions.iter().map(compacted).collect();
    format!(
        "omniheap on {} ({}, {})\n
1. Placement: requests say what data is for, the policy says where it goes\n{}\n  rules: {}\n
2. Reuse: timelines allocate, fill and free without asking the driver
  {rounds} rounds of {} on {timelines} timelines; driver calls: {driver_calls_first_round} in the first round, {driver_calls_later} in all others\n
3. Fragmentation and what becomes of it        · free   ▒ partly live   █ live\n{compactions}
{} compared with what was written, all equal. Page: {}",
        demo.device,
        demo.backend,
        demo.driver,
        output::table(&["  request", "size", "region", "because"], &placements),
        demo.rules,
        bytes(acts::ROUND),
        bytes(demo.verified_bytes),
        demo.html
    )
}

/// Returns the maps and what happened between them.
fn compacted(one: &Compaction) -> String {
    let outcome = match &one.refused_because {
        Some(why) => format!("refused: {why}"),
        None if one.moved_bytes > 0 => {
            format!("served after moving {} of live data", bytes(one.moved_bytes))
        }
        None => "served by mapping free pages side by side; no byte was copied".into(),
    };
    format!(
        "  {} pool of {}: {} free, the largest hole {}; then {} are asked for
    before {}\n    after  {}\n  {outcome}\n",
        one.pools,
        bytes(one.capacity_bytes),
        bytes(one.free_bytes),
        bytes(one.largest_hole_bytes),
        bytes(one.requested_bytes),
        map(&one.before, one.capacity_bytes),
        map(&one.after, one.capacity_bytes),
    )
}

/// Draws the first bytes of a pool, where it has one block or addresses in one piece.
fn map(report: &Report, bytes: u64) -> String {
    let cell = bytes / CELLS;
    let live = report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
    let spans: Vec<_> = live.map(|one| one.span.offset..one.span.offset + one.span.size).collect();
    let drawn = |from: u64| {
        let inside =
            spans.iter().map(|it| it.end.min(from + cell).saturating_sub(it.start.max(from)));
        match inside.sum::<u64>() {
            0 => '·',
            live if live < cell => '▒',
            _ => '█',
        }
    };
    (0..CELLS).map(|at| drawn(at * cell)).collect()
}

/// Returns the page: the recording, and the maps of the third act before and after.
fn picture(demo: &Demo, trace: &Trace) -> ReportData {
    let mut data = report::from_trace(trace, &format!("omniheap demo on {}", demo.device));
    // Managers know where pages are mapped, which a recording does not say: their maps are shown instead.
    (data.moments, data.out_of_memory, data.defragmentation) = Default::default();
    for one in &demo.compactions {
        let mut moment = |when: &str, report: &Report| {
            data.add_moment(report, &format!("{} pool, {when} the large request", one.pools), 0)
        };
        let (before, after) = (moment("before", &one.before), moment("after", &one.after));
        data.defragmentation.push(Defragmentation {
            title: format!("{} pool of {}", one.pools, bytes(one.capacity_bytes)),
            moves: one.moves,
            moved_bytes: one.moved_bytes,
            before: Some(before),
            after: Some(after),
        });
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use omniheap::{HeapId, Manager, PoolConfig, Request, host::Host};

    #[test]
    fn full_partly_live_and_free_cells_differ() {
        let manager = Manager::new(Host::new());
        let pool = PoolConfig::new().lanes(1).block(64 << 10);
        let pool = manager.create_pool(HeapId(0), pool).expect("host memory");
        let _live = pool.allocate(&Request::new(1536)).expect("small");
        let drawn = map(&manager.report(), 64 << 10);
        assert_eq!(drawn.chars().filter(|cell| *cell == '█').count(), 1, "{drawn}");
        assert_eq!(drawn.chars().filter(|cell| *cell == '▒').count(), 1, "{drawn}");
        assert_eq!(drawn.chars().count(), 64);
    }
}
