//! Textures in memory of a manager, and those that wgpu places.
use crate::{Check, Target, blocks::DEVICE};
use omniheap_core::{Backend, ErrorKind, Limits, Manager, Request, Usage};
use omniheap_wgpu::{Texture, Wgpu};
use wgpu::{Extent3d, TextureDescriptor, TextureDimension, TextureFormat, TextureUsages};

pub(crate) const CASES: &[(&str, Check)] = &[
    ("textures_lie_beside_buffers", textures_lie_beside_buffers),
    ("fresh_textures_are_zeros", fresh_textures_are_zeros),
    ("every_shape_of_texture_works", every_shape_of_texture_works),
    ("compressed_textures_need_not_be_written", compressed_textures_need_not_be_written),
    ("memory_of_textures_is_used_again", memory_of_textures_is_used_again),
    ("memory_of_a_texture_waits_for_the_device", memory_of_a_texture_waits_for_the_device),
    ("a_dropped_texture_is_refused", a_dropped_texture_is_refused),
    ("textures_that_wgpu_places_are_counted", textures_that_wgpu_places_are_counted),
    ("bad_textures_are_refused", bad_textures_are_refused),
    ("a_full_heap_is_a_typed_error", a_full_heap_is_a_typed_error),
];

/// Returns a manager on memory of its own; on other devices one on wgpu's.
pub(crate) fn open(target: &Target) -> Manager<Wgpu> {
    let backend = (target.open)();
    Manager::new(backend.with_own_memory().unwrap_or_else(|_| (target.open)()))
}

/// As [`open`], on a device with the adapter's features for formats, compressed ones among them.
pub(crate) fn open_with_formats(target: &Target) -> Manager<Wgpu> {
    use wgpu::Features as F;
    let info = (target.open)().device().adapter_info();
    if info.backend != wgpu::Backend::Vulkan {
        return open(target);
    }
    let backends = wgpu::Backends::VULKAN;
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    let instance = wgpu::Instance::new(descriptor);
    let all = pollster::block_on(instance.enumerate_adapters(backends));
    let adapter = all.into_iter().find(|one| one.get_info().name == info.name);
    let adapter = adapter.expect("it was opened before");
    let wanted = F::TEXTURE_COMPRESSION_BC
        | F::TEXTURE_COMPRESSION_BC_SLICED_3D
        | F::TEXTURE_COMPRESSION_ETC2
        | F::TEXTURE_COMPRESSION_ASTC
        | F::TEXTURE_FORMAT_16BIT_NORM
        | F::RG11B10UFLOAT_RENDERABLE
        | F::BGRA8UNORM_STORAGE;
    let opened = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: adapter.features() & wanted,
        required_limits: adapter.limits(),
        ..Default::default()
    }));
    let (device, queue) = opened.expect("the adapter says what it has");
    Manager::new(Wgpu::wrap(device, queue).with_own_memory().expect("wgpu runs on Vulkan"))
}

/// Returns whether textures are placed by us.
pub(crate) fn places(manager: &Manager<Wgpu>) -> bool {
    manager.backend().memory_type(DEVICE).is_some()
}

const USAGE: TextureUsages =
    TextureUsages::COPY_DST.union(TextureUsages::COPY_SRC).union(TextureUsages::TEXTURE_BINDING);

pub(crate) fn flat(format: TextureFormat, width: u32, height: u32) -> TextureDescriptor<'static> {
    TextureDescriptor {
        label: Some("test"),
        size: Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: TextureDimension::D2,
        format,
        usage: USAGE,
        view_formats: &[],
    }
}

/// Returns the bytes of a row as it is copied.
fn row_of(texture: &wgpu::Texture) -> (u32, u32) {
    let (x, y) = texture.format().block_dimensions();
    let bytes = texture.format().block_copy_size(None).expect("one aspect");
    let size = texture.size();
    (size.width.div_ceil(x) * bytes, size.height.div_ceil(y) * size.depth_or_array_layers)
}

