//! One step after the other, each with its name and its seconds.
//!
//! Seconds of processors tell what a step costs also on a machine that does other work meanwhile.
use crate::target;
use core::time::Duration;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Result of a step; an error is one line.
pub(crate) type Outcome = Result<(), String>;

/// One thing to do.
pub(crate) struct Step {
    /// Shown while it runs.
    pub(crate) name: String,
    /// Does it.
    pub(crate) work: Box<dyn FnOnce() -> Outcome>,
}

impl Step {
    /// Returns a step that does `work`.
    pub(crate) fn new(name: &str, work: impl FnOnce() -> Outcome + 'static) -> Self {
        Self { name: name.into(), work: Box::new(work) }
    }

    /// Creates a step that runs a command.
    pub(crate) fn command(name: &str, mut command: Command) -> Self {
        let shown = name.to_owned();
        Self::new(name, move || status(&shown, &mut command))
    }
}

/// Steps in a process of their own, beside those of this one.
pub(crate) struct Apart {
    process: Child,
    said: PathBuf,
}

impl Apart {
    /// Begins the steps with these names.
    pub(crate) fn begin(names: &[&str]) -> Result<Self, String> {
        let said = target().join("apart.log");
        let begin = || {
            fs::create_dir_all(target())?;
            let file = File::create(&said)?;
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("test").args(names).stdin(Stdio::null());
            command.stdout(file.try_clone()?).stderr(file).spawn()
        };
        let process = begin().map_err(|error| format!("{}: {error}", said.display()))?;
        Ok(Self { process, said })
    }

    /// Waits for them, and prints all that they said.
    pub(crate) fn end(mut self) -> Outcome {
        let status = self.process.wait().map_err(|error| error.to_string())?;
        let said = fs::read(&self.said).unwrap_or_default();
        print!("{}", String::from_utf8_lossy(&said));
        if status.success() { Ok(()) } else { Err(format!("of the steps above: {status}")) }
    }
}

/// Runs every step, also after one has failed: one run shows everything that is wrong.
pub(crate) fn run_all(steps: Vec<Step>) -> Outcome {
    let (count, start) = (steps.len(), Instant::now());
    let mut ends = Vec::new();
    for (at, step) in steps.into_iter().enumerate() {
        println!("==> [{}/{count}] {}", at + 1, step.name);
        let (begin, before) = (Instant::now(), worked());
        let outcome = (step.work)();
        let (time, work) = (begin.elapsed(), worked().saturating_sub(before));
        match &outcome {
            Ok(()) => println!("    ok, {}", seconds(time)),
            Err(line) => println!("    FAILED after {}: {line}", seconds(time)),
        }
        ends.push((step.name, outcome, time, work));
    }
    println!("\n{:>9} {:>11}  step", "time", "processors");
    for (name, outcome, time, work) in &ends {
        let mark = outcome.as_ref().err().map(|why| format!("  FAILED: {why}")).unwrap_or_default();
        println!("{:>9} {:>11}  {name}{mark}", seconds(*time), seconds(*work));
    }
    println!("{:>9} {:>11}  all", seconds(start.elapsed()), seconds(worked()));
    let failed = ends.iter().filter(|(_, outcome, ..)| outcome.is_err()).count();
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of {count} steps failed")) }
}

/// Runs a command and turns its exit status into an outcome.
pub(crate) fn status(name: &str, command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {}: {error}", command.get_program().to_string_lossy())),
    }
}

/// Returns how long processors have worked for all processes that this one started and that have ended; zero where the
/// system does not say.
fn worked() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    children(&stat).unwrap_or_default()
}

/// Returns what a line of `/proc/PID/stat` says of ended children, in programs and in the system for them.
fn children(stat: &str) -> Option<Duration> {
    // The program's name, which may hold anything, ends at the last bracket. A tick is a hundredth of a second.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// Returns a time as people read it.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_ended_children_is_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 700 80 20 0 1 0 9 10 11";
        assert_eq!(children(stat), Some(Duration::from_millis(7800)));
        assert_eq!(children(""), None);
    }
}
