//! A device without queues: memory for an engine that keeps its queues to itself.
#![expect(unsafe_code, reason = "lends one device to two owners")]
use crate::rig::{Rig, first};
use core::ffi::CStr;
use omniheap_core::{
    Backend, Class, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig, Request, Usage,
};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_vulkan::{
    Alone, Bare, Feature, Options, Vulkan, Which,
    ash::{self, vk},
};
use std::sync::Mutex;

crate::cases! {
    a_bare_device_has_memory_and_nothing_else if |_| true;
    a_bare_device_of_vulkan_1_0_has_memory if |_| true;
    resources_are_bound_to_bare_memory if |_| true;
    bare_devices_check_what_they_are_given if |_| true;
    the_promised_number_of_blocks_is_no_limit if |_| true;
    preferred_memory_is_tied_to_its_resource_while_blocks_are_few if |_| true;
    limits_know_every_device_by_its_number if |_| true;
    a_limit_holds_for_all_memory_of_the_device if |_| true;
}

fn bare<'a>(owner: &Vulkan, enabled: &'a [Feature]) -> Bare<'a> {
    Bare {
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: owner.ash_device().clone(),
        enabled,
    }
}

fn enabled(owner: &Vulkan) -> Vec<Feature> {
    let all = [Feature::BufferDeviceAddress, Feature::MemoryPriority];
    all.into_iter().filter(|feature| owner.has(*feature)).collect()
}

fn guest(owner: &Vulkan) -> Vulkan {
    // SAFETY: the owner enabled these features and outlives the guest; no case submits work that uses its memory.
    unsafe { Vulkan::wrap_memory(bare(owner, &enabled(owner)), Options::default()) }.unwrap()
}

fn a_bare_device_has_memory_and_nothing_else(rig: &Rig) {
    let owner = rig.open();
    let guest = guest(&owner);
    assert!(guest.as_transfer().is_none() && guest.as_timelines().is_none());
    assert!(guest.as_launch().is_none() && guest.as_remap().is_none());
    assert!(guest.as_export().is_none() && guest.as_address().is_none());
    assert!(guest.as_map().is_some() && guest.ash_entry().is_none());
    let told = guest.as_budget().map(|driver| driver.budget(HeapId(0)).is_ok());
    assert_eq!(told, Some(owner.has(Feature::MemoryBudget)));
    for (heap, _) in guest.caps().heap_ids() {
        let Ok(block) = guest.allocate(heap, 5000) else { continue };
        assert!(block.buffer().is_none() && block.memory().is_some(), "memory without a buffer");
        // SAFETY: nothing ever used it.
        unsafe { guest.free(block) }.unwrap();
    }
}

fn a_bare_device_of_vulkan_1_0_has_memory(rig: &Rig) {
    let owner = rig.open();
    let options = Options::default().instance_version(vk::API_VERSION_1_0);
    let lacks: fn(&CStr) -> *const core::ffi::c_void = |_| core::ptr::null();
    let (newest, handle) = (owner.ash_instance(), owner.ash_instance().handle());
    // SAFETY: functions that are not there; whoever calls one panics.
    let none = unsafe { ash::Instance::load_with(lacks, handle) };
    let old = ash::Instance::from_parts_1_3(
        handle,
        newest.fp_v1_0().clone(),
        none.fp_v1_1().clone(),
        none.fp_v1_3().clone(),
    );
    let bare = |enabled| Bare { instance: old.clone(), ..bare(&owner, enabled) };
    // SAFETY: the owner outlives the guest; no case submits work that uses its memory.
    let guest = unsafe { Vulkan::wrap_memory(bare(&[]), options) }.unwrap();
    assert!(guest.budgets().is_none());
    for (heap, _) in guest.caps().heap_ids() {
        let Ok(block) = guest.allocate(heap, 5000) else { continue };
        // SAFETY: nothing ever used it.
        unsafe { guest.free(block) }.unwrap();
    }
    // SAFETY: refused: 1.0 tells of no feature.
    let refused = unsafe { Vulkan::wrap_memory(bare(&[Feature::BufferDeviceAddress]), options) };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidConfig);
}

