//! Blocks over memory that the backend allocates itself.
use crate::{
    Check, Target,
    blocks::{CONSTANT, DEVICE, UPLOAD, free, kind},
    bytes::{MAIN, at, bytes_of},
};
use omniheap_core::{Align, Backend, ErrorKind, HeapId, Manager, Move, Request, Transfer, Use};
use omniheap_wgpu::Wgpu;

pub(crate) const CASES: &[(&str, Check)] = &[
    ("own_memory_of_every_type_works", own_memory_of_every_type_works),
    ("own_memory_goes_back_to_the_driver", own_memory_goes_back_to_the_driver),
    ("what_wgpu_holds_itself_is_counted", what_wgpu_holds_itself_is_counted),
    ("a_request_chooses_its_memory_type", a_request_chooses_its_memory_type),
];

/// Returns a device on its own memory, or the typed refusal where that cannot be.
fn open(target: &Target) -> Option<Wgpu> {
    let backend = (target.open)();
    let vulkan = backend.device().adapter_info().backend == wgpu::Backend::Vulkan;
    let opened = backend.with_own_memory();
    if !vulkan {
        assert_eq!(kind(opened), Some(ErrorKind::Unsupported));
        return None;
    }
    Some(opened.expect("wgpu runs on Vulkan"))
}

fn own(backend: &Wgpu) -> Vec<HeapId> {
    let heaps = backend.caps().heap_ids().map(|(id, _)| id);
    heaps.filter(|heap| backend.memory_type(*heap).is_some()).collect()
}

fn own_memory_of_every_type_works(target: &Target) {
    let Some(backend) = open(target) else { return };
    let heaps = own(&backend);
    assert!(heaps.len() > 2 && heaps.contains(&DEVICE) && heaps.contains(&CONSTANT));
    assert_eq!(backend.memory_type(UPLOAD), None, "wgpu maps only what it allocated");
    for heap in heaps {
        let (a, b) = (backend.allocate(heap, 4096), backend.allocate(heap, 4000));
        let (a, b) = (a.expect("small"), b.expect("small"));
        assert_eq!(bytes_of(&backend, &a), [0; 4096], "fresh bytes are zero");
        backend.fill(MAIN, at(&a, 0), 4096, 0x5A).expect("in range");
        backend.write(MAIN, at(&a, 100), &[1; 24]).expect("in range");
        let step = Move { from: at(&a, 0), to: at(&b, 0), size: 4000 };
        backend.copy(MAIN, &[step]).expect("two blocks");
        let mut expected = [0x5A; 4000];
        expected[100..124].fill(1);
        assert_eq!(bytes_of(&backend, &b), expected, "{heap:?}");
        free(&backend, a);
        free(&backend, b);
        let most = backend.caps().heap(heap).expect("listed").max_block;
        assert_eq!(kind(backend.allocate(heap, 0)), Some(ErrorKind::ZeroSize));
        assert_eq!(kind(backend.allocate(heap, most + 4)), Some(ErrorKind::ExceedsLimit));
        assert_eq!(kind(backend.allocate(heap, u64::MAX)), Some(ErrorKind::ExceedsLimit));
    }
    let beyond = HeapId(backend.caps().heaps.len() as u8);
    assert_eq!(kind(backend.allocate(beyond, 64)), Some(ErrorKind::NoSuchHeap));
}

fn own_memory_goes_back_to_the_driver(target: &Target) {
    let Some(backend) = open(target) else { return };
    // More than a device tolerates at once, were they not returned.
    for _ in 0..6000 {
        free(&backend, backend.allocate(DEVICE, 4096).expect("the last one went back"));
    }
    backend.wait_idle().expect("there");
}

fn what_wgpu_holds_itself_is_counted(target: &Target) {
    let Some(backend) = open(target) else { return };
    let before = backend.bytes_of_wgpu().expect("Vulkan tells");
    let large = 512 << 20;
    let limit = backend.caps().heap(DEVICE).expect("listed").max_block;
    let block = backend.allocate(DEVICE, limit.min(large)).expect("it is free");
    assert_eq!(backend.bytes_of_wgpu(), Some(before), "our blocks are not wgpu's");
    free(&backend, block);
    let size = wgpu::Extent3d { width: 4096, height: 4096, depth_or_array_layers: 1 };
    let texture = backend.device().create_texture(&wgpu::TextureDescriptor {
        label: None,
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba32Float,
        usage: wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    });
    let held = backend.bytes_of_wgpu().expect("Vulkan tells");
    assert!(held >= before + (256 << 20), "a texture of 256 MiB is in the count");
    drop(texture);
}

fn a_request_chooses_its_memory_type(target: &Target) {
    let Some(backend) = open(target) else { return };
    let named = backend.caps().heap_ids().find(|(_, heap)| heap.use_when == Use::OnRequest);
    let heap = named.expect("every memory type has a heap").0;
    let manager = Manager::new(backend);
    let one = manager.allocate(&Request::new(1000).heap(heap)).expect("small");
    assert_eq!(one.binding().block().heap(), heap);
    let usual = manager.allocate(&Request::new(1000)).expect("small");
    assert_eq!(usual.binding().block().heap(), DEVICE, "others are not sent there");
    // Tiled images of some devices ask for this alignment.
    let wide = manager.allocate(&Request::new(1000).align(Align::of(64 << 10))).expect("small");
    assert!(Align::of(64 << 10).divides(wide.binding().span().offset));
}
