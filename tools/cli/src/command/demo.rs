//! `omniheap demo`: the whole job on one device, with a proof at the end.
mod compact;
mod map;
mod page;
mod place;
mod record;
mod reuse;

use super::Failure;
use super::choice::Backend;
use super::file::NewFile;
use super::output::{self, Format};
use compact::Compaction;
use omniheap::trace::report;
use omniheap::{AnyBackend, Backend as _, open, open_best, placement::config_for};
use place::Placed;
use record::Recording;
use reuse::Reuse;
use serde::Serialize;
use std::path::PathBuf;

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
    #[arg(long, value_name = "FILE.html", default_value = "omniheap-demo.html")]
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
    output::keep_apart(&arguments.out, &[arguments.record.as_deref()])?;
    let page = NewFile::create(&arguments.out)?;
    let device = device(arguments)?;
    let recording = Recording::start(arguments.record.as_deref())?;
    let (plain, rules) = config_for(device.caps());
    let config = recording.observe(plain.clone());
    // Recording costs more than what this act measures: only who asks for everything pays.
    let timed = if arguments.record.is_some() { &config } else { &plain };
    let bar = output::progress(format, 4);
    bar.set_message("placing");
    let (placements, placed_bytes) = place::run(&device, &config)?;
    bar.inc(1);
    bar.set_message("reusing");
    let reuse = reuse::run(&device, timed)?;
    bar.inc(1);
    bar.set_message("compacting");
    let compactions = compact::run(&device, &config, || bar.inc(1))?;
    bar.finish_and_clear();
    let trace = recording.finish()?;
    let info = &device.caps().device;
    let verified = compactions.iter().map(|one| one.verified_bytes).sum::<u64>();
    let demo = Demo {
        backend: info.backend,
        device: info.name.clone(),
        driver: info.driver.clone(),
        rules: rules.to_string(),
        placements,
        reuse,
        compactions,
        verified_bytes: placed_bytes + verified,
        html: arguments.out.display().to_string(),
    };
    let data = page::build(&demo, device.caps(), &trace);
    page.write(|file| report::write_html(&data, file))?;
    match format {
        Format::Json => output::print_json(&demo),
        Format::Text => output::print_line(&text(&demo)),
    }
}

fn device(arguments: &Arguments) -> Result<AnyBackend, Failure> {
    let Some(backend) = arguments.backend else { return Ok(open_best()?) };
    open(backend.kind(), arguments.device)
        .map_err(|error| Failure::no_device(Some(backend.kind()), arguments.device, error))
}

fn text(demo: &Demo) -> String {
    let mut parts = vec![
        format!("omniheap on {} ({}, {})", demo.device, demo.backend, demo.driver),
        "\n1. Placement: requests say what data is for, the policy says where it goes\n".into(),
        place::text(&demo.placements),
        format!("  rules: {}", demo.rules),
        "\n2. Reuse: two timelines allocate, fill and free without asking the driver\n".into(),
        reuse::text(&demo.reuse),
        format!("\n3. Fragmentation and what becomes of it        {}\n", map::LEGEND),
    ];
    parts.extend(demo.compactions.iter().map(compact::text));
    parts.push(format!(
        "{} compared with what was written, all equal. Page: {}",
        output::bytes(demo.verified_bytes),
        demo.html
    ));
    parts.join("\n")
}
