//! An engine's own compute shader on memory of a manager.
use crate::{Check, Target};
use omniheap_core::{Allocation, ErrorKind, HeapKind, Manager, Reason, Request, Usage, Writer};
use omniheap_wgpu::{Bind, Wgpu};

pub(crate) const CASES: &[(&str, Check)] = &[
    ("a_shader_reads_and_writes_memory_of_one_manager", a_shader_runs),
    ("read_only_and_written_data_share_no_buffer", kinds_share_no_buffer),
    ("uploads_can_be_bound_and_staging_is_refused_in_words", uploads_can_be_bound),
];

const COUNT: u32 = 64;
const BYTES: u64 = COUNT as u64 * 4;
const SHADER: &str = "
    @group(0) @binding(0) var<storage, read> table: array<u32>;
    @group(0) @binding(1) var<uniform> factor: vec4<u32>;
    @group(0) @binding(2) var<storage, read_write> result: array<u32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        result[id.x] = table[id.x] * factor.x;
    }";

fn allocate(manager: &Manager<Wgpu>, writer: Writer) -> Allocation<Wgpu> {
    let align = manager.backend().bind_align(Bind::Storage);
    let align = align.max(manager.backend().bind_align(Bind::Uniform));
    manager.allocate(&Request::new(BYTES).align(align).writer(writer)).expect("small")
}

fn a_shader_runs(target: &Target) {
    let manager = Manager::new((target.open)());
    let backend = manager.backend();
    if backend.device().adapter_info().backend == wgpu::Backend::Noop {
        return; // It runs no shaders.
    }
    let [table, factor] = [Writer::HostOnce; 2].map(|writer| allocate(&manager, writer));
    let result = allocate(&manager, Writer::Device);
    let numbers: Vec<u32> = (0..COUNT).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    table.write(0, &bytes).expect("in range");
    factor.write(0, &3u32.to_le_bytes()).expect("in range");
    let error = dispatch(&manager, [&table, &factor, &result]);
    assert!(error.is_none(), "{error:?}");
    let mut back = vec![0; bytes.len()];
    result.read(0, &mut back).expect("in range");
    let words = back.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four")));
    assert!(words.eq(numbers.iter().map(|number| number * 3)));
    // Data that the host writes every frame is bound in the same way.
    let align = backend.bind_align(Bind::Storage);
    let upload = Request::new(BYTES).usage(Usage::Upload).align(align);
    let upload = manager.allocate(&upload).expect("small");
    upload.write(0, &bytes).expect("in range");
    let error = dispatch(&manager, [&upload, &factor, &result]);
    assert!(error.is_none(), "{error:?}");
    // A table that is said to be written by kernels shares the result's buffer, and wgpu refuses to read it beside a write.
    let written = allocate(&manager, Writer::Device);
    assert!(dispatch(&manager, [&written, &factor, &result]).is_some());
}

/// Binds the three as the shader declares them and runs it; returns what wgpu says of it, which would panic in an engine.
fn dispatch(manager: &Manager<Wgpu>, arguments: [&Allocation<Wgpu>; 3]) -> Option<wgpu::Error> {
    let device = manager.backend().device();
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let source = wgpu::ShaderSource::Wgsl(SHADER.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let bindings = arguments.map(|each| each.binding());
    let binds = [Bind::ReadOnlyStorage, Bind::Uniform, Bind::Storage];
    let mut entries = Vec::new();
    for ((number, place), bind) in (0u32..).zip(&bindings).zip(binds) {
        let bound = manager.backend().bind(place.block(), place.span(), bind).expect("aligned");
        let resource = wgpu::BindingResource::Buffer(bound);
        entries.push(wgpu::BindGroupEntry { binding: number, resource });
    }
    let layout = pipeline.get_bind_group_layout(0);
    let group = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
    let group = device.create_bind_group(&group);
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    manager.backend().queue().submit([encoder.finish()]);
    pollster::block_on(scope.pop())
}

fn kinds_share_no_buffer(target: &Target) {
    let manager = Manager::new((target.open)());
    let written = allocate(&manager, Writer::Device);
    let again = allocate(&manager, Writer::Device);
    let read = allocate(&manager, Writer::HostOnce);
    let [a, b, c] = [&written, &again, &read].map(|each| each.binding());
    assert_eq!(a.block().buffer(), b.block().buffer());
    assert_ne!(a.block().buffer(), c.block().buffer());
    // Data that kernels only read is not bound for writing.
    let refused = manager.backend().bind(c.block(), c.span(), Bind::Storage);
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
    assert!(manager.backend().bind(c.block(), c.span(), Bind::ReadOnlyStorage).is_ok());
    // Read more than once a frame, so that it is copied to device memory.
    let per_frame = Request::new(BYTES).writer(Writer::HostPerFrame).reuse(8);
    let per_frame = manager.allocate(&per_frame).expect("small");
    assert_ne!(per_frame.binding().block().buffer(), a.block().buffer());
}

fn uploads_can_be_bound(target: &Target) {
    let manager = Manager::new((target.open)());
    let backend = manager.backend();
    let align = backend.bind_align(Bind::Storage).max(backend.bind_align(Bind::Uniform));
    let upload = Request::new(BYTES).usage(Usage::Upload).align(align);
    let upload = manager.allocate(&upload).expect("small");
    assert_eq!(upload.placed().reason, Reason::StagingUnbindable);
    let place = upload.binding();
    for bind in [Bind::ReadOnlyStorage, Bind::Uniform] {
        backend.bind(place.block(), place.span(), bind).expect("kernels read it");
    }
    let is_staging = |heap: &omniheap_core::Heap| heap.kind == HeapKind::Staging;
    let staging = manager.caps().heap_ids().filter(|(_, heap)| is_staging(heap));
    let staging: Vec<_> = staging.map(|(heap, _)| heap).collect();
    assert_eq!(staging.len(), 2);
    for heap in staging {
        let named = manager.allocate(&Request::new(BYTES).heap(heap)).expect("small");
        let place = named.binding();
        let refused = backend.bind(place.block(), place.span(), Bind::ReadOnlyStorage);
        let refused = refused.expect_err("staging memory");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("wgpu binds no staging buffer"), "{refused}");
    }
}
