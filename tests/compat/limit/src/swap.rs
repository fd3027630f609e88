//! A planted bug: two staging buffers of one size in one memory object get each other's offset.
//!
//! Bytes that the host wrote for one are then copied by the other, so a picture that comes out the same proves nothing.
//! A staging buffer is one that is only copied from; its bind waits for the next one of its size, or for the next
//! submission.
use super::{function, state};
use ash::vk;
use core::ffi::CStr;
use core::mem::transmute;
use std::collections::HashMap;
use std::sync::LazyLock;

pub(super) static IS_ON: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("OMNIHEAP_LAYER_SWAP").is_some());

/// The functions of one device that are called here.
#[derive(Clone, Copy)]
pub(super) struct Below {
    create: vk::PFN_vkCreateBuffer,
    destroy: vk::PFN_vkDestroyBuffer,
    bind: vk::PFN_vkBindBufferMemory,
    submit: vk::PFN_vkQueueSubmit,
}

/// A bind that waits.
#[derive(Clone, Copy)]
struct Waiting {
    device: vk::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    offset: u64,
}

/// The sizes of the staging buffers that live, and the binds that wait, by size and memory.
#[derive(Default)]
pub(super) struct Staging {
    sizes: HashMap<vk::Buffer, u64>,
    waiting: HashMap<(u64, vk::DeviceMemory), Waiting>,
    swapped: u32,
}

impl Staging {
    /// Returns how many offsets were swapped.
    pub(super) const fn swapped(&self) -> u32 {
        self.swapped
    }
}

/// Returns the layer's own function.
pub(super) fn own(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkCreateBuffer" => function!(create_buffer: vk::PFN_vkCreateBuffer),
        b"vkDestroyBuffer" => function!(destroy_buffer: vk::PFN_vkDestroyBuffer),
        b"vkBindBufferMemory" => function!(bind_buffer: vk::PFN_vkBindBufferMemory),
        b"vkQueueSubmit" => function!(submit: vk::PFN_vkQueueSubmit),
        _ => None,
    }
}

/// # Safety
///
/// `find` finds functions of a device.
pub(super) unsafe fn functions(find: &dyn Fn(&CStr) -> vk::PFN_vkVoidFunction) -> Option<Below> {
    let (create, destroy) = (find(c"vkCreateBuffer")?, find(c"vkDestroyBuffer")?);
    let (bind, submit) = (find(c"vkBindBufferMemory")?, find(c"vkQueueSubmit")?);
    // SAFETY: the type that this name has.
    let create: vk::PFN_vkCreateBuffer = unsafe { transmute(create) };
    // SAFETY: as above.
    let destroy: vk::PFN_vkDestroyBuffer = unsafe { transmute(destroy) };
    // SAFETY: as above.
    let bind: vk::PFN_vkBindBufferMemory = unsafe { transmute(bind) };
    // SAFETY: as above.
    let submit: vk::PFN_vkQueueSubmit = unsafe { transmute(submit) };
    Some(Below { create, destroy, bind, submit })
}

fn below(device: vk::Device) -> Option<Below> {
    state().devices.get(&device).map(|below| below.swap)
}

/// Makes the bind that waits, at an offset.
fn bind_at(waiting: Waiting, offset: u64) -> vk::Result {
    let Waiting { device, buffer, memory, .. } = waiting;
    let Some(below) = below(device) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: the program asked for this bind, but for the offset, which another buffer of the same size and use was to have.
    unsafe { (below.bind)(device, buffer, memory, offset) }
}

unsafe extern "system" fn create_buffer(
    device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    buffer: *mut vk::Buffer,
) -> vk::Result {
    let Some(below) = below(device) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: handed on as it came.
    let made = unsafe { (below.create)(device, info, callbacks, buffer) };
    // SAFETY: the caller's promise.
    let (usage, size) = unsafe { ((*info).usage, (*info).size) };
    if made == vk::Result::SUCCESS && usage == vk::BufferUsageFlags::TRANSFER_SRC {
        // SAFETY: written by the successful call.
        state().staging.sizes.insert(unsafe { *buffer }, size);
    }
    made
}

unsafe extern "system" fn destroy_buffer(
    device: vk::Device,
    buffer: vk::Buffer,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    let Some(below) = below(device) else { return };
    let mut state = state();
    state.staging.sizes.remove(&buffer);
    state.staging.waiting.retain(|_, waiting| waiting.buffer != buffer);
    drop(state);
    // SAFETY: handed on as it came.
    unsafe { (below.destroy)(device, buffer, callbacks) };
}

unsafe extern "system" fn bind_buffer(
    device: vk::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    offset: u64,
) -> vk::Result {
    let now = Waiting { device, buffer, memory, offset };
    let mut state = state();
    let staging = &mut state.staging;
    let Some(size) = staging.sizes.get(&buffer).copied() else {
        drop(state);
        return bind_at(now, offset);
    };
    let Some(first) = staging.waiting.remove(&(size, memory)) else {
        staging.waiting.insert((size, memory), now);
        return vk::Result::SUCCESS;
    };
    staging.swapped += 1;
    drop(state);
    match bind_at(first, offset) {
        vk::Result::SUCCESS => bind_at(now, first.offset),
        refused => refused,
    }
}

unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let waiting = core::mem::take(&mut state().staging.waiting);
    for one in waiting.into_values() {
        match bind_at(one, one.offset) {
            vk::Result::SUCCESS => {}
            refused => return refused,
        }
    }
    // One device: whichever it is, its functions submit to its queues.
    let below = state().devices.values().next().map(|below| below.swap);
    let Some(below) = below else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: handed on as it came.
    unsafe { (below.submit)(queue, count, infos, fence) }
}
