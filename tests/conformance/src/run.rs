//! Running the list: by type, by pages and erased; in a test binary or in the command.
use crate::case::Case;
use crate::results::{CaseResult, Outcome, Results};
use crate::rig::Guards;
use crate::rig::{Rig, Turns};
use crate::world::{Mode, World};
use crate::{cases, expect};
use core::fmt::Display;
use core::ops::ControlFlow;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use libtest_mimic::{Completion, Failed, Trial};
use omniheap_core::{AnyBackend, Backend, DeviceInfo};
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

/// Longer than any case takes on a slow and loaded machine; a case that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(600);

/// Longer than any thread of a case is kept from its work on such a machine; one that takes longer is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

type Open<B> = Arc<dyn Fn() -> Result<Rig<B>, String> + Send + Sync>;

/// One case in one mode, ready to run.
struct Job {
    name: &'static str,
    mode: &'static str,
    numbers: &'static [u16],
    run: Box<dyn FnOnce() -> Outcome + Send>,
}

/// Held by the one case that runs, where cases must not run beside each other.
static TURN: Mutex<()> = Mutex::new(());

impl Job {
    /// The same, while no other such job runs.
    fn in_turn(self) -> Self {
        let run = || {
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            (self.run)()
        };
        Self { run: Box::new(run), ..self }
    }
}

/// A run's progress.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A case starts.
    Starts {
        /// The device.
        device: &'a DeviceInfo,
        /// Cases that have ended.
        done: usize,
        /// Cases in all.
        total: usize,
        /// The case.
        name: &'a str,
        /// Its mode.
        mode: &'a str,
    },
    /// The case has ended.
    Ended(&'a CaseResult),
}

/// Runs every case whose name contains `filter`, on devices that `open` opens, one after the other, until `progress`
/// breaks.
///
/// # Errors
///
/// Those of `open` when there is no such device.
pub fn run<B: Backend + 'static, E: Display>(
    label: &str,
    open: impl Fn() -> Result<Rig<B>, E> + Send + Sync + 'static,
    filter: &str,
    seed: u64,
    mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Results, String> {
    let open: Open<B> = Arc::new(move || open().map_err(|error| error.to_string()));
    let (device, mut jobs) = jobs(&open, seed)?;
    let whole = jobs.len();
    jobs.retain(|job| format!("{}::{}", job.mode, job.name).contains(filter));
    let total = jobs.len();
    let mut cases = Vec::with_capacity(total);
    for (done, job) in jobs.into_iter().enumerate() {
        let (name, mode, numbers) = (job.name, job.mode, job.numbers);
        if progress(Progress::Starts { device: &device, done, total, name, mode }).is_break() {
            break;
        }
        let start = Instant::now();
        let outcome = (job.run)();
        let ended = CaseResult { name, mode, numbers, outcome, time: start.elapsed() };
        let told = progress(Progress::Ended(&ended));
        cases.push(ended);
        if told.is_break() {
            break;
        }
    }
    Ok(Results { label: label.into(), device, seed, total: whole, cases })
}

/// The list as trials of a test binary. An absent device is ignored, or failed where `OMNIHEAP_REQUIRE` names it.
pub fn trials<B: Backend + 'static, E: Display>(
    label: &'static str,
    open: impl Fn() -> Result<Rig<B>, E> + Send + Sync + 'static,
) -> Vec<Trial> {
    let open: Open<B> = Arc::new(move || open().map_err(|error| error.to_string()));
    match jobs(&open, seed()) {
        Ok((device, jobs)) => {
            let cases = Vec::with_capacity(jobs.len());
            let (label, seed) = (label.to_owned(), seed());
            let (at, total) = (found().len(), jobs.len());
            found().push(Results { label: label.clone(), device, seed, total, cases });
            jobs.into_iter().map(|job| trial(&label, at, job)).collect()
        }
        Err(why) => vec![absent(label, why)],
    }
}

