//! Kernels, launched in the order of the queue.
#![expect(unsafe_code, reason = "signs the contract of Launch")]
use crate::{Bind, Block, Wgpu, programs::Program};
use omniheap_seam::{
    Argument, ErrorKind, Kernel, Launch, ProgramId, Result, Slot, Span, TimelineId,
};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayoutDescriptor,
    BindGroupLayoutEntry, BindingResource, BindingType, BufferBindingType, ComputePassDescriptor,
    ComputePipelineDescriptor, Features, PipelineCompilationOptions, PipelineLayoutDescriptor,
    ShaderModuleDescriptor, ShaderSource, ShaderStages,
};

const fn bind(slot: Slot) -> Bind {
    match slot {
        Slot::Constant => Bind::Uniform,
        Slot::Read => Bind::ReadOnlyStorage,
        Slot::Write => Bind::Storage,
    }
}

/// Returns the text as wgpu takes it.
///
/// wgpu tracks whole buffers, and refuses one that a launch both reads as `read` and writes as `read_write`. Arguments
/// that share a block would run into that, so every storage binding is `read_write`.
fn text(kernel: &Kernel) -> String {
    kernel.wgsl.replace("var<storage, read>", "var<storage, read_write>")
}

fn entry((binding, slot): (u32, &Slot)) -> BindGroupLayoutEntry {
    let ty = match slot {
        Slot::Constant => BufferBindingType::Uniform,
        Slot::Read | Slot::Write => BufferBindingType::Storage { read_only: false },
    };
    let ty = BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None };
    BindGroupLayoutEntry { binding, visibility: ShaderStages::COMPUTE, ty, count: None }
}

impl Wgpu {
    /// Returns whether kernels can be given parameters.
    pub(crate) fn computes(&self) -> bool {
        self.device().features().contains(Features::IMMEDIATES) && !self.is_stand_in()
    }

    fn check_kernel(&self, kernel: &Kernel, shared: u64) -> Result<()> {
        if kernel.wgsl.is_empty() {
            return Err(ErrorKind::Unsupported.into());
        }
        if !shared.is_multiple_of(4) || !kernel.parameters.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        // Authors hear the same of their kernel from every backend.
        kernel.check()?;
        let limits = self.device().limits();
        let threads = kernel.group.iter().try_fold(1u32, |product, &n| product.checked_mul(n));
        let fits = threads.is_some_and(|n| n <= limits.max_compute_invocations_per_workgroup)
            && shared <= u64::from(limits.max_compute_workgroup_storage_size)
            && kernel.parameters <= limits.max_immediate_size;
        if fits { Ok(()) } else { Err(ErrorKind::ExceedsLimit.into()) }
    }

    fn build(&self, kernel: &Kernel, shared: u64) -> Program {
        let device = self.device();
        let label = Some(kernel.name);
        let source = ShaderSource::Wgsl(text(kernel).into());
        let module = device.create_shader_module(ShaderModuleDescriptor { label, source });
        let entries: Vec<_> = (0u32..).zip(kernel.slots).map(entry).collect();
        let layout = BindGroupLayoutDescriptor { label, entries: &entries };
        let layout = device.create_bind_group_layout(&layout);
        let whole = device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: kernel.parameters,
        });
        #[expect(clippy::cast_precision_loss, reason = "far below what a double holds exactly")]
        let words = [("shared_words", (shared / 4).max(1) as f64)];
        let has_words = kernel.wgsl.contains("override shared_words");
        let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label,
            layout: Some(&whole),
            module: &module,
            entry_point: Some(kernel.name),
            compilation_options: PipelineCompilationOptions {
                constants: if has_words { &words } else { &[] },
                // As everywhere else: kernels write shared memory before they read it.
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        Program { kernel: *kernel, pipeline, layout }
    }

    fn group(&self, program: &Program, arguments: &[Argument<'_, Block>]) -> Result<BindGroup> {
        let mut entries = Vec::with_capacity(arguments.len());
        for ((binding, slot), argument) in (0u32..).zip(program.kernel.slots).zip(arguments) {
            let span = Span { offset: argument.place.offset, size: argument.size };
            let buffer = self.bind(argument.place.block, span, bind(*slot))?;
            entries.push(BindGroupEntry { binding, resource: BindingResource::Buffer(buffer) });
        }
        let descriptor =
            BindGroupDescriptor { label: None, layout: &program.layout, entries: &entries };
        self.driver.scoped(|| self.device().create_bind_group(&descriptor))
    }
}

// SAFETY: the pipeline is the kernel's; each argument is bound to exactly its range, in the order of the slots, which wgpu
// checks; one queue keeps the order.
unsafe impl Launch for Wgpu {
    type Block = Block;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        self.driver.check()?;
        self.check_kernel(kernel, shared)?;
        let program = self.driver.scoped(|| self.build(kernel, shared));
        let program = program.map_err(|error| match error.kind() {
            ErrorKind::Driver => ErrorKind::InvalidConfig.into(),
            _ => error,
        })?;
        Ok(self.programs.load(program))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        // wgpu keeps a pipeline until its launches are over.
        self.programs.unload(program)
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        self.clock.check(on)?;
        let program = self.programs.get(program)?;
        let kernel = &program.kernel;
        kernel.check_launch(arguments.len(), parameters.len())?;
        if groups.contains(&0) {
            return Err(ErrorKind::ZeroSize.into());
        }
        let most = self.device().limits().max_compute_workgroups_per_dimension;
        if groups.iter().any(|&count| count > most) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let bound = self.group(&program, arguments)?;
        self.submit(arguments.iter().map(|argument| argument.place.block), |encoder| {
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
            pass.set_pipeline(&program.pipeline);
            pass.set_bind_group(0, &bound, &[]);
            if !parameters.is_empty() {
                pass.set_immediates(0, parameters);
            }
            pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
        })
        .map(drop)
    }
}
