//! Captures: work of streams is added to a graph and does not run.

use core::cell::Cell;
use std::collections::BTreeMap;

use super::{Order, Streams, streams, thread_number};
use crate::code::{Answer, Code};
use crate::graph;

/// Calls that a capture forbids while it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unsafe calls on every thread.
    Global,
    /// Unsafe calls on the thread that began the capture.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    pub(crate) fn new(number: u32) -> Answer<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// One capture; its graph's handle is its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    origin: u64,
    pub(crate) id: u64,
    mode: Mode,
    thread: u64,
    pub(crate) is_spoiled: bool,
}

#[derive(Debug)]
pub(super) struct Captures {
    all: BTreeMap<u64, Capture>,
    ids: u64,
}

impl Captures {
    pub(super) const fn new() -> Self {
        Self { all: BTreeMap::new(), ids: 0 }
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Replaces this thread's mode for calls while captures are under way.
pub(crate) fn exchange_mode(mode: Mode) -> u32 {
    match MODE.replace(mode) {
        Mode::Global => 0,
        Mode::ThreadLocal => 1,
        Mode::Relaxed => 2,
    }
}

impl Streams {
    /// Returns the graph that a stream is being captured into.
    pub(super) fn captured(&mut self, stream: u64) -> Answer<Option<u64>> {
        let (context, order, capture) = {
            let stream = self.get(stream)?;
            (stream.context, stream.order, stream.capture)
        };
        if order == Order::Legacy {
            return self.spare_legacy(context).map(|()| None);
        }
        match capture.map(|graph| (graph, self.captures.all.get(&graph))) {
            Some((_, Some(capture))) if capture.is_spoiled => Err(Code::CAPTURE_INVALIDATED),
            Some((graph, Some(_))) => Ok(Some(graph)),
            _ => Ok(None),
        }
    }

    /// Refuses work of the legacy stream, because it would have to wait for a captured stream.
    fn spare_legacy(&mut self, context: u64) -> Answer {
        let is_captured = |stream: &super::Stream| {
            stream.context == context && stream.order == Order::Blocking && stream.capture.is_some()
        };
        let Some(graph) =
            self.all.values().find(|stream| is_captured(stream)).and_then(|s| s.capture)
        else {
            return Ok(());
        };
        if let Some(capture) = self.captures.all.get_mut(&graph) {
            capture.is_spoiled = true;
        }
        Err(Code::CAPTURE_IMPLICIT)
    }

    /// Spoils the capture that a stream takes part in.
    pub(super) fn invalidate(&mut self, stream: u64) {
        let graph = self.all.get(&stream).and_then(|stream| stream.capture);
        if let Some(capture) = graph.and_then(|graph| self.captures.all.get_mut(&graph)) {
            capture.is_spoiled = true;
        }
    }
}

/// Refuses a call that may break captures, and spoils them.
pub(crate) fn admit_unsafe() -> Answer {
    let own = MODE.get();
    if own == Mode::Relaxed {
        return Ok(());
    }
    let thread = thread_number();
    let mut streams = streams();
    let is_hit = |capture: &Capture| match (capture.mode, own) {
        (Mode::Relaxed, _) => false,
        (Mode::Global, Mode::Global) => true,
        _ => capture.thread == thread,
    };
    let mut code = Ok(());
    for capture in streams.captures.all.values_mut().filter(|capture| is_hit(capture)) {
        capture.is_spoiled = true;
        code = Err(Code::CAPTURE_UNSUPPORTED);
    }
    code
}

/// Begins to capture a stream.
pub(crate) fn begin(stream: u64, mode: Mode) -> Answer {
    let mut streams = streams();
    let found = streams.get(stream)?;
    if found.order == Order::Legacy {
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    if found.capture.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let graph = graph::create();
    found.capture = Some(graph);
    streams.captures.ids += 1;
    let (id, thread) = (streams.captures.ids, thread_number());
    let capture = Capture { origin: stream, id, mode, thread, is_spoiled: false };
    streams.captures.all.insert(graph, capture);
    Ok(())
}

/// Ends a capture, and returns its graph.
pub(crate) fn end(stream: u64) -> Answer<u64> {
    let mut streams = streams();
    let graph = streams.get(stream)?.capture.ok_or(Code::ILLEGAL_STATE)?;
    let capture = *streams.captures.all.get(&graph).ok_or(Code::UNKNOWN)?;
    if capture.origin != stream {
        return Err(Code::CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != thread_number() {
        return Err(Code::CAPTURE_WRONG_THREAD);
    }
    streams.captures.all.remove(&graph);
    for stream in streams.all.values_mut().filter(|stream| stream.capture == Some(graph)) {
        stream.capture = None;
    }
    drop(streams);
    if capture.is_spoiled {
        let _ = graph::destroy(graph);
        return Err(Code::CAPTURE_INVALIDATED);
    }
    Ok(graph)
}

/// Returns the capture that a stream takes part in, and its graph.
pub(crate) fn standing(stream: u64) -> Answer<Option<(u64, Capture)>> {
    let mut streams = streams();
    let (context, order, graph) = {
        let stream = streams.get(stream)?;
        (stream.context, stream.order, stream.capture)
    };
    let blocked = |stream: &super::Stream| {
        stream.context == context && stream.order == Order::Blocking && stream.capture.is_some()
    };
    if order == Order::Legacy && streams.all.values().any(blocked) {
        return Err(Code::CAPTURE_IMPLICIT);
    }
    Ok(graph.and_then(|graph| Some((graph, *streams.captures.all.get(&graph)?))))
}

/// Has a stream take part in the capture of a graph.
pub(crate) fn join(stream: u64, graph: u64) -> Answer {
    let mut streams = streams();
    if !streams.captures.all.contains_key(&graph) {
        return Err(Code::CAPTURED_EVENT);
    }
    let found = streams.get(stream)?;
    match found.capture {
        Some(other) if other != graph => Err(Code::CAPTURE_MERGE),
        _ if found.order == Order::Legacy => Err(Code::CAPTURE_IMPLICIT),
        _ => {
            found.capture = Some(graph);
            Ok(())
        }
    }
}
