//! Gain and cost of defragmentation: `defragment null|gain|pause|moves|remap|stamps [host|cuda|vulkan]`
mod gain;
mod moves;
mod null;
mod pause;
mod random;
mod remap;
mod stamps;
#[path = "../../../backends/vulkan/benches/support/stopwatch.rs"]
mod stopwatch;

use omniheap::{AnyBackend, BackendKind, open};
use std::process::ExitCode;

/// Error of a benchmark.
type Failure = Box<dyn core::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (bench, backend) = match words[..] {
        [bench] => (bench, "host"),
        [bench, backend] => (bench, backend),
        _ => ("", "host"),
    };
    match run(bench, backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{bench} on {backend}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &str, backend: &str) -> Result<(), Failure> {
    let kind: BackendKind = backend.parse()?;
    if bench == "stamps" {
        return stamps::run(kind);
    }
    let device: AnyBackend = open(kind, 0)?;
    match bench {
        "null" => null::run(),
        "gain" => gain::run(&device),
        "pause" => pause::run(&device),
        "moves" => moves::run(&device),
        "remap" => remap::run(&device),
        _ => Err("the benches are null, gain, pause, moves, remap and stamps".into()),
    }
}
