//! The workspace's test binaries and examples: built once, then run beside each other.
//!
//! Cargo runs one test binary after the other, and those that start a process for each of AMD's runtimes, or that wait
//! for a held timeline, leave cores idle meanwhile.
use crate::cargo;
use crate::step::{Outcome, seconds};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Binaries at a time, at most: each has threads of its own.
const MOST: usize = 4;

/// Kind of binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tests.
    Test,
    /// Shows.
    Example,
}

/// One binary that cargo built.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// Test or example.
    pub(crate) kind: Kind,
    /// The package's folder, which it runs in.
    pub(crate) folder: PathBuf,
    /// The target's name.
    pub(crate) name: String,
    /// Its location.
    path: PathBuf,
}

impl Binary {
    /// Returns its package and its name.
    fn label(&self, root: &Path) -> String {
        let folder = self.folder.strip_prefix(root).unwrap_or(&self.folder).display().to_string();
        if folder.is_empty() { self.name.clone() } else { format!("{folder}: {}", self.name) }
    }

    /// Returns a command that runs it as cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds every test and example of the packages that `selection` names, and lists them.
pub(crate) fn build(selection: &[&str]) -> Result<Vec<Binary>, String> {
    let mut command = cargo(&["test", "--quiet", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics").args(selection);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests do not build: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| binary(&message)).collect())
}

/// Returns the binary that one of cargo's messages tells of.
fn binary(message: &Value) -> Option<Binary> {
    let path = message["executable"].as_str()?.into();
    let is_example = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "example");
    let kind = match message["profile"]["test"].as_bool()? {
        true => Kind::Test,
        false if is_example => Kind::Example,
        false => return None,
    };
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.into();
    Some(Binary { kind, folder, name: message["target"]["name"].as_str()?.into(), path })
}

/// Runs test binaries beside each other; prints a line for each, and all that a failed one said.
pub(crate) fn test(mut binaries: Vec<Binary>, root: &Path) -> Outcome {
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
    // Those that take longest first, so that none is left alone at the end.
    binaries.sort_by_key(|binary| rank(binary, root));
    let failed = beside(count, binaries, |binary| run(binary, root));
    let failed: Vec<_> = failed.iter().map(|binary| binary.label(root)).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Runs everything, `count` at a time and in order; what failed.
pub(crate) fn beside<T: Send>(
    count: usize,
    all: Vec<T>,
    run: impl Fn(&T) -> bool + Sync,
) -> Vec<T> {
    let (queue, failed) = (Mutex::new(VecDeque::from(all)), Mutex::new(Vec::new()));
    // A call of its own: in the loop's head, the lock would be held until the run ends, and no two would be under way.
    let next = || lock(&queue).pop_front();
    let work = || {
        while let Some(one) = next() {
            if !run(&one) {
                lock(&failed).push(one);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(work);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Processes over AMD's runtimes first, then whole suites, then the rest.
fn rank(binary: &Binary, root: &Path) -> usize {
    let label = binary.label(root);
    ["hip", "conformance", "device"].iter().position(|part| label.contains(part)).unwrap_or(3)
}

/// Runs one binary; whether all its tests passed.
fn run(binary: &Binary, root: &Path) -> bool {
    let start = Instant::now();
    // Tests panic on purpose; where a program asks for it, each such panic would print its callers, and hide what is wrong.
    let ended = binary.command().stdin(Stdio::null()).env("RUST_BACKTRACE", "0").output();
    let label = binary.label(root);
    let output = match ended {
        Ok(output) => output,
        Err(error) => {
            println!("    {label}: {error}");
            return false;
        }
    };
    let text = said(&output);
    let time = seconds(start.elapsed());
    if !output.status.success() {
        println!("{}\n    {time:>8}  {label}: FAILED, {}", without_passed(&output), output.status);
        return false;
    }
    // Binaries that could not be tested are named loudly, also where the rest went well.
    for line in text.lines().filter(|line| line.contains("NOT TESTED")) {
        println!("    {line}");
    }
    println!("    {time:>8}  {label}: {}", summary(&text));
    true
}

/// Returns all that a process said.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Returns what a process said, without the tests that passed. The last lines stay: a crash comes after them.
fn without_passed(output: &Output) -> String {
    const LAST: usize = 4;
    let (lines, errors) = (text(&output.stdout), text(&output.stderr));
    let begin_of_last = lines.lines().count().saturating_sub(LAST);
    let has_passed = |line: &str| {
        line.starts_with("test ") && (line.ends_with("... ok") || line.contains("... ignored"))
    };
    let kept =
        lines.lines().enumerate().filter(|(at, line)| *at >= begin_of_last || !has_passed(line));
    let kept: Vec<_> = kept.map(|(_, line)| line).collect();
    format!("{}\n{errors}", kept.join("\n"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the counts of the last summary that a test binary printed.
fn summary(text: &str) -> String {
    let line = text.lines().rfind(|line| line.starts_with("test result: "));
    let counts = line.and_then(|line| line.split_once(". ")).map_or("ran", |(_, rest)| rest);
    counts.split("; 0 measured").next().unwrap_or(counts).to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn tests_and_examples_are_told_apart_and_libraries_are_left_out() {
        let message = |kind: &str, test: bool, executable: &str| {
            let text = format!(
                r#"{{"manifest_path":"/a/core/Cargo.toml","target":{{"name":"n","kind":["{kind}"]}},
                    "profile":{{"test":{test}}},"executable":{executable}}}"#
            );
            binary(&serde_json::from_str(&text).expect("JSON")).map(|binary| binary.kind)
        };
        assert_eq!(message("test", true, "\"/x\""), Some(Kind::Test));
        assert_eq!(message("lib", true, "\"/x\""), Some(Kind::Test));
        assert_eq!(message("example", false, "\"/x\""), Some(Kind::Example));
        assert_eq!(message("bin", false, "\"/x\""), None);
        assert_eq!(message("lib", false, "null"), None);
    }

    #[test]
    fn the_last_summary_is_shown() {
        let text = "test result: ok. 9 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(summary(text), "9 passed; 0 failed; 1 ignored");
        assert_eq!(summary("nothing"), "ran");
    }

    #[test]
    fn what_failed_and_the_last_lines_are_shown() {
        let output = |out: &str| Output {
            status: std::process::ExitStatus::default(),
            stdout: out.into(),
            stderr: b"why".to_vec(),
        };
        let passed = "test a ... ok\ntest b ... ignored, no device\n".repeat(5);
        let failed = without_passed(&output(&format!("test x ... FAILED\n{passed}")));
        assert!(failed.starts_with("test x ... FAILED\ntest a"), "{failed}");
        assert!(failed.lines().count() == 6 && failed.ends_with("why"), "{failed}");
    }

    #[test]
    fn two_are_under_way_at_a_time() {
        let (begun, seen) = std::sync::mpsc::channel();
        let seen = Mutex::new(seen);
        // The first ends only when the second has begun.
        let run = |first: &bool| match first {
            true => lock(&seen).recv_timeout(Duration::from_secs(60)).is_ok(),
            false => begun.send(()).is_ok(),
        };
        assert!(beside(2, vec![true, false], run).is_empty());
        assert_eq!(beside(1, vec!["a", "b", "c"], |one| *one != "b"), ["b"]);
    }

    #[test]
    fn a_binary_that_fails_fails_the_run() {
        let of = |program: &str| Binary {
            kind: Kind::Test,
            folder: "/".into(),
            name: program.into(),
            path: program.into(),
        };
        let root = Path::new("/");
        assert!(test(vec![of("true"), of("true")], root).is_ok());
        let why = test(vec![of("true"), of("false")], root).expect_err("one fails");
        assert!(why.contains("false"), "{why}");
        assert!(test(vec![of("no such program")], root).is_err());
    }
}
