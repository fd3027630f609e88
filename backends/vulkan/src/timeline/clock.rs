//! Clock of a timeline: one timeline semaphore, or a queue of fences where there are none.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::driver::{check, device::Device};
use ash::vk;
use core::mem;
use omniheap_seam::{Result, lock};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, TryLockError},
};

/// Implementation of a timeline's epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clocks {
    /// Timeline semaphores where the device has them, else fences.
    #[default]
    Semaphores,
    /// Fences: every timeline then shares the first queue, `order` is a barrier on it, and a wait holds its timeline.
    Fences,
}

/// A timeline semaphore.
#[derive(Debug)]
pub(crate) struct Semaphore {
    pub(crate) raw: vk::Semaphore,
    device: Arc<Device>,
}

impl Semaphore {
    pub(super) fn create(device: &Arc<Device>) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive and has timeline semaphores (`Clock::new` asked).
        let raw = check(unsafe { device.raw.create_semaphore(&info, None) })?;
        Ok(Self { raw, device: Arc::clone(device) })
    }

    pub(crate) fn value(&self) -> Result<u64> {
        check(match &self.device.timeline_khr {
            // SAFETY: alive as long as `self`, and a timeline semaphore.
            Some(old) => unsafe { old.get_semaphore_counter_value(self.raw) },
            // SAFETY: as above.
            None => unsafe { self.device.raw.get_semaphore_counter_value(self.raw) },
        })
    }

    fn wait(&self, value: u64) -> Result<()> {
        let (raws, values) = ([self.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&raws).values(&values);
        check(match &self.device.timeline_khr {
            // SAFETY: alive as long as `self`; both arrays have one element.
            Some(old) => unsafe { old.wait_semaphores(&info, u64::MAX) },
            // SAFETY: as above.
            None => unsafe { self.device.raw.wait_semaphores(&info, u64::MAX) },
        })
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: destroyed once; every batch that names it keeps an `Arc` of it until it has finished.
        unsafe { self.device.raw.destroy_semaphore(self.raw, None) };
    }
}

/// A fence.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) raw: vk::Fence,
    device: Arc<Device>,
}

impl Fence {
    pub(crate) fn create(device: &Arc<Device>) -> Result<Self> {
        let info = vk::FenceCreateInfo::default();
        // SAFETY: the device is alive.
        let raw = check(unsafe { device.raw.create_fence(&info, None) })?;
        Ok(Self { raw, device: Arc::clone(device) })
    }

    /// Waits until a submitted fence signals.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: alive as long as `self`.
        check(unsafe { self.device.raw.wait_for_fences(&[self.raw], true, u64::MAX) })
    }

    /// Makes it usable again; no queue may still hold it.
    pub(crate) fn reset(&self) -> Result<()> {
        // SAFETY: alive; callers reset only after they saw it signalled.
        check(unsafe { self.device.raw.reset_fences(&[self.raw]) })
    }

    fn signalled(&self) -> Result<bool> {
        // SAFETY: alive as long as `self`.
        check(unsafe { self.device.raw.get_fence_status(self.raw) })
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: destroyed once; whoever drops it waited for the batch that signals it.
        unsafe { self.device.raw.destroy_fence(self.raw, None) };
    }
}

/// A timeline's time.
#[derive(Debug)]
pub(crate) enum Clock {
    Semaphore(Arc<Semaphore>),
    Fences(Mutex<Fences>),
}

/// Fences in the order of their epochs.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    pending: VecDeque<(u64, Fence)>,
    spare: Vec<Fence>,
    reached: u64,
}

impl Fences {
    /// Takes back the fences that signalled; returns the latest epoch reached.
    fn reached(&mut self) -> Result<u64> {
        while let Some((_, fence)) = self.pending.front() {
            if !fence.signalled()? {
                break;
            }
            self.pop()?;
        }
        Ok(self.reached)
    }

    fn pop(&mut self) -> Result<()> {
        if let Some((epoch, fence)) = self.pending.pop_front() {
            self.reached = epoch;
            fence.reset()?;
            self.spare.push(fence);
        }
        Ok(())
    }
}

impl Clock {
    pub(crate) fn new(device: &Arc<Device>, clocks: Clocks) -> Result<Self> {
        Ok(match clocks {
            Clocks::Semaphores => Self::Semaphore(Arc::new(Semaphore::create(device)?)),
            Clocks::Fences => Self::Fences(Mutex::default()),
        })
    }

    /// Returns the latest epoch reached.
    pub(crate) fn reached(&self) -> Result<u64> {
        match self {
            Self::Semaphore(semaphore) => semaphore.value(),
            Self::Fences(fences) => lock(fences).reached(),
        }
    }

    /// Returns whether an epoch is seen to have passed. A thread that waits holds the fences for its whole wait: it is not waited for, and
    /// nothing is seen meanwhile.
    pub(crate) fn has_passed(&self, epoch: u64) -> bool {
        self.look(epoch).unwrap_or(false)
    }

