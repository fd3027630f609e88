//! `cargo xtask mutants`: has cargo-mutants change the sources, one operator at a time, and run the tests on each change.
use crate::step::Outcome;
use crate::{root, target};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Packages whose tests are run: those that find most of what is wrong in the core.
const TESTS: [&str; 5] =
    ["omniheap-seam", "omniheap-strategy", "omniheap-core", "omniheap-host", "omniheap-model"];

/// cargo-mutants ends with one of these when changes survive, or when tests do not end with them. That is what it was asked for: the
/// reader judges, and nothing fails.
const SHOWN: [i32; 2] = [2, 3];

/// Tries the changes that `arguments` choose, as for cargo-mutants; without any, those of lines that differ from `origin/main`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    require()?;
    let mut command = mutants();
    command.arg("--workspace").args(arguments);
    if arguments.is_empty() {
        command.arg("--in-diff").arg(differences()?);
    }
    if !arguments.iter().any(|argument| argument.starts_with("--test-")) {
        command.arg("--test-package").arg(TESTS.join(","));
    }
    command.arg("--output").arg(target());
    // Random programs are cut short: most of what they find, they find soon.
    command.env("OMNIHEAP_OPERATIONS", "20000").env("OMNIHEAP_CASES", "64");
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    let ended = command.status().map_err(|error| format!("cargo mutants: {error}"))?;
    match ended.code() {
        Some(code) if code == 0 || SHOWN.contains(&code) => Ok(()),
        _ => Err(format!("cargo mutants: {ended}")),
    }
}

/// Writes how the working tree differs from where it left `origin/main`; returns the file.
fn differences() -> Result<PathBuf, String> {
    let base = git(&["merge-base", "HEAD", "origin/main"])?;
    let text = git(&["diff", base.trim()])?;
    let file = target().join("mutants.diff");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Returns what git says.
fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}", arguments.join(" "), why.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn mutants() -> Command {
    let mut command = Command::new("cargo");
    command.arg("mutants").current_dir(root());
    command
}

/// Checks that the tool is installed.
fn require() -> Outcome {
    match mutants().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("this needs `cargo install cargo-mutants --locked`".into()),
    }
}
