//! Second act: two timelines that allocate and free in their own order.
use super::super::{Failure, output};
use core::time::Duration;
use omniheap::{AnyBackend, Manager, ManagerConfig, Request, TimelineId, seam::Result};
use serde::Serialize;
use std::time::Instant;

const ROUNDS: u32 = 500;
const SIZE: u64 = 256 << 10;

/// Cost of the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Reuse {
    timelines: u32,
    rounds: u32,
    driver_calls_first_round: u64,
    driver_calls_later: u64,
    ns_per_round: u64,
}

/// Runs the rounds.
pub(super) fn run(device: &AnyBackend, config: &ManagerConfig) -> Result<Reuse, Failure> {
    let manager = Manager::with_config(AnyBackend::clone(device), config.clone());
    let timelines = open(&manager)?;
    round(&manager, &timelines)?;
    let first = manager.report().driver_calls;
    let start = Instant::now();
    for _ in 1..ROUNDS {
        round(&manager, &timelines)?;
    }
    let time = start.elapsed();
    manager.backend().wait_idle()?;
    let later = manager.report().driver_calls - first;
    close(&manager, &timelines)?;
    Ok(Reuse {
        timelines: u32::try_from(timelines.len()).unwrap_or(u32::MAX),
        rounds: ROUNDS,
        driver_calls_first_round: first,
        driver_calls_later: later,
        ns_per_round: nanoseconds(time / (ROUNDS - 1)),
    })
}

/// Allocates, fills and frees on every timeline; the bytes are reusable in its order at once.
fn round(manager: &Manager<AnyBackend>, timelines: &[Option<TimelineId>]) -> Result<(), Failure> {
    for timeline in timelines {
        let mut request = Request::new(SIZE);
        request.timeline = *timeline;
        let allocation =
            manager.allocate(&request).map_err(|error| Failure::failed(error.to_string()))?;
        allocation.fill(0, SIZE, 7)?;
    }
    Ok(())
}

/// Returns the main timeline and another one, where the device has them.
fn open(manager: &Manager<AnyBackend>) -> Result<Vec<Option<TimelineId>>> {
    let Some(timelines) = manager.backend().as_timelines() else { return Ok(vec![None]) };
    let other = timelines.open().ok();
    Ok([Some(TimelineId::MAIN), other].into_iter().filter(Option::is_some).collect())
}

fn close(manager: &Manager<AnyBackend>, opened: &[Option<TimelineId>]) -> Result<()> {
    let Some(timelines) = manager.backend().as_timelines() else { return Ok(()) };
    let own = opened.iter().flatten().filter(|timeline| **timeline != TimelineId::MAIN);
    own.into_iter().try_for_each(|timeline| timelines.close(*timeline))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One line for people.
pub(super) fn text(reuse: &Reuse) -> String {
    format!(
        "  {} rounds of {} on {} timelines; driver calls: {} in the first round, {} in all others",
        reuse.rounds,
        output::bytes(SIZE),
        reuse.timelines,
        reuse.driver_calls_first_round,
        reuse.driver_calls_later
    )
}
