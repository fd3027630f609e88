//! A driver that fails any call: every scenario, every call, every legal answer.
//!
//! Each injection runs in a fresh world in which some allocations already live. Afterwards the invariants are checked,
//! and the scenario runs once more without a fault: nothing may be poisoned.
mod raw;
mod scenarios;
mod scene;

use crate::rig::Rig;
use crate::run::sentence;
use crate::world::Mode;
use core::fmt;
use core::panic::AssertUnwindSafe;
use omniheap_core::{Backend, ErrorKind};
use omniheap_layers::{CallKind, Plan, errors};
use scene::{Fault, Scene, absorbed};
use std::collections::BTreeSet;
use std::panic::catch_unwind;

pub(crate) use scenarios::Scenario;

/// Counts of injections by their outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Scenarios that made at least one driver call.
    pub scenarios: u64,
    /// Injections.
    pub injections: u64,
    /// Answered with the matching error.
    pub reported: u64,
    /// Absorbed, as documented: another way was found, or the loss was quarantined.
    pub absorbed: u64,
    /// Kinds of calls that failed.
    pub kinds: BTreeSet<CallKind>,
    /// Everything that went wrong, in words.
    pub wrong: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scenarios, {} injections: {} reported, {} absorbed, {} wrong",
            self.scenarios,
            self.injections,
            self.reported,
            self.absorbed,
            self.wrong.len()
        )
    }
}

/// Plans that a sweep tries at each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// One call fails, with every legal answer.
    Single,
    /// Also: the kind fails from there on, fails and recovers, two calls fail, the device is lost.
    Plans,
}

/// Fails calls of every scenario: each `stride`-th call, starting with one that depends on the scenario.
///
/// # Errors
///
/// Those of `open` when there is no device.
pub fn sweep<B: Backend + 'static, E: fmt::Display>(
    open: impl Fn() -> Result<Rig<B>, E>,
    mode: Mode,
    depth: Depth,
    stride: usize,
) -> Result<Tally, E> {
    sweep_until(open, mode, depth, stride, &|| false)
}

/// As [`sweep`], but ends before the injection at which `stop` says so; the tally is then of the part that was made.
///
/// # Errors
///
/// Those of `open` when there is no device.
pub fn sweep_until<B: Backend + 'static, E: fmt::Display>(
    open: impl Fn() -> Result<Rig<B>, E>,
    mode: Mode,
    depth: Depth,
    stride: usize,
    stop: &dyn Fn() -> bool,
) -> Result<Tally, E> {
    let mut tally = Tally::default();
    for (number, scenario) in scenarios::all::<B>().iter().enumerate() {
        if stop() {
            break;
        }
        let calls = match calls_of(&open, mode, scenario)? {
            Ok(calls) => calls,
            Err(why) => {
                tally.wrong.push(format!("{}: {why}", scenario.name));
                continue;
            }
        };
        tally.scenarios += u64::from(!calls.is_empty());
        for (at, kind) in calls.iter().enumerate().skip(number % stride).step_by(stride) {
            for (plan, pick) in plans(at as u64, *kind, calls.len() as u64, depth) {
                if stop() {
                    return Ok(tally);
                }
                inject(&mut tally, Scene::new(open()?, mode), scenario, (plan, pick));
            }
        }
    }
    Ok(tally)
}

/// The plans to try at a call.
fn plans(at: u64, kind: CallKind, calls: u64, depth: Depth) -> Vec<(Plan, usize)> {
    let single = (0..errors(kind).len()).map(|pick| (Plan::Nth(at), pick));
    if depth == Depth::Single {
        return single.collect();
    }
    let other = (at * 7 + 3) % calls;
    // As during a capture: for as long as that lasts.
    let is_busy = |answer: &ErrorKind| *answer == ErrorKind::Busy;
    let busy = errors(kind).iter().position(is_busy).expect("every call may answer it");
    vec![
        (Plan::From(at), 0),
        (Plan::From(at), busy),
        (Plan::NthThenOk { at, times: 2 }, 0),
        (Plan::Pair(at, other), 1),
        (Plan::LoseDeviceAt(at), 0),
    ]
}

