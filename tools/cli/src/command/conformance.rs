//! `omniheap conformance`: the suite that every backend must pass.
#[cfg(feature = "conformance")]
mod endurance;
#[cfg(feature = "conformance")]
mod suite;

#[cfg(feature = "conformance")]
use super::choice::Backend;
use clap::ValueEnum;
#[cfg(feature = "conformance")]
use omniheap::BackendKind;
#[cfg(not(feature = "conformance"))]
use omniheap_cli::{Failure, output::Format};
use std::path::PathBuf;
#[cfg(feature = "conformance")]
pub(super) use suite::run;

/// The conformance suite on a backend; exit code 1 when a case fails
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The backend, or `all` that are here
    #[arg(long, value_enum, required_unless_present = "list")]
    backend: Option<Which>,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Only cases whose name contains this
    #[arg(long, default_value = "", conflicts_with_all = ["soak", "faults"])]
    filter: String,
    /// Print the names of cases, all or those of --filter, and run none
    #[arg(long, conflicts_with_all = ["backend", "guards", "junit", "soak", "faults"])]
    list: bool,
    /// Also with guards behind all allocations, which find writes behind their end
    #[arg(long, conflicts_with_all = ["soak", "faults"])]
    guards: bool,
    /// Write the results for CI
    #[arg(long, value_name = "FILE.xml", conflicts_with_all = ["soak", "faults"])]
    junit: Option<PathBuf>,
    /// Run this many random operations with checked contents instead
    #[arg(long, value_name = "OPERATIONS", conflicts_with = "faults", value_parser = clap::value_parser!(u64).range(2..))]
    soak: Option<u64>,
    /// Threads that share the device and the operations of a soak
    #[arg(long, default_value_t = 1, requires = "soak", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Instead: every scenario with each N-th driver call failing, with every answer it may give
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    faults: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap conformance --backend host
  omniheap conformance --list --filter timeline
  omniheap conformance --backend vulkan --filter timeline --junit vulkan.xml
  omniheap conformance --backend wgpu --guards
  OMNIHEAP_REQUIRE=cuda,vulkan omniheap conformance --backend all
  omniheap conformance --backend cuda --soak 10000000 --threads 8
  omniheap conformance --backend vulkan --faults 16

A backend that is not here is a failure when it was named, here or in OMNIHEAP_REQUIRE.";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Host,
    Cuda,
    Hip,
    Vulkan,
    Wgpu,
    All,
}

impl Which {
    #[cfg(feature = "conformance")]
    fn kinds(self) -> Vec<BackendKind> {
        let one = match self {
            Self::Host => Backend::Host,
            Self::Cuda => Backend::Cuda,
            Self::Hip => Backend::Hip,
            Self::Vulkan => Backend::Vulkan,
            Self::Wgpu => Backend::Wgpu,
            Self::All => return BackendKind::ALL.to_vec(),
        };
        vec![one.kind()]
    }
}

/// Refuses: this build is without the suite.
#[cfg(not(feature = "conformance"))]
pub(super) fn run(_: &Arguments, _: Format) -> Result<(), Failure> {
    Err(Failure::failed(
        "the conformance suite is not built in; build with `--features conformance`",
    ))
}
