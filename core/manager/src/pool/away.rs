//! A pool falls asleep and wakes up: all its lanes, or none.
#![forbid(unsafe_code)]
use super::Pool;
use crate::event::StoreKind;
use crate::lane::{Lane, WaitMode};
use crate::sleep::{Residence, Sleep, SleepError, Slept, Wake};
use crate::{Backend, ErrorKind, HostPinner, Point, Result, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;
use std::sync::PoisonError;
use std::thread;

/// Number of looks for threads that map pages or free secrets now: ten seconds in all.
const LOOKS: u32 = 100_000;
/// Number of looks for pins: 50 milliseconds are enough for an access that has begun.
const PIN_LOOKS: u32 = 500;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(100);

/// Lanes that were closed; they are opened again when this is dropped.
struct Closed<B: Backend>(Vec<Arc<Lane<B>>>, TimelineId);

impl<B: Backend> Drop for Closed<B> {
    fn drop(&mut self) {
        for lane in &self.0 {
            lane.unstore();
            lane.open(self.1);
        }
    }
}

/// Addresses that got memory; those of lanes that still sleep lose it again when this is dropped.
struct Backed<B: Backend>(Vec<(Arc<Lane<B>>, Span)>, TimelineId);

impl<B: Backend> Backed<B> {
    /// Gives memory as [`Lane::give_memory`] does.
    fn give(&mut self, lane: &Arc<Lane<B>>, span: Span, on_host: Option<u64>) -> Result<()> {
        lane.give_memory(span, on_host, self.1)?;
        self.0.push((Arc::clone(lane), span));
        Ok(())
    }

    /// Gives pieces of addresses what memory the device has left, and the others up to `most` bytes of the host.
    fn give_with_host(
        &mut self,
        lane: &Arc<Lane<B>>,
        pieces: impl Iterator<Item = Span>,
        most: u64,
    ) -> Result<()> {
        let mut on_host = None;
        for piece in pieces {
            let mut given = self.give(lane, piece, on_host);
            if on_host.is_none() && is_short(&given) {
                on_host = Some(most);
                given = self.give(lane, piece, on_host);
            }
            given?;
        }
        Ok(())
    }
}

impl<B: Backend> Drop for Backed<B> {
    fn drop(&mut self) {
        for (lane, span) in &self.0 {
            lane.withdraw_memory(*span, self.1);
        }
    }
}

impl<B: Backend> Pool<B> {
    /// Moves all bytes to a store, and all memory to the driver. On failure the pool is awake and has all its bytes.
    pub(crate) fn sleep(&self, sleep: &Sleep, on: TimelineId) -> Result<Slept, SleepError> {
        if !self.shared.config.sleepable {
            let why = "the pool was not made to sleep; set `PoolConfig::sleepable`";
            return Err(ErrorKind::Unsupported.because(why).into());
        }
        let mut asleep = self.shared.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if *asleep {
            return Err(ErrorKind::AlreadyAsleep.into());
        }
        let mut closed = self.close(sleep, on)?;
        if sleep.store.kind() != StoreKind::Nothing {
            let bytes = closed.0.iter().filter_map(|lane| lane.away_bytes()).map(|all| all.1).sum();
            let backend = self.shared.device.backend();
            HostPinner::lend(backend, |pinner| sleep.store.prepare(bytes, pinner))?;
        }
        let mut slept = Slept::default();
        for lane in &closed.0 {
            slept.copied += lane.store(on)?;
        }
        // All bytes are stored: nothing fails from here on.
        for lane in core::mem::take(&mut closed.0) {
            // Secrets may have been freed during the copies. One that is never zeroed keeps its lane's memory.
            let _ = wait_for_frees(core::slice::from_ref(&lane));
            let (returned, kept) = lane.evict(on);
            slept.live += lane.away_bytes().map_or(0, |(live, _)| live);
            slept.returned += returned;
            slept.kept += kept;
        }
        slept.returned += self.shared.return_spare(u64::MAX);
        *asleep = true;
        Ok(slept)
    }

    /// Closes all lanes, and waits until nothing uses their bytes or carries their memory.
    fn close(&self, sleep: &Sleep, on: TimelineId) -> Result<Closed<B>, SleepError> {
        let lanes = self.every_lane();
        for lane in &lanes {
            lane.retire(WaitMode::Poll)?;
            lane.zero_kept();
        }
        let mut closed = Closed(Vec::with_capacity(lanes.len()), on);
        for lane in &lanes {
            lane.close(sleep, on)?;
            closed.0.push(Arc::clone(lane));
        }
        if !sleep.over_pins {
            wait_for_pins(&lanes)?;
        }
        let maps = "another thread maps pages of the pool for a long time";
        wait_while(&lanes, Lane::is_in_transit, maps)?;
        let timelines = lanes.iter().flat_map(|lane| lane.all_timelines()).collect();
        self.drain(timelines, &sleep.after)?;
        wait_for_frees(&lanes)?;
        for lane in &lanes {
            lane.retire(WaitMode::Block)?;
            let deferred = lane.deferred();
            if !deferred.is_empty() {
                return Err(SleepError::refused_by(deferred));
            }
        }
        Ok(closed)
    }

    /// Waits until everything that timelines have to do now is done, and for further points.
    fn drain(&self, mut timelines: Vec<TimelineId>, after: &[Point]) -> Result<()> {
        let device = &self.shared.device;
        timelines.sort_unstable();
        timelines.dedup();
        timelines.into_iter().try_for_each(|timeline| device.drain(timeline))?;
        let Some(known) = device.backend().as_timelines() else { return Ok(()) };
        after.iter().try_for_each(|point| {
            device.unless_closed(point.timeline, known.wait(*point)).map(|_| ())
        })
    }

    /// Takes memory from the driver and all bytes from the store. On failure the pool is asleep and has all its bytes. `make_room`
    /// is called when memory is short.
    pub(crate) fn wake(&self, wake: &Wake, on: TimelineId, make_room: impl Fn()) -> Result<()> {
        let mut asleep = self.shared.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if !*asleep {
            return Err(ErrorKind::AlreadyAwake.into());
        }
        let (lanes, mut backed) = (self.lanes(), Backed(Vec::new(), on));
        for lane in &lanes {
            for span in lane.missing_memory() {
                let mut given = backed.give(lane, span, None);
                if is_short(&given) {
                    make_room();
                    given = backed.give(lane, span, None);
                }
                if is_short(&given) && wake.host_mapped > 0 {
                    let (groups, most) = (self.shared.groups_of(span), wake.host_mapped);
                    let short = given;
                    given = backed.give_with_host(lane, groups, most).or_else(|error| {
                        // A device that maps no host memory is just short of memory.
                        if error.kind() == ErrorKind::Unsupported { short } else { Err(error) }
                    });
                }
                given?;
            }
        }
        let restored = lanes.iter().try_for_each(|lane| lane.restore(on));
        let arrived = restored.and_then(|()| self.shared.device.finish(on));
        let zeroed = arrived.and_then(|()| lanes.iter().try_for_each(|lane| lane.zero_freed(on)));
        zeroed.inspect_err(|_| lanes.iter().for_each(|lane| lane.note_work(on)))?;
        for lane in &lanes {
            lane.unstore();
            lane.open(on);
        }
        *asleep = false;
        Ok(())
    }

    /// Returns where the bytes are, without waiting.
    pub(crate) fn residence(&self) -> Residence {
        let (device, host_mapped) = (self.shared.reserved(), self.shared.host_mapped());
        let mut residence = Residence { device, host_mapped, ..Default::default() };
        for (evicted, stored) in self.lanes().iter().filter_map(|lane| lane.away_bytes()) {
            residence.asleep = true;
            residence.evicted += evicted;
            residence.stored += stored;
        }
        residence
    }
}

/// Returns true if memory was short.
fn is_short(given: &Result<()>) -> bool {
    given.as_ref().is_err_and(|error| error.kind().is_out_of_memory())
}

/// Waits for accesses that began before the lanes were closed. What is pinned for longer is named.
fn wait_for_pins<B: Backend>(lanes: &[Arc<Lane<B>>]) -> Result<(), SleepError> {
    let mut looks = 0;
    loop {
        let pinned: Vec<_> = lanes.iter().flat_map(|lane| lane.pinned()).collect();
        match looks {
            _ if pinned.is_empty() => return Ok(()),
            PIN_LOOKS => return Err(SleepError::refused_by(pinned)),
            _ => thread::sleep(PAUSE),
        }
        looks += 1;
    }
}

/// Waits for threads that have secrets zeroed.
fn wait_for_frees<B: Backend>(lanes: &[Arc<Lane<B>>]) -> Result<()> {
    wait_while(lanes, Lane::is_freeing, "another thread frees a secret for a long time")
}

/// Waits for threads in the middle of something that they began with closed lanes, before these were closed or after.
fn wait_while<B: Backend>(
    lanes: &[Arc<Lane<B>>],
    is_busy: impl Fn(&Lane<B>) -> bool,
    why: &'static str,
) -> Result<()> {
    for _ in 0..LOOKS {
        if !lanes.iter().any(|lane| is_busy(lane)) {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(ErrorKind::Busy.because(why))
}