fn limits_know_every_device_by_its_number(rig: &Rig) {
    let owner = rig.open();
    let Which::Index(index) = rig.options.device else { panic!("cases open devices by number") };
    let number = |vulkan: &Vulkan| format!("{vulkan:?}").contains(&format!("ordinal: {index},"));
    assert!(number(&owner) && number(&guest(&owner)), "{index}: {owner:?}");
    let all = Vulkan::devices().unwrap();
    let uuid = all[index].uuid;
    if let Some(uuid) = uuid.filter(|_| all.iter().filter(|it| it.uuid == uuid).count() == 1) {
        assert!(number(&rig.open_with(rig.options.device(Which::Uuid(uuid)))), "{index}");
    }
    let best = rig.open_with(rig.options.device(Which::Best));
    let is_this = best.caps().device == owner.caps().device;
    let others = all.iter().filter(|it| **it == all[index]).count();
    assert!(number(&best) == is_this || others > 1, "{index}: {best:?}");
}

fn a_limit_holds_for_all_memory_of_the_device(rig: &Rig) {
    let set = |name: &str| (name == "OMNIHEAP_LIMIT").then(|| "64MiB".to_owned());
    let limits = SystemLimits::new(Vendor::Any, 0).within("/nowhere", set);
    let vulkan = rig.open().limited_by(limits);
    let manager = Manager::with_config(vulkan, ManagerConfig::default().plain());
    assert_eq!(manager.report().limits.len(), 1);
    let (caps, mut live) = (manager.caps(), Vec::new());
    for usage in [Usage::Device, Usage::Upload, Usage::Device] {
        let request = Request::new(16 << 20).usage(usage);
        live.extend((0..5).filter_map(|_| manager.allocate(&request).ok()));
        let device = caps.heap_ids().filter(|(heap, _)| caps.is_device_memory(*heap));
        let held = device.map(|(heap, _)| manager.heap_use(heap).unwrap().reserved);
        assert!(held.sum::<u64>() <= 64 << 20, "{usage:?}");
    }
    assert!(live.len() >= 4, "the limit is there to be used");
}

fn resources_are_bound_to_bare_memory(rig: &Rig) {
    let owner = rig.open();
    let manager = Manager::with_config(guest(&owner), ManagerConfig::default().plain());
    let (vulkan, device) = (manager.backend(), owner.ash_device());
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
    let mut made = Vec::new();
    for n in 1..=8u8 {
        let info = vk::BufferCreateInfo::default().size(3000 * u64::from(n)).usage(usage);
        // SAFETY: a plain buffer.
        let buffer = unsafe { device.create_buffer(&info, None) }.unwrap();
        // SAFETY: created just above.
        let needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Staging) }.unwrap();
        let memory = manager.allocate(&needs.requests().next().unwrap()).unwrap();
        let binding = memory.binding();
        let (block, offset) = (binding.block(), binding.span().offset);
        // SAFETY: fresh, with its own needs; the memory outlives it.
        unsafe { vulkan.bind_buffer(buffer, &needs, block, offset) }.unwrap();
        drop(binding);
        memory.map().unwrap().write(0, &vec![n; 3000 * usize::from(n)]).unwrap();
        made.push((n, buffer, memory));
    }
    for (n, buffer, memory) in made {
        let mut bytes = vec![0; 3000 * usize::from(n)];
        memory.map().unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == n), "buffer {n} kept its bytes");
        // SAFETY: no work ever used it.
        unsafe { device.destroy_buffer(buffer, None) };
    }
    let wide = Request::new(4096).align(omniheap_core::Align::of(256 << 10)).class(Class::Tiled);
    assert!(manager.allocate(&wide).is_ok(), "memory objects meet every alignment");
    assert_eq!(manager.totals().live, 0);
}

