//! Descriptor sets of one kernel: written for a launch, and used again when it is over.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    driver::{check, device::Device},
    timeline::queue::QueueTimeline,
};
use ash::vk;
use omniheap_seam::{ErrorKind, Result, Slot, lock};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// Bindings of one launch, in the order of the slots.
pub(crate) type Bindings = Vec<vk::DescriptorBufferInfo>;

/// Sets of one descriptor pool.
const POOL: u32 = 32;

const fn kind(slot: Slot) -> vk::DescriptorType {
    match slot {
        Slot::Constant => vk::DescriptorType::UNIFORM_BUFFER,
        Slot::Read | Slot::Write => vk::DescriptorType::STORAGE_BUFFER,
    }
}

/// Sets of one layout.
#[derive(Debug)]
pub(crate) struct Sets {
    slots: &'static [Slot],
    layout: vk::DescriptorSetLayout,
    state: Mutex<State>,
    device: Arc<Device>,
}

#[derive(Debug, Default)]
struct State {
    pools: Vec<vk::DescriptorPool>,
    /// Sets that no launch uses.
    free: Vec<vk::DescriptorSet>,
    /// Sets that were sent. One queue for each timeline, so that none waits for another's.
    sent: Vec<Sent>,
}

/// Sets that a timeline uses, each until its epoch, oldest first. There is at least one.
#[derive(Debug)]
struct Sent {
    timeline: Arc<QueueTimeline>,
    sets: VecDeque<(vk::DescriptorSet, u64)>,
}

impl State {
    /// Takes back a set whose launch is over.
    fn reclaim(&mut self) -> Option<vk::DescriptorSet> {
        let is_over = |sent: &Sent| {
            let oldest = sent.sets.front().map(|(_, epoch)| *epoch);
            oldest.is_some_and(|epoch| sent.timeline.has_passed(epoch))
        };
        let at = self.sent.iter().position(is_over)?;
        let taken = self.sent[at].sets.pop_front();
        if self.sent[at].sets.is_empty() {
            self.sent.swap_remove(at);
        }
        taken.map(|(set, _)| set)
    }
}

