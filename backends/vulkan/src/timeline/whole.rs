//! Marks of all work, and the handles that are destroyed once a mark is reached.
//!
//! A mark is an empty batch on every queue that was used since the last mark. Only one mark runs at a time. Handles that are
//! retired meanwhile share the next mark, so a thousand drops cost as much as one. No thread waits for a queue that another
//! thread holds: the next look sends the mark.
#![forbid(unsafe_code)]
use super::{
    clock::{Clock, Clocks, Semaphore},
    retired::Retired,
};
use crate::driver::device::Device;
use core::{
    mem,
    sync::atomic::{AtomicBool, Ordering},
};
use omniheap_seam::{ErrorKind, Result, lock};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// All work of a device, as far as this backend sees it: its queues, and the frames that an engine ends.
#[derive(Debug)]
pub(crate) struct Whole {
    state: Mutex<State>,
    /// One clock for each queue.
    clocks: Vec<Clock>,
    /// Most frames that an engine has under way on queues of its own. Zero if it submits only to ours.
    frames_in_flight: u64,
    /// True if a handle was destroyed since the last call of `has_destroyed`.
    has_destroyed: AtomicBool,
    device: Arc<Device>,
}

#[derive(Debug)]
struct State {
    /// The last epoch that was reached.
    reached: u64,
    /// The last epoch whose mark was sent.
    last: u64,
    /// True if the epoch after `last` was given out, and its mark is not sent yet.
    promised: bool,
    /// Marks on the queues, oldest first.
    sent: VecDeque<Sent>,
    /// Epochs that have passed on the queues and wait for the engine's frames, with the frame of each.
    resting: VecDeque<(u64, u64)>,
    /// The last signal that was sent on each queue.
    signals: Vec<u64>,
    /// Uses of each queue that `signals` cover.
    covered: Vec<u64>,
    /// Frames that the engine has ended.
    frame: u64,
    /// The frame of `last`.
    marked_frame: Option<u64>,
    /// Handles to destroy, each with its epoch, oldest first.
    retired: VecDeque<(u64, Retired)>,
}

/// A mark on the queues.
#[derive(Debug)]
struct Sent {
    epoch: u64,
    frame: u64,
    /// The signal of each queue.
    signals: Vec<u64>,
}

/// Time at which a retired handle is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Already destroyed: no work uses it.
    Now,
    /// Later, once this epoch is reached.
    At(u64),
}

impl Whole {
    /// # Errors
    ///
    /// The driver's error.
    pub(crate) fn open(
        device: &Arc<Device>,
        clocks: Clocks,
        frames_in_flight: u32,
    ) -> Result<Self> {
        let queues = device.queues.len();
        let clocks = (0..queues).map(|_| Clock::new(device, clocks)).collect::<Result<_>>()?;
        let state = State {
            reached: 0,
            last: 0,
            promised: false,
            sent: VecDeque::new(),
            resting: VecDeque::new(),
            signals: vec![0; queues],
            covered: vec![0; queues],
            frame: 0,
            marked_frame: None,
            retired: VecDeque::new(),
        };
        let (state, has_destroyed) = (Mutex::new(state), AtomicBool::new(false));
        let frames_in_flight = u64::from(frames_in_flight);
        Ok(Self { state, clocks, frames_in_flight, has_destroyed, device: Arc::clone(device) })
    }

    /// Returns whether an engine says when its frames end.
    pub(crate) const fn counts_frames(&self) -> bool {
        self.frames_in_flight > 0
    }