pub(crate) fn write(manager: &Manager<Wgpu>, texture: &wgpu::Texture, seed: u8) -> Vec<u8> {
    let (row, rows) = row_of(texture);
    let bytes: Vec<u8> = (0..row * rows).map(|n| (n as u8).wrapping_mul(31) ^ seed).collect();
    let layers = texture.size().depth_or_array_layers;
    let layout = wgpu::TexelCopyBufferLayout {
        offset: 0,
        bytes_per_row: Some(row),
        rows_per_image: Some(rows / layers),
    };
    let (queue, size) = (manager.backend().queue(), texture.size());
    queue.write_texture(texture.as_image_copy(), &bytes, layout, size);
    bytes
}

/// Returns the contents of a texture's first mip level.
pub(crate) fn read(manager: &Manager<Wgpu>, texture: &wgpu::Texture) -> Vec<u8> {
    let (row, rows) = row_of(texture);
    let pitch = row.next_multiple_of(256);
    let total = u64::from(pitch) * u64::from(rows);
    let target = manager.allocate(&Request::new(total).usage(Usage::Readback)).expect("small");
    let place = target.binding();
    let layout = wgpu::TexelCopyBufferLayout {
        offset: place.span().offset,
        bytes_per_row: Some(pitch),
        rows_per_image: Some(rows / texture.size().depth_or_array_layers),
    };
    let device = manager.backend().device();
    let mut encoder = device.create_command_encoder(&Default::default());
    let into = wgpu::TexelCopyBufferInfo { buffer: place.block().buffer(), layout };
    encoder.copy_texture_to_buffer(texture.as_image_copy(), into, texture.size());
    manager.backend().queue().submit([encoder.finish()]);
    drop(place);
    let mut all = vec![0; total as usize];
    target.read(0, &mut all).expect("in range");
    all.chunks(pitch as usize).flat_map(|line| line[..row as usize].to_vec()).collect()
}

pub(crate) fn is_real(manager: &Manager<Wgpu>) -> bool {
    manager.backend().device().adapter_info().backend != wgpu::Backend::Noop
}

/// Buffers and textures in turn, in one pool: no byte of one is another's.
fn textures_lie_beside_buffers(target: &Target) {
    let manager = open(target);
    let mut kept = Vec::new();
    for n in 0..60u32 {
        let one = manager.allocate(&Request::new(u64::from(100 + n * 36))).expect("small");
        one.fill(0, one.size(), n as u8).expect("in range");
        let format =
            [TextureFormat::Rgba8Unorm, TextureFormat::R8Unorm, TextureFormat::Rgba32Float]
                [n as usize % 3];
        let texture = Texture::create(&manager, &flat(format, 3 + n, 1 + n * 2)).expect("small");
        let bytes = write(&manager, texture.raw(), n as u8);
        kept.push((one, texture, bytes));
    }
    for (n, (one, texture, bytes)) in kept.iter().enumerate() {
        assert_eq!(texture.allocation().is_some(), places(&manager));
        if let Some(memory) = texture.allocation() {
            let place = memory.binding();
            assert_eq!(place.block().heap(), DEVICE);
            assert_eq!(memory.timeline(), None);
        }
        let mut found = vec![0; one.size() as usize];
        one.read(0, &mut found).expect("in range");
        assert!(found.iter().all(|byte| *byte == n as u8), "buffer {n} was overwritten");
        if is_real(&manager) {
            assert!(read(&manager, texture.raw()) == *bytes, "texture {n} was overwritten");
        }
    }
    manager.validate().expect("sound");
    if places(&manager) {
        let blocks = manager.report().driver_calls;
        assert!(blocks < 20, "textures share blocks: {blocks} driver calls");
    }
}

