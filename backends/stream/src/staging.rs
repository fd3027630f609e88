//! Pinned host memory between pageable slices and the device.
//!
//! A transfer from or to a pageable slice goes through *bounces*, buffers of pinned memory, because a driver may read
//! a pageable slice after its call returns. Small writes of one timeline fill one bounce together (its *filling*); large
//! transfers take bounces in turn, by several threads where that pays.
#![expect(unsafe_code, reason = "copies to and from raw addresses")]
use crate::{
    StreamDriver, Timeline,
    bounce::{BOUNCE, Bounce},
    lock,
};
use core::{fmt, mem, ptr::NonNull};
use omniheap_seam::{Error, Result};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Bounces that large transfers may hold together.
const MOST: usize = 32;
/// Starts of small writes inside a filling: a cache line.
const FILLING_ALIGN: usize = 64;

/// The bounce that small writes of one timeline share, and how much of it is used.
pub(crate) struct Filling<D: StreamDriver> {
    bounce: Option<Bounce<D>>,
    used: usize,
}

impl<D: StreamDriver> Filling<D> {
    pub(crate) const fn new() -> Self {
        Self { bounce: None, used: 0 }
    }

    /// Returns whether copies out of the filling may still run.
    pub(crate) fn is_used(&self) -> bool {
        self.bounce.is_some() && self.used > 0
    }
}

struct Bounces<D: StreamDriver> {
    /// Oldest first; copies out of them may still run.
    idle: VecDeque<Bounce<D>>,
    /// Bounces that exist, fillings aside.
    count: usize,
}

impl<D: StreamDriver> Bounces<D> {
    /// Takes an idle bounce; when no more may be made, the oldest one even if it is in flight.
    fn pick(&mut self, is_full: bool) -> Result<Option<Bounce<D>>> {
        // Bounces of one timeline finish in order, so one look is enough until there are many.
        let looks = if is_full { self.idle.len() } else { 1 };
        for index in 0..looks.min(self.idle.len()) {
            if self.idle[index].is_idle()? {
                return Ok(self.idle.remove(index));
            }
        }
        Ok(if is_full { self.idle.pop_front() } else { None })
    }
}

/// Every bounce of a device.
pub struct Staging<D: StreamDriver> {
    driver: Arc<D>,
    bounces: Mutex<Bounces<D>>,
    returned: Condvar,
}

impl<D: StreamDriver> fmt::Debug for Staging<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging")
            .field("bounces", &lock(&self.bounces).count)
            .finish_non_exhaustive()
    }
}

impl<D: StreamDriver> Staging<D> {
    /// Returns the staging of a device, empty.
    #[must_use]
    pub fn new(driver: &Arc<D>) -> Self {
        let bounces = Mutex::new(Bounces { idle: VecDeque::new(), count: 0 });
        Self { driver: driver.clone(), bounces, returned: Condvar::new() }
    }

    /// Returns a bounce that is not in flight. Waits when all are out, or all in flight.
    fn take(&self) -> Result<Bounce<D>> {
        let mut bounces = lock(&self.bounces);
        let mut refused = None;
        loop {
            let is_full = bounces.count >= MOST || refused.is_some();
            if let Some(mut bounce) = bounces.pick(is_full)? {
                drop(bounces);
                // A bounce that cannot be waited for goes with its memory: the device is lost.
                return bounce.wait().inspect_err(|_| self.forget_one()).map(|()| bounce);
            }
            if is_full {
                bounces = self.wait_for_return(bounces, refused)?;
                continue;
            }
            bounces.count += 1;
            drop(bounces);
            match Bounce::new(&self.driver) {
                Ok(bounce) => return Ok(bounce),
                Err(error) => refused = Some(error),
            }
            self.forget_one();
            bounces = lock(&self.bounces);
        }
    }