    /// Returns an epoch that covers everything so far.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub(crate) fn mark(&self) -> Result<u64> {
        self.with(|state| {
            self.look(state)?;
            Ok(self.give(state))
        })
    }

    /// Returns the latest epoch reached. Handles that were retired before it are destroyed.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub(crate) fn reached(&self) -> Result<u64> {
        self.with(|state| {
            self.look(state)?;
            Ok(state.reached)
        })
    }

    /// Waits for an epoch.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` for one that was never given out; `Busy` for one that waits for frames of the engine; the driver's error.
    pub(crate) fn wait(&self, epoch: u64) -> Result<()> {
        loop {
            let step = self.with(|state| {
                let looked = self.look(state);
                if epoch <= state.reached {
                    return Ok(Step::Reached);
                }
                if epoch > state.last + u64::from(state.promised) {
                    return Err(ErrorKind::NoSuchTimeline.into());
                }
                looked?;
                match state.sent.back() {
                    Some(sent) => Ok(Step::Signals(sent.signals.clone())),
                    None if epoch <= state.last => Err(ErrorKind::Busy.because(
                        "frames of the engine are under way; call `Vulkan::end_frame` after each",
                    )),
                    None => Ok(Step::Queues),
                }
            })?;
            match step {
                Step::Reached => return Ok(()),
                Step::Signals(signals) => self
                    .clocks
                    .iter()
                    .zip(signals)
                    .try_for_each(|(clock, signal)| clock.wait(signal))?,
                Step::Queues => self.wait_for_queues(),
            }
        }
    }

    /// Returns the signals that a timeline waits for to run behind an epoch: for each queue a semaphore and its value. Empty if the
    /// epoch was reached, or the device has no timeline semaphores.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub(crate) fn behind(&self, epoch: u64) -> Result<Vec<(Arc<Semaphore>, u64, usize)>> {
        loop {
            let found = self.with(|state| {
                self.look(state)?;
                if epoch <= state.reached {
                    return Ok(Some(Vec::new()));
                }
                if epoch > state.last + u64::from(state.promised) {
                    return Err(ErrorKind::NoSuchTimeline.into());
                }
                if self.counts_frames() {
                    return Err(ErrorKind::Busy.because("frames of the engine are under way"));
                }
                if self.clocks.iter().any(|clock| matches!(clock, Clock::Fences(_))) {
                    // One queue, on which every batch is behind all that was submitted before.
                    return Ok(Some(Vec::new()));
                }
                if epoch > state.last {
                    self.send(state)?;
                }
                let semaphores = self.clocks.iter().zip(&state.signals).enumerate();
                let all = semaphores.filter_map(|(queue, (clock, signal))| match clock {
                    Clock::Semaphore(semaphore) => Some((Arc::clone(semaphore), *signal, queue)),
                    Clock::Fences(_) => None,
                });
                Ok((epoch <= state.last).then(|| all.collect()))
            })?;
            match found {
                Some(found) => return Ok(found),
                None => self.wait_for_queues(),
            }
        }
    }

    /// Destroys a handle once all work so far has ended, after the handles that were retired before it. At once if the work has ended.
    pub(crate) fn retire(&self, retired: Retired) -> When {
        self.with(|state| {
            // A lost device runs nothing any more.
            let is_lost =
                self.look(state).is_err_and(|error| error.kind() == ErrorKind::DeviceLost);
            let epoch = self.give(state);
            if is_lost {
                self.destroy(retired);
                return When::Now;
            }
            // `with` destroys handles whose epoch is reached, oldest first.
            state.retired.push_back((epoch, retired));
            if epoch <= state.reached { When::Now } else { When::At(epoch) }
        })
    }

    /// Destroys a handle that no work uses.
    #[cfg_attr(not(feature = "manager"), expect(dead_code, reason = "resources need the manager"))]
    pub(crate) fn destroy(&self, retired: Retired) {
        retired.destroy(&self.device.raw);
    }

    /// Counts a frame of the engine.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub(crate) fn end_frame(&self) -> Result<()> {
        self.with(|state| {
            state.frame += 1;
            self.look(state)
        })
    }

    /// Destroys retired handles, except those that wait for frames of the engine. The queues are idle.
    pub(crate) fn settle(&self) {
        let last = self.with(|state| state.retired.back().map(|(epoch, _)| *epoch));
        // If the driver refuses to wait, a later call destroys them.
        let _ = last.map(|epoch| self.wait(epoch));
    }

    /// Waits for the device, and destroys all retired handles. The engine's own queues are idle or lost.
    pub(crate) fn end(&self) {
        let idle = self.device.wait_idle();
        let retired = mem::take(&mut lock(&self.state).retired);
        match idle {
            // Work may still use the handles: they are leaked, and so are the clocks.
            Err(error) if error.kind() != ErrorKind::DeviceLost => {
                self.clocks.iter().for_each(Clock::leave);
            }
            // A lost device runs nothing any more.
            _ => retired.into_iter().for_each(|(_, one)| one.destroy(&self.device.raw)),
        }
    }

    /// Returns whether anything was destroyed since the last call.
    #[cfg_attr(not(feature = "manager"), expect(dead_code, reason = "a manager asks"))]
    pub(crate) fn has_destroyed(&self) -> bool {
        self.has_destroyed.load(Ordering::Relaxed)
            && self.has_destroyed.swap(false, Ordering::Relaxed)
    }

    /// Runs `f` with the state locked. Then unlocks it and destroys the handles whose epoch is reached.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        let answer = f(&mut state);
        let over = state.retired.partition_point(|(epoch, _)| *epoch <= state.reached);
        if over == 0 {
            return answer;
        }
        let over: Vec<_> = state.retired.drain(..over).collect();
        drop(state);
        over.into_iter().for_each(|(_, retired)| retired.destroy(&self.device.raw));
        self.has_destroyed.store(true, Ordering::Relaxed);
        answer
    }

    /// Reads how far the marks have come. Sends the next mark if its epoch was given out and no mark runs.
    fn look(&self, state: &mut State) -> Result<()> {
        self.see(state)?;
        if state.promised && state.sent.is_empty() {
            self.send(state)?;
            // On an idle device the mark is reached at once.
            self.see(state)?;
        }
        Ok(())
    }

    fn see(&self, state: &mut State) -> Result<()> {
        while let Some(sent) = state.sent.front() {
            for (clock, signal) in self.clocks.iter().zip(&sent.signals) {
                if *signal > 0 && !clock.look(*signal)? {
                    self.rest(state);
                    return Ok(());
                }
            }
            state.resting.push_back((sent.epoch, sent.frame));
            state.sent.pop_front();
        }
        self.rest(state);
        Ok(())
    }

    /// Moves `reached` to the last epoch whose frames have ended.
    fn rest(&self, state: &mut State) {
        let has_ended =
            |frame: u64| !self.counts_frames() || state.frame > frame + self.frames_in_flight;
        let over = state.resting.partition_point(|(_, frame)| has_ended(*frame));
        if let Some((epoch, _)) = state.resting.drain(..over).next_back() {
            state.reached = epoch;
        }
    }

    /// Gives out an epoch that covers everything so far.
    fn give(&self, state: &mut State) -> u64 {
        let queues = self.device.queues.iter().zip(&state.covered);
        let is_covered = queues.clone().all(|(queue, covered)| queue.is_covered_by(*covered))
            && (!self.counts_frames() || state.marked_frame == Some(state.frame));
        if is_covered && !state.promised {
            return state.last;
        }
        state.promised = true;
        if state.sent.is_empty() {
            // If the driver refuses, or another thread holds a queue, the next look tries again.
            let _ = self.send(state);
        }
        state.last + u64::from(state.promised)
    }

    /// Sends the mark whose epoch was given out. If another thread holds a queue, a later call sends it.
    fn send(&self, state: &mut State) -> Result<()> {
        for (at, clock) in self.clocks.iter().enumerate() {
            if self.device.queues[at].is_covered_by(state.covered[at]) {
                continue;
            }
            let signal = state.signals[at] + 1;
            match clock.try_signal(&self.device, at, signal)? {
                Some(uses) => (state.signals[at], state.covered[at]) = (signal, uses),
                None => return Ok(()),
            }
        }
        (state.last, state.promised) = (state.last + 1, false);
        state.marked_frame = Some(state.frame);
        let (epoch, frame, signals) = (state.last, state.frame, state.signals.clone());
        state.sent.push_back(Sent { epoch, frame, signals });
        Ok(())
    }

    fn wait_for_queues(&self) {
        (0..self.device.queues.len()).for_each(|queue| self.device.wait_for_queue(queue));
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // A twin may outlive the backend, and be retired after the last look.
        if !lock(&self.state).retired.is_empty() {
            self.end();
        }
    }
}

/// Next thing to wait for.
enum Step {
    Reached,
    /// These signals.
    Signals(Vec<u64>),
    /// Threads that hold queues.
    Queues,
}
