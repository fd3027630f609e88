//! The options of `omniheap plan`.
use crate::onnx::Dims;
use core::time::Duration;
use omniheap::Align;
use omniheap_cli::file::is_standard;
use omniheap_cli::output;
use omniheap_plan::Region;
use std::path::{Path, PathBuf};
use std::thread;

/// More seeds than this are not searched side by side.
const MOST_THREADS: u64 = 256;

/// Place every buffer of a graph before anything runs: least peak, with a proof where there is one
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// CSV with columns id, lower, upper, size, and optionally alignment, gaps, hint, fixed, alias, regions; or JSON, as `--plan`
    /// writes it; or a trace or snapshot, each allocation of which is a buffer; or an .onnx model, each tensor of which is one
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Bytes that there are (suffixes K, M, G, T); without it, the least is looked for
    #[arg(long, value_parser = output::bytes_argument)]
    pub(super) capacity: Option<u64>,
    /// A region to place buffers in, repeated for each region: its bytes or `any`, the alignment of its offsets, its cost per byte
    #[arg(long, value_name = "BYTES[:ALIGN[:COST]]", conflicts_with = "capacity", value_parser = parse_region)]
    pub(super) region: Vec<Region>,
    #[command(flatten)]
    pub(super) dims: Dims,
    /// The offsets of a trace's or a model's buffers are multiples of this; a table has its own alignments
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = parse_align)]
    pub(super) align: Align,
    /// Seconds to look, at most
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) time_limit: Option<Duration>,
    /// Search with this many seeds in parallel: one, or with `--time-limit` as many as there are cores; the same number gives the same
    /// plan, unless time runs out
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MOST_THREADS))]
    threads: Option<u64>,
    /// Check the offsets that the file has, and plan nothing
    #[arg(long, conflicts_with_all = ["svg", "header", "plan", "time_limit"])]
    pub(super) check: bool,
    /// Write the problem and its plan as JSON, which `--check` and a later run read; to standard output if it is `-`
    #[arg(long, value_name = "FILE.json")]
    pub(super) plan: Option<PathBuf>,
    /// Draw time and memory; to standard output if it is `-`
    #[arg(long, value_name = "FILE.svg")]
    pub(super) svg: Option<PathBuf>,
    /// Write offsets and sizes as a C header, for programs without an allocator; to standard output if it is `-`
    #[arg(long, value_name = "FILE.h")]
    pub(super) header: Option<PathBuf>,
}

impl Arguments {
    /// Returns the files to write.
    pub(super) fn outputs(&self) -> [Option<&Path>; 3] {
        [&self.svg, &self.header, &self.plan].map(Option::as_deref)
    }

    /// Returns how many seeds to search with. Where a clock may decide, a plan may differ from run to run anyway, and no core needs to idle.
    pub(super) fn threads(&self) -> u64 {
        let cores =
            || thread::available_parallelism().map_or(1, |n| n.get() as u64).min(MOST_THREADS);
        self.threads.unwrap_or_else(|| if self.time_limit.is_some() { cores() } else { 1 })
    }

    /// Returns whether standard output has one of them.
    pub(super) fn is_piped(&self) -> bool {
        self.outputs().into_iter().flatten().any(is_standard)
    }
}

const EXAMPLES: &str = "\
Examples:
  omniheap plan graph.csv
  omniheap plan graph.csv --capacity 1M --svg planned.svg --header planned.h
  omniheap plan graph.csv --region 1M:64 --region any:256:10 --plan planned.json
  omniheap plan planned.json --check
  omniheap plan snapshot.pickle --time-limit 10
  omniheap plan model.onnx --dim batch=8 --header model.h

Exit codes: 0 planned or checked, 1 no plan found in time or a wrong one, 2 bad input, 3 proven not to fit, 130 Ctrl-C ended the search: the best so
far is printed, and no file is written.";

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| "expected seconds, such as 10 or 0.5".into())
}

fn parse_region(text: &str) -> Result<Region, String> {
    let wrong = || "expected bytes or `any`, an alignment and a cost, such as 1M:64:2".to_owned();
    let mut parts = text.split(':');
    let capacity = match parts.next() {
        Some("any") => None,
        bytes => Some(bytes.and_then(output::parse_bytes).ok_or_else(wrong)?),
    };
    let mut number = |or| parts.next().map_or(Ok(or), |part| part.parse().map_err(|_| wrong()));
    let (align, cost) = (number(1)?, number(0)?);
    if align == 0 || parts.next().is_some() {
        return Err(wrong());
    }
    Ok(Region { capacity, align, cost })
}

fn parse_align(text: &str) -> Result<Align, String> {
    let align = output::parse_bytes(text).and_then(Align::new);
    align.ok_or_else(|| "expected a power of two, such as 256".into())
}
