//! The logical device, its queues, and the rules by which threads use them.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    caps::features::{Feature, Features},
    driver::{Instance, Owner, check, hooks::Hooks, physical::Physical, queues},
};
use ash::{ext, khr, vk};
use core::time::Duration;
use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use omniheap_seam::{ErrorKind, Result, lock};
use std::{
    sync::{Arc, Mutex, OnceLock, TryLockError},
    thread::{self, ThreadId},
    time::Instant,
};

/// Another thread counts as submitting work if it did so within this time.
const RECENT: Duration = Duration::from_millis(100);

/// A queue; the driver wants one caller at a time.
pub(crate) struct Queue {
    pub(crate) family: u32,
    pub(crate) flags: vk::QueueFlags,
    raw: Mutex<vk::Queue>,
    /// Number of times that it was used.
    uses: AtomicU64,
    /// The last use behind which the queue was seen idle. Asking the driver costs 0.2 ms on some devices.
    idle_behind: AtomicU64,
    /// True if an engine submits work of its own: other timelines keep away from it then.
    lent: AtomicBool,
}

impl Queue {
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed)
    }

    /// Returns the number of uses so far.
    fn uses(&self) -> u64 {
        self.uses.load(Ordering::Acquire)
    }

    /// Returns true if all work behind the first `uses` uses has ended.
    pub(crate) fn is_covered_by(&self, uses: u64) -> bool {
        uses.max(self.idle_behind.load(Ordering::Acquire)) >= self.uses()
    }
}

/// A device that lives until its last block, timeline or page is gone.
pub(crate) struct Device {
    pub(crate) raw: ash::Device,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) features: Features,
    pub(crate) queues: Vec<Queue>,
    /// Thread that used the main queue last, and when.
    last_user: Mutex<Option<(ThreadId, Instant)>>,
    /// Every family of `queues`, once.
    pub(crate) families: Vec<u32>,
    pub(crate) timeline_khr: Option<khr::timeline_semaphore::Device>,
    pub(crate) address_khr: Option<khr::buffer_device_address::Device>,
    pub(crate) external_fd: Option<khr::external_memory_fd::Device>,
    debug: Option<ext::debug_utils::Device>,
    /// Driver allocations alive, and how many [`Options::max_blocks`](crate::Options::max_blocks) allows.
    pub(crate) live: AtomicU64,
    pub(crate) most_live: AtomicU64,
    /// Driver allocations that the device promises to take (`maxMemoryAllocationCount`). Many take more, so only the driver refuses.
    promised: u64,
    /// The engine's part in memory calls, where it takes one.
    pub(crate) hooks: OnceLock<Hooks>,
    owner: Owner,
    pub(crate) instance: Arc<Instance>,
}

impl Device {
    /// Creates a device with every feature that `physical` offers and this backend knows.
    ///
    /// # Errors
    ///
    /// `Unsupported` when the device has no queue that copies; the driver's error.
    pub(crate) fn open(instance: Arc<Instance>, physical: &Physical) -> Result<Arc<Self>> {
        let chosen = queues::choose(&physical.families);
        if chosen.is_empty() {
            return Err(ErrorKind::Unsupported.because("the device has no queue that copies"));
        }
        let raw = create(&instance, physical, &chosen)?;
        let mut found = Vec::new();
        for (family, count) in chosen {
            for index in 0..count {
                // SAFETY: `create` asked for `count` queues of this family, without flags.
                found.push((family, unsafe { raw.get_device_queue(family, index) }));
            }
        }
        Ok(Self::assemble(instance, physical, raw, &found, Owner::Us))
    }

    /// Takes a device that an engine owns and keeps alive.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when no queue is given or a family does not exist.
    pub(crate) fn wrap(
        instance: Arc<Instance>,
        physical: &Physical,
        raw: ash::Device,
        queues: &[(u32, vk::Queue)],
    ) -> Result<Arc<Self>> {
        let known = |(family, _): &(u32, vk::Queue)| {
            usize::try_from(*family).is_ok_and(|family| family < physical.families.len())
        };
        if queues.is_empty() || !queues.iter().all(known) {
            return Err(ErrorKind::InvalidConfig
                .because("`queues` is empty or names a queue family that the device lacks"));
        }
        Ok(Self::assemble(instance, physical, raw, queues, Owner::Caller))
    }

    /// Takes a device that an engine owns and keeps alive, without any queue of it.
    pub(crate) fn wrap_memory(
        instance: Arc<Instance>,
        physical: &Physical,
        raw: ash::Device,
    ) -> Arc<Self> {
        Self::assemble(instance, physical, raw, &[], Owner::Caller)
    }

    /// Returns the owner of the device.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns whether this backend may submit work; without a queue, it only allocates and maps memory.
    pub(crate) const fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Returns the transfer-only queue, if one is open and no engine uses it.
    pub(crate) fn copier(&self) -> Option<usize> {
        let mut queues = self.queues.iter();
        queues.position(|queue| queues::only_copies(queue.flags) && !queue.is_lent())
    }