/// The calls that a scenario makes without faults. Where they depend on how far the device is, those of the longest of
/// some runs.
fn calls_of<B: Backend + 'static, E>(
    open: &impl Fn() -> Result<Rig<B>, E>,
    mode: Mode,
    scenario: &Scenario<B>,
) -> Result<Result<Vec<CallKind>, String>, E> {
    let mut most = Vec::new();
    for round in 0..10 {
        let mut scene = Scene::new(open()?, mode);
        let dry = catch_unwind(AssertUnwindSafe(|| scene.dry(scenario)));
        let calls = match dry {
            Ok(Ok(calls)) => calls,
            Ok(Err(error)) => return Ok(Err(format!("fails without a fault: {error}"))),
            Err(panic) => return Ok(Err(format!("panics without a fault: {}", sentence(panic)))),
        };
        if round > 0 && calls == most {
            break;
        }
        if calls.len() > most.len() {
            most = calls;
        }
    }
    Ok(Ok(most))
}

/// Judges by the call that really failed: which one is the `at`-th may depend on how far the device is.
fn inject<B: Backend + 'static>(
    tally: &mut Tally,
    mut scene: Scene<B>,
    scenario: &Scenario<B>,
    (plan, pick): (Plan, usize),
) {
    let ended = catch_unwind(AssertUnwindSafe(|| scene.run(scenario, plan, pick)));
    let (failed, ended) = match ended {
        Ok((failed, result)) => (failed, Ok(result)),
        Err(panic) => (None, Err(format!("panic: {}", sentence(panic)))),
    };
    let about = || format!("{} with {plan:?} ({failed:?}, answer {pick})", scenario.name);
    tally.injections += u64::from(failed.is_some() || ended.is_err());
    tally.kinds.extend(failed);
    let single = matches!(plan, Plan::Nth(_));
    let may_absorb = |kind, error| {
        !single
            || absorbed(kind, error)
            || scenario.absorbs.iter().any(|absorbs| absorbs(kind, error))
    };
    let verdict = ended.and_then(|result| judge(single, failed, pick, result, may_absorb));
    match verdict {
        Ok(Answer::Reported) => tally.reported += 1,
        Ok(Answer::Absorbed) => tally.absorbed += 1,
        Ok(Answer::Spared) => {}
        Err(why) => tally.wrong.push(format!("{}: {why}", about())),
    }
    let fault = match plan {
        Plan::LoseDeviceAt(_) => Fault::Loss,
        Plan::Pair(..) => Fault::Two,
        _ if failed == Some(CallKind::UnmapPages) => Fault::Unmap,
        // A scenario's own manager that ends while the device still works, and cannot be waited for, leaves it the pages.
        _ if failed == Some(CallKind::WaitIdle) && !single => Fault::Unmap,
        _ => Fault::Call,
    };
    let checks = catch_unwind(AssertUnwindSafe(|| scene.check(scenario, fault)));
    if let Err(why) = checks.map_err(|panic| format!("panic: {}", sentence(panic))).flatten() {
        tally.wrong.push(format!("{}, afterwards: {why}", about()));
    }
}

enum Answer {
    Reported,
    Absorbed,
    /// This run made fewer calls, and none failed.
    Spared,
}

/// Judges if an answer fits the fault.
fn judge(
    single: bool,
    failed: Option<CallKind>,
    pick: usize,
    result: omniheap_core::Result<()>,
    may_absorb: impl Fn(CallKind, ErrorKind) -> bool,
) -> Result<Answer, String> {
    let Some(kind) = failed else {
        let spared = result.map(|()| Answer::Spared);
        return spared.map_err(|error| format!("no call failed, and it says {error}"));
    };
    let injected = errors(kind)[pick % errors(kind).len()];
    let Err(error) = result else {
        if may_absorb(kind, injected) {
            return Ok(Answer::Absorbed);
        }
        return Err(format!("{injected:?} was swallowed"));
    };
    let said = error.kind();
    // Memory that the driver kept is missing afterwards.
    let short = said.is_out_of_memory() && (injected.is_out_of_memory() || kind.gives_up());
    if !single || said == injected || short {
        Ok(Answer::Reported)
    } else {
        Err(format!("{injected:?} was told as {said:?}"))
    }
}
