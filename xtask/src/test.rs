//! `cargo xtask test`: everything that must hold, cheapest first.
use crate::binaries::{Binary, Kind, build, test};
use crate::step::{Apart, Outcome, Step, run_all, status};
use crate::{
    WORKSPACE, arrows, cargo, circles, compat, embed, header, images, nightly, packages, python,
    root, system, table, target, words,
};
use core::cell::Cell;
use std::process::Command;
use std::rc::Rc;

/// Crates whose tests also run optimised: those with `unsafe` or threads, or whose random walks are longer then, and
/// without slow dependencies. Elsewhere the same inputs meet the same code with fewer checks, and nothing new can show.
const OPTIMISED: [&str; 4] =
    ["omniheap-strategy", "omniheap-core", "omniheap-host", "omniheap-model"];

/// Length of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// Tests that fit between a change and its merge.
    Short,
    /// All that there is, for every night.
    Long,
}

/// Crates whose tests run between commits.
const QUICK: [&str; 5] =
    ["omniheap-seam", "omniheap-strategy", "omniheap-core", "omniheap-host", "omniheap-model"];

/// Crates without the standard library.
const NO_STD: [&str; 6] =
    ["-p", "omniheap-schedule", "-p", "omniheap-seam", "-p", "omniheap-strategy"];

/// Random work on host memory with checked contents; prints its seed. It is compiled into the test itself: the conformance suite and
/// schedules are built with it and do not run.
const SOAK: [&str; 13] = [
    "test",
    "--quiet",
    "--release",
    "--config",
    "profile.release.package.omniheap-conformance.opt-level=0",
    "--config",
    "profile.release.package.omniheap-schedule.opt-level=0",
    "-p",
    "omniheap-host",
    "--test",
    "soak",
    "--",
    "--nocapture",
];

/// Steps that share no build with the others. They run beside these, which leave cores idle while they link or wait.
const APART: [&str; 3] = ["five million random operations", "models of threads", "sanitizers"];

/// Runs every check and every test, or only the steps whose name contains one of `only`; after `--long`, each in its long form.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (length, only) = match arguments.split_first() {
        Some((first, rest)) if first == "--long" => (Length::Long, rest),
        _ => (Length::Short, arguments),
    };
    let mut steps = steps(length);
    steps.retain(|step| only.is_empty() || only.iter().any(|part| step.name.contains(part)));
    match (steps.is_empty(), only.is_empty()) {
        (true, _) => Err("no step has such a name".into()),
        (false, true) if length == Length::Short => run_all(with_apart(steps)),
        _ => run_all(steps),
    }
}

/// Moves [`APART`] into a process of their own, which begins when the system has its packages.
fn with_apart(mut steps: Vec<Step>) -> Vec<Step> {
    steps.retain(|step| !APART.contains(&step.name.as_str()));
    let apart = Rc::new(Cell::new(None));
    let begun = Rc::clone(&apart);
    let begin = move || Apart::begin(&APART).map(|it| begun.set(Some(it)));
    steps.insert(1, Step::new("what has a build of its own begins", begin));
    let end = move || apart.take().ok_or("it never began")?.end();
    steps.push(Step::new("what has a build of its own", end));
    steps
}

/// Runs what needs little building: the sources' own rules, a check of everything, and the tests of the parts that the rest
/// stands on.
pub(crate) fn run_quick() -> Outcome {
    let mut steps = rules();
    let mut check = cargo(&["check", "--quiet"]);
    check.args(WORKSPACE);
    steps.push(Step::command("everything compiles", check));
    steps.push(Step::new("tests", || of(&packages(&QUICK), tests)));
    run_all(steps)
}

/// Returns the rules that can be checked without building the workspace.
fn rules() -> Vec<Step> {
    vec![
        Step::command("format", cargo(&["fmt", "--all", "--check"])),
        Step::new("no vendor in the core", || {
            [
                "core/seam/src",
                "core/placement/src",
                "core/strategy/src",
                "core/schedule/src",
                "core/manager/src",
                "core/layers/src",
                "core/extras/src",
            ]
            .iter()
            .try_for_each(|part| words::check(&root().join(part)))
        }),
        Step::new("modules of the core import one way", arrows::check),
        Step::new("files import one way", circles::check),
        Step::new("nothing depends on the laboratory", packages::check_laboratory),
        Step::new("no test is left out", packages::check_tests),
        Step::new("every build has the same features", packages::check_features),
        Step::new("tables say what the results say", table::check),
        Step::new("compiled kernels are those of their sources", images::check),
    ]
}

