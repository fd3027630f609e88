//! A ring of host-visible memory through which bytes travel, in the order of timelines.
use core::fmt;
use omniheap_core::strategy::{Key, Ring, Strategy};
use omniheap_core::{
    Align, AllocateError, Allocation, Backend, Binding, Class, Epoch, ErrorKind, InsideBlock,
    Layout, Manager, Move, Point, Request, Result, TimelineId, Timelines, Transfer, Usage,
};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A ring of staging memory for uploads and read-backs.
///
/// Uploads return as soon as the bytes are in the ring; the device copies them on. A piece of the ring is used again
/// when the timeline that copied it has passed; a full ring waits for its oldest piece.
pub struct Staging<B: Backend> {
    manager: Manager<B>,
    ring: Allocation<B>,
    state: Mutex<State>,
    /// Notified whenever a piece that was in hand is on its way or given back.
    settled: Condvar,
    /// The largest piece: a quarter of the ring, so that copying and filling overlap.
    piece: u64,
}

struct State {
    ring: Ring,
    /// Pieces on their way, oldest first.
    pending: VecDeque<Pending>,
    /// Pieces that a call has in hand: neither on their way nor free.
    in_hand: u64,
}

/// A piece on its way.
#[derive(Clone, Copy)]
struct Pending {
    key: Key,
    on: TimelineId,
    /// Epoch of its arrival; `None` where only the whole device can be waited for.
    epoch: Option<Epoch>,
}

impl<B: Backend> fmt::Debug for Staging<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").field("size", &self.ring.size()).finish_non_exhaustive()
    }
}

