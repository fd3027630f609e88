//! `cargo xtask bite`: proves that the suite catches bugs in the core, by planting them in a copy of it.
use crate::planted::{PLANTED, Planted};
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which bug of the list is on, in a copy of the core that has them all.
const SWITCH: &str = "
/// Whether the bug with this number is the one of this run.
pub(crate) fn is_planted(number: usize) -> bool {
    static WHICH: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *WHICH.get_or_init(|| std::env::var(\"OMNIHEAP_PLANTED\").ok()?.parse().ok()) == Some(number)
}
";

/// Plants every bug, or those whose name contains `only`, and runs the case that must catch it.
pub(crate) fn run(only: &str) -> Outcome {
    let suite = build()?;
    let mut missed = Vec::new();
    for (number, bug) in PLANTED.iter().enumerate().filter(|(_, bug)| bug.name.contains(only)) {
        if !passes(&suite, bug.case, None)? {
            return Err(format!("{} does not pass without a bug", bug.case));
        }
        let is_caught = !passes(&suite, bug.case, Some(number))?;
        println!("    {} {}", if is_caught { "caught:" } else { "MISSED:" }, bug.name);
        if !is_caught {
            missed.push(format!("{} by {}", bug.name, bug.case));
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join("; "))) }
}

/// Builds the suite on host memory over a copy of the core with every bug; returns where it is.
fn build() -> Result<PathBuf, String> {
    let tree = target().join("bite/tree");
    copy(&tree)?;
    for (number, bug) in PLANTED.iter().enumerate() {
        plant(&tree.join("core/src").join(bug.file), bug, number)?;
    }
    let library = tree.join("core/src/lib.rs");
    let text = read(&library)? + SWITCH;
    save(&library, &text)?;
    let mut command = cargo(&["test", "--no-run", "--message-format=json", "-p", "omniheap-host"]);
    command.args(["--test", "conformance"]).current_dir(&tree);
    // The edits are short, not pretty.
    command
        .env("RUSTFLAGS", "--cap-lints allow")
        .env("CARGO_TARGET_DIR", target().join("bite/built"));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the core with planted bugs does not build".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let suite = messages
        .filter_map(|message: serde_json::Value| message["executable"].as_str().map(PathBuf::from))
        .next_back();
    suite.ok_or("cargo built no suite".into())
}

/// Copies what git knows of the working tree.
fn copy(tree: &Path) -> Outcome {
    if tree.exists() {
        fs::remove_dir_all(tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    }
    fs::create_dir_all(tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    let listed = "git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{listed} | tar -x -C \"$1\"",), "sh"]).arg(tree);
    status("copying the working tree", command.current_dir(root()))
}

/// Replaces the right text by the wrong one.
fn plant(path: &Path, bug: &Planted, number: usize) -> Outcome {
    let text = read(path)?;
    // Two bugs may share a line: the first one's text is still there, inside its other branch.
    let wrong = bug.wrong.replace("PLANTED", &format!("crate::is_planted({number})"));
    if !text.contains(bug.right) {
        return Err(format!("{}: the place in {} is gone: choose another", bug.name, bug.file));
    }
    save(path, &text.replacen(bug.right, &wrong, 1))
}

/// Whether the case passes in every mode; with a bug, or without one.
fn passes(suite: &Path, case: &str, bug: Option<usize>) -> Result<bool, String> {
    let mut command = Command::new(suite);
    command.args([case, "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env_remove("OMNIHEAP_PLANTED");
    if let Some(number) = bug {
        command.env("OMNIHEAP_PLANTED", number.to_string());
    }
    let output = command.output().map_err(|error| format!("{}: {error}", suite.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && !said.contains(" 0 passed") {
        return Ok(true);
    }
    if said.contains("failed") || !output.status.success() {
        return Ok(false);
    }
    Err(format!("{case}: no case has this name, or none can run on host memory"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn save(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_one_place_and_a_case() {
        let cases = root().join("tests/conformance/src/cases");
        let cases: String = fs::read_dir(&cases)
            .expect("the cases are there")
            .map(|entry| read(&entry.expect("it can be listed").path()).expect("text"))
            .collect();
        for bug in PLANTED {
            let text = read(&root().join("core/src").join(bug.file)).expect(bug.name);
            assert_eq!(text.matches(bug.right).count(), 1, "{}: {}", bug.name, bug.right);
            assert!(bug.wrong.contains("PLANTED"), "{} can be switched off", bug.name);
            assert!(cases.contains(&format!("fn {}<", bug.case)), "{}: {}", bug.name, bug.case);
        }
    }
}