fn steps(length: Length) -> Vec<Step> {
    let mut documents = cargo(&["doc", "--quiet", "--no-deps"]);
    documents.args(WORKSPACE).env("RUSTDOCFLAGS", "-Dwarnings");
    let mut doctests = cargo(&["test", "--quiet", "--doc", "--no-fail-fast"]);
    // Its examples are those of the core, by whose name they speak.
    doctests.args(WORKSPACE).args(["--exclude", "omniheap-core-windows"]);
    let mut lint = cargo(&["clippy", "--quiet", "--all-targets"]);
    lint.args(WORKSPACE).args(["--", "-D", "warnings"]);
    let no_std = [&["check", "--quiet", "--no-default-features"], &NO_STD[..]].concat();
    let mut steps = vec![Step::new("system packages", system::prepare)];
    steps.extend(rules());
    steps.extend([
        Step::new("crates can be published", packages::check),
        Step::command("seam and strategies without std", cargo(&no_std)),
        Step::new("C header", header::check),
        Step::command("lint", lint),
        Step::command("what cargo run builds", cargo(&["check", "--quiet"])),
        Step::command("documentation", documents),
        Step::new("tests are built", || build(WORKSPACE).map(drop)),
        Step::new("tests", || of(WORKSPACE, tests)),
        Step::command("examples in documentation", doctests),
        Step::new("examples on host", || of(WORKSPACE, examples)),
        Step::new("engines", || of(WORKSPACE, engines)),
        Step::new("wgpu on omniheap", compat::test),
        Step::new("Python package", python::test),
        Step::new("C libraries as installed", installed),
        Step::command("five million random operations", cargo(&SOAK)),
        Step::command("models of threads", models()),
    ]);
    steps.extend(match length {
        // Fuzzers are built for longer than they would run here; the tests have replayed their corpora. What optimisation
        // could break shows in the random operations, or in the night.
        Length::Short => vec![Step::new("sanitizers", nightly::sanitize_shortly)],
        Length::Long => vec![
            Step::new("optimised tests", || of(&optimised(), tests)),
            Step::command("a thousand kills and ten thousand hand-overs", lives()),
            Step::new("small worlds for an hour", nightly::explore),
            Step::new("fuzzing", || nightly::fuzz(&[])),
            Step::new("sanitizers", || nightly::sanitize(&[])),
        ],
    });
    steps
}

/// Models of threads, in every order that these can take; built apart, because everything is built otherwise.
fn models() -> Command {
    let both = ["-p", "omniheap-core", "-p", "omniheap-loom", "--lib"];
    let mut command = cargo(&[&["test", "--quiet"], &both[..]].concat());
    command.arg("--target-dir").arg(root().join("target/loom")).arg("models");
    command.env("RUSTFLAGS", "--cfg loom");
    command
}

/// The arbiter with real processes: whoever is killed gives everything back, and nobody sees a byte of another user.
fn lives() -> Command {
    let mut command = cargo(&["test", "--quiet", "--release", "-p", "omniheap-arbiter"]);
    command.args(["--test", "processes"]);
    command.env("OMNIHEAP_KILLS", "1000").env("OMNIHEAP_HAND_OVERS", "10000");
    command
}

/// The optimised build of some packages.
fn optimised() -> Vec<&'static str> {
    core::iter::once("--release").chain(packages(&OPTIMISED)).collect()
}

fn packages(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

/// Installs the C library that the tests were built with.
fn installed() -> Outcome {
    build(WORKSPACE)?;
    embed::test(&target().join("debug/deps"))?;
    embed::test_vma(&target().join("debug/deps"))
}

/// Builds a selection and runs something of it.
fn of(selection: &[&str], run: fn(Vec<Binary>) -> Outcome) -> Outcome {
    run(build(selection)?)
}

fn tests(mut binaries: Vec<Binary>) -> Outcome {
    binaries.retain(|binary| binary.kind == Kind::Test);
    test(binaries, &root())
}

/// Renders with both engines; each compares its pictures, and says so where there is no device.
fn engines(binaries: Vec<Binary>) -> Outcome {
    for binary in examples_in("examples/engines", binaries) {
        let picture = std::env::temp_dir().join(format!("{}.png", binary.name));
        println!("    {}", binary.name);
        status(&binary.name, binary.command().arg(picture))?;
    }
    Ok(())
}

/// Runs every example of the facade on the host backend.
fn examples(binaries: Vec<Binary>) -> Outcome {
    for binary in examples_in("", binaries) {
        println!("    {}", binary.name);
        status(&binary.name, &mut binary.command())?;
    }
    Ok(())
}

/// The examples of the package in a folder, by name.
fn examples_in(folder: &str, mut binaries: Vec<Binary>) -> Vec<Binary> {
    let folder = if folder.is_empty() { root() } else { root().join(folder) };
    binaries.retain(|binary| binary.kind == Kind::Example && binary.folder == folder);
    binaries.sort_by(|a, b| a.name.cmp(&b.name));
    binaries
}
