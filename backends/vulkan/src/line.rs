//! One timeline: a queue, a clock, command buffers that come back, and a staging ring.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    clock::{Clock, Clocks, Semaphore},
    commands::Commands,
    device::{Device, lock},
    staging::{Plan, Plans, Staging},
};
use ash::vk;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{ErrorKind, Result};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

/// A timeline.
#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<State>,
    clock: Clock,
    /// The last epoch submitted.
    last: AtomicU64,
    pub(crate) queue: usize,
    plans: Plans,
    device: Arc<Device>,
}

#[derive(Debug)]
pub(crate) struct State {
    commands: Commands,
    flights: VecDeque<Flight>,
    /// What the next batch waits for.
    waits: Vec<(Arc<Semaphore>, u64)>,
    uncovered: Uncovered,
    pub(crate) staging: Option<Staging>,
    /// Where the compaction kernel's lists lie.
    pub(crate) lists: Option<Staging>,
}

/// What the last epoch does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uncovered {
    Nothing,
    /// Work that the engine put on the queue.
    Work,
    /// What another timeline on this queue had submitted when this one was ordered after it.
    Order,
}

/// A batch that the device may still run, with all it must keep.
#[derive(Debug)]
struct Flight {
    epoch: u64,
    commands: Option<vk::CommandBuffer>,
    _waits: Vec<(Arc<Semaphore>, u64)>,
}

impl Line {
    pub(crate) fn open(
        device: &Arc<Device>,
        queue: usize,
        clocks: Clocks,
        plans: Plans,
    ) -> Result<Self> {
        let state = State {
            commands: Commands::create(device, &device.queues[queue])?,
            flights: VecDeque::new(),
            waits: Vec::new(),
            uncovered: Uncovered::Nothing,
            staging: None,
            lists: None,
        };
        Ok(Self {
            state: Mutex::new(state),
            clock: Clock::new(device, clocks)?,
            last: AtomicU64::new(0),
            queue,
            plans,
            device: Arc::clone(device),
        })
    }

    /// Holds the timeline: what one holder submits stays together.
    pub(crate) fn hold(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn reached(&self) -> Result<u64> {
        self.clock.reached()
    }

    /// Waits for an epoch. One that was never marked belongs to no timeline of this device.
    pub(crate) fn wait(&self, epoch: u64) -> Result<()> {
        if epoch > self.last.load(Ordering::Acquire) {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        self.clock.wait(epoch)
    }

    /// The semaphore and last epoch, where the clock has one.
    pub(crate) fn semaphore(&self) -> Option<Arc<Semaphore>> {
        match &self.clock {
            Clock::Semaphore(semaphore) => Some(Arc::clone(semaphore)),
            Clock::Fences(_) => None,
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// An epoch that covers everything so far, the engine's work and pending waits included.
    pub(crate) fn mark(&self) -> Result<u64> {
        let mut state = self.hold();
        match state.uncovered == Uncovered::Nothing && state.waits.is_empty() {
            true => Ok(self.last()),
            false => self.send(&mut state, None),
        }
    }

    /// Makes later work wait for `epoch` of `other`.
    pub(crate) fn order(&self, other: &Self, epoch: u64) -> Result<()> {
        if epoch > other.last() {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        let mut state = self.hold();
        match other.semaphore() {
            Some(semaphore) if other.queue != self.queue => {
                match state.waits.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &semaphore)) {
                    Some((_, known)) => *known = epoch.max(*known),
                    None => state.waits.push((semaphore, epoch)),
                }
            }
            // One queue: every batch of ours begins with a barrier behind all that was submitted before.
            _ => state.uncovered = Uncovered::Order,
        }
        Ok(())
    }

    /// Lets the engine use the queue, after the pending waits.
    pub(crate) fn outside<R>(&self, f: impl FnOnce(vk::Queue) -> R) -> Result<R> {
        let mut state = self.hold();
        if !state.waits.is_empty() {
            self.send(&mut state, None)?;
        }
        if state.uncovered == Uncovered::Order {
            // The engine's own work may begin without a barrier.
            self.run(&mut state, |_| ())?;
        }
        state.uncovered = Uncovered::Work;
        Ok(self.device.with_queue(self.queue, f))
    }

    /// Records and submits one batch; returns its epoch.
    pub(crate) fn run(
        &self,
        state: &mut State,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> Result<u64> {
        self.reclaim(state)?;
        let commands = state.commands.record(record)?;
        let sent = self.send(state, Some(commands));
        if sent.is_err() {
            state.commands.give_back(commands);
        }
        sent
    }

    fn send(&self, state: &mut State, commands: Option<vk::CommandBuffer>) -> Result<u64> {
        let epoch = self.last() + 1;
        let list: &[vk::CommandBuffer] = commands.as_slice();
        // SAFETY: the command buffer was just recorded by `run` and is kept, like the semaphores, in `flights` until
        // `epoch` is reached.
        unsafe { self.clock.submit(&self.device, self.queue, list, &state.waits, epoch) }?;
        self.last.store(epoch, Ordering::Release);
        state.uncovered = Uncovered::Nothing;
        let waits = core::mem::take(&mut state.waits);
        state.flights.push_back(Flight { epoch, commands, _waits: waits });
        Ok(epoch)
    }

    /// Takes back what finished batches held.
    fn reclaim(&self, state: &mut State) -> Result<()> {
        if state.flights.is_empty() {
            return Ok(());
        }
        let reached = self.reached()?;
        while state.flights.front().is_some_and(|flight| flight.epoch <= reached) {
            if let Some(Flight { commands: Some(commands), .. }) = state.flights.pop_front() {
                state.commands.give_back(commands);
            }
        }
        Ok(())
    }

    /// Takes a piece of the staging ring, waiting for older ones where it must.
    pub(crate) fn stage<'a>(
        &self,
        state: &'a mut State,
        size: u64,
    ) -> Result<Option<(u64, &'a mut Staging)>> {
        self.take(&mut state.staging, self.plans.bytes, size)
    }

    /// Takes room for a list of the compaction kernel, waiting for older ones where it must.
    pub(crate) fn list<'a>(
        &self,
        state: &'a mut State,
        size: u64,
    ) -> Result<Option<(u64, &'a mut Staging)>> {
        self.take(&mut state.lists, self.plans.lists, size)
    }

    fn take<'a>(
        &self,
        ring: &'a mut Option<Staging>,
        plan: Plan,
        size: u64,
    ) -> Result<Option<(u64, &'a mut Staging)>> {
        if ring.is_none() {
            *ring = Some(Staging::open(&self.device, plan)?);
        }
        let staging = ring.as_mut().expect("opened just above");
        loop {
            if let Some(start) = staging.ring.take(size) {
                return Ok(Some((start, staging)));
            }
            let Some(oldest) = staging.ring.oldest() else { return Ok(None) };
            self.clock.wait(oldest)?;
            staging.ring.retire(self.clock.reached()?);
        }
    }

    /// The most bytes to send through the ring at once: a quarter, so that copying and sending overlap.
    pub(crate) const fn piece(&self) -> u64 {
        self.plans.bytes.size / 4
    }

    /// The longest list of the compaction kernel, in bytes: half the ring, so that one is written while one is read.
    pub(crate) const fn longest_list(&self) -> u64 {
        self.plans.lists.size / 2
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A lost device runs nothing any more; either way no batch uses what is dropped next.
        let _ = self.clock.wait(self.last());
    }
}
