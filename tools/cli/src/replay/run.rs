//! One replay: every step in order, timed from the first to the last.
use super::clock::Clock;
use super::program::{Program, Step};
use core::time::Duration;
use omniheap::layers::{Layer, Record};
use omniheap::{
    AllocateError, Allocation, AnyBackend, Backend as _, ErrorKind, Manager, ManagerConfig,
    Request, TimelineId,
    seam::{Result, erase},
};
use std::sync::Arc;
use std::time::Instant;

/// Results of one replay.
#[derive(Debug)]
pub struct Played {
    /// Time from the first step to the last, driver calls included.
    pub time: Duration,
    /// Time inside driver calls that took or returned memory.
    pub driver_time: Duration,
    /// The most that the driver said was used beyond what was before, where it tells.
    pub driver_peak: Option<u64>,
    /// Steps whose allocation failed for want of memory, ascending.
    pub failed: Vec<u32>,
    /// The most that was held from the driver.
    pub peak_reserved: u64,
    /// Driver calls that took or returned memory, until the last step.
    pub driver_calls: u64,
    /// Bytes that defragmentation moved.
    pub moved: u64,
}

/// A device whose calls are counted and timed.
pub(super) type Watched = Record<Layer<AnyBackend, Clock>>;

/// Event that stops a replay early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Never: a failed allocation and its free are skipped.
    End,
    /// At the first allocation that fails.
    FirstFailure,
}

/// Replays `program` through `manager`. Streams become timelines of the device where it has them.
///
/// Reserved bytes are counted at the seam, not by the manager under test. `clock` asks the driver about its heap. `watch` sees the device after every step.
pub(super) fn play(
    backend: AnyBackend,
    clock: Clock,
    config: ManagerConfig,
    program: &Program,
    until: Until,
    mut watch: impl FnMut(usize, &Watched),
) -> Result<Played> {
    let before = clock.used();
    let record: Arc<Watched> = Arc::new(Record::new(Layer::wrap(backend, clock)));
    // Erased: a manager takes long to compile for each type of device, and the events of a replay rarely reach the device.
    let manager = &Manager::with_config(erase(Arc::clone(&record)), config);
    let timelines = open_timelines(&record, program.streams)?;
    let mut live: Vec<Option<Allocation<AnyBackend>>> = Vec::new();
    live.resize_with(program.numbers as usize, || None);
    let mut failed = Vec::new();
    let start = Instant::now();
    for (at, step) in program.steps.iter().enumerate() {
        match *step {
            Step::Allocate { align_log2, stream, number, size } => {
                let mut request = Request::new(size);
                request.layout = Step::layout(size, align_log2);
                request.timeline = timelines[usize::from(stream)];
                match manager.allocate(&request) {
                    Ok(allocation) => live[number as usize] = Some(allocation),
                    Err(error) => {
                        note_failure(&error, at, &mut failed)?;
                        if until == Until::FirstFailure {
                            break;
                        }
                    }
                }
            }
            Step::Free { number } => live[number as usize] = None,
        }
        watch(at, &record);
    }
    let elapsed = start.elapsed();
    let moved = manager.report().moved_bytes;
    let (peak_reserved, driver_calls) = (record.peak_bytes(), record.driver_calls());
    let (time, driver_time, most_used) = {
        let figures = record.inner().hooks().figures();
        (elapsed.saturating_sub(figures.asking), figures.driver, figures.most_used)
    };
    let driver_peak = most_used.zip(before).map(|(most, before)| most.saturating_sub(before));
    drop(live);
    close_timelines(&record, &timelines)?;
    Ok(Played { time, driver_time, driver_peak, failed, peak_reserved, driver_calls, moved })
}

/// Remembers an allocation that found no memory; any other error ends the replay.
#[cold]
fn note_failure(error: &AllocateError, at: usize, failed: &mut Vec<u32>) -> Result<()> {
    let is_too_large = matches!(error.kind(), ErrorKind::ExceedsLimit | ErrorKind::SizeOverflow);
    if !error.kind().is_out_of_memory() && !is_too_large {
        return Err(error.error());
    }
    failed.push(u32::try_from(at).map_err(|_| ErrorKind::SizeOverflow)?);
    Ok(())
}

/// Returns a timeline for each stream: the main one, then new ones, then the main one again when the device has no more.
fn open_timelines(backend: &Watched, streams: u16) -> Result<Vec<Option<TimelineId>>> {
    let Some(timelines) = backend.as_timelines() else {
        return Ok(vec![None; usize::from(streams)]);
    };
    let mut opened = vec![Some(TimelineId::MAIN)];
    for _ in 1..streams {
        match timelines.open() {
            Ok(timeline) => opened.push(Some(timeline)),
            Err(error) if error.kind() == ErrorKind::ExceedsLimit => {
                opened.push(Some(TimelineId::MAIN));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

fn close_timelines(backend: &Watched, opened: &[Option<TimelineId>]) -> Result<()> {
    let Some(timelines) = backend.as_timelines() else { return Ok(()) };
    let own = opened.iter().flatten().filter(|timeline| **timeline != TimelineId::MAIN);
    own.into_iter().try_for_each(|timeline| timelines.close(*timeline))
}