    /// Returns whether an epoch is seen to have passed, or the driver's error. See [`has_passed`](Self::has_passed).
    pub(crate) fn look(&self, epoch: u64) -> Result<bool> {
        let reached = match self {
            Self::Semaphore(semaphore) => semaphore.value(),
            Self::Fences(fences) => match fences.try_lock() {
                Ok(mut fences) => fences.reached(),
                Err(TryLockError::Poisoned(fences)) => fences.into_inner().reached(),
                Err(TryLockError::WouldBlock) => return Ok(false),
            },
        };
        Ok(reached? >= epoch)
    }

    /// Waits for an epoch that was submitted.
    pub(crate) fn wait(&self, epoch: u64) -> Result<()> {
        match self {
            Self::Semaphore(semaphore) => semaphore.wait(epoch),
            Self::Fences(fences) => {
                let mut fences = lock(fences);
                while fences.reached < epoch
                    && let Some((_, fence)) = fences.pending.front()
                {
                    fence.wait()?;
                    fences.pop()?;
                }
                Ok(())
            }
        }
    }

    /// Leaks the semaphore or fences that batches may still signal, and with them the device.
    pub(crate) fn leave(&self) {
        match self {
            Self::Semaphore(semaphore) => mem::forget(Arc::clone(semaphore)),
            Self::Fences(fences) => mem::forget(mem::take(&mut *lock(fences))),
        }
    }

    /// Submits one batch that ends at `epoch`.
    ///
    /// # Safety
    ///
    /// As for [`Device::submit`]; `waits` stay alive until the batch has finished.
    pub(crate) unsafe fn submit(
        &self,
        device: &Arc<Device>,
        queue: usize,
        commands: &[vk::CommandBuffer],
        waits: &[(Arc<Semaphore>, u64)],
        epoch: u64,
    ) -> Result<()> {
        let sent = self.end(device, commands, waits, epoch, |batch, fence| {
            // SAFETY: the caller's promise; `end` gives what signals `epoch`, which no other batch does.
            unsafe { device.submit(queue, batch, fence) }.map(Some)
        });
        sent.map(|_| ())
    }

    /// Submits an empty batch that ends at `epoch` if nobody holds the queue. Returns the number of the queue's uses, or `None` if
    /// somebody holds it.
    pub(crate) fn try_signal(
        &self,
        device: &Arc<Device>,
        queue: usize,
        epoch: u64,
    ) -> Result<Option<u64>> {
        self.end(device, &[], &[], epoch, |batch, fence| {
            // SAFETY: the batch is empty, and `end` gives what signals `epoch`, which no other batch does.
            unsafe { device.try_submit(queue, batch, fence) }
        })
    }

    /// Has `send` submit a batch that ends at `epoch`; `None` says that it did not.
    fn end<R>(
        &self,
        device: &Arc<Device>,
        commands: &[vk::CommandBuffer],
        waits: &[(Arc<Semaphore>, u64)],
        epoch: u64,
        send: impl FnOnce(&vk::SubmitInfo<'_>, vk::Fence) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let semaphore = match self {
            Self::Semaphore(semaphore) => semaphore,
            Self::Fences(fences) => {
                let mut fences = lock(fences);
                let fence = match fences.spare.pop() {
                    Some(fence) => fence,
                    None => Fence::create(device)?,
                };
                let info = vk::SubmitInfo::default().command_buffers(commands);
                // The fence is fresh or was reset by `pop`.
                let sent = send(&info, fence.raw);
                match &sent {
                    Ok(Some(_)) => fences.pending.push_back((epoch, fence)),
                    Ok(None) => fences.spare.push(fence),
                    Err(_) => {}
                }
                return sent;
            }
        };
        let raws: Vec<_> = waits.iter().map(|(semaphore, _)| semaphore.raw).collect();
        let values: Vec<_> = waits.iter().map(|(_, value)| *value).collect();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; raws.len()];
        let (signal, reach) = ([semaphore.raw], [epoch]);
        let mut times = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&reach);
        let info = vk::SubmitInfo::default()
            .command_buffers(commands)
            .wait_semaphores(&raws)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(&signal)
            .push_next(&mut times);
        // Epochs of one timeline grow, so the signalled value does.
        send(&info, vk::Fence::null())
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Clocks};
    use crate::rig::opened;
    use omniheap_seam::lock;

    #[test]
    fn who_asks_for_an_epoch_does_not_wait_for_a_thread_that_waits() {
        let Some(vulkan) = opened() else { return };
        let clock = Clock::new(&vulkan.device, Clocks::Fences).expect("fences need nothing");
        let Clock::Fences(fences) = &clock else { panic!("fences were asked for") };
        // As a thread does that waits.
        let waits = lock(fences);
        assert!(!clock.has_passed(0), "nothing is seen meanwhile");
        drop(waits);
        assert!(clock.has_passed(0));
        assert!(!clock.has_passed(1), "it was never submitted");
    }
}
