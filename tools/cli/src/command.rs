//! The command line: one file for each command.
mod compare;
mod conformance;
#[cfg(target_os = "linux")]
mod control;
mod demo;
mod devices;
mod explain;
mod lab;
mod ranks;
mod replay;
mod report;
mod request;
#[cfg(target_os = "linux")]
mod run;
mod selftest;
mod serve;
mod tenants;
mod weights;

use clap::{Parser, Subcommand};
pub(crate) use omniheap_cli::Failure;
use omniheap_cli::{choice, file, interrupt, output, shell};
use output::Format;

/// One memory manager for every GPU.
#[derive(Debug, Parser)]
#[command(name = "omniheap", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Line {
    /// Print JSON: one object per result and line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  omniheap demo                                    see it work on the best device here
  omniheap devices                                 what is here?
  omniheap explain --size 4K --pattern broadcast   where would that go, and why?
  omniheap replay run.csv.gz                       how much memory would omniheap have needed?
  omniheap replay run.csv.gz --capacity min        in how little memory does it complete?
  omniheap plan graph.csv --capacity 1M            does this graph fit, and where goes each buffer?
  omniheap fit step.omt --capacity 24G             will this training step fit, and what would help?
  omniheap weights model.safetensors               what is in it, and where does it fit?
  omniheap ranks traces/ --report job.html         which rank of a job needs the most, and why?
  omniheap run -- python train.py                  any CUDA or HIP program
  omniheap conformance --backend vulkan            does a backend keep its promises?

Exit codes: 0 done, 1 failed, 2 bad input or usage, 3 proven impossible, 130 interrupted by Ctrl-C.";

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Devices(devices::Arguments),
    Explain(explain::Arguments),
    Replay(replay::Arguments),
    Compare(compare::Arguments),
    Report(report::Arguments),
    Ranks(ranks::Arguments),
    /// Place every buffer of a graph before anything runs: `omniheap-lab plan`
    Plan(lab::Arguments),
    /// Say whether a recorded step fits on a device, and what would help: `omniheap-lab fit`
    Fit(lab::Arguments),
    /// Find the largest batch that fits: `omniheap-lab batch`
    Batch(lab::Arguments),
    /// Measure on this device what the placement rules assume: `omniheap-lab calibrate`
    Calibrate(lab::Arguments),
    Conformance(conformance::Arguments),
    #[cfg(target_os = "linux")]
    Run(run::Arguments),
    #[cfg(target_os = "linux")]
    Control(control::Arguments),
    Serve(serve::Arguments),
    Tenants(tenants::Arguments),
    Weights(weights::Arguments),
    Completions(shell::Completions),
    Man(shell::Man),
}

/// Runs a command line.
pub(crate) fn run(line: Line) -> Result<(), Failure> {
    let format = if line.json { Format::Json } else { Format::Text };
    match line.command {
        Command::Demo(arguments) => demo::run(&arguments, format),
        Command::Devices(arguments) => devices::run(&arguments, format),
        Command::Explain(arguments) => explain::run(&arguments, format),
        Command::Compare(arguments) => compare::run(&arguments, format),
        Command::Plan(_) | Command::Fit(_) | Command::Batch(_) | Command::Calibrate(_) => {
            lab::run()
        }
        Command::Ranks(arguments) => ranks::run(&arguments, format),
        Command::Conformance(arguments) => conformance::run(&arguments, format),
        Command::Report(arguments) => report::run(arguments, format),
        Command::Replay(arguments) => replay::run(&arguments, format),
        #[cfg(target_os = "linux")]
        Command::Run(arguments) => run::run(&arguments),
        #[cfg(target_os = "linux")]
        Command::Control(arguments) => control::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments, format),
        Command::Tenants(arguments) => tenants::run(&arguments, format),
        Command::Weights(arguments) => weights::run(&arguments, format),
        Command::Completions(arguments) => arguments.print::<Line>(),
        Command::Man(arguments) => arguments.write::<Line>(),
    }
}