    fn assemble(
        instance: Arc<Instance>,
        physical: &Physical,
        raw: ash::Device,
        queues: &[(u32, vk::Queue)],
        owner: Owner,
    ) -> Arc<Self> {
        let features = physical.features;
        let old = physical.api < vk::API_VERSION_1_2;
        let (i, d) = (&instance.raw, &raw);
        let with = |feature| features.has(feature);
        let mut families: Vec<u32> = queues.iter().map(|(family, _)| *family).collect();
        families.sort_unstable();
        families.dedup();
        Arc::new(Self {
            timeline_khr: (old && with(Feature::TimelineSemaphore))
                .then(|| khr::timeline_semaphore::Device::new(i, d)),
            address_khr: (old && with(Feature::BufferDeviceAddress))
                .then(|| khr::buffer_device_address::Device::new(i, d)),
            external_fd: with(Feature::ExternalMemoryFd)
                .then(|| khr::external_memory_fd::Device::new(i, d)),
            debug: with(Feature::DebugUtils).then(|| ext::debug_utils::Device::new(i, d)),
            queues: queues
                .iter()
                .map(|(family, raw)| queue(physical, *family, *raw, owner))
                .collect(),
            physical: physical.raw,
            families,
            features,
            live: AtomicU64::new(0),
            most_live: AtomicU64::new(u64::MAX),
            last_user: Mutex::new(None),
            promised: u64::from(physical.limits.max_memory_allocation_count),
            hooks: OnceLock::new(),
            owner,
            raw,
            instance,
        })
    }

    /// Returns how many driver allocations are sure to be taken.
    pub(crate) fn sure_blocks(&self) -> u64 {
        self.promised.min(self.most_live.load(Ordering::Relaxed))
    }

    /// Returns true if more than three of four driver allocations are taken, so that resources had better share them.
    pub(crate) fn is_near_limit(&self) -> bool {
        self.live.load(Ordering::Relaxed) > self.sure_blocks() / 4 * 3
    }

    /// Runs `f`, which submits work, with exclusive use of the queue.
    fn use_queue<R>(&self, queue: usize, f: impl FnOnce(vk::Queue) -> R) -> R {
        if queue == 0 {
            *lock(&self.last_user) = Some((thread::current().id(), Instant::now()));
        }
        self.with_queue(queue, f)
    }

    /// Runs `f` with exclusive use of the queue. For binds: a thread that changes pages must still see who submits work.
    pub(crate) fn with_queue<R>(&self, queue: usize, f: impl FnOnce(vk::Queue) -> R) -> R {
        let queue = &self.queues[queue];
        let raw = lock(&queue.raw);
        // Under the lock, so that nobody who waits for the queue misses it.
        queue.uses.fetch_add(1, Ordering::AcqRel);
        f(*raw)
    }

    /// Submits one batch if nobody holds the queue. Returns the number of the queue's uses, this batch included, or `None`
    /// if somebody holds it.
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit).
    ///
    /// # Safety
    ///
    /// As for [`submit`](Self::submit).
    pub(crate) unsafe fn try_submit(
        &self,
        queue: usize,
        batch: &vk::SubmitInfo<'_>,
        fence: vk::Fence,
    ) -> Result<Option<u64>> {
        let queue = &self.queues[queue];
        let raw = match queue.raw.try_lock() {
            Ok(raw) => raw,
            Err(TryLockError::Poisoned(raw)) => raw.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let uses = queue.uses.fetch_add(1, Ordering::AcqRel) + 1;
        // SAFETY: the caller promises the handles; the lock holds the queue for us alone.
        check(unsafe { self.raw.queue_submit(*raw, core::slice::from_ref(batch), fence) })?;
        Ok(Some(uses))
    }

    /// Waits until nobody holds a queue.
    pub(crate) fn wait_for_queue(&self, queue: usize) {
        drop(lock(&self.queues[queue].raw));
    }

    /// Returns whether another thread submitted to the main queue recently.
    pub(crate) fn is_used_by_another_thread(&self) -> bool {
        let is_recent = |(thread, at): &(ThreadId, Instant)| {
            *thread != thread::current().id() && at.elapsed() < RECENT
        };
        lock(&self.last_user).as_ref().is_some_and(is_recent)
    }

    /// Runs an engine's `f` with exclusive use of the queue.
    pub(crate) fn lend_queue<R>(&self, queue: usize, f: impl FnOnce(vk::Queue) -> R) -> R {
        self.queues[queue].lent.store(true, Ordering::Relaxed);
        self.use_queue(queue, f)
    }

    /// Submits one batch.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`, `OutOfDeviceMemory`, `DeviceLost`; nothing was submitted then.
    ///
    /// # Safety
    ///
    /// Everything `batch` names belongs to this device, its command buffers are recorded and not pending, and all of it
    /// stays alive until the batch has finished; `fence` is null or unsignalled and unused.
    pub(crate) unsafe fn submit(
        &self,
        queue: usize,
        batch: &vk::SubmitInfo<'_>,
        fence: vk::Fence,
    ) -> Result<()> {
        let batches = core::slice::from_ref(batch);
        self.use_queue(queue, |queue| {
            // SAFETY: the caller promises the handles; `use_queue` holds the queue for us alone.
            check(unsafe { self.raw.queue_submit(queue, batches, fence) })
        })
    }

    /// Waits until every queue has finished its work. If the driver refuses for one queue, it still waits for the others.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, out of memory.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let mut answer = Ok(());
        for queue in &self.queues {
            let raw = lock(&queue.raw);
            let uses = queue.uses();
            if queue.idle_behind.load(Ordering::Relaxed) < uses {
                // SAFETY: the queue belongs to this device, and the lock holds it for us alone.
                match check(unsafe { self.raw.queue_wait_idle(*raw) }) {
                    Ok(()) => queue.idle_behind.store(uses, Ordering::Release),
                    // A device is lost as a whole.
                    Err(error) if answer.is_ok() || error.kind() == ErrorKind::DeviceLost => {
                        answer = Err(error);
                    }
                    Err(_) => {}
                }
            }
        }
        answer
    }

    /// Sets a debug name; does nothing without debug-utils.
    ///
    /// # Safety
    ///
    /// `handle` belongs to this device.
    pub(crate) unsafe fn name<H: vk::Handle>(&self, handle: H, name: &str) {
        let Some(debug) = &self.debug else { return };
        let text: Vec<u8> = name.bytes().filter(|byte| *byte != 0).chain([0]).collect();
        let text = core::ffi::CStr::from_bytes_with_nul(&text).expect("one zero byte, at the end");
        let info =
            vk::DebugUtilsObjectNameInfoEXT::default().object_handle(handle).object_name(text);
        // SAFETY: the caller promises the handle; the name outlives the call.
        let named = unsafe { debug.set_debug_utils_object_name(&info) };
        // A name that cannot be kept changes nothing about the memory.
        let _ = named;
    }
}

