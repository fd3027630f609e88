//! Events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::code::{Answer, Code};
use crate::handle;
use crate::knobs::knobs;
use crate::marker::Marker;
use crate::op::Op;
use crate::stream;

/// The flag of events that keep no time.
const NO_TIMING: u32 = 2;

#[derive(Clone, Debug)]
struct Event {
    context: u64,
    flags: u32,
    after: Vec<Arc<Marker>>,
    is_recorded: bool,
    /// True once somebody asked whether it is over.
    is_asked: bool,
    /// Graph of the capture that it was last recorded in.
    graph: Option<u64>,
}

static EVENTS: Mutex<BTreeMap<u64, Event>> = Mutex::new(BTreeMap::new());

fn events() -> MutexGuard<'static, BTreeMap<u64, Event>> {
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn get(event: u64) -> Answer<Event> {
    events().get(&event).cloned().ok_or(Code::INVALID_HANDLE)
}

pub(crate) fn create(context: u64, flags: u32) -> u64 {
    let handle = handle::fresh();
    let after = Vec::new();
    events().insert(
        handle,
        Event { context, flags, after, is_recorded: false, is_asked: false, graph: None },
    );
    handle
}

pub(crate) fn destroy(event: u64) -> Answer {
    events().remove(&event).map(drop).ok_or(Code::INVALID_HANDLE)
}

/// Forgets the events of a context.
pub(crate) fn forget(context: u64) {
    events().retain(|_, event| event.context != context);
}

fn set(event: u64, after: Vec<Arc<Marker>>, graph: Option<u64>) {
    if let Some(event) = events().get_mut(&event) {
        event.after = after;
        event.graph = graph;
        event.is_recorded = true;
        event.is_asked = false;
    }
}

/// Records the end of the work queued in a stream so far.
pub(crate) fn record(event: u64, stream: u64) -> Answer {
    let found = get(event)?;
    if found.context != stream::about(stream)?.context {
        return Err(Code::INVALID_HANDLE);
    }
    let graph = stream::standing(stream)?.map(|(graph, _)| graph);
    let end = stream::submit(stream, Op::Nothing)?;
    set(event, vec![end], graph);
    Ok(())
}

/// Records the ends of the work queued in all streams of a context so far.
pub(crate) fn record_all(event: u64, context: u64) -> Answer {
    if get(event)?.context != context {
        return Err(Code::INVALID_HANDLE);
    }
    set(event, stream::ends(context), None);
    Ok(())
}

fn outside(event: u64) -> Answer<Event> {
    let found = get(event)?;
    if found.graph.is_some() { Err(Code::CAPTURED_EVENT) } else { Ok(found) }
}

/// Returns true if all work before the event's record has ended.
pub(crate) fn is_over(event: u64) -> Answer<bool> {
    let found = outside(event)?;
    let is_first =
        events().get_mut(&event).is_some_and(|it| !core::mem::replace(&mut it.is_asked, true));
    let is_late = knobs().is_late && found.is_recorded && is_first;
    Ok(!is_late && found.after.iter().all(|end| end.is_set()))
}

/// Waits until all work before the event's record has ended.
pub(crate) fn wait(event: u64) -> Answer {
    outside(event)?.after.iter().for_each(|end| end.wait());
    Ok(())
}

/// Has a stream wait for an event.
pub(crate) fn order(stream: u64, event: u64) -> Answer {
    let found = get(event)?;
    match found.graph {
        Some(graph) => stream::join(stream, graph),
        None if !found.is_recorded => stream::about(stream).map(drop),
        None => stream::wait_for(stream, found.after),
    }
}

/// Returns the milliseconds between two events.
pub(crate) fn elapsed(first: u64, second: u64) -> Answer<f32> {
    let time = |event| -> Answer<Instant> {
        let found = outside(event)?;
        if found.flags & NO_TIMING != 0 || !found.is_recorded {
            return Err(Code::INVALID_HANDLE);
        }
        let times: Option<Vec<_>> = found.after.iter().map(|end| end.time()).collect();
        times.ok_or(Code::NOT_READY)?.into_iter().max().ok_or(Code::NOT_READY)
    };
    let (first, second) = (time(first)?, time(second)?);
    let seconds = second.saturating_duration_since(first).as_secs_f32();
    Ok(seconds * 1000.0)
}