/// Returns the results of this process's trials, label by label.
fn found() -> MutexGuard<'static, Vec<Results>> {
    static FOUND: Mutex<Vec<Results>> = Mutex::new(Vec::new());
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what the trials have found to the folder that `OMNIHEAP_RESULTS` names, one file a label.
///
/// # Panics
///
/// Panics when a file cannot be written: whoever asked for results must not go on without them.
pub fn write_results() {
    let Some(folder) = std::env::var_os("OMNIHEAP_RESULTS").map(PathBuf::from) else { return };
    for results in found().iter() {
        let path = folder.join(format!("{}.json", results.label));
        let written = std::fs::write(&path, results.to_json());
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn trial(label: &str, at: usize, job: Job) -> Trial {
    let name = format!("{label}::{}::{}", job.mode, job.name);
    let (case, mode, numbers) = (job.name, job.mode, job.numbers);
    let body = move || {
        let start = Instant::now();
        let outcome = (job.run)();
        let time = start.elapsed();
        let result = CaseResult { name: case, mode, numbers, outcome: outcome.clone(), time };
        found()[at].cases.push(result);
        outcome
    };
    Trial::ignorable_test(name, move || match body() {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Refused(why) => Ok(Completion::ignored_with(format!("refused: {why}"))),
        Outcome::Known(why) => Ok(Completion::ignored_with(format!("known failure: {why}"))),
        Outcome::Failed(why) => Err(Failed::from(why)),
    })
}

fn absent(label: &'static str, why: String) -> Trial {
    let required = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    let is_required = is_required(label, &required);
    Trial::ignorable_test(format!("{label}::is_here"), move || {
        if is_required { Err(Failed::from(why)) } else { Ok(Completion::ignored_with(why)) }
    })
}

/// Returns true if a list such as `cuda,vulkan` names the backend of a label such as `cuda_small`.
fn is_required(label: &str, list: &str) -> bool {
    let backend = label.split('_').next().unwrap_or(label);
    list.split(',').any(|name| name.trim() == label || name.trim() == backend)
}

/// The seed of this run: `OMNIHEAP_SEED`, or one that never changes.
#[must_use]
pub fn seed() -> u64 {
    std::env::var("OMNIHEAP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x0ba5_e5ee_d000_0001)
}

fn jobs<B: Backend + 'static>(open: &Open<B>, seed: u64) -> Result<(DeviceInfo, Vec<Job>), String> {
    let probe = open()?;
    let device = probe.backend.caps().device.clone();
    let has_pages = probe.backend.as_remap().is_some();
    let is_wanted =
        probe.extras.guards == Guards::On || std::env::var_os("OMNIHEAP_GUARDS").is_some();
    let has_guards = is_wanted && probe.backend.as_transfer().is_some();
    let turns = probe.extras.turns;
    drop(probe);
    let modes = [
        ("plain", Mode::Plain, Guards::Off, true),
        ("paged", Mode::Paged, Guards::Off, has_pages),
        ("guarded", Mode::Plain, Guards::On, has_guards),
        ("guarded_paged", Mode::Paged, Guards::On, has_guards && has_pages),
    ];
    let wanted = modes.into_iter().filter(|(.., wanted)| *wanted);
    let mut jobs: Vec<Job> = wanted
        .flat_map(|(name, pools, guards, _)| jobs_of(open, name, (pools, guards), seed, &device))
        .collect();
    let inner = Arc::clone(open);
    let erased: Open<AnyBackend> = Arc::new(move || inner().map(Rig::erase));
    jobs.extend(erased_jobs(&erased, seed, &device));
    if turns == Turns::OneAtATime {
        jobs = jobs.into_iter().map(Job::in_turn).collect();
    }
    Ok((device, jobs))
}

/// The cases through dynamic dispatch. Not generic: they are compiled once, here, and not again for every backend.
fn erased_jobs(open: &Open<AnyBackend>, seed: u64, device: &DeviceInfo) -> Vec<Job> {
    jobs_of(open, "erased", (Mode::Paged, Guards::Off), seed, device)
}

fn jobs_of<B: Backend + 'static>(
    open: &Open<B>,
    mode: &'static str,
    pools: (Mode, Guards),
    seed: u64,
    device: &DeviceInfo,
) -> Vec<Job> {
    let job = |case: Case<B>| {
        let (open, known) = (Arc::clone(open), expect::known(device, case.name));
        let (name, numbers) = (case.name, case.numbers);
        let run = move || judge(attempt(open, case, pools, seed), known);
        Job { name, mode, numbers, run: Box::new(run) }
    };
    cases::all().into_iter().map(job).collect()
}

/// Turns a failure that is known into one that is expected, and a success that is not into a failure.
fn judge(outcome: Outcome, known: Option<&str>) -> Outcome {
    match (outcome, known) {
        (Outcome::Failed(_), Some(reason)) => Outcome::Known(reason.into()),
        (Outcome::Passed, Some(_)) => {
            Outcome::Failed("a known failure passes: take it off the list".into())
        }
        (outcome, _) => outcome,
    }
}

/// Runs a case on a thread of its own, so that a case that hangs is a failure and not the end.
fn attempt<B: Backend + 'static>(
    open: Open<B>,
    case: Case<B>,
    (pools, guards): (Mode, Guards),
    seed: u64,
) -> Outcome {
    let (tell, told) = mpsc::channel();
    let body = move || {
        let outcome = open().map_or_else(
            |why| Outcome::Failed(format!("the device did not open again: {why}")),
            |rig| check(World::new(rig, pools, seed).with_guards(guards), &case),
        );
        let _ = tell.send(outcome);
    };
    let spawned = std::thread::Builder::new().name("case".into()).spawn(body);
    if let Err(error) = spawned {
        return Outcome::Failed(format!("no thread: {error}"));
    }
    told.recv_timeout(DEADLINE).unwrap_or_else(|_| {
        Outcome::Failed(format!("no answer in {} s: it hangs", DEADLINE.as_secs()))
    })
}

