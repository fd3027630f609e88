//! The compaction kernel: thousands of moves as one dispatch over device addresses.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
use crate::{
    driver::{check, device::Device},
    transfer::tasks::Lengths,
};
use ash::{util::read_spv, vk};
use core::ffi::CStr;
use omniheap_seam::{ErrorKind, Result};
use std::{io::Cursor, sync::Arc};

const CODE: &[u8] = include_bytes!("../../kernels/compact.spv");
const ENTRY: &CStr = c"main";
/// Invocations of a group: as many as every device takes; 64 and 256 were no faster on an H200.
const WIDTH: u32 = 128;
/// Groups along the first axis: the least that a device must offer.
const ROW: u32 = 65_535;
/// Bytes of push constants: the list's address and its length, groups that share a task, and bytes of each.
const PUSH: u32 = 20;

/// A pipeline, ready to be recorded.
#[derive(Debug)]
pub(crate) struct Kernel {
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    device: Arc<Device>,
}

impl Kernel {
    /// Builds the pipeline; the device has buffer addresses.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub(crate) fn create(device: &Arc<Device>) -> Result<Self> {
        let code = read_spv(&mut Cursor::new(CODE)).map_err(|_| ErrorKind::Driver)?;
        let info = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the device is alive, and the code is a valid module (checked when it was compiled).
        let module = check(unsafe { device.raw.create_shader_module(&info, None) })?;
        let built = Self::build(device, module);
        // SAFETY: made above; pipelines do not need it once they are built.
        unsafe { device.raw.destroy_shader_module(module, None) };
        built
    }

    fn build(device: &Arc<Device>, module: vk::ShaderModule) -> Result<Self> {
        let compute = vk::ShaderStageFlags::COMPUTE;
        let push = [vk::PushConstantRange::default().stage_flags(compute).size(PUSH)];
        let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&push);
        // SAFETY: the device is alive; 20 bytes are within every device's limit.
        let layout = check(unsafe { device.raw.create_pipeline_layout(&info, None) })?;
        let entries = [vk::SpecializationMapEntry { constant_id: 0, offset: 0, size: 4 }];
        let width = WIDTH.to_ne_bytes();
        let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&width);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(compute)
            .module(module)
            .name(ENTRY)
            .specialization_info(&constants);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
        let none = vk::PipelineCache::null();
        // SAFETY: module and layout are alive and of this device; the module has this entry and constant.
        match unsafe { device.raw.create_compute_pipelines(none, &info, None) } {
            Ok(pipelines) => {
                Ok(Self { layout, pipeline: pipelines[0], device: Arc::clone(device) })
            }
            Err((_, code)) => {
                // SAFETY: made above, used by nothing.
                unsafe { device.raw.destroy_pipeline_layout(layout, None) };
                check(Err(code))
            }
        }
    }

    /// Records one dispatch over `count` tasks of some lengths at device address `tasks`.
    ///
    /// # Safety
    ///
    /// - `commands` is recording for a queue that computes, and stays alive no longer than `self`.
    /// - `tasks` holds `count` tasks when the device gets there, and each names two stretches of live memory of this
    ///   device, aligned to its unit and no longer than `lengths` say.
    pub(crate) unsafe fn record(
        &self,
        commands: vk::CommandBuffer,
        tasks: u64,
        count: u32,
        lengths: Lengths,
    ) {
        let raw = &self.device.raw;
        let compute = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the caller promises that `commands` is recording; the pipeline lives as long as `self`.
        unsafe { raw.cmd_bind_pipeline(commands, compute, self.pipeline) };
        let mut push = [0; PUSH as usize];
        push[..8].copy_from_slice(&tasks.to_le_bytes());
        for (at, word) in [count, lengths.sharing, lengths.stretch()].into_iter().enumerate() {
            push[8 + 4 * at..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let stage = vk::ShaderStageFlags::COMPUTE;
        // SAFETY: as above, and the layout has one range of exactly these bytes.
        unsafe { raw.cmd_push_constants(commands, self.layout, stage, 0, &push) };
        // Tasks are as long as it takes to keep their number low, so their groups are about as many as stretches.
        let groups = count.saturating_mul(lengths.sharing);
        // SAFETY: as above; the grid is within the limits of every device, and the caller answers for the addresses.
        unsafe { raw.cmd_dispatch(commands, groups.min(ROW), groups.div_ceil(ROW), 1) };
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: made by `build`, destroyed once; whoever drops it has waited for the device.
        unsafe { self.device.raw.destroy_pipeline(self.pipeline, None) };
        // SAFETY: as above.
        unsafe { self.device.raw.destroy_pipeline_layout(self.layout, None) };
    }
}
