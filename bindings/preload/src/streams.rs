//! Timelines of the streams of one context. That of a stream which is gone goes to a new one, once its work has run: a device has a
//! limited number of timelines, and programs may make a stream for each request. Where the driver has no mark of all work, nobody knows
//! when that was: its timeline goes to none.
#![expect(unsafe_code, reason = "borrows streams of the program")]
use crate::lock;
use crate::real::Handle;
use crate::vendor::Vendor;
use omniheap_core::{Epoch, TimelineId};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock, RwLockWriteGuard};

/// The mark that every device has passed: of the streams of a driver that waits for them.
pub(crate) const DONE: Epoch = Epoch(0);

/// A stream: its handle, and the number that no other stream has.
type Name = (usize, u64);

/// A timeline whose stream goes, and the mark after which nothing of it runs.
pub(crate) type Left = (TimelineId, Epoch);

/// Timelines of the streams of one context.
#[derive(Default)]
pub(crate) struct Streams {
    known: RwLock<HashMap<Name, TimelineId>>,
    left: Mutex<Vec<Left>>,
}

impl Streams {
    fn change(&self) -> RwLockWriteGuard<'_, HashMap<Name, TimelineId>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the timeline of the stream of this context with this number.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream.
    pub(crate) unsafe fn timeline<V: Vendor>(
        &self,
        gpu: &V::Gpu,
        stream: Handle,
        number: u64,
    ) -> Option<TimelineId> {
        let name = (stream.addr(), number);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        if known.is_some() {
            return known;
        }
        // Asked before the lock, for which others wait to have memory.
        let reached = self.reached::<V>(gpu);
        let mut streams = self.change();
        if let Some(known) = streams.get(&name) {
            return Some(*known); // Another thread was first.
        }
        // SAFETY: the caller's promise.
        let timeline = match unsafe { self.take_left::<V>(gpu, stream, reached) } {
            Some(timeline) => timeline,
            // SAFETY: as above.
            None => unsafe { gpu.borrow_stream(V::native(stream)) }.ok()?,
        };
        streams.insert(name, timeline);
        Some(timeline)
    }

    /// Returns the mark that the device has passed, if a timeline is left that wants to know, and nobody must be waited for.
    fn reached<V: Vendor>(&self, gpu: &V::Gpu) -> Option<Epoch> {
        match lock(&self.left).is_empty() {
            true => None,
            false if V::WAITS => Some(DONE),
            false => gpu.timelines().all_reached_at_once(),
        }
    }

    /// Continues the timeline of a stream that is gone, and has nothing left to do, on a new one.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream.
    unsafe fn take_left<V: Vendor>(
        &self,
        gpu: &V::Gpu,
        stream: Handle,
        reached: Option<Epoch>,
    ) -> Option<TimelineId> {
        let (mut left, reached) = (lock(&self.left), reached?);
        let at = left.iter().position(|(_, epoch)| *epoch <= reached)?;
        // SAFETY: the caller's promise; the work of the earlier stream has run.
        unsafe { gpu.borrow_again(left[at].0, V::native(stream)) }.ok()?;
        Some(left.swap_remove(at).0)
    }

    /// Takes the timeline of a stream away that is about to be destroyed; `None` where it has none.
    pub(crate) fn end<V: Vendor>(&self, real: &V, stream: Handle) -> Option<TimelineId> {
        let is_known = |name: &Name| name.0 == stream.addr();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // Only then the handle is that of a stream.
        if !known.keys().any(is_known) {
            return None;
        }
        drop(known);
        self.change().remove(&(stream.addr(), real.number(stream)?))
    }

    /// Keeps the timeline of a stream that is gone for another one.
    pub(crate) fn leave(&self, left: Left) {
        lock(&self.left).push(left);
    }
}