impl<B: Backend> Staging<B> {
    /// Allocates a staging ring of `size` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` below 4 KiB, `NotMappable` where the device has no host-visible staging memory, or as for
    /// [`Manager::allocate`].
    pub fn new(manager: &Manager<B>, size: u64) -> Result<Self, AllocateError> {
        if size < 4096 {
            let detail = "a staging ring needs at least 4096 bytes";
            return Err(ErrorKind::InvalidConfig.because(detail).into());
        }
        let mut request = Request::new(size).usage(Usage::Upload).name("staging ring");
        if manager.backend().caps().copy.inside_block == InsideBlock::Forbidden {
            // A ring that spilled into host memory may share a block with other data; a block of its own keeps copies
            // possible.
            request = request.dedicated();
        }
        let ring = manager.allocate(&request)?;
        ring.map()?;
        let mut offsets = Ring::new(Align::ONE);
        offsets.add_block(size)?;
        let state = State { ring: offsets, pending: VecDeque::new(), in_hand: 0 };
        let piece = Align::of(256).down(size / 4);
        let (state, settled) = (Mutex::new(state), Condvar::new());
        Ok(Self { manager: manager.clone(), ring, state, settled, piece })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, so what lies behind a poisoned one is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transfer(&self) -> Result<&dyn Transfer<Block = B::Block>> {
        self.manager.backend().as_transfer().ok_or(ErrorKind::Unsupported.into())
    }

    fn timelines(&self) -> Option<&dyn Timelines> {
        self.manager.backend().as_timelines()
    }

    /// Copies bytes from the host into an allocation, in the order of `on`.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Misaligned`, `Unsupported`, `NoSuchTimeline`, `Foreign` for another manager's allocation, `Published`
    /// for bytes that are final, or the driver's error. Nothing was copied when the range or the alignment is wrong.
    pub fn upload(
        &self,
        on: TimelineId,
        to: &Allocation<B>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        self.check(to, offset, bytes.len() as u64)?;
        if to.is_published() {
            return Err(ErrorKind::Published.into());
        }
        let binding = to.binding();
        to.use_on(on)?;
        let mut at = offset;
        for part in bytes.chunks(self.longest()?) {
            let (key, start) = self.take(part.len() as u64)?;
            let sent = self.ring.map().and_then(|ring| ring.write(start, part));
            let sent = sent.and_then(|()| {
                self.copy(on, (&self.ring.binding(), start), (&binding, at), part.len())
            });
            self.send(key, on, sent)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes of an allocation to the host, after everything earlier on `on`.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn read_back(
        &self,
        on: TimelineId,
        from: &Allocation<B>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        self.check(from, offset, bytes.len() as u64)?;
        let binding = from.binding();
        let mut at = offset;
        for part in bytes.chunks_mut(self.longest()?) {
            let (key, start) = self.take(part.len() as u64)?;
            let copied = self.copy(on, (&binding, at), (&self.ring.binding(), start), part.len());
            let sent = self.mark(key, on, copied);
            // The piece stays in hand until its bytes are read: another thread would write over them.
            let waited = sent.and_then(|piece| self.wait(&piece));
            let read = waited.and_then(|()| self.ring.map()?.read(start, part));
            // If the wait failed, the copy may still read the allocation, which its owner may free now.
            self.give_back(key, on, read).inspect_err(|_| from.outlast(on))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Waits until everything that was uploaded has arrived.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn drain(&self) -> Result<()> {
        loop {
            let state = self.lock();
            if state.pending.is_empty() && state.in_hand == 0 {
                return Ok(());
            }
            self.finish_oldest(state)?;
        }
    }

    /// Refuses another manager's allocation, and ranges that the device cannot copy.
    fn check(&self, what: &Allocation<B>, offset: u64, size: u64) -> Result<()> {
        if what.id().manager() != self.ring.id().manager() {
            return Err(ErrorKind::Foreign.into());
        }
        what.binding().place(offset, size)?;
        let align = self.manager.caps().copy.align;
        let is_aligned = align.divides(offset) && align.divides(size);
        if is_aligned { Ok(()) } else { Err(ErrorKind::Misaligned.into()) }
    }

    /// Returns the length of the largest piece.
    fn longest(&self) -> Result<usize> {
        usize::try_from(self.piece).map_err(|_| ErrorKind::SizeOverflow.into())
    }

    /// Copies between two places on the device.
    fn copy(
        &self,
        on: TimelineId,
        (from, start): (&Binding<'_, B>, u64),
        (to, end): (&Binding<'_, B>, u64),
        size: usize,
    ) -> Result<()> {
        let size = size as u64;
        let copy = Move { from: from.place(start, size)?, to: to.place(end, size)?, size };
        self.transfer()?.copy(on, &[copy])
    }

    /// Returns a piece of the ring; waits for the oldest one on its way where the ring is full.
    fn take(&self, size: u64) -> Result<(Key, u64)> {
        loop {
            let mut state = self.lock();
            let align = self.manager.caps().copy.align.max(Align::of(16));
            let layout = Layout { size: align.up(size).ok_or(ErrorKind::SizeOverflow)?, align };
            match state.ring.allocate(layout, Class::Linear) {
                Ok(grant) => {
                    state.in_hand += 1;
                    return Ok((grant.key, grant.span.offset));
                }
                Err(kind) if state.pending.is_empty() && state.in_hand == 0 => {
                    return Err(kind.into());
                }
                Err(_) => self.finish_oldest(state)?,
            }
        }
    }

    /// Marks the arrival of a copy that was made.
    fn mark(&self, key: Key, on: TimelineId, copied: Result<()>) -> Result<Pending> {
        copied?;
        let epoch = self.timelines().map(|timelines| timelines.mark(on)).transpose()?;
        Ok(Pending { key, on, epoch })
    }

    fn wait(&self, piece: &Pending) -> Result<()> {
        let waited = match (piece.epoch, self.timelines()) {
            (Some(epoch), Some(timelines)) => timelines.wait(Point { timeline: piece.on, epoch }),
            _ => self.manager.backend().wait_idle(),
        };
        match waited {
            // Closing a timeline waits for its work.
            Err(error) if error.kind() == ErrorKind::NoSuchTimeline => Ok(()),
            other => other,
        }
    }

    /// Notes that a piece is on its way, or gives it back where the copy was refused.
    fn send(&self, key: Key, on: TimelineId, copied: Result<()>) -> Result<()> {
        match self.mark(key, on, copied) {
            Ok(piece) => {
                self.put(|state| state.pending.push_back(piece));
                Ok(())
            }
            Err(error) => self.give_back(key, on, Err(error)),
        }
    }

    /// Frees a piece that nothing uses. After a failure the device may still run its copy: then the piece waits
    /// for everything, now or later.
    fn give_back(&self, key: Key, on: TimelineId, used: Result<()>) -> Result<()> {
        let is_idle = used.is_ok() || is_over(self.manager.backend().wait_idle());
        self.put(|state| match is_idle {
            true => state.release(key),
            false => state.pending.push_back(Pending { key, on, epoch: None }),
        });
        used
    }

    /// Waits for the oldest piece and gives it back to the ring; where the wait fails, it stays on its way. Where all pieces
    /// are in hand, waits for one of those.
    fn finish_oldest(&self, mut state: MutexGuard<'_, State>) -> Result<()> {
        let Some(oldest) = state.pending.pop_front() else {
            // The caller looks again, so waking too early does no harm.
            drop(self.settled.wait(state));
            return Ok(());
        };
        state.in_hand += 1;
        drop(state);
        let waited = self.wait(&oldest);
        self.put(|state| match is_over(waited) {
            true => state.release(oldest.key),
            false => state.pending.push_front(oldest),
        });
        waited
    }

    /// Ends the use of a piece.
    fn put(&self, down: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        down(&mut state);
        state.in_hand -= 1;
        drop(state);
        self.settled.notify_all();
    }
}

impl State {
    fn release(&mut self, key: Key) {
        let freed = self.ring.free(key);
        debug_assert!(freed.is_ok(), "every piece is given back once");
    }
}

/// Returns whether nothing runs any more: the wait succeeded, or the device is lost and runs nothing.
fn is_over(waited: Result<()>) -> bool {
    waited.err().is_none_or(|error| error.kind() == ErrorKind::DeviceLost)
}

impl<B: Backend> Drop for Staging<B> {
    fn drop(&mut self) {
        // The ring's memory is freed after this: where the wait fails, not before its copies have passed.
        if self.drain().is_err() {
            self.lock().pending.iter().for_each(|piece| self.ring.outlast(piece.on));
        }
    }
}
