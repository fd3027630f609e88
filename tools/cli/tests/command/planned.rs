//! A recorded iteration that runs again by its plan, with every byte checked.
use crate::support::churn;
use omniheap::host::Host;
use omniheap::schedule::{
    Buffer, Flaw, Installed, NoSchedule, Problem, ProblemError, Region, Schedule, ScheduleError,
    place, schedule_from_trace,
};
use omniheap::trace::{Limits, Op, Trace};
use omniheap::{Align, Allocation, Manager, Request};
use std::collections::BTreeMap;

fn bytes(seed: u32, size: u64) -> Vec<u8> {
    let seed = u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..size).map(|at| (seed.rotate_left(7) ^ at ^ (at >> 8)).to_le_bytes()[0]).collect()
}

fn check(allocation: &Allocation<Host>, seed: u32) {
    let mut seen = vec![0; usize::try_from(allocation.size()).expect("small")];
    allocation.read(0, &mut seen).expect("in range");
    assert!(seen == bytes(seed, allocation.size()), "allocation {seed} lost its bytes");
}

#[test]
fn a_recorded_iteration_runs_by_its_plan() {
    let sample = churn(1200, 1, 32 << 10);
    let trace = Trace::read(sample.csv.as_bytes(), &Limits::default()).expect("a trace");
    let schedule = schedule_from_trace(&trace, Align::of(256), 0, &|| false);
    let schedule = schedule.expect("it can be planned");
    let manager = Manager::new(Host::new());
    let installed = Installed::new(&manager, schedule, None).expect("it fits");
    let mut live = BTreeMap::new();
    for event in trace.events() {
        match event.op {
            Op::Allocate { id, size, .. } => {
                let one = installed.allocate(&Request::new(size)).expect("planned");
                one.write(0, &bytes(id.0, size)).expect("in range");
                live.insert(id.0, one);
            }
            Op::FreeCompleted { id, .. } => {
                let one = live.remove(&id.0).expect("live until now");
                check(&one, id.0);
            }
            _ => {}
        }
    }
    live.iter().for_each(|(id, one)| check(one, *id));
    let report = installed.report();
    assert_eq!((report.served, report.last), (u64::from(trace.allocations()), None));
    assert_eq!(report.rounds, 1);
    let reserved = manager.totals().reserved_bytes;
    assert!(reserved < sample.peak_live * 5 / 4, "{reserved} for {}", sample.peak_live);
}

#[test]
fn plans_that_cannot_be_handed_out_say_why() {
    let mut problem = Problem::new(Region::bounded(100));
    problem.push(Buffer::new(0, 0, 9));
    let a = problem.push(Buffer::new(60, 0, 9));
    let b = problem.push(Buffer::new(60, 5, 12));
    let spots = place(&problem, 100, &|| false).expect("it makes sense");
    let above = NoSchedule::Places(Flaw::Capacity { buffer: b });
    assert_eq!(Schedule::from_spots(&problem, &spots, &[]), Err(above));
    problem.aliases.push((a, b));
    let spots = place(&problem, 100, &|| false).expect("it makes sense");
    let shared = ScheduleError::Overlap { first: a, second: b };
    assert_eq!(Schedule::from_spots(&problem, &spots, &[]), Err(NoSchedule::Spans(shared)));
    problem.aliases.push((a, 9));
    let wrong = Schedule::from_spots(&problem, &spots, &[]);
    assert_eq!(wrong, Err(NoSchedule::Problem(ProblemError::Pair { a, b: 9 })));
}
