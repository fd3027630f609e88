//! Runs of the suite.
use super::Arguments;
use super::endurance::{run_faults, run_soak};
use core::ops::ControlFlow;
use indicatif::ProgressBar;
use omniheap::host::Host;
use omniheap::{AnyBackend, Backend as _, BackendKind, open, seam::erase};
use omniheap_cli::file::NewFile;
use omniheap_cli::output::{self, Format};
use omniheap_cli::{Failure, interrupt};
use omniheap_conformance::{
    Account, CaseResult, LONGEST_HOLD, Outcome, Progress, Results, Rig, Spares, cases,
    run as run_suite, seed,
};
use serde::Serialize;
use std::io::Write as _;
use std::sync::Arc;

/// Runs the suite on every backend that is wanted.
pub(in crate::command) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let Some(backend) = arguments.backend else { return list(&arguments.filter, format) };
    let kinds = backend.kinds();
    let required = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    let is_listed = |kind: BackendKind| required.split(',').any(|name| name.trim() == kind.name());
    let is_required = |kind: BackendKind| kinds.len() == 1 || is_listed(kind);
    if arguments.soak.is_some() || arguments.faults.is_some() {
        return kinds.iter().try_for_each(|&kind| match long(kind, arguments, format) {
            Err(Long::Absent(why)) if is_required(kind) => Err(why),
            Err(Long::Absent(why)) => note(format, &why.to_string()),
            Err(Long::Failed(why)) => Err(why),
            Ok(()) => Ok(()),
        });
    }
    interrupt::watch();
    let file = arguments.junit.as_deref().map(NewFile::create).transpose()?;
    let mut failures = Vec::new();
    let mut junit = Vec::new();
    for &kind in &kinds {
        match suite(kind, arguments, format) {
            Err(why) if is_required(kind) => failures.push(why),
            Err(why) => note(format, &why)?,
            Ok(results) => {
                show(&results, &arguments.filter, format)?;
                if results.failed() > 0 {
                    failures.push(format!("{kind}: {} cases failed", results.failed()));
                }
                junit.push(results.to_junit());
            }
        }
    }
    if let (Some(file), Some(content)) = (file, merge(&junit)) {
        file.write(|sink| sink.write_all(content.as_bytes()))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("; "))) }
}

/// Prints the results as JSON, or their counts. Fails if there are none, or only a part.
fn show(results: &Results, filter: &str, format: Format) -> Result<(), Failure> {
    if results.cases.is_empty() && !interrupt::is_wanted() {
        let why = format!("no case's name contains `{filter}`; --list prints them all");
        return Err(Failure::input(why));
    }
    match format {
        Format::Json => output::print_raw(&results.to_json())?,
        Format::Text => output::print_line(&counts(results))?,
    }
    if interrupt::is_wanted() {
        let label = &results.label;
        let why = format!("interrupted: the results of {label} are partial; no file is written");
        return Err(Failure::interrupted(why));
    }
    Ok(())
}

/// Prints the names of cases.
fn list(filter: &str, format: Format) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Named {
        case: &'static str,
    }
    let cases = cases::<AnyBackend>().into_iter().map(|case| case.name);
    cases.filter(|case| case.contains(filter)).try_for_each(|case| match format {
        Format::Json => output::print_json(&Named { case }),
        Format::Text => output::print_line(case),
    })
}

/// Reason why a long run ended early.
enum Long {
    /// There is no such device here.
    Absent(Failure),
    /// The failure.
    Failed(Failure),
}

/// Runs the requested soak or fault injection.
fn long(kind: BackendKind, arguments: &Arguments, format: Format) -> Result<(), Long> {
    let number = arguments.device;
    let absent = |error| Long::Absent(Failure::no_device(Some(kind), number, error));
    let device = Arc::new(open(kind, number).map_err(absent)?);
    let ended = match (arguments.soak, arguments.faults) {
        (Some(operations), _) => run_soak(&device, (operations, arguments.threads), format),
        (None, every) => run_faults(&device, every.unwrap_or(1) as usize, format),
    };
    ended.map_err(Long::Failed)
}

/// One file of several suites.
fn merge(suites: &[String]) -> Option<String> {
    let (first, rest) = suites.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let body = |suite: &String| suite.split_once('\n').map_or("", |(_, body)| body).to_owned();
    let bodies: String = suites.iter().map(body).collect();
    let head = first.split_once('\n').map_or("", |(head, _)| head);
    Some(format!("{head}\n<testsuites>\n{bodies}</testsuites>\n"))
}

/// Prints skipped cases to standard error; tools read the results.
fn note(format: Format, line: &str) -> Result<(), Failure> {
    match format {
        Format::Text => Ok(writeln!(std::io::stderr(), "{line}")?),
        Format::Json => Ok(()),
    }
}

