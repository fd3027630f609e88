//! `cargo xtask test`: everything that must hold, cheapest first.
use crate::step::{Outcome, Step, run_all, status};
use crate::{cargo, header, python, root, system, table, words};
use std::fs;
use std::process::Command;

/// Crates whose tests also run optimised: those with random walks and soak tests, and without slow dependencies.
const OPTIMISED: [&str; 5] =
    ["omniheap-core", "omniheap-host", "omniheap-model", "omniheap-plan", "omniheap-trace"];

/// Random work on host memory with checked contents; prints its seed.
const SOAK: [&str; 9] = [
    "test",
    "--quiet",
    "--release",
    "-p",
    "omniheap-conformance",
    "--test",
    "soak",
    "--",
    "--nocapture",
];

/// Runs every check and every test, or only the steps whose name contains one of `only`.
pub(crate) fn run(only: &[String]) -> Outcome {
    let mut steps = steps();
    steps.retain(|step| only.is_empty() || only.iter().any(|part| step.name.contains(part)));
    if steps.is_empty() {
        return Err("no step has such a name".into());
    }
    run_all(steps)
}

fn steps() -> Vec<Step> {
    let mut documents = cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
    documents.env("RUSTDOCFLAGS", "-Dwarnings");
    let mut optimised = cargo(&["test", "--quiet", "--release"]);
    optimised.args(OPTIMISED.iter().flat_map(|package| ["-p", package]));
    let lint =
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    let no_std = ["check", "--quiet", "-p", "omniheap-core", "--no-default-features"];
    vec![
        Step::new("system packages", system::prepare),
        Step::command("format", cargo(&["fmt", "--all", "--check"])),
        Step::new("no vendor in the core", || words::check(&root().join("core/src"))),
        Step::new("tables say what the results say", table::check),
        Step::command("core without std", cargo(&no_std)),
        Step::new("C header", header::check),
        Step::command("lint", lint),
        Step::command("documentation", documents),
        Step::command("tests", cargo(&["test", "--quiet", "--workspace", "--no-fail-fast"])),
        Step::new("examples on host", examples),
        Step::new("Python package", python::test),
        Step::new("engines", engines),
        Step::command("optimised tests", optimised),
        Step::command("five million random operations", cargo(&SOAK)),
        Step::command("models of threads", models()),
    ]
}

/// The core's models, in every order that threads can take; built apart, because everything is built otherwise.
fn models() -> Command {
    let mut command = cargo(&["test", "--quiet", "--release", "-p", "omniheap-core", "--lib"]);
    command.arg("--target-dir").arg(root().join("target/loom")).arg("models");
    command.env("RUSTFLAGS", "--cfg loom");
    command
}

/// Renders with both engines; each compares its pictures, and says so where there is no device.
fn engines() -> Outcome {
    for name in ["vulkan_engine", "wgpu_engine"] {
        let picture = std::env::temp_dir().join(format!("{name}.png"));
        let run = ["run", "--quiet", "-p", "omniheap-engines", "--example", name, "--"];
        status(name, cargo(&run).arg(picture))?;
    }
    Ok(())
}

/// Runs every example of the facade on the host backend.
fn examples() -> Outcome {
    let folder = root().join("examples");
    let entries = fs::read_dir(&folder).map_err(|error| format!("examples: {error}"))?;
    let mut names: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    for name in names {
        println!("    {name}");
        status(&name, &mut cargo(&["run", "--quiet", "--example", &name]))?;
    }
    Ok(())
}
