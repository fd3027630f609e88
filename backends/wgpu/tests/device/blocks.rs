//! Blocks: how they come, how they go, and what is refused.
#![expect(unsafe_code, reason = "frees blocks")]
use crate::{Check, Target, child};
use omniheap_core::{Align, Backend, ErrorKind, HeapId, Manager, Request, Span, erase};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_wgpu::{Bind, Block, Wgpu};

pub(crate) const CASES: &[(&str, Check)] = &[
    ("every_heap_gives_blocks", every_heap_gives_blocks),
    ("bad_requests_have_their_own_errors", bad_requests_have_their_own_errors),
    ("memory_exhaustion_is_typed_and_passes", memory_exhaustion_is_typed_and_passes),
    ("ten_thousand_blocks_come_and_go", ten_thousand_blocks_come_and_go),
    ("every_drop_order_works", every_drop_order_works),
    ("bindings_are_checked", bindings_are_checked),
    ("the_erased_backend_does_the_same", the_erased_backend_does_the_same),
    ("a_budget_is_plausible", a_budget_is_plausible),
    ("a_limit_from_outside_holds", a_limit_from_outside_holds),
    ("a_limit_holds_for_all_heaps_together", a_limit_holds_for_all_heaps_together),
    ("capabilities_are_what_wgpu_has", capabilities_are_what_wgpu_has),
];

pub(crate) const DEVICE: HeapId = HeapId(0);
pub(crate) const CONSTANT: HeapId = HeapId(1);
pub(crate) const UPLOAD: HeapId = HeapId(2);
pub(crate) const READ_BACK: HeapId = HeapId(3);
pub(crate) const READ_ONLY: HeapId = HeapId(4);
pub(crate) const HEAPS: [HeapId; 5] = [DEVICE, CONSTANT, UPLOAD, READ_BACK, READ_ONLY];

