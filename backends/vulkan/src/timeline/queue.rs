//! One timeline: a queue, a clock, command buffers that come back, and a staging ring.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    driver::device::Device,
    timeline::{
        clock::{Clock, Clocks, Semaphore},
        commands::Commands,
        route::{self, Before},
    },
    transfer::staging::{Plan, Plans, Staging},
};
use ash::vk;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use omniheap_seam::{ErrorKind, Result, lock};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

/// Transfers of this length or more go to the transfer-only queue, so that kernels on the other queues do not wait for them. Below it the
/// semaphore between the queues costs more than the copy: 0.2 ms on an H200, the time of 8 MiB.
const LONG: u64 = 8 << 20;

/// Unit of pieces, so that they divide no block of an image's texels: none is longer.
const UNIT: u64 = 16;

/// A timeline.
#[derive(Debug)]
pub(crate) struct QueueTimeline {
    /// Ring of bytes in and out. Locked for a whole transfer, and before `state`, which is locked for each batch alone: others submit while a transfer
    /// waits for the device.
    staging: Mutex<Option<Staging>>,
    state: Mutex<State>,
    clock: Clock,
    /// The last epoch submitted.
    last: AtomicU64,
    /// The queue that the last batch went to.
    at: AtomicUsize,
    /// Queue of batches that wait for nothing, and of all the engine's work.
    pub(crate) home: usize,
    plans: Plans,
    /// Timeline of its long transfers, on the transfer-only queue.
    carrier: OnceLock<Box<Self>>,
    device: Arc<Device>,
}

#[derive(Debug)]
pub(crate) struct State {
    commands: Commands,
    flights: VecDeque<Flight>,
    /// Semaphores that the next batch waits for.
    waits: Vec<Wait>,
    uncovered: Uncovered,
    /// Ring for the compaction kernel's lists.
    pub(crate) lists: Option<Staging>,
}

/// A point of another timeline.
#[derive(Debug)]
struct Wait {
    semaphore: Arc<Semaphore>,
    epoch: u64,
    /// A queue on which whatever is submitted from now on comes after that point.
    queue: usize,
}

/// Work behind the last epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uncovered {
    Nothing,
    /// Work that the engine put on the queue.
    Work,
    /// Work of another timeline on the shared queue of fences, submitted before this one was ordered behind it.
    Order,
}

/// A batch that the device may still run, with all it must keep.
#[derive(Debug)]
struct Flight {
    epoch: u64,
    commands: Option<vk::CommandBuffer>,
    _waits: Vec<(Arc<Semaphore>, u64)>,
}

impl State {
    /// Has the next batch wait for a semaphore that a queue signals.
    fn wait_for(&mut self, semaphore: Arc<Semaphore>, epoch: u64, queue: usize) {
        match self.waits.iter_mut().find(|known| Arc::ptr_eq(&known.semaphore, &semaphore)) {
            Some(known) => (known.epoch, known.queue) = (epoch.max(known.epoch), queue),
            None => self.waits.push(Wait { semaphore, epoch, queue }),
        }
    }
}

impl QueueTimeline {
    pub(crate) fn open(
        device: &Arc<Device>,
        home: usize,
        clocks: Clocks,
        plans: Plans,
    ) -> Result<Self> {
        let state = State {
            commands: Commands::create(device, &device.queues[home])?,
            flights: VecDeque::new(),
            waits: Vec::new(),
            uncovered: Uncovered::Nothing,
            lists: None,
        };
        Ok(Self {
            staging: Mutex::default(),
            state: Mutex::new(state),
            clock: Clock::new(device, clocks)?,
            last: AtomicU64::new(0),
            at: AtomicUsize::new(home),
            home,
            plans,
            carrier: OnceLock::new(),
            device: Arc::clone(device),
        })
    }

    /// Runs a transfer in this timeline's order; a long one on the transfer-only queue, if one is open.
    pub(crate) fn carry(
        &self,
        bytes: u64,
        transfer: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let Some(carrier) = self.carrier(bytes) else { return transfer(self) };
        carrier.order(self, self.mark()?)?;
        let carried = transfer(carrier);
        if !carrier.reached().is_ok_and(|reached| reached >= carrier.last()) {
            self.order(carrier, carrier.last())?;
        }
        carried
    }

    fn carrier(&self, bytes: u64) -> Option<&Self> {
        let queue = self.device.copier().filter(|queue| *queue != self.home)?;
        if bytes < LONG || self.semaphore().is_none() {
            return None;
        }
        if self.carrier.get().is_none() {
            // No memory for a second staging ring: use this timeline's own.
            let opened = self.open_carrier(queue).ok()?;
            self.carrier.get_or_init(|| Box::new(opened));
        }
        self.carrier.get().map(|carrier| &**carrier)
    }

