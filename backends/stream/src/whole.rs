//! Everything that a device does, as one timeline: what bytes wait for that any stream may use.
//!
//! Streams of other people may end at any time, so none of them is touched for this where the driver can follow its whole
//! context at once. Nothing of it may be called while a stream is captured: it would spoil the capture. A mark that is made then
//! is recorded when the capture has ended, and is reached that much later.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{
    StreamDriver, Timeline,
    event::{Event, Spare},
    lock,
    marks::Marks,
};
use core::sync::atomic::{AtomicUsize, Ordering};
use omniheap_seam::{Epoch, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// The whole device as a timeline.
pub(crate) struct Whole<D: StreamDriver> {
    driver: Arc<D>,
    spare: Arc<Spare<D>>,
    state: Mutex<State<D>>,
    /// Number of captures in progress.
    held: AtomicUsize,
}

struct State<D: StreamDriver> {
    marks: Marks<D>,
    /// True if the epoch behind the last mark was given out already.
    is_owed: bool,
    /// The stream that runs after all others, where the driver cannot follow them at once.
    join: Option<D::Stream>,
}

/// Lists the timelines of the device, for drivers that cannot follow all of them at once; `None` where the stream of one may have
/// ended.
pub(crate) type Open<'a, D> = &'a dyn Fn() -> Option<Vec<Arc<Timeline<D>>>>;

/// Returns whether a mark cannot be recorded now, but perhaps later.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Busy | ErrorKind::Unsupported)
}

impl<D: StreamDriver> Whole<D> {
    pub(crate) fn new(driver: &Arc<D>, spare: &Arc<Spare<D>>) -> Self {
        let marks = Marks::new(spare.clone());
        let state = Mutex::new(State { marks, is_owed: false, join: None });
        Self { driver: driver.clone(), spare: spare.clone(), state, held: AtomicUsize::new(0) }
    }

    /// Records nothing until [`release`](Self::release) was called as often.
    pub(crate) fn hold(&self) {
        // Under the lock, so that no mark is being recorded any more when this returns.
        let _state = lock(&self.state);
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what [`hold`](Self::hold) began.
    pub(crate) fn release(&self, open: Open<'_, D>) {
        let state = &mut *lock(&self.state);
        if self.held.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Captures may follow each other so closely that nobody else asks between them. Whoever asks next meets the error.
            let _ = self.record_owed(state, open);
        }
    }

    /// Marks everything submitted so far.
    pub(crate) fn mark(&self, open: Open<'_, D>) -> Result<Epoch> {
        let state = &mut *lock(&self.state);
        match self.record(state, open) {
            Err(error) if is_passing(error.kind()) => {
                state.is_owed = true;
                Ok(Epoch(state.marks.last() + 1))
            }
            marked => marked,
        }
    }

    pub(crate) fn reached(&self, open: Open<'_, D>) -> Result<Epoch> {
        let state = &mut *lock(&self.state);
        self.record_owed(state, open)?;
        state.marks.poll()?;
        Ok(Epoch(state.marks.reached()))
    }

