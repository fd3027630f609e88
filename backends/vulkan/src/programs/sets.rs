//! Descriptor sets of one kernel: written for a launch, and used again when it is over.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    driver::{
        check,
        device::{Device, lock},
    },
    timeline::queue::QueueTimeline,
};
use ash::vk;
use omniheap_seam::{Result, Slot};
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
    /// Sets of the newest pool that were never used.
    fresh: Vec<vk::DescriptorSet>,
    /// Sets that were sent, oldest first.
    sent: VecDeque<Sent>,
}

/// A set that its timeline uses until the epoch.
#[derive(Debug)]
struct Sent {
    set: vk::DescriptorSet,
    timeline: Arc<QueueTimeline>,
    epoch: u64,
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

    /// Returns a free set, with these buffers written. It stays in use until [`give_back`](Self::give_back).
    pub(crate) fn take(&self, infos: &Bindings) -> Result<vk::DescriptorSet> {
        let mut state = lock(&self.state);
        let reached =
            |sent: &Sent| sent.timeline.reached().is_ok_and(|reached| reached >= sent.epoch);
        let set = match state.sent.front() {
            Some(oldest) if reached(oldest) => state.sent.pop_front().map(|sent| sent.set),
            _ => state.fresh.pop(),
        };
        let set = match set {
            Some(set) => set,
            None => self.grow(&mut state)?,
        };
        self.fill(set, infos);
        Ok(set)
    }

    /// Returns a set for reuse once `timeline` reaches `epoch`.
    pub(crate) fn give_back(
        &self,
        set: vk::DescriptorSet,
        timeline: &Arc<QueueTimeline>,
        epoch: u64,
    ) {
        lock(&self.state).sent.push_back(Sent { set, timeline: Arc::clone(timeline), epoch });
    }

    /// Waits until no set is in use.
    pub(crate) fn wait(&self) {
        for sent in lock(&self.state).sent.drain(..) {
            // A lost device uses nothing any more.
            let _ = sent.timeline.wait(sent.epoch);
        }
    }

    /// Makes a pool of new sets; returns one of them.
    fn grow(&self, state: &mut State) -> Result<vk::DescriptorSet> {
        let size = |slot: &Slot| vk::DescriptorPoolSize { ty: kind(*slot), descriptor_count: POOL };
        let sizes: Vec<_> = self.slots.iter().map(size).collect();
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(POOL).pool_sizes(&sizes);
        // SAFETY: the device is alive, and the sizes outlive the call.
        let pool = check(unsafe { self.device.raw.create_descriptor_pool(&info, None) })?;
        state.pools.push(pool);
        let layouts = vec![self.layout; POOL as usize];
        let info =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool was made just above for exactly these sets, and the state's lock lets one caller in.
        state.fresh = check(unsafe { self.device.raw.allocate_descriptor_sets(&info) })?;
        Ok(state.fresh.pop().expect("a pool has sets"))
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
        self.wait();
        for pool in lock(&self.state).pools.drain(..) {
            // SAFETY: ours, and none of its sets is in use.
            unsafe { self.device.raw.destroy_descriptor_pool(pool, None) };
        }
        // SAFETY: ours, made once; the sets made of it are gone.
        unsafe { self.device.raw.destroy_descriptor_set_layout(self.layout, None) };
    }
}