/// Runs the suite on one backend, through dynamic dispatch; each backend's own tests also run it by type.
fn suite(kind: BackendKind, arguments: &Arguments, format: Format) -> Result<Results, String> {
    let (device, filter) = (arguments.device, &*arguments.filter);
    let mut told = Told { label: kind.name(), format, bar: output::progress(format, 0) };
    let absent = move |error| Failure::no_device(Some(kind), device, error).to_string();
    let guards = arguments.guards;
    let open = move || {
        let rig = rig(kind, device).map_err(absent)?;
        Ok::<_, String>(if guards { rig.with_guards() } else { rig })
    };
    let tell = |now: Progress<'_>| told.tell(now);
    let results = output::quietly(|| run_suite(kind.name(), open, filter, seed(), tell));
    told.bar.finish_and_clear();
    results
}

/// Output of a run. Text is printed as cases end, so that a killed run has printed its findings.
struct Told {
    label: &'static str,
    format: Format,
    bar: ProgressBar,
}

impl Told {
    fn tell(&mut self, now: Progress<'_>) -> ControlFlow<()> {
        let printed = match now {
            Progress::Starts { device, done, total, name, mode } => {
                self.bar.set_length(total as u64);
                self.bar.set_position(done as u64);
                self.bar.set_message(format!("{mode} {name}"));
                self.say_how_far(done, total);
                let heading = || format!("{} on {} ({})", self.label, device.name, device.driver);
                (done == 0).then(heading)
            }
            Progress::Ended(case) => unexpected(case),
        };
        if let (Some(text), Format::Text) = (printed, self.format) {
            let ended = self.bar.suspend(|| output::print_line(&text));
            // The reader is gone, so the rest is dropped.
            if ended.is_err() {
                return ControlFlow::Break(());
            }
        }
        if interrupt::is_wanted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Prints the progress now and then, if no bar shows it.
    fn say_how_far(&self, done: usize, total: usize) {
        if self.bar.is_hidden() && done > 0 && done.is_multiple_of(100) {
            // A closed standard error is no failure of the suite.
            let _ = note(self.format, &format!("  {done} of {total} cases have ended"));
        }
    }
}

/// Returns a device, with the test hooks of its backend beyond the seam.
fn rig(kind: BackendKind, device: u32) -> omniheap::seam::Result<Rig<AnyBackend>> {
    match kind {
        BackendKind::Host if device == 0 => Ok(host()),
        #[cfg(feature = "wgpu")]
        BackendKind::Wgpu => omniheap::wgpu::Wgpu::open(device as usize).map(wgpu),
        BackendKind::Vulkan => handed_on(kind, device),
        _ => open(kind, device).map(|device| Rig::new(device).with_gates(LONGEST_HOLD)),
    }
}

/// Returns the device of the case before, unless that was lost: opening one takes half a second on some machines.
fn handed_on(kind: BackendKind, device: u32) -> omniheap::seam::Result<Rig<AnyBackend>> {
    static SPARES: Spares<AnyBackend> = Spares::new();
    let take = || SPARES.take(|| open(kind, device));
    let mut lease = take()?;
    if lease.device().wait_idle().is_err() {
        lease.lose();
        lease = take()?;
    }
    Ok(Rig::new(AnyBackend::clone(lease.device())).keeping(lease))
}

/// Host memory, which can be held back and lost.
fn host() -> Rig<AnyBackend> {
    let host = Arc::new(Host::new());
    let (held, lost) = (Arc::clone(&host), Arc::clone(&host));
    Rig::new(erase(host))
        .with_hold(move |timeline| Ok(Box::new(held.hold(timeline)?)))
        .with_loss(move || lost.lose())
        .with_account(Account::Exact)
}

/// Returns a device of wgpu, which can be lost.
#[cfg(feature = "wgpu")]
fn wgpu(backend: omniheap::wgpu::Wgpu) -> Rig<AnyBackend> {
    let device = backend.device().clone();
    Rig::new(erase(backend)).with_loss(move || device.destroy())
}

/// Returns the lines about a case that failed. A known failure has them too.
fn unexpected(case: &CaseResult) -> Option<String> {
    let (word, why) = match &case.outcome {
        Outcome::Failed(why) => ("FAILED", why),
        Outcome::Known(why) => ("known failure", why),
        Outcome::Passed | Outcome::Refused(_) => return None,
    };
    let (mode, name, numbers) = (case.mode, case.name, case.numbers);
    Some(format!(
        "  {word}: {mode}::{name}: {why}\n    behaviours {numbers:?} of docs/conformance.md; alone: --filter {mode}::{name}"
    ))
}

fn counts(results: &Results) -> String {
    format!(
        "  {} passed, {} failed, {} refused as documented, {} known failures",
        results.passed(),
        results.failed(),
        results.refused(),
        results.known()
    )
}