    /// Returns the state, if nobody has it: whoever has it may wait for the device.
    fn try_state(&self) -> Option<MutexGuard<'_, State<D>>> {
        match self.state.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(state) => Some(state),
        }
    }

    /// As [`mark`](Self::mark), and waits for no other thread; `None` where that cannot be, or the driver cannot follow all streams
    /// at once.
    pub(crate) fn mark_at_once(&self) -> Option<Epoch> {
        let state = &mut *self.try_state()?;
        match self.record(state, &|| None) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                state.is_owed = true;
                Some(Epoch(state.marks.last() + 1))
            }
            marked => marked.ok(),
        }
    }

    /// As [`reached`](Self::reached), and waits for no other thread; `None` where that cannot be.
    pub(crate) fn reached_at_once(&self) -> Option<Epoch> {
        let state = &mut *self.try_state()?;
        self.record_owed(state, &|| None).ok()?;
        state.marks.poll().ok()?;
        Some(Epoch(state.marks.reached()))
    }

    /// Blocks until `epoch` is reached; `Busy` where that cannot be while a capture is under way.
    pub(crate) fn wait(&self, epoch: Epoch, open: Open<'_, D>) -> Result<()> {
        let mut state = lock(&self.state);
        self.record_owed(&mut state, open)?;
        if epoch.0 <= state.marks.last() {
            let found = state.marks.event_for(epoch)?;
            drop(state);
            let Some((reached, event)) = found else { return Ok(()) };
            event.wait()?;
            drop(event);
            lock(&self.state).marks.pass_to(reached);
            return Ok(());
        }
        if self.held.load(Ordering::Relaxed) > 0 {
            return Err(ErrorKind::Busy.into());
        }
        // The lock stays, so that no capture is announced meanwhile.
        self.driver.synchronize()?;
        state.marks.make_reached();
        state.is_owed = false;
        Ok(())
    }

    /// Blocks until the device has nothing to do; `Busy` while a capture is under way, which that would spoil.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        // The lock stays, so that no capture is announced meanwhile.
        let _state = lock(&self.state);
        if self.held.load(Ordering::Relaxed) > 0 {
            return Err(ErrorKind::Busy.into());
        }
        self.driver.synchronize()
    }

    /// Makes later work on a timeline run only after `epoch`; `Busy` where that cannot be now.
    pub(crate) fn hold_back(
        &self,
        later: &Timeline<D>,
        epoch: Epoch,
        open: Open<'_, D>,
    ) -> Result<()> {
        let state = &mut *lock(&self.state);
        self.record_owed(state, open)?;
        if epoch.0 > state.marks.last() {
            return Err(ErrorKind::Busy.into());
        }
        let Some((_, event)) = state.marks.event_for(epoch)? else { return Ok(()) };
        // SAFETY: the event is held here, and whoever names the timeline has its stream alive; the driver takes the event's
        // state now, so it may be recorded again later.
        unsafe { self.driver.order(later.stream()?, event.raw) }
    }

    /// Records the mark that was given out while it could not be recorded, if there is one and it can be now.
    fn record_owed(&self, state: &mut State<D>, open: Open<'_, D>) -> Result<()> {
        if !state.is_owed {
            return Ok(());
        }
        match self.record(state, open) {
            Err(error) if !is_passing(error.kind()) => Err(error),
            _ => Ok(()),
        }
    }

    fn record(&self, state: &mut State<D>, open: Open<'_, D>) -> Result<Epoch> {
        if self.held.load(Ordering::Relaxed) > 0 {
            return Err(ErrorKind::Busy.into());
        }
        let State { marks, is_owed, join } = state;
        let epoch = marks.make(&self.driver, |event| {
            // SAFETY: the event is held by the caller.
            match unsafe { self.driver.record_all(event.raw) } {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    self.record_each(join, open, event)
                }
                recorded => recorded,
            }
        })?;
        *is_owed = false;
        Ok(epoch)
    }

    /// Records an event behind all timelines, one by one: `Unsupported` where a stream may have ended, `Busy` where one is
    /// captured.
    fn record_each(
        &self,
        join: &mut Option<D::Stream>,
        open: Open<'_, D>,
        event: &Event<D>,
    ) -> Result<()> {
        let open = open().ok_or(ErrorKind::Unsupported)?;
        let streams: Vec<_> =
            open.iter().filter_map(|timeline| timeline.lasting_stream()).collect();
        for stream in &streams {
            // SAFETY: it lives as long as its timeline, which is held here.
            if unsafe { self.driver.capture(*stream) }?.is_some() {
                return Err(ErrorKind::Busy.into());
            }
        }
        let after_all = match *join {
            Some(stream) => stream,
            None => *join.insert(self.driver.create_stream()?),
        };
        let each = self.spare.take(&self.driver)?;
        let joined = streams.iter().try_for_each(|stream| {
            // SAFETY: as above.
            unsafe { each.record(*stream) }?;
            // SAFETY: both are held here; the driver takes the event's state now.
            unsafe { self.driver.order(after_all, each.raw) }
        });
        self.spare.put(each);
        joined?;
        // SAFETY: the stream is our own.
        unsafe { event.record(after_all) }
    }
}

impl<D: StreamDriver> Drop for Whole<D> {
    fn drop(&mut self) {
        if let Some(stream) = lock(&self.state).join.take() {
            // SAFETY: created in `record_each`, destroyed once here.
            let _ = unsafe { self.driver.destroy_stream(stream) };
        }
    }
}