    /// Waits until a bounce comes back; fails when there is none that could.
    fn wait_for_return<'a>(
        &'a self,
        bounces: MutexGuard<'a, Bounces<D>>,
        refused: Option<Error>,
    ) -> Result<MutexGuard<'a, Bounces<D>>> {
        match refused {
            Some(error) if bounces.count == 0 => Err(error),
            _ => Ok(self.returned.wait(bounces).unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn forget_one(&self) {
        lock(&self.bounces).count -= 1;
        self.returned.notify_all();
    }

    fn put(&self, bounce: Bounce<D>) {
        lock(&self.bounces).idle.push_back(bounce);
        self.returned.notify_one();
    }

    /// Runs `work` with `length` unused bytes of the timeline's filling: the bounce, and where in it they start. What it
    /// submits to the timeline may use them.
    fn fill(
        &self,
        timeline: &Timeline<D>,
        length: usize,
        work: impl FnOnce(&Bounce<D>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut filling = lock(&timeline.filling);
        if filling.bounce.is_some() && BOUNCE - filling.used < length {
            self.leave(timeline, &mut filling)?;
        }
        if filling.bounce.is_none() {
            let bounce = self.take()?;
            // A filling's bounce does not count, so that many timelines cannot starve large transfers.
            self.forget_one();
            *filling = Filling { bounce: Some(bounce), used: 0 };
        }
        let bounce = filling.bounce.as_ref().expect("put there just above");
        let done = work(bounce, filling.used);
        // Also where it failed: the device may use the bytes all the same.
        filling.used = (filling.used + length).next_multiple_of(FILLING_ALIGN).min(BOUNCE);
        done
    }

    /// Writes a slice through the timeline's filling.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Safety
    ///
    /// `to` begins as many live bytes as the slice has; the slice has at most [`BOUNCE`].
    pub unsafe fn write_small(&self, timeline: &Timeline<D>, to: u64, bytes: &[u8]) -> Result<()> {
        let stream = timeline.stream()?;
        self.fill(timeline, bytes.len(), |bounce, offset| {
            // SAFETY: `fill` gives room that nothing uses; the caller promises `to`.
            unsafe { bounce.upload(offset, to, bytes, stream) }
        })
    }

    /// Runs `work` with `length` bytes that host and device see, by both their addresses: nothing uses them yet, and what
    /// `work` submits to the timeline finds there what it wrote. They start at a cache line.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Safety
    ///
    /// `length <= BOUNCE`.
    pub unsafe fn stage(
        &self,
        timeline: &Timeline<D>,
        length: usize,
        work: impl FnOnce(NonNull<u8>, u64) -> Result<()>,
    ) -> Result<()> {
        self.fill(timeline, length, |bounce, offset| {
            // SAFETY: `fill` gives room inside the bounce.
            let (host, device) = unsafe { bounce.at(offset) };
            work(host, device)
        })
    }

    /// Returns a full bounce buffer to the shared list.
    fn leave(&self, timeline: &Timeline<D>, filling: &mut Filling<D>) -> Result<()> {
        if let Some(bounce) = &mut filling.bounce {
            bounce.depart(timeline)?;
        }
        if let Some(bounce) = mem::replace(filling, Filling::new()).bounce {
            lock(&self.bounces).count += 1;
            self.put(bounce);
        }
        Ok(())
    }

    /// Writes a slice of any length, by up to `workers` threads.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Safety
    ///
    /// `to` begins as many live bytes as the slice has.
    pub unsafe fn write(
        &self,
        timeline: &Timeline<D>,
        to: u64,
        bytes: &[u8],
        workers: usize,
    ) -> Result<()> {
        let pieces = Mutex::new((to..).step_by(BOUNCE).zip(bytes.chunks(BOUNCE)));
        together(workers, || {
            while let Some((to, piece)) = next(&pieces) {
                let stream = timeline.stream()?;
                let mut bounce = self.take()?;
                // SAFETY: the piece fits a bounce, `take` gave an idle one, the caller promises `to`.
                let sent = unsafe { bounce.upload(0, to, piece, stream) };
                let departed = bounce.depart(timeline);
                self.put(bounce);
                sent.and(departed)?;
            }
            Ok(())
        })
    }

    /// Reads into a slice of any length, by up to `workers` threads.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Safety
    ///
    /// `from` begins as many live bytes as the slice has.
    pub unsafe fn read(
        &self,
        timeline: &Timeline<D>,
        from: u64,
        bytes: &mut [u8],
        workers: usize,
    ) -> Result<()> {
        let pieces = Mutex::new((from..).step_by(BOUNCE).zip(bytes.chunks_mut(BOUNCE)));
        together(workers, || {
            while let Some((from, piece)) = next(&pieces) {
                let mut bounce = self.take()?;
                // SAFETY: the piece fits a bounce, `take` gave an idle one, the caller promises `from`.
                let done = unsafe { bounce.download(from, piece, timeline) };
                self.put(bounce);
                done?;
            }
            Ok(())
        })
    }
}

fn next<I: Iterator>(pieces: &Mutex<I>) -> Option<I::Item> {
    lock(pieces).next()
}

/// Runs `work` on the calling thread and on up to `workers - 1` more, and reports the first failure.
fn together(workers: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    if workers <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        // A thread that the system refuses is not needed: the others do its share.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..workers).filter_map(spawn).collect();
        let mine = work();
        others.into_iter().fold(mine, |result, other| {
            result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}

#[cfg(test)]
mod tests;