/// Runs a case and its gate in a world.
pub(crate) fn check<B: Backend + 'static>(world: World<B>, case: &Case<B>) -> Outcome {
    let missing = case.needs.iter().find_map(|need| need.missing(&world).map(|why| (need, why)));
    let proof = || match missing {
        Some((need, _)) => need.assert_refusal(&world),
        None => (case.check)(&world),
    };
    let ended = catch_unwind(AssertUnwindSafe(proof)).map_err(sentence);
    let ended = ended
        .and_then(|()| catch_unwind(AssertUnwindSafe(|| world.gate())).map_err(sentence).flatten());
    match (ended, missing) {
        (Err(why), _) => Outcome::Failed(why),
        (Ok(()), Some((_, why))) => Outcome::Refused(why.into()),
        (Ok(()), None) => Outcome::Passed,
    }
}

/// Returns the message of a panic.
#[expect(clippy::needless_pass_by_value, reason = "the type that a caught panic has")]
pub(crate) fn sentence(panic: Box<dyn core::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use omniheap_host::Host;

    #[test]
    fn a_known_failure_that_passes_is_an_error() {
        assert!(matches!(judge(Outcome::Passed, Some("r")), Outcome::Failed(_)));
        assert_eq!(judge(Outcome::Failed("x".into()), Some("r")), Outcome::Known("r".into()));
        assert_eq!(judge(Outcome::Passed, None), Outcome::Passed);
    }

    #[test]
    fn cases_of_a_rig_with_gates_run_one_at_a_time() {
        let is_probe = AtomicBool::new(true);
        let (tell, told) = mpsc::channel();
        let open: Open<Host> = Arc::new(move || {
            if is_probe.swap(false, Relaxed) {
                return Ok(Rig::new(Host::new()).one_at_a_time());
            }
            let is_alone = TURN.try_lock().is_err();
            tell.send(is_alone).expect("the test listens");
            Err("seen".into())
        });
        let (_, jobs) = jobs(&open, seed()).expect("host memory is always here");
        for job in jobs.into_iter().step_by(97) {
            assert!(matches!((job.run)(), Outcome::Failed(why) if why.contains("seen")));
            assert_eq!(told.try_recv(), Ok(true), "another case could run beside it");
        }
    }

    #[test]
    fn a_required_backend_is_named_by_its_label_or_its_first_word() {
        assert!(is_required("cuda", "vulkan, cuda"));
        assert!(is_required("cuda_small", "cuda"));
        assert!(!is_required("host", "cuda,vulkan"));
        assert!(!is_required("host", ""));
    }
}