fn queue(physical: &Physical, family: u32, raw: vk::Queue, owner: Owner) -> Queue {
    let index = usize::try_from(family).expect("families were checked against the list");
    // An engine may have used its queue before it lent it.
    let uses = AtomicU64::new(u64::from(owner == Owner::Caller));
    let (flags, lent) = (physical.families[index].queue_flags, AtomicBool::new(false));
    Queue { family, flags, raw: Mutex::new(raw), uses, idle_behind: AtomicU64::new(0), lent }
}

/// `count` queues of one family, all equally urgent; `queues::choose` asks for far fewer than the table holds.
fn queue_info(family: u32, count: u32) -> vk::DeviceQueueCreateInfo<'static> {
    const LEVELS: [f32; 16] = [1.0; 16];
    let count = usize::try_from(count).map_or(LEVELS.len(), |count| count.min(LEVELS.len()));
    vk::DeviceQueueCreateInfo::default()
        .queue_family_index(family)
        .queue_priorities(&LEVELS[..count])
}

fn create(instance: &Instance, physical: &Physical, chosen: &[(u32, u32)]) -> Result<ash::Device> {
    let queues: Vec<_> = chosen.iter().map(|(family, count)| queue_info(*family, *count)).collect();
    let with = |feature| physical.features.has(feature);
    let sparse = vk::Bool32::from(with(Feature::SparseBuffers));
    let basic = vk::PhysicalDeviceFeatures {
        sparse_binding: sparse,
        sparse_residency_buffer: sparse,
        ..Default::default()
    };
    let names: Vec<_> = physical.extensions.iter().map(|name| name.as_ptr()).collect();
    let mut timeline =
        vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
    let mut address =
        vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(true);
    let mut priority = vk::PhysicalDeviceMemoryPriorityFeaturesEXT::default().memory_priority(true);
    let mut coherent =
        vk::PhysicalDeviceCoherentMemoryFeaturesAMD::default().device_coherent_memory(true);
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&names)
        .enabled_features(&basic);
    if with(Feature::TimelineSemaphore) {
        info = info.push_next(&mut timeline);
    }
    if with(Feature::BufferDeviceAddress) {
        info = info.push_next(&mut address);
    }
    if with(Feature::MemoryPriority) {
        info = info.push_next(&mut priority);
    }
    if with(Feature::DeviceCoherentMemory) {
        info = info.push_next(&mut coherent);
    }
    // SAFETY: the physical device belongs to the instance; families, extensions and features are those it reported.
    check(unsafe { instance.raw.create_device(physical.raw, &info, None) })
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.owner == Owner::Us {
            // A lost device has nothing to wait for, and is destroyed all the same.
            let _ = self.wait_idle();
            // SAFETY: ours; every object of it holds an `Arc` of `self`, so none is left, and the queues are idle.
            unsafe { self.raw.destroy_device(None) };
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("raw", &self.raw.handle()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::opened;

    #[test]
    fn binds_on_the_main_queue_hide_no_thread_that_submits() {
        let Some(vulkan) = opened() else { return };
        let device = &vulkan.device;
        thread::scope(|scope| scope.spawn(|| device.lend_queue(0, |_| ())).join())
            .expect("no panic");
        device.with_queue(0, |_| ());
        let user = lock(&device.last_user).map(|(user, _)| user);
        assert!(user.is_some_and(|user| user != thread::current().id()), "{user:?}");
    }
}
