//! The suite bites: every bug planted in a backend is caught by a case that passes without it.
mod bug;
mod buggy;
mod launch;

use bug::{BUGS, Bug, Where};
use buggy::Buggy;
use core::ops::ControlFlow;
use omniheap_conformance::{Account, Mode, Outcome, Rig, run, soak::soak};
use omniheap_core::{Align, HeapKind, HostAccess, Result, SharedCaps};
use omniheap_host::{Host, heap};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Shared memory as many devices have it.
const SHARED: SharedCaps = SharedCaps {
    per_group: 48 << 10,
    per_group_opt_in: 96 << 10,
    per_multiprocessor: 96 << 10,
    banks: 32,
    bank_width: 4,
};

fn open(bug: Bug, place: Where) -> Result<Rig<Buggy>> {
    let host = Host::builder().heap(heap(HeapKind::Device, 512 * MIB)).shared(SHARED);
    let staging = heap(HeapKind::Staging, 512 * MIB);
    let host = if place == Where::Strange {
        host.heap(staging.host(HostAccess::Incoherent)).copy_align(Align::of(4))
    } else {
        host.heap(staging)
    };
    let host = Arc::new(host.open()?);
    let (held, lost) = (Arc::clone(&host), Arc::clone(&host));
    Ok(Rig::new(Buggy { host, bug })
        .with_hold(move |timeline| Ok(Box::new(held.hold(timeline)?)))
        .with_loss(move || lost.lose())
        .with_account(Account::Exact))
}

/// Returns the outcomes of a case with a bug in the backend, by type and erased.
fn outcomes(bug: Bug, place: Where, case: &str) -> Vec<Outcome> {
    let mode = if place == Where::Paged { "paged" } else { "plain" };
    let by = |mode: &str| {
        let results = run(
            "bite",
            move || open(bug, place),
            &format!("{mode}::{case}"),
            1,
            |_| ControlFlow::Continue(()),
        );
        let results = results.expect("host memory is here");
        assert_eq!(results.cases.len(), 1, "{mode}::{case} is one case");
        results.cases[0].outcome.clone()
    };
    if place == Where::Strange { vec![by("plain"), by("erased")] } else { vec![by(mode)] }
}

#[test]
fn every_planted_bug_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    assert!(BUGS.len() >= 20);
    let mut missed = Vec::new();
    for (bug, place, cases) in BUGS {
        for case in *cases {
            for outcome in outcomes(Bug::None, *place, case) {
                assert_eq!(outcome, Outcome::Passed, "{case} passes without a bug");
            }
        }
        let caught = |case: &&&str| {
            outcomes(*bug, *place, case).iter().all(|outcome| matches!(outcome, Outcome::Failed(_)))
        };
        match cases.iter().find(caught) {
            Some(case) => println!("{bug:?} is caught by {case}"),
            None => missed.push(bug),
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn a_soak_sees_bytes_that_are_lost() {
    let ends = |bug| {
        let rig = open(bug, Where::Plain).expect("host memory is here");
        soak(rig, Mode::Plain, 1, 5000).map(|done| done.checked > 0)
    };
    assert_eq!(ends(Bug::None), Ok(true));
    for bug in [Bug::CopyDoesNothing, Bug::CopyLosesTheLast, Bug::ReadZeros] {
        assert!(ends(bug).is_err_and(|why| why.contains("lost stamp")), "{bug:?}");
    }
}
