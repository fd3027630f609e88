//! One step after the other, each with its name and its seconds.
use core::time::Duration;
use std::process::Command;
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

/// Runs every step, also after one has failed: one run shows everything that is wrong.
pub(crate) fn run_all(steps: Vec<Step>) -> Outcome {
    let (count, start) = (steps.len(), Instant::now());
    let mut ends = Vec::new();
    for (at, step) in steps.into_iter().enumerate() {
        println!("==> [{}/{count}] {}", at + 1, step.name);
        let begin = Instant::now();
        let outcome = (step.work)();
        let time = begin.elapsed();
        match &outcome {
            Ok(()) => println!("    ok, {}", seconds(time)),
            Err(line) => println!("    FAILED after {}: {line}", seconds(time)),
        }
        ends.push((step.name, outcome, time));
    }
    println!("\n{:>9}  step", "time");
    for (name, outcome, time) in &ends {
        let mark = if outcome.is_ok() { "" } else { "  FAILED" };
        println!("{:>9}  {name}{mark}", seconds(*time));
    }
    println!("{:>9}  all", seconds(start.elapsed()));
    let failed = ends.iter().filter(|(_, outcome, _)| outcome.is_err()).count();
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

/// Returns a time as people read it.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
