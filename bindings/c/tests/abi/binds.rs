//! Buffers and images of an engine that are created and bound as a request says, one or many. The validation layer listens where it is installed.
use super::*;
use ash::vk::{self, Handle as _};
use core::time::Duration;
use images::wrapped;
use omniheap::vulkan::{Options, Validation, Vulkan};
use std::time::Instant;
use wrap::engine;

const SIZE: u64 = 5000;

fn buffer_info() -> vk::BufferCreateInfo<'static> {
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    vk::BufferCreateInfo::default().size(SIZE).usage(usage)
}

fn image_info(tiling: vk::ImageTiling) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: 32, height: 32, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(tiling)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST)
}

fn info<T>(info: &T) -> *const c_void {
    (&raw const *info).cast()
}

fn live(manager: OmniheapManager) -> u64 {
    let mut sums = OmniheapTotals::default();
    assert_eq!(c!(omniheap_retire(manager, ptr::null_mut())), Status::Ok);
    assert_eq!(c!(omniheap_totals(manager, &raw mut sums)), Status::Ok);
    sums.live
}

/// Waits until what was retired has gone.
fn settle(manager: OmniheapManager) {
    let began = Instant::now();
    while live(manager) > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "everything goes back");
        std::thread::yield_now();
    }
}

fn place(of: OmniheapAllocation) -> OmniheapVulkanPlace {
    let mut place = OmniheapVulkanPlace::default();
    assert_eq!(c!(omniheap_vulkan_place(of, &raw mut place)), Status::Ok, "{}", message());
    place
}

/// Creates a buffer and returns what is told of it.
fn create(manager: OmniheapManager, said: OmniheapVulkanBind) -> OmniheapVulkanBind {
    let mut bind = said;
    let made = c!(omniheap_vulkan_create_buffer(manager, info(&buffer_info()), &raw mut bind));
    assert_eq!(made, Status::Ok, "{}", message());
    assert!(bind.buffer != 0 && bind.image == 0 && bind.allocation.id != 0);
    bind
}

/// Runs a test on a manager of an engine's device, and expects the layer to be silent.
fn on_device(test: impl FnOnce(&Vulkan, OmniheapManager)) {
    let options = Options::default().validation(Validation::IfPresent);
    let Some(engine) = engine("vulkan", Vulkan::open_with(options)) else { return };
    let (manager, _) = wrapped(&engine, 0);
    test(&engine, manager);
    settle(manager);
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
    let heard = engine.messages().map_or_else(Vec::new, |heard| heard.texts());
    assert_eq!(heard, Vec::<String>::new());
}

#[test]
fn a_buffer_is_created_as_its_request_says() {
    on_device(|_, manager| {
        let user = ptr::without_provenance_mut(9);
        let name = c"vertices".as_ptr();
        let request = OmniheapRequest { name, user, ..omniheap_request_default(0) };
        let usual = omniheap_vulkan_bind_default();
        let kind = OMNIHEAP_KIND_STAGING;
        let made =
            create(manager, OmniheapVulkanBind { request: &raw const request, kind, ..usual });
        let (mut found, mut bytes) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(c!(omniheap_user(made.allocation, &raw mut found)), Status::Ok);
        assert_eq!(found, user);
        assert!(report(manager).contains("vertices"));
        assert_eq!(c!(omniheap_map(made.allocation, &raw mut bytes)), Status::Ok, "{}", message());
        // SAFETY: mapped, and so long.
        unsafe { bytes.cast::<u8>().write_bytes(5, 5000) };
        assert_eq!(omniheap_flush(made.allocation, 0, SIZE), Status::Ok);
        assert_eq!(read(made.allocation, 8), [5; 8]);
        let plain = create(manager, usual);
        let heap = OmniheapRequest { flags: OMNIHEAP_DEDICATED, ..omniheap_request_default(0) };
        let own = OmniheapVulkanBind { request: &raw const heap, priority: 1.0, ..usual };
        let own = create(manager, own);
        assert_eq!(place(own.allocation).offset, 0);
        assert_ne!(place(own.allocation).memory, place(plain.allocation).memory);
        for one in [made, plain, own] {
            let retired = c!(omniheap_vulkan_retire_buffer(one.buffer, one.allocation));
            assert_eq!(retired, Status::Ok, "{}", message());
        }
    });
}

#[test]
fn chains_reach_the_driver_and_tie_memory_to_the_resource() {
    on_device(|engine, manager| {
        let group = vk::BindBufferMemoryDeviceGroupInfo::default();
        let export = vk::ExportMemoryAllocateInfo::default();
        let (next, memory_next) = (info(&group), info(&export));
        let said = OmniheapVulkanBind { next, memory_next, ..omniheap_vulkan_bind_default() };
        let made = create(manager, said);
        assert_eq!(place(made.allocation).offset, 0, "memory of its own");
        let buffer = vk::Buffer::from_raw(made.buffer);
        // SAFETY: the device never used it.
        unsafe { engine.ash_device().destroy_buffer(buffer, None) };
        assert_eq!(omniheap_free(made.allocation), Status::Ok);
    });
}

