//! Pinned host memory between pageable slices and the device.
//!
//! A transfer from or to a pageable slice goes through *bounces*, buffers of pinned memory, because the runtime may read
//! a pageable slice after its call returns. Small writes of one timeline fill one bounce together (its *filling*); large
//! transfers take bounces in turn, by several threads where that pays.
#![expect(unsafe_code, reason = "copies to and from raw addresses")]
use crate::{
    bounce::{BOUNCE, Bounce},
    driver::Driver,
    lock,
    timeline::Timeline,
};
use core::{mem, ptr::NonNull};
use omniheap_core::{Error, Result};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Bounces that large transfers may hold together.
const MOST: usize = 32;
/// Starts of small writes inside a filling: a cache line.
const FILLING_ALIGN: usize = 64;

/// The bounce that small writes of one timeline share, and how much of it is used.
#[derive(Default)]
pub(crate) struct Filling {
    bounce: Option<Bounce>,
    used: usize,
}

impl Filling {
    /// Whether copies out of the filling may still run.
    pub(crate) fn is_used(&self) -> bool {
        self.bounce.is_some() && self.used > 0
    }
}

#[derive(Default)]
struct Bounces {
    /// Oldest first; nobody writes to them, but copies out of them may run.
    idle: VecDeque<Bounce>,
    /// Bounces that exist, fillings aside.
    count: usize,
}

impl Bounces {
    /// Takes an idle bounce; when no more may be made, the oldest one even if it is in flight.
    fn pick(&mut self, is_full: bool) -> Result<Option<Bounce>> {
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
pub(crate) struct Staging {
    driver: Arc<Driver>,
    bounces: Mutex<Bounces>,
    returned: Condvar,
}

impl Staging {
    pub(crate) fn new(driver: &Arc<Driver>) -> Self {
        Self { driver: driver.clone(), bounces: Mutex::default(), returned: Condvar::new() }
    }

    /// A bounce that is not in flight. Waits when all are out, or all in flight.
    fn take(&self) -> Result<Bounce> {
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
        bounces: MutexGuard<'a, Bounces>,
        refused: Option<Error>,
    ) -> Result<MutexGuard<'a, Bounces>> {
        match refused {
            Some(error) if bounces.count == 0 => Err(error),
            _ => Ok(self.returned.wait(bounces).unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn forget_one(&self) {
        lock(&self.bounces).count -= 1;
        self.returned.notify_all();
    }

    fn put(&self, bounce: Bounce) {
        lock(&self.bounces).idle.push_back(bounce);
        self.returned.notify_one();
    }

    /// Runs `work` with `length` unused bytes of the timeline's filling: the bounce, and where in it they start. What it
    /// submits to the timeline may use them.
    fn fill(
        &self,
        timeline: &Timeline,
        length: usize,
        work: impl FnOnce(&Bounce, usize) -> Result<()>,
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
        work(bounce, filling.used)?;
        filling.used = (filling.used + length).next_multiple_of(FILLING_ALIGN).min(BOUNCE);
        Ok(())
    }

    /// Writes a slice through the timeline's filling.
    ///
    /// # Safety
    ///
    /// `to` begins as many live bytes as the slice has; the slice has at most [`BOUNCE`].
    pub(crate) unsafe fn write_small(
        &self,
        timeline: &Timeline,
        to: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let stream = timeline.stream()?;
        self.fill(timeline, bytes.len(), |bounce, offset| {
            // SAFETY: `fill` gives room that nothing uses; the caller promises `to`.
            unsafe { bounce.upload(offset, to, bytes, stream) }
        })
    }

    /// Runs `work` with `length` bytes that host and device see, by both their addresses: nothing uses them yet, and what
    /// `work` submits to the timeline finds there what it wrote. They start at a cache line.
    ///
    /// # Safety
    ///
    /// `length <= BOUNCE`.
    pub(crate) unsafe fn stage(
        &self,
        timeline: &Timeline,
        length: usize,
        work: impl FnOnce(NonNull<u8>, u64) -> Result<()>,
    ) -> Result<()> {
        self.fill(timeline, length, |bounce, offset| {
            // SAFETY: `fill` gives room inside the bounce.
            let (host, device) = unsafe { bounce.at(offset) };
            work(host, device)
        })
    }

    /// Hands a filled bounce to everybody.
    fn leave(&self, timeline: &Timeline, filling: &mut Filling) -> Result<()> {
        if let Some(bounce) = &mut filling.bounce {
            bounce.depart(timeline)?;
        }
        if let Some(bounce) = mem::take(filling).bounce {
            lock(&self.bounces).count += 1;
            self.put(bounce);
        }
        Ok(())
    }

    /// Writes a slice of any length, by up to `workers` threads.
    ///
    /// # Safety
    ///
    /// `to` begins as many live bytes as the slice has.
    pub(crate) unsafe fn write(
        &self,
        timeline: &Timeline,
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
    /// # Safety
    ///
    /// `from` begins as many live bytes as the slice has.
    pub(crate) unsafe fn read(
        &self,
        timeline: &Timeline,
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
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use omniheap_core::ErrorKind;

    #[test]
    fn workers_divide_all_pieces_once() {
        for workers in [1, 2, 8] {
            let pieces = Mutex::new(0..1000usize);
            let sum = AtomicUsize::new(0);
            let result = together(workers, || {
                while let Some(piece) = next(&pieces) {
                    sum.fetch_add(piece, Ordering::Relaxed);
                }
                Ok(())
            });
            assert_eq!(result, Ok(()));
            assert_eq!(sum.into_inner(), 499_500);
        }
    }

    #[test]
    fn one_failing_worker_fails_the_transfer() {
        let turn = AtomicUsize::new(0);
        let result = together(4, || {
            if turn.fetch_add(1, Ordering::Relaxed) == 2 {
                return Err(ErrorKind::DeviceLost.into());
            }
            Ok(())
        });
        assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::DeviceLost));
    }
}
