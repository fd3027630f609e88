//! A trace planned ahead, and replayed by its plan.
use super::program::{Program, Step};
use core::time::Duration;
use omniheap::layers::Record;
use omniheap::schedule::{Installed, NoSchedule, Schedule, schedule_from_trace};
use omniheap::trace::Trace;
use omniheap::{
    Allocation, AnyBackend, Manager, ManagerConfig, Request,
    seam::{Result, erase},
};
use std::sync::Arc;
use std::time::Instant;

/// Limits of the work on places.
const LONGEST: Duration = Duration::from_secs(10);
const STEPS: u64 = 1_000_000;

/// Results of a replay by plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The most that was held from the driver.
    pub peak_reserved: u64,
    /// Requests that did not get their planned place.
    pub deviations: u64,
}

/// Plans a trace, with every span aligned as the manager aligns them; `None` when it allocates nothing.
pub fn planned(trace: &Trace) -> Result<Option<Schedule>, NoSchedule> {
    if trace.allocations() == 0 {
        return Ok(None);
    }
    let start = Instant::now();
    let is_late = || start.elapsed() > LONGEST;
    schedule_from_trace(trace, ManagerConfig::default().unit, STEPS, &is_late).map(Some)
}

/// Replays a program by the schedule of its trace.
pub(super) fn keep(
    backend: AnyBackend,
    config: ManagerConfig,
    program: &Program,
    schedule: &Schedule,
) -> Result<Kept> {
    let record = Arc::new(Record::new(backend));
    let manager = Manager::with_config(erase(Arc::clone(&record)), config);
    let installed = Installed::new(&manager, schedule.clone(), None)?;
    let mut live: Vec<Option<Allocation<AnyBackend>>> = Vec::new();
    live.resize_with(program.numbers as usize, || None);
    for step in &program.steps {
        match *step {
            Step::Allocate { align_log2, number, size, .. } => {
                let mut request = Request::new(size);
                request.layout = Step::layout(size, align_log2);
                live[number as usize] = Some(installed.allocate(&request)?);
            }
            Step::Free { number } => live[number as usize] = None,
        }
    }
    let report = installed.report();
    let deviations = report.extra + report.skipped + report.occupied;
    Ok(Kept { peak_reserved: record.peak_bytes(), deviations })
}
