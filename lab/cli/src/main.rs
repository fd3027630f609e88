//! The command `omniheap-lab`: omniheap's laboratory, from the shell. `omniheap plan` and the like start it.
mod batch;
mod calibrate;
mod fit;
mod onnx;
mod plan;
mod text;

use clap::{Parser, Subcommand};
use omniheap_cli::output::Format;
use omniheap_cli::{Failure, shell};
use std::process::ExitCode;

/// The laboratory of omniheap: plans, fits, batches, measured placement.
#[derive(Debug, Parser)]
#[command(name = "omniheap-lab", version, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Line {
    /// Print JSON: one object per result and line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples (`omniheap` starts this command, so both names will do):
  omniheap plan graph.csv --capacity 1M            does this graph fit, and where goes each buffer?
  omniheap fit step.omt --capacity 24G             will this training step fit, and what would help?
  omniheap batch --trace 2:a.omt --trace 4:b.omt --trace 8:c.omt --capacity 24G
  omniheap calibrate --backend cuda                measure what the placement rules assume

Exit codes: 0 done, 1 failed, 2 bad input or usage, 3 proven impossible, 130 interrupted by Ctrl-C.";

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan::Arguments),
    Fit(fit::Arguments),
    Batch(batch::Arguments),
    Calibrate(calibrate::Arguments),
}

fn main() -> ExitCode {
    shell::run(run)
}

fn run(line: Line) -> Result<(), Failure> {
    let format = if line.json { Format::Json } else { Format::Text };
    match line.command {
        Command::Plan(arguments) => plan::run(&arguments, format),
        Command::Fit(arguments) => fit::run(&arguments, format),
        Command::Batch(arguments) => batch::run(&arguments, format),
        Command::Calibrate(arguments) => calibrate::run(&arguments, format),
    }
}