/// Whatever was there before.
fn fresh_textures_are_zeros(target: &Target) {
    let manager = open_with_formats(target);
    if !is_real(&manager) {
        return;
    }
    let mut formats = vec![
        TextureFormat::Rgba8Unorm,
        TextureFormat::Rg16Float,
        TextureFormat::Rgba32Uint,
        TextureFormat::Depth16Unorm,
        TextureFormat::Depth32Float,
    ];
    if manager.backend().device().features().contains(wgpu::Features::TEXTURE_COMPRESSION_BC) {
        formats.push(TextureFormat::Bc3RgbaUnorm);
    }
    for format in formats {
        let dirt = manager.allocate(&Request::new(1 << 20)).expect("small");
        dirt.fill(0, dirt.size(), 0xEE).expect("in range");
        drop(dirt);
        let texture = Texture::create(&manager, &flat(format, 64, 64)).expect("small");
        let found = read(&manager, texture.raw());
        assert!(found.iter().all(|byte| *byte == 0), "{format:?} is not empty");
    }
}

fn every_shape_of_texture_works(target: &Target) {
    let manager = open(target);
    let plain = flat(TextureFormat::Rgba8Unorm, 32, 32);
    let deep = |n| Extent3d { depth_or_array_layers: n, ..plain.size };
    let line = Extent3d { width: 64, height: 1, depth_or_array_layers: 1 };
    let target_usage = TextureUsages::RENDER_ATTACHMENT | TextureUsages::TEXTURE_BINDING;
    let shapes = [
        TextureDescriptor { size: line, dimension: TextureDimension::D1, ..plain.clone() },
        TextureDescriptor { size: deep(6), ..plain.clone() },
        TextureDescriptor { size: deep(5), dimension: TextureDimension::D3, ..plain.clone() },
        TextureDescriptor { mip_level_count: 6, ..plain.clone() },
        TextureDescriptor { sample_count: 4, usage: target_usage, ..plain.clone() },
        TextureDescriptor { view_formats: &[TextureFormat::Rgba8UnormSrgb], ..plain.clone() },
        TextureDescriptor { usage: USAGE | TextureUsages::STORAGE_BINDING, ..plain.clone() },
    ];
    for shape in shapes {
        let texture = Texture::create(&manager, &shape).expect("every device has it");
        let is_ours = places(&manager) && !shape.usage.contains(TextureUsages::RENDER_ATTACHMENT);
        assert_eq!(texture.allocation().is_some(), is_ours, "{shape:?}");
        assert_eq!(texture.raw().size(), shape.size);
        let view = texture.raw().create_view(&Default::default());
        if shape.sample_count == 1 && is_real(&manager) {
            let bytes = write(&manager, texture.raw(), 9);
            assert!(read(&manager, texture.raw()) == bytes, "{shape:?}");
        }
        drop(view);
    }
    let cube = TextureDescriptor { size: deep(6), ..plain.clone() };
    let texture = Texture::create(&manager, &cube).expect("small");
    let dimension = Some(wgpu::TextureViewDimension::Cube);
    let wanted = wgpu::TextureViewDescriptor { dimension, ..Default::default() };
    drop(texture.raw().create_view(&wanted));
}

/// Compressed textures are cleared by a write, so those that may not be written are wgpu's.
fn compressed_textures_need_not_be_written(target: &Target) {
    let manager = open_with_formats(target);
    if !manager.backend().device().features().contains(wgpu::Features::TEXTURE_COMPRESSION_BC) {
        return;
    }
    let bound = TextureUsages::TEXTURE_BINDING;
    for usage in [bound, bound | TextureUsages::COPY_SRC, bound | TextureUsages::COPY_DST] {
        let wanted = TextureDescriptor { usage, ..flat(TextureFormat::Bc7RgbaUnorm, 64, 64) };
        let texture = Texture::create(&manager, &wanted).expect("wgpu takes it");
        let is_ours = places(&manager) && usage.contains(TextureUsages::COPY_DST);
        assert_eq!(texture.allocation().is_some(), is_ours, "{usage:?}");
    }
}

