//! A ring of host-visible memory through which bytes travel, in the order of timelines.
use super::{AllocateError, Allocation, Manager};
use crate::strategy::{Key, Ring, Strategy};
use crate::sync::Mutex;
use crate::{
    Align, Backend, Class, Error, ErrorKind, Layout, Move, Point, Request, Result, TimelineId,
    Timelines, Transfer,
};
use alloc::collections::VecDeque;
use core::fmt;

/// A ring of staging memory for uploads and read-backs.
///
/// Uploads return as soon as the bytes are in the ring; the device copies them on. A piece of the ring is used again
/// when the timeline that copied it has passed; a full ring waits for its oldest piece.
pub struct Staging<B: Backend> {
    manager: Manager<B>,
    ring: Allocation<B>,
    state: Mutex<State>,
    /// The largest piece: a quarter of the ring, so that copying and filling overlap.
    piece: u64,
}

struct State {
    ring: Ring,
    /// Pieces on their way, oldest first.
    pending: VecDeque<(Key, Option<Point>)>,
}

impl<B: Backend> fmt::Debug for Staging<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").field("size", &self.ring.size()).finish_non_exhaustive()
    }
}

impl<B: Backend> Manager<B> {
    /// Makes a staging ring of `size` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` below 4 KiB, `NotMappable` where the device has no host-visible staging memory, or as for
    /// [`allocate`](Self::allocate).
    pub fn staging(&self, size: u64) -> Result<Staging<B>, AllocateError> {
        if size < 4096 {
            return Err(ErrorKind::InvalidConfig.into());
        }
        let ring = self.allocate(&Request::upload(size).name("staging ring"))?;
        ring.map()?;
        let mut offsets = Ring::new(Align::ONE);
        offsets.add_block(size)?;
        let state = Mutex::new(State { ring: offsets, pending: VecDeque::new() });
        let piece = Align::of(256).down(size / 4);
        Ok(Staging { manager: self.clone(), ring, state, piece })
    }
}

impl<B: Backend> Staging<B> {
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
    /// `OutOfRange`, `Misaligned`, `Unsupported`, `NoSuchTimeline`, or what the driver says. Nothing was copied when
    /// the range or the alignment is wrong.
    pub fn upload(
        &self,
        on: TimelineId,
        to: &Allocation<B>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let binding = to.binding();
        binding.place(offset, bytes.len() as u64)?;
        self.check_alignment(offset, bytes.len() as u64)?;
        to.use_on(on)?;
        let piece = usize::try_from(self.piece).map_err(|_| ErrorKind::SizeOverflow)?;
        let mut at = offset;
        for part in bytes.chunks(piece) {
            let size = part.len() as u64;
            let (key, start) = self.take(size)?;
            self.ring.map()?.write(start, part)?;
            let source = self.ring.binding();
            let copy =
                Move { from: source.place(start, size)?, to: binding.place(at, size)?, size };
            let copied = self.transfer()?.copy(on, &[copy]);
            self.send(key, on, copied)?;
            at += size;
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
        let binding = from.binding();
        binding.place(offset, bytes.len() as u64)?;
        self.check_alignment(offset, bytes.len() as u64)?;
        let piece = usize::try_from(self.piece).map_err(|_| ErrorKind::SizeOverflow)?;
        let mut at = offset;
        for part in bytes.chunks_mut(piece) {
            let size = part.len() as u64;
            let (key, start) = self.take(size)?;
            let target = self.ring.binding();
            let copy =
                Move { from: binding.place(at, size)?, to: target.place(start, size)?, size };
            let copied = self.transfer()?.copy(on, &[copy]);
            self.send(key, on, copied)?;
            self.drain()?;
            self.ring.map()?.read(start, part)?;
            at += size;
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
            let Some(oldest) = self.state.lock().pending.pop_front() else { return Ok(()) };
            self.finish(oldest)?;
        }
    }

    fn check_alignment(&self, offset: u64, size: u64) -> Result<()> {
        let align = self.manager.caps().copy.align;
        if align.divides(offset) && align.divides(size) {
            Ok(())
        } else {
            Err(ErrorKind::Misaligned.into())
        }
    }

    /// A piece of the ring; waits for the oldest one on its way where the ring is full.
    fn take(&self, size: u64) -> Result<(Key, u64)> {
        loop {
            let mut state = self.state.lock();
            let align = self.manager.caps().copy.align.max(Align::of(16));
            let layout = Layout { size: align.up(size).ok_or(ErrorKind::SizeOverflow)?, align };
            match state.ring.allocate(layout, Class::Linear) {
                Ok(grant) => return Ok((grant.key, grant.span.offset)),
                Err(kind) => {
                    let oldest = state.pending.pop_front().ok_or(Error::new(kind))?;
                    drop(state);
                    self.finish(oldest)?;
                }
            }
        }
    }

    /// Notes that a piece is on its way, or gives it back where the copy was refused.
    fn send(&self, key: Key, on: TimelineId, copied: Result<()>) -> Result<()> {
        let point = copied.and_then(|()| {
            let timelines = self.timelines();
            timelines.map(|timelines| timelines.mark(on)).transpose()
        });
        match point {
            Ok(epoch) => {
                let point = epoch.map(|epoch| Point { timeline: on, epoch });
                self.state.lock().pending.push_back((key, point));
                Ok(())
            }
            Err(error) => {
                // Whether the device took the copy is not known, so the piece waits for everything.
                let idle = self.manager.backend().wait_idle();
                self.state.lock().ring.free(key)?;
                idle.and(Err(error))
            }
        }
    }

    /// Waits for a piece and gives it back to the ring.
    fn finish(&self, (key, point): (Key, Option<Point>)) -> Result<()> {
        let waited = match (point, self.timelines()) {
            (Some(point), Some(timelines)) => timelines.wait(point),
            _ => self.manager.backend().wait_idle(),
        };
        self.state.lock().ring.free(key)?;
        waited
    }
}

impl<B: Backend> Drop for Staging<B> {
    fn drop(&mut self) {
        // The ring's memory is freed after this; a lost device copies nothing any more.
        let _ = self.drain();
    }
}
