//! Devices that an engine owns: a context and streams of CUDA, streams of HIP, a Vulkan device without its queues.
//!
//! The engine is played by a second backend. What is not on this machine is said so; `OMNIHEAP_REQUIRE=cuda,hip,vulkan` makes
//! that a failure.
use super::*;
use ash::vk::{self, Handle as _};
use omniheap::cuda::Cuda;
use omniheap::hip::Hip;
use omniheap::vulkan::{Feature, Vulkan};
use omniheap::{
    Backend as _, TimelineId,
    seam::{Result, Timelines as _},
};

/// Variable with the path of a HIP library, for a process that was started to use it.
const LIBRARY: &str = "OMNIHEAP_HIP_LIBRARY";

/// The engine's device, where there is one.
pub(super) fn engine<T>(name: &str, opened: Result<T>) -> Option<T> {
    opened
        .inspect_err(|error| {
            let required = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|one| one.trim() == name), "{name}: {error}");
            println!("SKIPPED: {name}: {error}");
        })
        .ok()
}

/// Bytes go through the engine's stream, and through another one of its own that is adopted.
fn drive(manager: OmniheapManager, other: *mut c_void) {
    let made = ask(manager, &omniheap_request_default(1 << 20)).expect("room");
    assert_eq!(write(made, &[5; 4096]), Status::Ok, "{}", message());
    assert_eq!(read(made, 4096), [5; 4096]);
    let (mut timeline, mut epoch) = (0, 0);
    let adopted = c!(omniheap_timeline_adopt(manager, other, &raw mut timeline));
    assert_eq!(adopted, Status::Ok, "{}", message());
    let second = OmniheapRequest { timeline, ..omniheap_request_default(1 << 16) };
    let second = ask(manager, &second).expect("room");
    assert_eq!(write(second, &[6; 64]), Status::Ok, "{}", message());
    assert_eq!(read(second, 64), [6; 64]);
    assert_eq!(omniheap_use_on(made, timeline), Status::Ok);
    assert_eq!(c!(omniheap_timeline_mark(manager, timeline, &raw mut epoch)), Status::Ok);
    assert_eq!(omniheap_free_after(made, timeline, epoch), Status::Ok);
    assert_eq!(omniheap_free(second), Status::Ok);
    assert_eq!(omniheap_timeline_wait(manager, timeline, epoch), Status::Ok);
    assert_eq!(omniheap_timeline_close(manager, timeline), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
}

#[test]
fn a_context_and_streams_of_cuda_are_the_engines() {
    let Some(engine) = engine("cuda", Cuda::open(0)) else { return };
    let own = |timeline| engine.stream(timeline).expect("open").cast::<c_void>();
    let other = engine.open().expect("another stream");
    let mut manager = OmniheapManager { id: 0 };
    for stream in [own(TimelineId::MAIN), ptr::null_mut()] {
        let context = engine.context().cast();
        let wrapped = c!(omniheap_wrap_cuda(context, stream, ptr::null(), &raw mut manager));
        assert_eq!(wrapped, Status::Ok, "{}", message());
        drive(manager, own(other));
    }
    engine.wait_idle().expect("the engine's context lives on");
}

#[test]
fn streams_of_hip_are_the_engines() {
    let Some(engine) = engine("hip", Hip::open(0)) else { return };
    let own = |timeline| engine.stream(timeline).expect("open").0;
    let other = engine.open().expect("another stream");
    let mut manager = OmniheapManager { id: 0 };
    for stream in [own(TimelineId::MAIN), ptr::null_mut()] {
        let wrapped = c!(omniheap_wrap_hip(0, stream, ptr::null(), &raw mut manager));
        assert_eq!(wrapped, Status::Ok, "{}", message());
        drive(manager, own(other));
    }
    let nowhere = c!(omniheap_wrap_hip(99, ptr::null_mut(), ptr::null(), &raw mut manager));
    assert_eq!(nowhere, Status::InvalidConfig);
    engine.wait_idle().expect("the engine's device lives on");
}

/// An engine's device, and its functions.
pub(super) fn described(engine: &Vulkan, entry: &ash::Entry) -> OmniheapVulkanDevice {
    let address = |raw| usize::try_from(raw).expect("a pointer of this machine");
    let pointer = |raw: u64| ptr::without_provenance_mut(address(raw));
    let first = entry.static_fn().get_instance_proc_addr;
    OmniheapVulkanDevice {
        get_instance_proc_addr: first as *const c_void,
        instance: pointer(engine.ash_instance().handle().as_raw()),
        physical_device: pointer(engine.physical_device().as_raw()),
        device: pointer(engine.ash_device().handle().as_raw()),
        ..omniheap_vulkan_device_default()
    }
}

fn refuse_no_image(manager: OmniheapManager) {
    let (class, kind) = (OMNIHEAP_CLASS_TILED, OMNIHEAP_KIND_DEVICE);
    let mut bound = OmniheapAllocation { id: 0 };
    let none =
        c!(omniheap_vulkan_bind_image(manager, 0, class, kind, 0, ptr::null(), &raw mut bound));
    assert_eq!((none, bound.id), (Status::NullArgument, 0), "{}", message());
}

#[test]
fn a_vulkan_device_needs_no_queues() {
    let Some(engine) = engine("vulkan", Vulkan::open(0)) else { return };
    let entry = engine.ash_entry().expect("this engine has loaded it");
    let described = described(&engine, entry);
    let mut manager = OmniheapManager { id: 0 };
    let with_queues = c!(omniheap_wrap_vulkan(&raw const described, ptr::null(), &raw mut manager));
    assert_eq!(with_queues, Status::NullArgument, "{}", message());
    let wrapped =
        c!(omniheap_wrap_vulkan_memory(&raw const described, ptr::null(), &raw mut manager));
    assert_eq!(wrapped, Status::Ok, "{}", message());

    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(5000).usage(usage);
    // SAFETY: a plain buffer.
    let buffer = unsafe { engine.ash_device().create_buffer(&info, None) }.expect("small");
    let mut bound = OmniheapAllocation { id: 0 };
    let status = c!(omniheap_vulkan_bind_buffer(
        manager,
        buffer.as_raw(),
        OMNIHEAP_KIND_STAGING,
        0,
        c"vertices".as_ptr(),
        &raw mut bound
    ));
    assert_eq!(status, Status::Ok, "{}", message());
    assert!(report(manager).contains("vertices"), "the report knows its name");
    refuse_no_image(manager);
    let mut place = OmniheapVulkanPlace::default();
    assert_eq!(c!(omniheap_vulkan_place(bound, &raw mut place)), Status::Ok, "{}", message());
    assert!(place.memory != 0 && place.size >= 5000);
    let mut bytes = ptr::null_mut();
    assert_eq!(c!(omniheap_map(bound, &raw mut bytes)), Status::Ok, "{}", message());
    // SAFETY: mapped for 5,000 bytes, and the device does not use them.
    unsafe { bytes.cast::<u8>().write_bytes(7, 5000) };
    let mut epoch = 0;
    let mark = c!(omniheap_timeline_mark(manager, 0, &raw mut epoch));
    assert_eq!(mark, Status::Unsupported, "there is no queue: {}", message());
    let mut own = [9_u8; 8];
    let read = c!(omniheap_read(bound, 0, own.as_mut_ptr().cast(), 8));
    assert_eq!((read, own), (Status::Unsupported, [9; 8]), "nothing was read: {}", message());
    // SAFETY: no work ever used it.
    unsafe { engine.ash_device().destroy_buffer(buffer, None) };
    assert_eq!(omniheap_free(bound), Status::Ok, "{}", message());
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
    engine.wait_idle().expect("the engine's device lives on");
}

#[test]
fn a_queue_that_is_null_and_features_that_are_not_there_are_refused_by_name() {
    let Some(engine) = engine("vulkan", Vulkan::open(0)) else { return };
    let entry = engine.ash_entry().expect("this engine has loaded it");
    let (queue, family) =
        engine.with_queue(TimelineId::MAIN, |queue, family| (queue, family)).expect("a queue");
    let address = usize::try_from(queue.as_raw()).expect("a pointer of this machine");
    let good = OmniheapVulkanQueue { queue: ptr::without_provenance_mut(address), family };
    let null = OmniheapVulkanQueue { queue: ptr::null_mut(), ..good };
    let mut manager = OmniheapManager { id: 0 };
    let mut refused = |queues: &[OmniheapVulkanQueue], enabled| {
        let described = OmniheapVulkanDevice {
            queues: queues.as_ptr(),
            queue_count: u32::try_from(queues.len()).expect("a few"),
            enabled,
            ..described(&engine, entry)
        };
        let said = c!(omniheap_wrap_vulkan(&raw const described, ptr::null(), &raw mut manager));
        assert_eq!(manager.id, 0, "nothing was opened");
        (said, message())
    };
    let (status, said) = refused(&[good, null], 0);
    assert_eq!(status, Status::NullArgument);
    assert!(said.contains("device.queues[1].queue is a null pointer"), "{said}");
    let (status, said) = refused(&[good], 1 << 20 | OMNIHEAP_VULKAN_TIMELINE_SEMAPHORE);
    assert_eq!(status, Status::InvalidArgument);
    assert!(said.contains("0x100000"), "{said}");
    let features = [
        (OMNIHEAP_VULKAN_TIMELINE_SEMAPHORE, Feature::TimelineSemaphore, "timelineSemaphore"),
        (OMNIHEAP_VULKAN_MEMORY_BUDGET, Feature::MemoryBudget, "VK_EXT_memory_budget"),
        (OMNIHEAP_VULKAN_MEMORY_PRIORITY, Feature::MemoryPriority, "VK_EXT_memory_priority"),
        (OMNIHEAP_VULKAN_SPARSE_BUFFERS, Feature::SparseBuffers, "sparseBinding"),
    ];
    for (bit, _, name) in features.into_iter().filter(|(_, feature, _)| !engine.has(*feature)) {
        let (status, said) = refused(&[good], bit);
        assert_eq!(status, Status::InvalidConfig, "{name}");
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn memory_of_an_incomplete_device_is_refused_by_name() {
    let whole = OmniheapVulkanDevice {
        get_instance_proc_addr: ptr::dangling(),
        instance: ptr::dangling_mut(),
        physical_device: ptr::dangling_mut(),
        device: ptr::dangling_mut(),
        ..omniheap_vulkan_device_default()
    };
    let mut none = OmniheapManager { id: 0 };
    let queue = OmniheapVulkanQueue { queue: ptr::null_mut(), family: 0 };
    let without = [
        (
            OmniheapVulkanDevice { get_instance_proc_addr: ptr::null(), ..whole },
            "proc_addr is a null",
        ),
        (OmniheapVulkanDevice { instance: ptr::null_mut(), ..whole }, "device.instance is a null"),
        (
            OmniheapVulkanDevice { physical_device: ptr::null_mut(), ..whole },
            "physical_device is a null",
        ),
        (OmniheapVulkanDevice { device: ptr::null_mut(), ..whole }, "device.device is a null"),
        (OmniheapVulkanDevice { queues: &raw const queue, ..whole }, "device.queues is not used"),
        (OmniheapVulkanDevice { queue_count: 1, ..whole }, "device.queues is not used"),
    ];
    for (described, says) in without {
        let status =
            c!(omniheap_wrap_vulkan_memory(&raw const described, ptr::null(), &raw mut none));
        assert!(matches!(status, Status::NullArgument | Status::InvalidArgument), "{says}");
        assert!(message().contains(says) && none.id == 0, "{}", message());
    }
    let nothing = c!(omniheap_wrap_vulkan_memory(ptr::null(), ptr::null(), &raw mut none));
    assert_eq!(nothing, Status::NullArgument);
}

/// AMD's own runtime over the HSA stand-in, in a process that its loader starts.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn hip_is_wrapped_over_the_stand_in() {
    use omniheap_hip_runtime::{Suite, ensure};
    if std::env::var_os(LIBRARY).is_some() {
        return;
    }
    let this = std::env::current_exe().expect("the test knows where it is");
    let standin = this.with_file_name("libomniheap_hsa_standin.so");
    let runtime = match ensure(Suite::Sid).and_then(|runtime| runtime.with_standin(&standin)) {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("SKIPPED: AMD's runtime cannot be had here: {error}");
            return;
        }
    };
    let mut command = std::process::Command::new(runtime.loader());
    command.args(["--library-path", &runtime.library_path()]).arg(&this);
    command.args(["--exact", "wrap::streams_of_hip_are_the_engines"]);
    command.env(LIBRARY, runtime.library()).env("OMNIHEAP_REQUIRE", "hip");
    let done = command.env_remove("LD_LIBRARY_PATH").output().expect("the loader runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complained = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}\n{complained}");
}
