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
/// Time that it takes to start a test, beside its own time.
const STARTING: Duration = Duration::from_millis(20);
/// Prints the tests of Python below the current folder as a test binary lists its own.
const LIST: &str = "import unittest
def show(found):
    for one in found:
        show(one) if isinstance(one, unittest.TestSuite) else print(one.id() + ': test')
show(unittest.defaultTestLoader.discover('.'))";

/// Runner of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// A test binary that cargo built.
    Itself,
    /// Python, with a library that cargo built.
    Python,
}

/// Tests that cargo built something for.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The folder of its package, or of the tests.
    pub(crate) folder: PathBuf,
    pub(crate) runs: Runs,
}

/// Findings about one test in a run without a mutant.
struct Test {
    binary: Binary,
    name: String,
    time: Duration,
    /// The mutants whose place it executes.
    reaches: Vec<usize>,
}

/// Every test that is quick enough, and how each did with the mutants so far.
pub(crate) struct Tests {
    all: Vec<Test>,
    /// The longest time that all tests of one mutant may take together, as measured without it.
    most: Duration,
    records: Mutex<Vec<Record>>,
}

/// Results of a test with the mutants that it was tried on.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    tried: u32,
    caught: u32,
}

impl Record {
    /// Mutants that a test of this length is expected to catch in a second. One that was never tried is worth a try where it is
    /// quick.
    fn promise(self, time: Duration) -> f64 {
        let share = f64::from(self.caught + 1) / f64::from(self.tried + 20);
        share / (time + STARTING).as_secs_f64()
    }
}

/// Outcome of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Caught,
    /// A test did not end.
    Hung,
    Survived,
    /// No test executes the place.
    Unreached,
}

/// Outcome of a run of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    /// Stopped.
    Late,
}

impl Tests {
    /// Runs every test of the binaries once, without a mutant, and notes what it executes. Later, the tests of one mutant
    /// take `most` together.
    ///
    /// # Errors
    ///
    /// A binary cannot be run.
    pub(crate) fn measure(binaries: &[Binary], most: Duration) -> Result<Self, String> {
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
        let records = Mutex::new(vec![Record::default(); tests.len()]);
        Ok(Self { all: tests, most, records })
    }

    /// The tests that execute a mutant's place, those first that are likely to catch it soon.
    fn reaching(&self, mutant: usize) -> Vec<usize> {
        let reaches = |at: &usize| self.all[*at].reaches.binary_search(&mutant).is_ok();
        let mut reaching: Vec<usize> = (0..self.all.len()).filter(reaches).collect();
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let promise = |at: usize| records[at].promise(self.all[at].time);
        reaching.sort_by(|a, b| promise(*b).total_cmp(&promise(*a)));
        reaching
    }

    fn note(&self, test: usize, caught: bool) {
        let record = &mut self.records.lock().unwrap_or_else(PoisonError::into_inner)[test];
        record.tried += 1;
        record.caught += u32::from(caught);
    }

    /// Runs the tests that execute a mutant's place, until one fails. Why a program did not start says nothing of the mutant.
    pub(crate) fn look_for(&self, mutant: usize) -> Result<Verdict, String> {
        let (mut verdict, mut spent) = (Verdict::Unreached, Duration::ZERO);
        for at in self.reaching(mutant) {
            let test = &self.all[at];
            spent += test.time;
            if spent > self.most && verdict == Verdict::Survived {
                break;
            }
            let mut command = command(&test.binary, &test.name);
            command.env("OMNIHEAP_MUTANT", mutant.to_string());
            let ended = run(command, test.time * 8 + Duration::from_secs(10))?;
            self.note(at, ended != Ended::Passed);
            match ended {
                Ended::Passed => verdict = Verdict::Survived,
                Ended::Late => return Ok(Verdict::Hung),
                Ended::Failed => return Ok(Verdict::Caught),
            }
        }
        Ok(verdict)
    }
}

/// Returns the number of things to do at a time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the tests that a binary lists.
fn names(binary: &Binary) -> Result<Vec<String>, String> {
    let mut list = program(binary);
    match binary.runs {
        Runs::Itself => list.args(["--list", "--format", "terse"]),
        Runs::Python => list.args(["-c", LIST]),
    };
    let output =
        list.stderr(Stdio::null()).output().map_err(|error| format!("{}: {error}", binary.name))?;
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

/// Returns the command that runs tests, in the folder where they are at home.
fn program(binary: &Binary) -> Command {
    let mut command = match binary.runs {
        Runs::Itself => Command::new(&binary.path),
        Runs::Python => {
            let mut command = Command::new("python3");
            command.env("PYTHONPATH", "..").env("OMNIHEAP_LIBRARY", &binary.path);
            command
        }
    };
    command.current_dir(&binary.folder);
    command
}

/// One test, alone in a process.
fn command(binary: &Binary, name: &str) -> Command {
    let mut command = program(binary);
    match binary.runs {
        Runs::Itself => command.args(["--exact", name]),
        Runs::Python => command.args(["-m", "unittest", name]),
    };
    command.env("CARGO_MANIFEST_DIR", &binary.folder);
    // Random programs are cut short: most of what they find, they find soon.
    command.env("OMNIHEAP_OPERATIONS", "20000").env("OMNIHEAP_CASES", "64");
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
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
    fn a_test_that_catches_comes_before_quicker_ones_that_never_do() {
        let [quick, slow] = [10, 1000].map(Duration::from_millis);
        let [fresh, never, often] =
            [(0, 0), (100, 0), (100, 50)].map(|(tried, caught)| Record { tried, caught });
        assert!(fresh.promise(quick) > fresh.promise(slow));
        assert!(often.promise(slow) > never.promise(quick));
        assert!(fresh.promise(quick) > often.promise(slow), "a quick one is worth a try");
    }

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
