//! The project's own tasks: `cargo xtask test` is what CI runs.
mod arrows;
mod binaries;
mod bite;
mod bundle;
mod circles;
mod compat;
mod embed;
mod header;
mod images;
mod install;
mod mutants;
mod nightly;
mod packages;
mod planted;
mod python;
mod semver;
mod step;
mod system;
mod table;
mod test;
mod words;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask TASK

  setup                  install the system packages that tests need; on Debian and Ubuntu, as root
  test [STEP…]           check formatting, lints and documentation, and run all tests; with STEPs, only those whose name
                         contains one of them
  test --quick           only what a change is most likely to break: for between commits
  test --long [STEP…]    the same as `test`, with every optimised test, every sanitized test, and a minute for each fuzz target
  conformance [ARGS…]    run the conformance suite on this machine's devices; ARGS go to `omniheap conformance`
  conformance-table [FILE.json…]
                         add results of the suite (see OMNIHEAP_RESULTS in docs/conformance.md) to
                         docs/results/conformance.json and write the table of docs/conformance.md from it
  bite [NAME]            plant bugs in a copy of the core, all or those with NAME in theirs, and see the suite catch them
  mutants [ARGS…]        change the lines that differ from origin/main, one operator at a time, and show what the tests do not
                         catch; ARGS choose others, as for cargo-mutants, which it needs (docs/mutants.md)
  golden                 record the places of today's manager in tests/golden/golden.txt; do it only for a change that is
                         meant to move allocations (traces: see OMNIHEAP_TRACES in tests/golden)
  spirv                  compile shaders/spirv again from the WGSL; do it after a change of a kernel or of naga
  fuzz [SECONDS [TARGET]]  fuzz every target, or one, for so long each (60); needs a nightly compiler
  sanitize [address|thread] [short|ARGS…]
                         the tests that need no device, a few of them, or those that ARGS choose as for `cargo test`, under
                         both sanitizers or one; needs a nightly compiler, and its library's sources for `thread`
  miri                   the strategies and the seam under Miri; needs a nightly compiler with Miri
  semver                 compare the public interface of every published library with the last release; needs
                         cargo-semver-checks
  bench [ARGS…]          measure against other allocators; ARGS go to benches/peers
  bench placement [ARGS…]  every lookup kernel with its table in every place; ARGS go to `omniheap calibrate --regret`
  compat                 test tests/compat/ (other allocators' interfaces over omniheap), and measure wgpu with and without it
  bevy                   build a Bevy program with omniheap under wgpu and without (several minutes), and compare both
  header                 write bindings/c/include/omniheap.h
  install-c PREFIX       build the C library and install it with its header, pkg-config and CMake files
  install-vma PREFIX     the same for the interface of the Vulkan Memory Allocator
  gpu-bundle [PACKAGE…]  put the commands and the test binaries into .gpu, to run where there is no Rust";

/// Everything that one build of the workspace gives. Every step that uses something of it asks for the same packages: others would unify
/// features otherwise, and build the dependencies again.
const WORKSPACE: &[&str] = &["--workspace", "--all-features"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (task, rest) = arguments.split_first().map_or(("", &[][..]), |(task, rest)| (task, rest));
    let done = match (task, rest) {
        ("setup", []) => system::set_up(),
        ("test", [quick]) if quick == "--quick" => test::run_quick(),
        ("test", only) => test::run(only),
        ("conformance", rest) => conformance(rest),
        ("conformance-table", files) => table::write(files),
        ("mutants", rest) => mutants::run(rest),
        ("bite", []) => bite::run(""),
        ("bite", [only]) => bite::run(only),
        ("golden", []) => golden(),
        ("spirv", []) => spirv(),
        ("fuzz", rest) => nightly::fuzz(rest),
        ("sanitize", rest) => nightly::sanitize(rest),
        ("miri", []) => nightly::miri(),
        ("semver", []) => semver::check(),
        ("bench", rest) => bench(rest),
        ("compat", []) => compat::run(),
        ("bevy", []) => compat::bevy(),
        ("header", []) => header::write(),
        ("install-c", [prefix]) => install::run(&install::C, prefix),
        ("install-vma", [prefix]) => install::run(&install::VMA, prefix),
        ("gpu-bundle", rest) => bundle::run(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("xtask: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns cargo's target folder.
fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Cargo, the same that runs this, in the workspace.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// The command of a package with every backend, optimised.
fn command(package: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(&["run", "--release", "--quiet", "-p", package, "--all-features"]);
    command.arg("--").args(arguments);
    command
}

fn conformance(arguments: &[String]) -> Result<(), String> {
    let mut command = command("omniheap-cli", &["conformance"]);
    if arguments.is_empty() {
        command.args(["--backend", "all"]);
    }
    step::status("conformance", command.args(arguments))
}

fn golden() -> Result<(), String> {
    let mut command = cargo(&["test", "--quiet", "--release", "-p", "omniheap-golden"]);
    step::status("golden", command.env("OMNIHEAP_GOLDEN", "renew"))
}

fn spirv() -> Result<(), String> {
    let mut command = cargo(&["test", "--quiet", "-p", "omniheap-shaders", "--test", "spirv"]);
    step::status("spirv", command.env("OMNIHEAP_SPIRV", "renew"))
}

fn bench(arguments: &[String]) -> Result<(), String> {
    if let Some((first, rest)) = arguments.split_first()
        && first == "placement"
    {
        let mut command = command("omniheap-lab", &["calibrate", "--regret"]);
        return step::status("bench placement", command.args(rest));
    }
    let peers = root().join("benches/peers/Cargo.toml");
    if !peers.exists() {
        return Err("benches/peers is not in this checkout".into());
    }
    let mut command = cargo(&["run", "--release", "--manifest-path"]);
    step::status("bench", command.arg(peers).arg("--").args(arguments))
}