pub(crate) fn kind<T>(result: omniheap_core::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

pub(crate) fn free(backend: &Wgpu, block: Block) {
    // SAFETY: the block came from this backend, and every case waits for its work before it frees.
    unsafe { backend.free(block) }.expect("the device is there");
}

fn every_heap_gives_blocks(target: &Target) {
    let backend = (target.open)();
    for (id, heap) in backend.caps().heap_ids() {
        for size in [1, 3, 4, 5, 4096, 100_001] {
            let block = backend.allocate(id, size).expect("small");
            assert_eq!(block.size(), heap.granule.up(size).expect("small"));
            assert_eq!(block.heap(), id);
            free(&backend, block);
        }
    }
}

fn bad_requests_have_their_own_errors(target: &Target) {
    let backend = (target.open)();
    for (id, heap) in backend.caps().heap_ids() {
        assert_eq!(kind(backend.allocate(id, 0)), Some(ErrorKind::ZeroSize));
        for size in [heap.max_block + 1, u64::MAX - 3, u64::MAX - 2, u64::MAX] {
            assert_eq!(kind(backend.allocate(id, size)), Some(ErrorKind::ExceedsLimit), "{size}");
        }
    }
    for id in [5, 6, 255] {
        assert_eq!(kind(backend.allocate(HeapId(id), 4)), Some(ErrorKind::NoSuchHeap));
    }
    // The device survived all that.
    free(&backend, backend.allocate(DEVICE, 4).expect("small"));
}

fn memory_exhaustion_is_typed_and_passes(target: &Target) {
    if target.label == "noop" {
        return exhausted_at_once();
    }
    let backend = (target.open)();
    if backend.device().adapter_info().device_type == wgpu::DeviceType::Cpu {
        // Its memory is the host's: only in a process with a limit of its own.
        return child::exhaust(&target.label);
    }
    exhaust(&backend);
}

/// The stand-in has no limit but the host's address space, once its own are out of the way.
fn exhausted_at_once() {
    let limits = wgpu::Limits { max_buffer_size: 1 << 60, ..wgpu::Limits::default() };
    let mut noop = wgpu::NoopBackendOptions::enabled();
    noop.limits = Some(limits.clone());
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::NOOP,
        backend_options: wgpu::BackendOptions { noop, ..Default::default() },
        // Checked indirect calls bound every buffer to four gigabytes.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapter = pollster::block_on(instance.request_adapter(&Default::default()));
    let adapter = adapter.expect("needs no hardware");
    let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
    let opened = pollster::block_on(adapter.request_device(&descriptor));
    let (device, queue) = opened.expect("needs no hardware");
    let backend = Wgpu::wrap(device, queue);
    for heap in HEAPS {
        let refused = backend.allocate(heap, 1 << 55);
        assert_eq!(kind(refused), Some(ErrorKind::OutOfDeviceMemory));
        free(&backend, backend.allocate(heap, 1 << 20).expect("there is room for this"));
    }
}

/// Takes the largest blocks until there is no more, then gives one back and takes it again.
pub(crate) fn exhaust(backend: &Wgpu) {
    let heap = backend.caps().heap(DEVICE).expect("the first heap");
    let mut blocks = Vec::new();
    let error = loop {
        match backend.allocate(DEVICE, heap.max_block) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
        assert!(blocks.len() < 10_000, "memory without end");
    };
    assert_eq!(error.kind(), ErrorKind::OutOfDeviceMemory);
    assert!(!blocks.is_empty(), "one block fits");
    free(backend, blocks.pop().expect("not empty"));
    blocks.push(backend.allocate(DEVICE, heap.max_block).expect("one was given back"));
    for block in blocks {
        free(backend, block);
    }
}

fn ten_thousand_blocks_come_and_go(target: &Target) {
    let backend = (target.open)();
    let mut live = Vec::new();
    for i in 0..10_000u64 {
        let heap = HEAPS[(i % 4) as usize];
        live.push(backend.allocate(heap, 1 + (i * 7919) % 4096).expect("small"));
        if live.len() == 64 {
            let at = (i as usize * 31) % live.len();
            free(&backend, live.swap_remove(at));
        }
    }
    for block in live {
        free(&backend, block);
    }
}

fn every_drop_order_works(target: &Target) {
    let backend = (target.open)();
    let block = backend.allocate(DEVICE, 4096).expect("small");
    let upload = backend.allocate(UPLOAD, 4096).expect("small");
    let transfer = backend.as_transfer().expect("always");
    let place = omniheap_core::BlockOffset { block: &block, offset: 0 };
    transfer.write(omniheap_core::TimelineId::MAIN, place, &[7; 4096]).expect("in range");
    let (device, queue) = (backend.device().clone(), backend.queue().clone());
    drop(backend);
    drop(upload);
    drop(queue);
    drop(block);
    drop(device);
    // The engine's parts first, with work under way.
    let backend = (target.open)();
    let block = backend.allocate(DEVICE, 4096).expect("small");
    let place = omniheap_core::BlockOffset { block: &block, offset: 0 };
    let transfer = backend.as_transfer().expect("always");
    transfer.fill(omniheap_core::TimelineId::MAIN, place, 4096, 3).expect("in range");
    drop(block);
    drop(backend);
}

fn bindings_are_checked(target: &Target) {
    let backend = (target.open)();
    let block = backend.allocate(DEVICE, 1 << 20).expect("small");
    for bind in [Bind::Uniform, Bind::ReadOnlyStorage, Bind::Storage] {
        let align = backend.bind_align(bind).get();
        let span = |offset, size| Span { offset, size };
        let refused = |span| kind(backend.bind(&block, span, bind));
        let binding = backend.bind(&block, span(align, 64), bind).expect("aligned");
        assert_eq!((binding.offset, binding.size.map(|size| size.get())), (align, Some(64)));
        assert_eq!(refused(span(0, 0)), Some(ErrorKind::ZeroSize));
        assert_eq!(refused(span(0, (1 << 20) + 4)), Some(ErrorKind::OutOfRange));
        assert_eq!(refused(span(u64::MAX, 2)), Some(ErrorKind::OutOfRange));
        if align > 4 {
            assert_eq!(refused(span(align / 2, 64)), Some(ErrorKind::Misaligned));
        }
        if backend.bind_limit(bind) < 1 << 20 {
            assert_eq!(refused(span(0, 1 << 20)), Some(ErrorKind::ExceedsLimit));
        }
    }
    let upload = backend.allocate(UPLOAD, 256).expect("small");
    let whole = Span { offset: 0, size: 256 };
    assert_eq!(kind(backend.bind(&upload, whole, Bind::Storage)), Some(ErrorKind::Unsupported));
    let other = (target.open)();
    assert_eq!(kind(other.bind(&block, whole, Bind::Storage)), Some(ErrorKind::Foreign));
}

fn the_erased_backend_does_the_same(target: &Target) {
    let backend = erase((target.open)());
    let block = backend.allocate(DEVICE, 64).expect("small");
    let transfer = backend.as_transfer().expect("always");
    let place = omniheap_core::BlockOffset { block: &block, offset: 4 };
    transfer.write(omniheap_core::TimelineId::MAIN, place, &[1, 2, 3, 4]).expect("in range");
    let mut bytes = [0; 4];
    transfer.read(omniheap_core::TimelineId::MAIN, place, &mut bytes).expect("in range");
    assert_eq!(bytes, [1, 2, 3, 4]);
    // SAFETY: the block came from this backend, and `read` waited for its work.
    unsafe { backend.free(block) }.expect("the device is there");
}

fn capabilities_are_what_wgpu_has(target: &Target) {
    let backend = (target.open)();
    assert!(backend.as_transfer().is_some() && backend.as_timelines().is_some());
    assert!(backend.as_map().is_none() && backend.as_address().is_none());
    assert!(backend.as_remap().is_none() && backend.as_export().is_none());
    let caps = backend.caps();
    assert_eq!(caps.device.backend, "wgpu");
    assert_eq!(caps.copy.align, Align::of(4));
    let on_vulkan = caps.device.driver.starts_with("Vulkan");
    assert_eq!(caps.device.uuid.is_some(), on_vulkan, "{:?}", caps.device);
    for heap in &caps.heaps {
        assert!(heap.max_block <= heap.size, "{heap:?}");
    }
}

fn a_limit_from_outside_holds(target: &Target) {
    let set = |name: &str| (name == "OMNIHEAP_LIMIT").then(|| "0=1GiB,1=16MiB".to_owned());
    let limits = SystemLimits::new(Vendor::Any, 1).within("/", set);
    let manager = Manager::new((target.open)().limited_by(limits));
    let ask = |size| manager.allocate(&Request::new(size).heap(DEVICE)).map_err(|it| it.kind());
    assert_eq!(ask(17 << 20).err(), Some(ErrorKind::OverBudget));
    let _fits = ask(1 << 20).expect("below the limit");
    assert_eq!(manager.report().limits[0].limit.source, "OMNIHEAP_LIMIT");
}

fn a_limit_holds_for_all_heaps_together(target: &Target) {
    let set = |name: &str| (name == "OMNIHEAP_LIMIT").then(|| "16MiB".to_owned());
    let limits = SystemLimits::new(Vendor::Any, 0).within("/", set);
    let manager = Manager::new((target.open)().limited_by(limits));
    let (caps, mut live) = (manager.caps(), Vec::new());
    for heap in HEAPS {
        let request = Request::new(3 << 20).heap(heap);
        live.extend((0..6).filter_map(|_| manager.allocate(&request).ok()));
        let device = HEAPS.into_iter().filter(|heap| caps.is_device_memory(*heap));
        let held = device.map(|heap| manager.heap_use(heap).expect("a heap").reserved);
        assert!(held.sum::<u64>() <= 16 << 20, "{heap:?}");
    }
    assert!(!live.is_empty(), "the limit is there to be used");
    assert_eq!(manager.report().limits.len(), 1);
}

fn a_budget_is_plausible(target: &Target) {
    let backend = (target.open)();
    let budget = backend.as_budget().expect("limits from outside at least");
    assert_eq!(kind(budget.budget(HeapId(9))), Some(ErrorKind::NoSuchHeap));
    if kind(budget.budget(DEVICE)) == Some(ErrorKind::Unsupported) {
        return eprintln!("[{}] the driver tells no budget", target.label);
    }
    let size = 512 << 20;
    let before = budget.budget(DEVICE).expect("told");
    assert!(0 < before.budget && before.budget <= backend.caps().heaps[0].size, "{before:?}");
    let block = backend.allocate(DEVICE, size).expect("fits");
    let during = budget.budget(DEVICE).expect("told");
    assert!(during.used >= before.used + size, "{before:?}, then {during:?}");
    free(&backend, block);
    assert!(budget.budget(DEVICE).expect("told").used < during.used);
}