fn memory_of_textures_is_used_again(target: &Target) {
    let manager = open(target);
    let shape = flat(TextureFormat::Rgba8Unorm, 256, 256);
    // 64 MiB in all, never more than two at once.
    for n in 0..256u32 {
        let texture = Texture::create(&manager, &shape).expect("the last one went back");
        write(&manager, texture.raw(), n as u8);
        drop(texture);
        manager.retire().expect("there");
    }
    // A mark on an idle queue is reached by the look after the next.
    for _ in 0..2 {
        manager.backend().wait_idle().expect("there");
        manager.retire().expect("there");
    }
    let totals = manager.totals();
    assert_eq!((totals.live, totals.live_bytes), (0, 0));
    manager.trim().expect("there");
    assert_eq!(manager.totals().reserved_bytes, 0, "nothing is left behind");
    manager.validate().expect("sound");
}

/// wgpu collects writes and sends them with the next submission, when the memory may be somebody else's.
fn memory_of_a_texture_waits_for_the_device(target: &Target) {
    let manager = open(target);
    for n in 0..40u8 {
        let texture = Texture::create(&manager, &flat(TextureFormat::Rgba8Unorm, 128, 128));
        let texture = texture.expect("small");
        write(&manager, texture.raw(), n);
        manager.retire().expect("there");
        let before = manager.totals().deferred_bytes;
        drop(texture);
        if places(&manager) {
            let waiting = manager.totals().deferred_bytes - before;
            assert!(waiting >= 65_536, "{waiting} bytes wait for the writes");
        }
        let all: Vec<_> = (0..8)
            .map(|_| {
                let one = manager.allocate(&Request::new(65_536)).expect("small");
                one.fill(0, one.size(), n).expect("in range");
                one
            })
            .collect();
        for one in &all {
            let mut found = vec![0; one.size() as usize];
            one.read(0, &mut found).expect("in range");
            assert!(found.iter().all(|byte| *byte == n), "a late write reached a buffer");
        }
    }
}

fn a_dropped_texture_is_refused(target: &Target) {
    let manager = open(target);
    let texture = Texture::create(&manager, &flat(TextureFormat::Rgba8Unorm, 16, 16));
    let texture = texture.expect("small");
    let kept = texture.raw().clone();
    drop(texture);
    let device = manager.backend().device();
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    write(&manager, &kept, 1);
    manager.backend().queue().submit([]);
    assert!(pollster::block_on(scope.pop()).is_some(), "wgpu says that it was destroyed");
}

fn textures_that_wgpu_places_are_counted(target: &Target) {
    let manager = open(target);
    let Some(before) = manager.backend().bytes_of_wgpu() else { return };
    let shape = flat(TextureFormat::Rgba32Float, 4096, 4096);
    let ours = Texture::create(&manager, &shape).expect("it is free");
    let held = manager.backend().bytes_of_wgpu().expect("told before");
    if places(&manager) {
        assert_eq!(held, before, "a texture of ours is not wgpu's");
        assert!(manager.totals().live_bytes >= 256 << 20, "it is in the report");
    }
    drop(ours);
    // Memory that wgpu holds for work under way is let go of afterwards, and would hide what it takes next.
    manager.backend().wait_idle().expect("alive");
    let usage = TextureUsages::RENDER_ATTACHMENT;
    // Eight layers of 64 MiB: more than a block of wgpu's own, so that no room it has already can take them.
    let flat = flat(TextureFormat::Depth24Plus, 4096, 4096);
    let size = Extent3d { depth_or_array_layers: 8, ..flat.size };
    let depth = TextureDescriptor { usage, size, ..flat };
    let before = manager.backend().bytes_of_wgpu().expect("told before");
    let theirs = Texture::create(&manager, &depth).expect("it is free");
    assert!(theirs.allocation().is_none(), "only wgpu knows what it is made of");
    let held = manager.backend().bytes_of_wgpu().expect("told before");
    assert!(held >= before + (512 << 20), "it is counted: {held} after {before}");
}

