//! Streams: a thread with a queue each, whose work runs some time after it was queued.
//!
//! The legacy stream of a context is in order with its blocking streams. All other order comes from events and the program.

mod capture;
mod worker;

pub(crate) use capture::{Mode, admit_unsafe, begin, end, exchange_mode, join, standing};

use core::cell::Cell;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::entry::{self, Default};
use crate::ffi::Word;
use crate::graph;
use crate::handle;
use crate::marker::Marker;
use crate::op::Op;
use capture::Captures;
use worker::Job;

/// Order of a stream towards others of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Legacy,
    Blocking,
    Free,
}

#[derive(Debug)]
struct Stream {
    context: u64,
    order: Order,
    number: u64,
    priority: i32,
    queue: Sender<Job>,
    last: Arc<Marker>,
    /// The capture that it takes part in.
    capture: Option<u64>,
}

/// Unfinished work of a destroyed stream.
#[derive(Debug)]
struct Ghost {
    context: u64,
    order: Order,
    last: Arc<Marker>,
}

#[derive(Debug)]
struct Streams {
    all: BTreeMap<u64, Stream>,
    /// Default streams by context and thread; thread zero has the legacy one.
    defaults: BTreeMap<(u64, u64), u64>,
    ghosts: Vec<Ghost>,
    captures: Captures,
    numbers: u64,
}

static STREAMS: Mutex<Streams> = Mutex::new(Streams {
    all: BTreeMap::new(),
    defaults: BTreeMap::new(),
    ghosts: Vec::new(),
    captures: Captures::new(),
    numbers: 0,
});

fn streams() -> MutexGuard<'static, Streams> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number of this thread, which is not zero.
fn thread_number() -> u64 {
    if THREAD.get() == 0 {
        THREAD.set(handle::fresh());
    }
    THREAD.get()
}

impl Streams {
    fn add(&mut self, handle: u64, context: u64, order: Order, priority: i32) {
        self.numbers += 1;
        let stream = Stream {
            context,
            order,
            number: self.numbers,
            priority,
            queue: worker::start(context),
            last: Marker::ended(),
            capture: None,
        };
        self.all.insert(handle, stream);
    }

    /// Returns a default stream, and makes it at first use.
    fn default(&mut self, context: u64, which: Default) -> u64 {
        let (thread, order) = match which {
            Default::Legacy => (0, Order::Legacy),
            Default::PerThread => (thread_number(), Order::Blocking),
        };
        if let Some(&handle) = self.defaults.get(&(context, thread)) {
            return handle;
        }
        let handle = handle::fresh();
        self.add(handle, context, order, 0);
        self.defaults.insert((context, thread), handle);
        handle
    }

    fn get(&mut self, stream: u64) -> Answer<&mut Stream> {
        self.all.get_mut(&stream).ok_or(Code::INVALID_HANDLE)
    }

    /// Returns the ends of unfinished work of a context, for streams whose order `is_meant` accepts.
    fn ends(&mut self, context: u64, is_meant: impl Fn(Order) -> bool) -> Vec<Arc<Marker>> {
        self.ghosts.retain(|ghost| !ghost.last.is_set());
        let ghosts = self.ghosts.iter().map(|ghost| (ghost.context, ghost.order, &ghost.last));
        let alive = self.all.values().map(|stream| (stream.context, stream.order, &stream.last));
        let meant = alive.chain(ghosts).filter(|(of, order, _)| *of == context && is_meant(*order));
        meant.map(|(_, _, last)| Arc::clone(last)).filter(|last| !last.is_set()).collect()
    }

    /// Returns the ends that new work of a stream must wait for, beside the work ahead of it in its queue.
    fn before(&mut self, context: u64, order: Order) -> Vec<Arc<Marker>> {
        match order {
            Order::Legacy => self.ends(context, |order| order == Order::Blocking),
            Order::Blocking => self.ends(context, |order| order == Order::Legacy),
            Order::Free => Vec::new(),
        }
    }

    fn queue(
        &mut self,
        handle: u64,
        ops: Vec<Op>,
        mut after: Vec<Arc<Marker>>,
    ) -> Answer<Arc<Marker>> {
        let stream = self.get(handle)?;
        let (context, order) = (stream.context, stream.order);
        after.extend(self.before(context, order));
        let end = Arc::new(Marker::default());
        let job = Job::new(ops, after, Arc::clone(&end));
        let stream = self.get(handle)?;
        stream.last = Arc::clone(&end);
        // The thread lives as long as the stream does.
        stream.queue.send(job).map_err(|_| Code::UNKNOWN)?;
        Ok(end)
    }
}

