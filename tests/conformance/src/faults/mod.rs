//! A driver that fails any call: every scenario, every call, every legal answer.
//!
//! Each injection runs in a fresh world in which some allocations already live. Afterwards the invariants are checked,
//! and the scenario runs once more without a fault: nothing may be poisoned.
#[cfg(unix)]
mod raw;
mod scenarios;
mod scene;

use crate::rig::Rig;
use crate::run::sentence;
use crate::world::Mode;
use core::fmt;
use core::panic::AssertUnwindSafe;
use omniheap_core::layer::{CallKind, Plan, errors};
use omniheap_core::{Backend, ErrorKind};
use scene::{Fault, Scene, absorbed};
use std::panic::catch_unwind;

pub(crate) use scenarios::Scenario;

/// How many injections ended how.
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

/// Which plans a sweep tries at each call.
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
/// What `open` says when there is no device.
pub fn sweep<B: Backend + 'static, E: fmt::Display>(
    open: impl Fn() -> Result<Rig<B>, E>,
    mode: Mode,
    depth: Depth,
    stride: usize,
) -> Result<Tally, E> {
    let mut tally = Tally::default();
    for (number, scenario) in scenarios::all::<B>().iter().enumerate() {
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
                inject(&mut tally, Scene::new(open()?, mode), scenario, (plan, pick, *kind));
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
    vec![
        (Plan::From(at), 0),
        (Plan::NthThenOk { at, times: 2 }, 0),
        (Plan::Pair(at, other), 1),
        (Plan::LoseDeviceAt(at), 0),
    ]
}

/// The calls that a scenario makes without faults: the same ones twice, or it says so.
fn calls_of<B: Backend + 'static, E>(
    open: &impl Fn() -> Result<Rig<B>, E>,
    mode: Mode,
    scenario: &Scenario<B>,
) -> Result<Result<Vec<CallKind>, String>, E> {
    let mut last = None;
    for _ in 0..10 {
        let mut scene = Scene::new(open()?, mode);
        let dry = catch_unwind(AssertUnwindSafe(|| scene.dry(scenario)));
        let calls = match dry {
            Ok(Ok(calls)) => calls,
            Ok(Err(error)) => return Ok(Err(format!("fails without a fault: {error}"))),
            Err(panic) => return Ok(Err(format!("panics without a fault: {}", sentence(panic)))),
        };
        if last.as_ref() == Some(&calls) {
            return Ok(Ok(calls));
        }
        last = Some(calls);
    }
    Ok(Err("makes other calls each time".into()))
}

fn inject<B: Backend + 'static>(
    tally: &mut Tally,
    mut scene: Scene<B>,
    scenario: &Scenario<B>,
    (plan, pick, kind): (Plan, usize, CallKind),
) {
    tally.injections += 1;
    let about = || format!("{} with {plan:?} ({kind:?}, answer {pick})", scenario.name);
    let ended = catch_unwind(AssertUnwindSafe(|| scene.run(scenario, plan, pick)));
    let verdict = ended.map_err(|panic| format!("panic: {}", sentence(panic))).and_then(|result| {
        let single = matches!(plan, Plan::Nth(_));
        judge(single, kind, errors(kind)[pick % errors(kind).len()], result)
    });
    match verdict {
        Ok(Answer::Reported) => tally.reported += 1,
        Ok(Answer::Absorbed) => tally.absorbed += 1,
        Err(why) => tally.wrong.push(format!("{}: {why}", about())),
    }
    let fault = match plan {
        Plan::LoseDeviceAt(_) => Fault::Loss,
        Plan::Pair(..) => Fault::Two,
        _ if kind == CallKind::UnmapPages => Fault::Unmap,
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
}

/// Whether an answer fits the fault.
fn judge(
    single: bool,
    kind: CallKind,
    injected: ErrorKind,
    result: omniheap_core::Result<()>,
) -> Result<Answer, String> {
    let Err(error) = result else {
        if !single || absorbed(kind, injected) {
            return Ok(Answer::Absorbed);
        }
        return Err(format!("{injected:?} was swallowed"));
    };
    let said = error.kind();
    // What the driver kept is missing afterwards.
    let short = said.is_out_of_memory() && (injected.is_out_of_memory() || kind.gives_up());
    if !single || said == injected || short {
        Ok(Answer::Reported)
    } else {
        Err(format!("{injected:?} was told as {said:?}"))
    }
}