/// Returns descriptions whose every part is fine alone.
fn bad_combinations() -> [TextureDescriptor<'static>; 7] {
    let plain = flat(TextureFormat::Rgba8Unorm, 16, 16);
    let line = Extent3d { height: 1, ..plain.size };
    [
        TextureDescriptor {
            size: line,
            dimension: TextureDimension::D1,
            usage: TextureUsages::RENDER_ATTACHMENT,
            ..plain.clone()
        },
        TextureDescriptor {
            size: line,
            dimension: TextureDimension::D1,
            format: TextureFormat::Depth32Float,
            ..plain.clone()
        },
        TextureDescriptor {
            dimension: TextureDimension::D3,
            format: TextureFormat::Depth32Float,
            ..plain.clone()
        },
        // Samples without a render target.
        TextureDescriptor {
            sample_count: 4,
            usage: TextureUsages::TEXTURE_BINDING,
            ..plain.clone()
        },
        // Views of sixteen bytes over texels of four and of one.
        TextureDescriptor { view_formats: &[TextureFormat::Rgba32Uint], ..plain.clone() },
        TextureDescriptor {
            format: TextureFormat::R8Uint,
            view_formats: &[TextureFormat::Rgba32Uint],
            ..plain.clone()
        },
        // Texels of the same size, which wgpu refuses too.
        TextureDescriptor { view_formats: &[TextureFormat::R32Uint], ..plain.clone() },
    ]
}

fn bad_textures_are_refused(target: &Target) {
    let manager = open(target);
    let plain = flat(TextureFormat::Rgba8Unorm, 16, 16);
    let size =
        |width, height, depth_or_array_layers| Extent3d { width, height, depth_or_array_layers };
    let most = manager.backend().device().limits().max_texture_dimension_2d;
    let before = manager.totals();
    let bad = [
        TextureDescriptor { size: size(0, 16, 1), ..plain.clone() },
        TextureDescriptor { size: size(16, 16, 0), ..plain.clone() },
        TextureDescriptor { size: size(most + 1, 1, 1), ..plain.clone() },
        TextureDescriptor { size: size(u32::MAX, u32::MAX, 1), ..plain.clone() },
        TextureDescriptor { mip_level_count: 0, ..plain.clone() },
        TextureDescriptor { mip_level_count: 6, ..plain.clone() },
        TextureDescriptor { sample_count: 3, ..plain.clone() },
        TextureDescriptor { sample_count: 0, ..plain.clone() },
        TextureDescriptor { usage: TextureUsages::empty(), ..plain.clone() },
        TextureDescriptor { dimension: TextureDimension::D1, ..plain.clone() },
        TextureDescriptor {
            format: TextureFormat::Rgba8UnormSrgb,
            usage: TextureUsages::STORAGE_BINDING,
            ..plain.clone()
        },
        TextureDescriptor {
            format: TextureFormat::Astc {
                block: wgpu::AstcBlock::B4x4,
                channel: wgpu::AstcChannel::Hdr,
            },
            ..plain.clone()
        },
    ];
    for shape in bad.into_iter().chain(bad_combinations()) {
        let refused = Texture::create(&manager, &shape).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::Driver), "{shape:?}");
    }
    assert_eq!(manager.totals().live_bytes, before.live_bytes);
    drop(Texture::create(&manager, &plain).expect("the device survived all that"));
}

fn a_full_heap_is_a_typed_error(target: &Target) {
    let manager = open(target);
    if !places(&manager) {
        return;
    }
    for (heap, _) in manager.caps().heap_ids() {
        manager.set_budget(heap, Limits { soft: 0, hard: 1 << 20 }).expect("listed");
    }
    let large = Texture::create(&manager, &flat(TextureFormat::Rgba32Float, 1024, 1024));
    let kind = large.err().map(|error| error.kind());
    assert!(kind.is_some_and(ErrorKind::is_out_of_memory), "{kind:?}");
    manager.validate().expect("sound");
}
