//! Timelines of streams.
//!
//! A stream is known by its handle and its number. A handle that comes back with another number belongs to a new stream: the
//! earlier one is gone. Its timeline, with the memory that is cached there, goes to a new stream once everything that it was
//! given to do has finished.
#![expect(unsafe_code, reason = "borrows streams of the caller")]
use crate::streams::{Life, Streams};
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use omniheap::{ErrorKind, Point, TimelineId, seam::Result};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::thread::ThreadId;

/// Timelines that may go to another stream; any further ones stay with theirs.
const TURNS: usize = 4096;
/// The handle that stands for another stream on every thread, with both vendors.
pub(crate) const PER_THREAD: usize = 2;

thread_local! {
    /// The device, stream and seat that this thread used last: most programs stay on one.
    static LAST: Cell<Option<(u32, Name, Seat)>> = const { Cell::new(None) };
}

/// Tells streams apart that live now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    pub(crate) address: usize,
    /// The thread, where the handle means another stream on each.
    thread: Option<ThreadId>,
}

impl Handle {
    /// The handle of a stream, as this thread names it.
    #[inline]
    pub(crate) fn of(stream: *mut c_void) -> Self {
        let address = stream.addr();
        // All of them live at once, so that a number that is not the last thread's does not say that another stream is gone.
        let thread = (address == PER_THREAD).then(|| std::thread::current().id());
        Self { address, thread }
    }
}

/// Tells all streams of the process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    handle: Handle,
    number: Option<u64>,
}

impl Name {
    fn new(stream: *mut c_void, number: Option<u64>) -> Self {
        Self { handle: Handle::of(stream), number }
    }
}

/// A timeline, while it belongs to one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) timeline: TimelineId,
    turn: u32,
}

/// The seats of one device.
pub(crate) struct Seats {
    ordinal: u32,
    inner: RwLock<Inner>,
    /// Number of streams that had each timeline before.
    turns: Box<[AtomicU32]>,
}

#[derive(Default)]
struct Inner {
    taken: HashMap<Handle, (Option<u64>, Seat)>,
    /// Timelines of streams that are gone, and when all of their work has finished.
    left: Vec<(TimelineId, Point)>,
}

impl Seats {
    pub(crate) fn new(ordinal: u32) -> Self {
        let turns = (0..TURNS).map(|_| AtomicU32::new(0)).collect();
        Self { ordinal, inner: RwLock::default(), turns }
    }

    /// The seat of a stream with this number, where the driver has numbers.
    ///
    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    #[inline]
    pub(crate) unsafe fn of<B: Streams>(
        &self,
        backend: &B,
        stream: *mut c_void,
        number: Option<u64>,
        life: Life,
    ) -> Result<Seat> {
        let name = Name::new(stream, number);
        if let Some((ordinal, last, seat)) = LAST.get()
            && ordinal == self.ordinal
            && last == name
        {
            return Ok(seat);
        }
        let seat = match self.known(name) {
            Some(seat) => seat,
            // SAFETY: the caller's promise.
            None => unsafe { self.take(backend, stream, name, life) }?,
        };
        LAST.set(Some((self.ordinal, name, seat)));
        Ok(seat)
    }

    fn known(&self, name: Name) -> Option<Seat> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).known(name)
    }

    /// Returns true if the timeline still belongs to the stream that it was given to.
    #[inline]
    pub(crate) fn is_current(&self, seat: Seat) -> bool {
        self.turn(seat.timeline).is_none_or(|turn| turn.load(Relaxed) == seat.turn)
    }

    fn turn(&self, timeline: TimelineId) -> Option<&AtomicU32> {
        self.turns.get(usize::try_from(timeline.0).ok()?)
    }

    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    #[cold]
    unsafe fn take<B: Streams>(
        &self,
        backend: &B,
        stream: *mut c_void,
        name: Name,
        life: Life,
    ) -> Result<Seat> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = inner.known(name) {
            return Ok(seat);
        }
        if let Some((_, gone)) = inner.taken.remove(&name.handle)
            && self.turn(gone.timeline).is_some()
        {
            // Nothing is submitted to it any more, so a mark that is made now stands for all of its work.
            let point = mark_all(backend)?;
            inner.left.push((gone.timeline, point));
        }
        let seat = match inner.take_left(backend)? {
            Some(timeline) => {
                // SAFETY: the caller's promise; `take_left` saw the earlier stream's work finished.
                unsafe { backend.borrow_again(timeline, stream) }?;
                let turn = self.turn(timeline).map_or(0, |turn| turn.fetch_add(1, Relaxed) + 1);
                Seat { timeline, turn }
            }
            // SAFETY: the caller's promise.
            None => Seat { timeline: unsafe { backend.borrow(stream, life) }?, turn: 0 },
        };
        inner.taken.insert(name.handle, (name.number, seat));
        Ok(seat)
    }
}

impl Inner {
    fn known(&self, name: Name) -> Option<Seat> {
        let (number, seat) = *self.taken.get(&name.handle)?;
        (number == name.number).then_some(seat)
    }

    /// A timeline whose stream is gone and has nothing left to do.
    fn take_left<B: Streams>(&mut self, backend: &B) -> Result<Option<TimelineId>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let timelines = backend.as_timelines().ok_or(ErrorKind::Unsupported)?;
        let reached = timelines.reached(TimelineId::ALL)?;
        let found = self.left.iter().position(|(_, point)| point.epoch <= reached);
        Ok(found.map(|at| self.left.swap_remove(at).0))
    }
}

/// A point that is reached once everything that any stream was given to do has finished.
pub(crate) fn mark_all<B: Streams>(backend: &B) -> Result<Point> {
    let timelines = backend.as_timelines().ok_or(ErrorKind::Unsupported)?;
    Ok(Point { timeline: TimelineId::ALL, epoch: timelines.mark(TimelineId::ALL)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use omniheap::host::Host;

    #[test]
    fn one_handle_is_another_stream_on_every_thread_whether_it_has_a_number() {
        let name = |handle: usize, number| Name::new(ptr::without_provenance_mut(handle), number);
        let same = |handle: usize, number: Option<u64>| {
            let there = std::thread::spawn(move || name(handle, number)).join();
            there.expect("it has no reason to panic") == name(handle, number)
        };
        assert!(same(5, None) && same(5, Some(1)));
        assert!(!same(PER_THREAD, None) && !same(PER_THREAD, Some(1)));
        assert_ne!(name(5, Some(1)), name(5, Some(2)));
    }

    #[test]
    fn streams_of_threads_have_a_timeline_each_and_keep_it() {
        let (seats, host) = (Seats::new(0), Host::new());
        let seat = |number| {
            let stream = ptr::without_provenance_mut(PER_THREAD);
            // SAFETY: to host memory a stream is a number.
            unsafe { seats.of(&host, stream, Some(number), Life::Process) }
                .map(|seat| seat.timeline)
        };
        let elsewhere = |number| {
            let there = std::thread::scope(|scope| scope.spawn(|| seat(number)).join());
            there.expect("it has no reason to panic").expect("a timeline of its own")
        };
        let here = seat(1).expect("a timeline");
        let others = [2, 3].map(elsewhere);
        assert!(others[0] != others[1] && !others.contains(&here), "{here:?} {others:?}");
        assert_eq!(seats.inner.read().map(|inner| inner.left.len()).ok(), Some(0), "all live");
        assert_eq!(seat(1).ok(), Some(here));
    }
}