/// Makes a stream.
pub(crate) fn create(context: u64, order: Order, priority: i32) -> u64 {
    let handle = handle::fresh();
    streams().add(handle, context, order, priority);
    handle
}

/// Returns the stream of a handle from C. Some handles stand for default streams.
pub(crate) fn resolve(stream: Word, context: u64) -> Answer<u64> {
    let mut streams = streams();
    let which = match stream.number() {
        0 => entry::default_stream(),
        1 => Default::Legacy,
        2 => Default::PerThread,
        handle => return streams.get(handle).map(|_| handle),
    };
    Ok(streams.default(context, which))
}

/// Queues work, or adds it to the graph that the stream is being captured into. Returns its end.
pub(crate) fn submit(stream: u64, op: Op) -> Answer<Arc<Marker>> {
    let mut streams = streams();
    if let Some(graph) = streams.captured(stream)? {
        graph::push(graph, op)?;
        return Ok(Marker::ended());
    }
    streams.queue(stream, vec![op], Vec::new())
}

/// Queues all work of a graph as one.
pub(crate) fn submit_all(stream: u64, ops: Vec<Op>) -> Answer {
    let mut streams = streams();
    if let Some(graph) = streams.captured(stream)? {
        return ops.into_iter().try_for_each(|op| graph::push(graph, op));
    }
    streams.queue(stream, ops, Vec::new()).map(drop)
}

/// Has a stream wait for other work.
pub(crate) fn wait_for(stream: u64, after: Vec<Arc<Marker>>) -> Answer {
    let mut streams = streams();
    if streams.captured(stream)?.is_some() {
        // Work from outside of the capture, which a graph cannot wait for.
        streams.invalidate(stream);
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    streams.queue(stream, vec![Op::Nothing], after).map(drop)
}

/// Waits until all work of a stream has ended.
pub(crate) fn synchronize(stream: u64) -> Answer {
    let mut streams = streams();
    if streams.captured(stream)?.is_some() {
        streams.invalidate(stream);
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    let end = streams.queue(stream, vec![Op::Nothing], Vec::new())?;
    drop(streams);
    end.wait();
    Ok(())
}

/// Returns true if all work of a stream has ended.
pub(crate) fn is_idle(stream: u64) -> Answer<bool> {
    let mut streams = streams();
    if streams.captured(stream)?.is_some() {
        streams.invalidate(stream);
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    let (context, order) = streams.get(stream).map(|stream| (stream.context, stream.order))?;
    let is_idle = streams.get(stream)?.last.is_set();
    Ok(is_idle && (order != Order::Legacy || streams.before(context, order).is_empty()))
}

/// Returns the ends of all work of a context.
pub(crate) fn ends(context: u64) -> Vec<Arc<Marker>> {
    streams().ends(context, |_| true)
}

/// Waits until all work of a context has ended.
pub(crate) fn drain(context: u64) {
    ends(context).iter().for_each(|end| end.wait());
}

/// Facts of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) context: u64,
    pub(crate) order: Order,
    pub(crate) number: u64,
    pub(crate) priority: i32,
}

pub(crate) fn about(stream: u64) -> Answer<About> {
    let mut streams = streams();
    let &mut Stream { context, order, number, priority, .. } = streams.get(stream)?;
    Ok(About { context, order, number, priority })
}

/// Destroys a stream; its work goes on.
pub(crate) fn destroy(stream: u64) -> Answer {
    let mut streams = streams();
    streams.invalidate(stream);
    let Stream { context, order, last, .. } =
        streams.all.remove(&stream).ok_or(Code::INVALID_HANDLE)?;
    streams.ghosts.push(Ghost { context, order, last });
    Ok(())
}

/// Forgets the streams of a context, whose work has ended.
pub(crate) fn forget(context: u64) {
    let mut streams = streams();
    streams.all.retain(|_, stream| stream.context != context);
    streams.defaults.retain(|(of, _), _| *of != context);
    streams.ghosts.retain(|ghost| ghost.context != context);
}
