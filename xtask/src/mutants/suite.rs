//! The tests that look for a mutant: each is run alone, and only where it executes the mutated place.
use crate::binaries::beside;
use crate::bite;
use crate::step::seconds;
use crate::target;
use core::time::Duration;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

/// A test that takes longer without a mutant is not used.
const LONGEST: Duration = Duration::from_secs(20);
/// The longest time that all tests of one mutant may take together, as measured without it.
const MOST: Duration = Duration::from_secs(60);

/// A test binary that cargo built.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The folder of its package.
    pub(crate) folder: PathBuf,
}

/// What a run without a mutant showed of one test.
struct Test {
    binary: Binary,
    name: String,
    time: Duration,
    /// The mutants whose place it executes.
    reaches: Vec<usize>,
}

/// Every test that is quick enough, the quickest first.
pub(crate) struct Tests(Vec<Test>);

/// What came of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Caught,
    /// A test did not end.
    Hung,
    Survived,
    /// No test executes the place.
    Unreached,
}

/// How a run of one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    /// It was stopped.
    Late,
}

impl Tests {
    /// Runs every test of the binaries once, without a mutant, and notes what it executes.
    ///
    /// # Errors
    ///
    /// A binary cannot be run.
    pub(crate) fn measure(binaries: &[Binary]) -> Result<Self, String> {
        let start = Instant::now();
        let mut all = Vec::new();
        for binary in binaries {
            all.extend(names(binary)?.into_iter().map(|name| (binary.clone(), name)));
        }
        let count = all.len();
        let measured = Mutex::new(Vec::new());
        let work = all.into_iter().enumerate().collect();
        let failed = beside(cores(), work, |(number, (binary, name))| {
            match measure(*number, binary, name) {
                Ok(found) => {
                    measured.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
                    true
                }
                Err(why) => {
                    println!("    {why}");
                    false
                }
            }
        });
        if let Some((_, (binary, name))) = failed.first() {
            return Err(format!("{}: {name} cannot be run", binary.name));
        }
        let mut tests = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
        tests.sort_by_key(|test: &Test| test.time);
        println!(
            "    {} of {count} tests are quick enough; measured in {}",
            tests.len(),
            seconds(start.elapsed())
        );
        Ok(Self(tests))
    }

    /// Runs the tests that execute a mutant's place, until one fails.
    pub(crate) fn look_for(&self, mutant: usize) -> Verdict {
        let reaching = self.0.iter().filter(|test| test.reaches.binary_search(&mutant).is_ok());
        let (mut verdict, mut spent) = (Verdict::Unreached, Duration::ZERO);
        for test in reaching {
            spent += test.time;
            if spent > MOST && verdict == Verdict::Survived {
                break;
            }
            let mut command = command(&test.binary, &test.name);
            command.env("OMNIHEAP_MUTANT", mutant.to_string());
            match run(command, test.time * 8 + Duration::from_secs(10)) {
                Ok(Ended::Passed) => verdict = Verdict::Survived,
                Ok(Ended::Late) => return Verdict::Hung,
                Ok(Ended::Failed) | Err(_) => return Verdict::Caught,
            }
        }
        verdict
    }
}

/// Returns the number of things to do at a time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the tests that a binary lists.
fn names(binary: &Binary) -> Result<Vec<String>, String> {
    let mut list = Command::new(&binary.path);
    list.args(["--list", "--format", "terse"]).current_dir(&binary.folder).stderr(Stdio::null());
    let output = list.output().map_err(|error| format!("{}: {error}", binary.name))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test").map(String::from)).collect())
}

/// Runs a test without a mutant; none where it takes too long or fails.
fn measure(number: usize, binary: &Binary, name: &str) -> Result<Option<Test>, String> {
    let seen = target().join(format!("mutants/seen-{number}.txt"));
    // A second try: a test may lose against everything else that this machine does.
    for _ in 0..2 {
        bite::save(&seen, "")?;
        let mut command = command(binary, name);
        command.env("OMNIHEAP_MUTANTS_SEEN", &seen);
        let start = Instant::now();
        let ended = run(command, LONGEST)?;
        let time = start.elapsed();
        let text = bite::read(&seen)?;
        let _ = fs::remove_file(&seen);
        match ended {
            Ended::Late => {
                println!("    {}: {name} takes more than {}", binary.name, seconds(LONGEST));
                return Ok(None);
            }
            Ended::Passed => {
                let mut reaches: Vec<_> =
                    text.lines().filter_map(|line| line.parse().ok()).collect();
                reaches.sort_unstable();
                reaches.dedup();
                let (binary, name) = (binary.clone(), name.to_owned());
                return Ok(Some(Test { binary, name, time, reaches }));
            }
            Ended::Failed => {}
        }
    }
    println!("    {}: {name} fails without a mutant and is not used", binary.name);
    Ok(None)
}

/// One test, alone in a process.
fn command(binary: &Binary, name: &str) -> Command {
    let mut command = Command::new(&binary.path);
    command.args(["--exact", name]).current_dir(&binary.folder);
    command.env("CARGO_MANIFEST_DIR", &binary.folder).env("OMNIHEAP_OPERATIONS", "20000");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Runs a command and stops it when it is late, or as soon as it reports a failure: what follows takes time and says no more.
fn run(mut command: Command, longest: Duration) -> Result<Ended, String> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = output.lines().map_while(Result::ok);
        let _ = tell.send(lines.any(|line| line.ends_with("FAILED")));
    });
    let ended = match told.recv_timeout(longest) {
        Ok(true) => Ended::Failed,
        Ok(false) => match child.wait().map_err(|error| error.to_string())?.success() {
            true => Ended::Passed,
            false => Ended::Failed,
        },
        Err(_) => Ended::Late,
    };
    let _ = child.kill();
    let _ = child.wait();
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_is_stopped_and_one_that_does_not_end_is_late() {
        let shell = |script: &str, longest: u64| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            run(command, Duration::from_secs(longest)).expect("there is a shell")
        };
        assert_eq!(shell("echo test a ... ok", 600), Ended::Passed);
        assert_eq!(shell("exit 3", 600), Ended::Failed);
        assert_eq!(shell("echo test a ... FAILED; exec sleep 600", 600), Ended::Failed);
        assert_eq!(shell("exec sleep 600", 0), Ended::Late);
    }
}
