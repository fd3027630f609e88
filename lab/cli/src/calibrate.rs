//! `omniheap calibrate`: measures on this device what the placement rules assume, or how good their choices are.
mod bench;
mod costs;
mod lookup;
mod regret;
mod uploads;

use bench::Bench;
use clap::Args;
use omniheap::{
    BackendKind, open, open_best,
    placement::{Profile, profile_path, read_profile, write_profile},
};
use omniheap_cli::Failure;
use omniheap_cli::choice::Backend;
use omniheap_cli::file::NewFile;
use omniheap_cli::output::{self, Format};
use std::path::{Path, PathBuf};

/// Measure on this device what the placement rules assume
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The backend whose device is measured; the best one here if none is named
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Index of the device within the backend
    #[arg(long, default_value_t = 0, requires = "backend")]
    device: u32,
    /// Output file; by default the file that `explain` and `policy_for` read
    #[arg(long, conflicts_with = "regret")]
    out: Option<PathBuf>,
    /// Measure the policy instead: every lookup in every place, and how much time the policy's choice loses
    #[arg(long)]
    regret: bool,
    /// With --regret: judge this profile too; without it, the one that `policy_for` finds
    #[arg(long, requires = "regret")]
    profile: Option<PathBuf>,
    /// With --regret: only kernels whose name contains this
    #[arg(long, requires = "regret")]
    filter: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap calibrate --backend cuda
  omniheap calibrate --regret --backend vulkan --json";

/// Measures.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let kind: Option<BackendKind> = arguments.backend.map(Backend::kind);
    let device = match kind {
        Some(kind) => open(kind, arguments.device),
        None => open_best(),
    };
    let device = device.map_err(|error| Failure::no_device(kind, arguments.device, error))?;
    if device.as_launch().is_none() {
        let name = &device.caps().device.name;
        return Err(Failure::failed(format!("{name} runs no kernels through this backend")));
    }
    let bench = Bench::open(&device)?;
    if arguments.regret {
        let read = |path: &Path| {
            let refused = |why| Failure::input(format!("{}: {why}", path.display()));
            read_profile(path, device.caps()).map_err(refused)
        };
        let profile = arguments.profile.as_deref().map(read).transpose()?;
        return regret::run(&bench, profile, arguments.filter.as_deref(), format);
    }
    measure(&bench, arguments.out.as_deref(), format)
}

/// Measures everything that a profile holds, and writes it.
fn measure(bench: &Bench, out: Option<&Path>, format: Format) -> Result<(), Failure> {
    let caps = bench.manager.caps();
    let found = out.map(Path::to_path_buf).or_else(|| profile_path(caps));
    let path = found.ok_or_else(|| Failure::input("no folder for profiles: give --out"))?;
    // Measuring takes minutes: whoever may not write the file is told before.
    let unwritable = |error: &std::io::Error| Failure::unwritable(&path, error);
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|error| unwritable(&error))?;
    drop(NewFile::create(&path)?);
    let bar = output::progress(format, costs::STEPS + uploads::STEPS);
    let profile = uploads::run(bench, Profile::assumed(caps), &bar, format)?;
    let profile = costs::run(bench, profile, &bar, format)?;
    write_profile(&path, &profile, caps).map_err(|error| unwritable(&error))?;
    match format {
        Format::Json => Ok(()),
        Format::Text => output::print_line(&format!("written to {}", path.display())),
    }
}