fn bare_devices_check_what_they_are_given(rig: &Rig) {
    let owner = rig.open();
    let nowhere = Bare { physical_device: vk::PhysicalDevice::null(), ..bare(&owner, &[]) };
    // SAFETY: refused before a handle is used.
    let refused = unsafe { Vulkan::wrap_memory(nowhere, Options::default()) };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidConfig);
    if !owner.has(Feature::DeviceCoherentMemory) {
        let absent = bare(&owner, &[Feature::DeviceCoherentMemory]);
        // SAFETY: refused, because the device lacks what is said to be enabled.
        let refused = unsafe { Vulkan::wrap_memory(absent, Options::default()) };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    let guest = guest(&owner);
    assert_eq!(guest.families(), [] as [u32; 0]);
    assert_eq!(guest.open_timeline_on(0).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Driver allocations that the device below promises.
const PROMISED: u32 = 8;
static PROPERTIES: Mutex<Option<vk::PFN_vkGetPhysicalDeviceProperties>> = Mutex::new(None);

/// The driver's properties, with a small promise.
unsafe extern "system" fn few_blocks(
    device: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties,
) {
    let real = PROPERTIES.lock().unwrap().expect("set before the first call");
    // SAFETY: the backend's own call, passed on unchanged.
    unsafe { real(device, properties) };
    // SAFETY: the driver has just filled it in.
    unsafe { (*properties).limits.max_memory_allocation_count = PROMISED };
}

/// A device that promises few driver allocations.
fn modest(owner: &Vulkan) -> Vulkan {
    *PROPERTIES.lock().unwrap() =
        Some(owner.ash_instance().fp_v1_0().get_physical_device_properties);
    let entry = owner.ash_entry().unwrap().static_fn().get_instance_proc_addr;
    let handle = owner.ash_instance().handle();
    let look_up = |name: &CStr| match name.to_bytes() {
        b"vkGetPhysicalDeviceProperties" => few_blocks as *const core::ffi::c_void,
        _ => {
            // SAFETY: the loader's own function, with a live instance.
            let found = unsafe { entry(handle, name.as_ptr()) };
            found.map_or(core::ptr::null(), |found| found as *const core::ffi::c_void)
        }
    };
    // SAFETY: the owner's instance, alive; `look_up` answers for every function.
    let instance = unsafe { ash::Instance::load_with(look_up, handle) };
    let bare = Bare { instance, ..bare(owner, &[]) };
    // SAFETY: the owner outlives the guest.
    unsafe { Vulkan::wrap_memory(bare, Options::default()) }.unwrap()
}

fn the_promised_number_of_blocks_is_no_limit(rig: &Rig) {
    let owner = rig.open();
    let modest = modest(&owner);
    let heap = first(&modest);
    let take = |_| modest.allocate(heap, 4096).expect("the driver has more");
    let blocks: Vec<_> = (0..2 * PROMISED).map(take).collect();
    drop(blocks);
}

fn preferred_memory_is_tied_to_its_resource_while_blocks_are_few(rig: &Rig) {
    let owner = rig.open();
    let manager = Manager::with_config(modest(&owner), ManagerConfig::default().plain());
    let info =
        vk::BufferCreateInfo::default().size(5000).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    let mut made = Vec::new();
    for n in 0..2 * PROMISED {
        // SAFETY: a plain buffer.
        let buffer = unsafe { owner.ash_device().create_buffer(&info, None) }.unwrap();
        // SAFETY: created just above.
        let mut needs =
            unsafe { manager.backend().buffer_needs(buffer, HeapKind::Device) }.unwrap();
        needs.alone = if n == 0 { Alone::No } else { Alone::Preferred };
        // SAFETY: the buffer's own needs.
        let memory = unsafe { Vulkan::allocate_for(&manager, buffer, &needs) }.unwrap();
        let binding = memory.binding();
        // SAFETY: fresh, with its own needs; the memory outlives it.
        unsafe {
            manager.backend().bind_buffer(buffer, &needs, binding.block(), binding.span().offset)
        }
        .unwrap();
        drop(binding);
        made.push((buffer, memory));
    }
    // One block to share, and the rest alone until three of four are used.
    assert_eq!(manager.report().blocks, u64::from(PROMISED) / 4 * 3 + 1);
    for (buffer, memory) in made {
        // SAFETY: no work ever used it.
        unsafe { owner.ash_device().destroy_buffer(buffer, None) };
        drop(memory);
    }
}