impl Sets {
    pub(crate) fn new(device: &Arc<Device>, slots: &'static [Slot]) -> Result<Self> {
        let binding = |(number, slot): (u32, &Slot)| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(number)
                .descriptor_type(kind(*slot))
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0u32..).zip(slots).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is alive, and the bindings outlive the call.
        let layout = check(unsafe { device.raw.create_descriptor_set_layout(&info, None) })?;
        Ok(Self { slots, layout, state: Mutex::default(), device: Arc::clone(device) })
    }

    pub(crate) const fn layout(&self) -> vk::DescriptorSetLayout {
        self.layout
    }

    /// Returns a free set, with these buffers written. It stays in use until it is [`sent`](Self::sent) and that launch is
    /// over, or given back.
    pub(crate) fn take(&self, infos: &Bindings) -> Result<vk::DescriptorSet> {
        let mut state = lock(&self.state);
        // The driver is asked only where no set is free.
        let set = state.free.pop().or_else(|| state.reclaim());
        let set = match set {
            Some(set) => set,
            None => self.grow(&mut state)?,
        };
        self.fill(set, infos);
        Ok(set)
    }

    /// Takes a set back that no launch uses.
    pub(crate) fn give_back(&self, set: vk::DescriptorSet) {
        lock(&self.state).free.push(set);
    }

    /// Notes that a set is in use until `timeline` reaches `epoch`, which is no earlier than that of its launch before.
    pub(crate) fn sent(&self, set: vk::DescriptorSet, timeline: &Arc<QueueTimeline>, epoch: u64) {
        let sent = &mut lock(&self.state).sent;
        match sent.iter_mut().find(|known| Arc::ptr_eq(&known.timeline, timeline)) {
            Some(known) => known.sets.push_back((set, epoch)),
            None => {
                let sets = VecDeque::from([(set, epoch)]);
                sent.push(Sent { timeline: Arc::clone(timeline), sets });
            }
        }
    }

    /// Waits until no set is in use. A lost device uses none.
    pub(crate) fn wait(&self) -> Result<()> {
        let last = |sent: &Sent| {
            let epoch = sent.sets.back().map_or(0, |(_, epoch)| *epoch);
            (Arc::clone(&sent.timeline), epoch)
        };
        let all: Vec<_> = lock(&self.state).sent.iter().map(last).collect();
        for (timeline, epoch) in all {
            match timeline.wait(epoch) {
                Err(error) if error.kind() != ErrorKind::DeviceLost => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a pool of new sets; returns one of them.
    fn grow(&self, state: &mut State) -> Result<vk::DescriptorSet> {
        let size = |slot: &Slot| vk::DescriptorPoolSize { ty: kind(*slot), descriptor_count: POOL };
        let sizes: Vec<_> = self.slots.iter().map(size).collect();
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(POOL).pool_sizes(&sizes);
        // SAFETY: the device is alive, and the sizes outlive the call.
        let pool = check(unsafe { self.device.raw.create_descriptor_pool(&info, None) })?;
        let layouts = vec![self.layout; POOL as usize];
        let info =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool was made just above for exactly these sets, and nobody else knows it.
        let made = check(unsafe { self.device.raw.allocate_descriptor_sets(&info) });
        state.free = made.inspect_err(|_| {
            // SAFETY: made just above, and it has no sets.
            unsafe { self.device.raw.destroy_descriptor_pool(pool, None) };
        })?;
        state.pools.push(pool);
        Ok(state.free.pop().expect("a pool has sets"))
    }

    fn fill(&self, set: vk::DescriptorSet, infos: &Bindings) {
        let write = |((number, slot), info): ((u32, &Slot), _)| {
            vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(number)
                .descriptor_type(kind(*slot))
                .buffer_info(core::slice::from_ref(info))
        };
        let writes: Vec<_> = (0u32..).zip(self.slots).zip(infos).map(write).collect();
        // SAFETY: no launch uses the set; the buffers are alive, and checked against the limits by `Vulkan::descriptor`.
        unsafe { self.device.raw.update_descriptor_sets(&writes, &[]) };
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        if self.wait().is_err() {
            return;
        }
        for pool in lock(&self.state).pools.drain(..) {
            // SAFETY: ours, and none of its sets is in use.
            unsafe { self.device.raw.destroy_descriptor_pool(pool, None) };
        }
        // SAFETY: ours, made once; the sets made of it are gone.
        unsafe { self.device.raw.destroy_descriptor_set_layout(self.layout, None) };
    }
}

#[cfg(test)]
mod tests {
    use super::{POOL, Sets};
    use crate::rig::opened;
    use ash::vk;
    use omniheap_seam::lock;
    use omniheap_seam::{Backend as _, ErrorKind, Slot, TimelineId, Timelines as _};
    use std::sync::Arc;

    #[test]
    fn a_launch_that_waits_keeps_its_own_set_alone() {
        let Some(vulkan) = opened() else { return };
        let slow = vulkan.timelines.get(vulkan.open().expect("a timeline")).expect("open");
        let fast = vulkan.timelines.get(TimelineId::MAIN).expect("always open");
        let heap = vulkan.caps().heap_ids().next().expect("every device has memory").0;
        let block = vulkan.allocate(heap, 64).expect("small");
        let buffer = block.buffer().expect("kernels bind it");
        let sets = Sets::new(&vulkan.device, &[Slot::Write]).expect("one slot");
        let bound = vec![vk::DescriptorBufferInfo { buffer, offset: 0, range: 64 }];
        let take = || sets.take(&bound).expect("a set");
        // A launch that is not over, because its epoch is never reached.
        sets.sent(take(), &slow, u64::MAX);
        for _ in 0..10 * POOL {
            sets.sent(take(), &fast, 0);
        }
        assert_eq!(lock(&sets.state).pools.len(), 1, "every set comes back but one");
        let refused = sets.wait().map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::NoSuchTimeline), "what cannot be waited for is told");
        lock(&sets.state).sent.retain(|sent| !Arc::ptr_eq(&sent.timeline, &slow));
        assert!(sets.wait().is_ok());
    }
}