#[test]
fn images_are_created_with_the_class_of_their_tiling() {
    on_device(|_, manager| {
        for tiling in [vk::ImageTiling::OPTIMAL, vk::ImageTiling::LINEAR] {
            let (described, mut bind) = (image_info(tiling), omniheap_vulkan_bind_default());
            let made = c!(omniheap_vulkan_create_image(manager, info(&described), &raw mut bind));
            assert_eq!(made, Status::Ok, "{}", message());
            assert!(bind.image != 0 && bind.buffer == 0);
            let retired = c!(omniheap_vulkan_retire_image(bind.image, bind.allocation));
            assert_eq!(retired, Status::Ok, "{}", message());
        }
    });
}

/// Two buffers and an image without memory.
fn unbound(engine: &Vulkan) -> [OmniheapVulkanBind; 3] {
    let device = engine.ash_device();
    let usual = omniheap_vulkan_bind_default();
    let buffer = || {
        // SAFETY: a plain description.
        let buffer = unsafe { device.create_buffer(&buffer_info(), None) }.expect("small");
        OmniheapVulkanBind { buffer: buffer.as_raw(), ..usual }
    };
    // SAFETY: as above.
    let image = unsafe { device.create_image(&image_info(vk::ImageTiling::OPTIMAL), None) };
    [buffer(), buffer(), OmniheapVulkanBind { image: image.expect("small").as_raw(), ..usual }]
}

fn destroy(engine: &Vulkan, binds: &[OmniheapVulkanBind]) {
    for bind in binds {
        let (buffer, image) = (vk::Buffer::from_raw(bind.buffer), vk::Image::from_raw(bind.image));
        // SAFETY: the device never used them; null is ignored.
        unsafe { engine.ash_device().destroy_buffer(buffer, None) };
        // SAFETY: as above.
        unsafe { engine.ash_device().destroy_image(image, None) };
    }
}

#[test]
fn many_are_bound_at_once_or_none() {
    on_device(|engine, manager| {
        let mut binds = unbound(engine);
        let many = |binds: &mut [OmniheapVulkanBind]| {
            c!(omniheap_vulkan_bind_many(manager, binds.as_mut_ptr(), binds.len()))
        };
        for (spoil, status) in [
            (OmniheapVulkanBind { image: 0, ..binds[2] }, Status::NullArgument),
            (OmniheapVulkanBind { buffer: 1, ..binds[2] }, Status::InvalidArgument),
            (OmniheapVulkanBind { class_: 7, ..binds[2] }, Status::InvalidArgument),
            (OmniheapVulkanBind { kind: 7, ..binds[2] }, Status::InvalidArgument),
            (OmniheapVulkanBind { priority: 1.5, ..binds[2] }, Status::InvalidArgument),
            (OmniheapVulkanBind { priority: f32::NAN, ..binds[2] }, Status::InvalidArgument),
            (OmniheapVulkanBind { struct_size: 256, ..binds[2] }, Status::InvalidArgument),
            (OmniheapVulkanBind { pool: OmniheapPool { id: 1 }, ..binds[2] }, Status::Stale),
        ] {
            let mut spoiled = [binds[0], binds[1], spoil];
            assert_eq!(many(&mut spoiled), status, "{}", message());
            assert_eq!((live(manager), spoiled[0].allocation.id), (0, 0), "{}", message());
        }
        let first = binds.as_mut_ptr();
        assert_eq!(c!(omniheap_vulkan_bind_many(manager, first, usize::MAX)), Status::SizeOverflow);
        assert_eq!(
            c!(omniheap_vulkan_bind_many(manager, ptr::null_mut(), 1)),
            Status::NullArgument
        );
        assert_eq!(c!(omniheap_vulkan_bind_many(manager, ptr::null_mut(), 0)), Status::Ok);
        assert_eq!(many(&mut binds), Status::Ok, "{}", message());
        assert_eq!(live(manager), 3);
        assert!(binds.iter().all(|bind| place(bind.allocation).memory != 0));
        destroy(engine, &binds);
        binds.iter().for_each(|bind| assert_eq!(omniheap_free(bind.allocation), Status::Ok));
    });
}