    fn open_carrier(&self, queue: usize) -> Result<Self> {
        let carrier = Self::open(&self.device, queue, Clocks::Semaphores, self.plans)?;
        *lock(&carrier.staging) = Some(Staging::open(&self.device, self.plans.bytes)?);
        Ok(carrier)
    }

    /// Holds the timeline: what one holder submits stays together.
    pub(crate) fn hold(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn reached(&self) -> Result<u64> {
        self.clock.reached()
    }

    /// Returns whether an epoch is seen to have passed. Does not wait for a thread that waits.
    pub(crate) fn has_passed(&self, epoch: u64) -> bool {
        self.clock.has_passed(epoch)
    }

    /// Waits for an epoch. One that was never marked belongs to no timeline of this device.
    pub(crate) fn wait(&self, epoch: u64) -> Result<()> {
        if epoch > self.last.load(Ordering::Acquire) {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        self.clock.wait(epoch)
    }

    /// Returns the semaphore and last epoch, where the clock has one.
    pub(crate) fn semaphore(&self) -> Option<Arc<Semaphore>> {
        match &self.clock {
            Clock::Semaphore(semaphore) => Some(Arc::clone(semaphore)),
            Clock::Fences(_) => None,
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Returns an epoch that covers everything so far, the engine's work and pending waits included.
    pub(crate) fn mark(&self) -> Result<u64> {
        let mut state = self.hold();
        match state.uncovered == Uncovered::Nothing && state.waits.is_empty() {
            true => Ok(self.last()),
            false => {
                self.reclaim(&mut state)?;
                let queue = self.next(&state)?;
                self.send(&mut state, queue, None)
            }
        }
    }

    /// Makes later work wait for `epoch` of `other`.
    pub(crate) fn order(&self, other: &Self, epoch: u64) -> Result<()> {
        if epoch > other.last() {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        if core::ptr::eq(self, other) {
            return Ok(());
        }
        let mut state = self.hold();
        let Some(semaphore) = other.semaphore() else {
            // One queue: every batch of ours begins with a barrier behind all that was submitted before.
            state.uncovered = Uncovered::Order;
            return Ok(());
        };
        // Read after the last epoch: whatever queue that batch or a later one went to, it is behind the point.
        let queue = other.at.load(Ordering::Acquire);
        state.wait_for(semaphore, epoch, queue);
        Ok(())
    }

    /// Makes later work wait for all work before some signals: semaphores with their values and queues. With fences there are none.
    pub(crate) fn order_behind(&self, before: Vec<(Arc<Semaphore>, u64, usize)>) {
        let mut state = self.hold();
        if self.semaphore().is_none() {
            state.uncovered = Uncovered::Order; // As in `order`.
        }
        for (semaphore, epoch, queue) in before {
            state.wait_for(semaphore, epoch, queue);
        }
    }

    /// Runs an engine's closure with the queue, after the pending waits.
    pub(crate) fn outside<R>(&self, f: impl FnOnce(vk::Queue) -> R) -> Result<R> {
        let mut state = self.hold();
        let away = self.at.load(Ordering::Relaxed) != self.home;
        if away || !state.waits.is_empty() || state.uncovered == Uncovered::Order {
            // The engine's own work may begin without a barrier.
            self.run_on(&mut state, self.home, |_| ())?;
        }
        state.uncovered = Uncovered::Work;
        Ok(self.device.lend_queue(self.home, f))
    }

    /// Records and submits one batch; returns its epoch.
    pub(crate) fn run(
        &self,
        state: &mut State,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> Result<u64> {
        let queue = self.next(state)?;
        self.run_on(state, queue, record)
    }

    fn run_on(
        &self,
        state: &mut State,
        queue: usize,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> Result<u64> {
        self.reclaim(state)?;
        let commands = state.commands.record(record)?;
        let sent = self.send(state, queue, Some(commands));
        if sent.is_err() {
            state.commands.give_back(commands);
        }
        sent
    }

    /// Returns the queue for the next batch.
    fn next(&self, state: &State) -> Result<usize> {
        let at = self.at.load(Ordering::Relaxed);
        if state.uncovered == Uncovered::Work {
            // The engine's work is at home, and its end is known only there.
            return Ok(self.home);
        }
        if at == self.home && state.waits.iter().all(|wait| wait.queue == at) {
            return Ok(at);
        }
        let mut before = Vec::with_capacity(1 + state.waits.len());
        if self.reached()? < self.last() {
            before.push(Before::Own(at));
        }
        for wait in &state.waits {
            if wait.semaphore.value()? < wait.epoch {
                before.push(Before::Other(wait.queue));
            }
        }
        let family = self.device.queues[self.home].family;
        let open = |queue: usize| {
            let queue = &self.device.queues[queue];
            queue.family == family && !queue.is_lent()
        };
        Ok(route::choose(self.home, &before, open))
    }

    fn send(
        &self,
        state: &mut State,
        queue: usize,
        commands: Option<vk::CommandBuffer>,
    ) -> Result<u64> {
        let (last, epoch) = (self.last(), self.last() + 1);
        let list: &[vk::CommandBuffer] = commands.as_slice();
        let elsewhere = state.waits.iter().filter(|wait| wait.queue != queue);
        let mut waits: Vec<_> =
            elsewhere.map(|wait| (Arc::clone(&wait.semaphore), wait.epoch)).collect();
        if self.at.load(Ordering::Relaxed) != queue {
            waits.extend(self.semaphore().map(|own| (own, last)));
        }
        // SAFETY: the command buffer was just recorded by `run_on` for this family, to which `next` keeps, and is kept,
        // like the semaphores, in `flights` until `epoch` is reached.
        unsafe { self.clock.submit(&self.device, queue, list, &waits, epoch) }?;
        // In this order: who sees the epoch sees a queue that is behind it.
        self.at.store(queue, Ordering::Release);
        self.last.store(epoch, Ordering::Release);
        state.uncovered = Uncovered::Nothing;
        state.waits.clear();
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

    /// Holds the staging ring for a transfer. Never taken while the timeline is [held](Self::hold).
    pub(crate) fn ring(&self) -> MutexGuard<'_, Option<Staging>> {
        lock(&self.staging)
    }

    /// Takes a piece of the staging ring, waiting for older ones where it must.
    pub(crate) fn stage<'a>(
        &self,
        ring: &'a mut Option<Staging>,
        size: u64,
    ) -> Result<Option<(u64, &'a mut Staging)>> {
        self.take(ring, self.plans.bytes, size)
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

    /// Returns the most bytes to send through the ring at once: a quarter, so that copying and sending overlap, and a multiple of [`UNIT`].
    pub(crate) const fn piece(&self) -> u64 {
        self.plans.bytes.size / 4 / UNIT * UNIT
    }

    /// Returns the longest list of the compaction kernel, in bytes: half the ring, so that one is written while one is read.
    pub(crate) const fn longest_list(&self) -> u64 {
        self.plans.lists.size / 2
    }
}

impl Drop for QueueTimeline {
    fn drop(&mut self) {
        // A lost device runs nothing any more; either way no batch uses what is dropped next.
        let _ = self.clock.wait(self.last());
    }
}

#[cfg(test)]
mod tests {
    use crate::{Vulkan, rig::opened, timeline::clock::Semaphore};
    use ash::vk;
    use omniheap_seam::{Point, TimelineId, Timelines as _};
    use std::{sync::Arc, thread};

    #[test]
    fn marks_behind_an_engines_work_leave_nothing_behind() {
        let Some(vulkan) = opened() else { return };
        let timeline = TimelineId::MAIN;
        for _ in 0..64 {
            vulkan.with_queue(timeline, |_, _| ()).expect("it is open");
            let epoch = vulkan.mark(timeline).expect("it is open");
            vulkan.wait(Point { timeline, epoch }).expect("just marked");
        }
        let flights = vulkan.timelines.get(timeline).expect("it is open").hold().flights.len();
        assert!(flights < 8, "{flights} of 64 batches are kept, and all have ended");
    }

    #[test]
    fn a_read_that_waits_for_the_device_lets_others_submit() {
        let Some(vulkan) = opened() else { return };
        let (on, device) = (TimelineId::MAIN, &vulkan.device);
        let timeline = vulkan.timelines.get(on).expect("it is open");
        if timeline.semaphore().is_none() || device.timeline_khr.is_some() {
            return; // A fence cannot be signalled from here.
        }
        let gate = Arc::new(Semaphore::create(device).expect("a semaphore"));
        // Behind the engine's work a batch stays at home, whatever it waits for.
        vulkan.with_queue(on, |_, _| ()).expect("it is open");
        timeline.order_behind(vec![(Arc::clone(&gate), 1, usize::MAX)]);
        let (before, mut bytes) = (timeline.last(), [0; 64]);
        thread::scope(|scope| {
            scope.spawn(|| Vulkan::fetch(&timeline, &mut bytes, |_, _| ()).expect("it is read"));
            while timeline.last() == before {
                thread::yield_now();
            }
            // The read ends only when this is submitted: with the timeline held meanwhile, neither would.
            let open = vk::SemaphoreSignalInfo::default().semaphore(gate.raw).value(1);
            // SAFETY: a timeline semaphore of this device, whose value rises.
            let opened =
                vulkan.with_queue(on, |_, _| unsafe { device.raw.signal_semaphore(&open) });
            opened.expect("it is open").expect("it is signalled");
        });
    }
}