#[test]
fn memory_of_a_resource_comes_from_the_pool_that_is_named() {
    on_device(|engine, manager| {
        let usual = omniheap_vulkan_bind_default();
        let mut binds = unbound(engine);
        let plain = create(manager, usual);
        // SAFETY: live, and of this device.
        let types = unsafe {
            engine.ash_device().get_buffer_memory_requirements(vk::Buffer::from_raw(plain.buffer))
        };
        let (mut heap, mut pool) = (0, OmniheapPool { id: 0 });
        let (kind, bits) = (OMNIHEAP_KIND_DEVICE, types.memory_type_bits);
        assert_eq!(c!(omniheap_vulkan_heap(manager, bits, kind, &raw mut heap)), Status::Ok);
        let config = OmniheapPoolConfig { block: 1 << 20, ..omniheap_pool_config_default() };
        assert_eq!(
            c!(omniheap_pool_create(manager, heap, &raw const config, &raw mut pool)),
            Status::Ok
        );
        let inside = create(manager, OmniheapVulkanBind { pool, ..usual });
        let mut sums = OmniheapTotals::default();
        assert_eq!(c!(omniheap_pool_totals(pool, &raw mut sums)), Status::Ok);
        assert_eq!(sums.live, 1);
        let export = vk::ExportMemoryAllocateInfo::default();
        binds[0] = OmniheapVulkanBind { pool, memory_next: info(&export), ..binds[0] };
        let tied = c!(omniheap_vulkan_bind_many(manager, binds.as_mut_ptr(), 1));
        assert_eq!(tied, Status::Unsupported);
        assert!(message().contains("leave bind.pool zero"), "{}", message());
        let (other, _) = wrapped(engine, 0);
        binds[0] = OmniheapVulkanBind { pool, memory_next: ptr::null(), ..binds[0] };
        assert_eq!(c!(omniheap_vulkan_bind_many(other, binds.as_mut_ptr(), 1)), Status::Foreign);
        assert_eq!(omniheap_close(other), Status::Ok, "{}", message());
        destroy(engine, &binds);
        for one in [plain, inside] {
            assert_eq!(c!(omniheap_vulkan_retire_buffer(one.buffer, one.allocation)), Status::Ok);
        }
        settle(manager);
        assert_eq!(omniheap_pool_destroy(pool), Status::Ok, "{}", message());
    });
}

/// Returns the answer about a buffer that is not created, which leaves what was passed as it is.
fn refusal(manager: OmniheapManager, described: *const c_void, said: OmniheapVulkanBind) -> Status {
    let mut bind = said;
    let status = c!(omniheap_vulkan_create_buffer(manager, described, &raw mut bind));
    assert_eq!((bind.buffer, bind.allocation.id), (said.buffer, 0), "{status:?}");
    status
}

#[test]
fn what_cannot_be_created_is_said_and_leaves_nothing() {
    on_device(|_, manager| {
        let (described, usual) = (buffer_info(), omniheap_vulkan_bind_default());
        let create = |described, said| refusal(manager, described, said);
        assert_eq!(create(ptr::null(), usual), Status::NullArgument);
        assert_eq!(
            create(info(&image_info(vk::ImageTiling::OPTIMAL)), usual),
            Status::InvalidArgument
        );
        assert!(message().contains("info.sType is 14; pass BUFFER_CREATE_INFO"), "{}", message());
        let there = OmniheapVulkanBind { buffer: 5, ..usual };
        assert_eq!(create(info(&described), there), Status::InvalidArgument);
        assert_eq!(
            create(info(&described), OmniheapVulkanBind { struct_size: 9, ..usual }),
            Status::InvalidArgument
        );
        let zeroed = OmniheapRequest { flags: OMNIHEAP_ZEROED, ..omniheap_request_default(0) };
        let nowhere = OmniheapRequest { heap: 200, ..omniheap_request_default(0) };
        for (request, status) in [(zeroed, Status::Unsupported), (nowhere, Status::NoSuchHeap)] {
            let said = OmniheapVulkanBind { request: &raw const request, ..usual };
            assert_eq!(create(info(&described), said), status, "{}", message());
        }
        let none = ptr::null_mut();
        assert_eq!(
            c!(omniheap_vulkan_create_buffer(manager, info(&described), none)),
            Status::NullArgument
        );
        assert_eq!(
            c!(omniheap_vulkan_create_image(manager, ptr::null(), none)),
            Status::NullArgument
        );
    });
}

#[test]
fn memory_of_its_own_is_the_drivers_to_give_and_never_held() {
    on_device(|_, manager| {
        let (described, usual) = (buffer_info(), omniheap_vulkan_bind_default());
        let (held, export) = (OMNIHEAP_NO_GROW, vk::ExportMemoryAllocateInfo::default());
        for (flags, memory_next) in
            [(held | OMNIHEAP_DEDICATED, ptr::null()), (held, info(&export))]
        {
            let request = OmniheapRequest { flags, ..omniheap_request_default(0) };
            let said = OmniheapVulkanBind { request: &raw const request, memory_next, ..usual };
            let status = refusal(manager, info(&described), said);
            assert_eq!(status, Status::OutOfDeviceMemory, "{}", message());
        }
    });
}

#[test]
fn buffers_need_a_device_of_vulkan() {
    let (manager, mut bind) = (open(0), omniheap_vulkan_bind_default());
    let refused = c!(omniheap_vulkan_create_buffer(manager, info(&buffer_info()), &raw mut bind));
    assert_eq!(refused, Status::Unsupported);
    assert!(message().contains("not of a Vulkan device"), "{}", message());
    assert_eq!(omniheap_close(manager), Status::Ok);
}
