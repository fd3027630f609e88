//! A pass of defragmentation in which the engine moves its images itself.
//!
//! Meshes are bytes: omniheap copies them. An image is bound to its memory for life, so the engine makes a twin at the
//! new place, copies the pixels, and uses the twin once the pass is committed.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use crate::{
    assets::{Assets, turn},
    device::{Device, Submitted},
    image::Native,
    pipeline::Pipeline,
};
use core::error::Error;
use omniheap_core::{Budget, Decision, Manager, MoveOutcome, Moved, Pass};
use omniheap_vulkan::{Vulkan, ash::vk};

/// A pass under way.
pub(crate) struct Moving {
    pass: Pass<Vulkan>,
    twins: Vec<Twin>,
    copies: Submitted,
}

/// A texture's next image.
struct Twin {
    /// Its move's position in the pass.
    planned: usize,
    texture: usize,
    native: Native,
}

impl Moving {
    /// Plans a pass and queues its copies, before the work of the next frame.
    pub(crate) fn begin(
        device: &Device,
        manager: &Manager<Vulkan>,
        assets: &Assets,
        budget: &Budget,
    ) -> Result<Self, Box<dyn Error>> {
        let mut pass = manager.begin_defragment(budget)?;
        let mut twins = Vec::new();
        for (planned, one) in pass.moves().enumerate().filter(|(_, one)| one.needs_consent()) {
            let Some(texture) = assets.texture_of(one.allocation()) else { continue };
            let Some(image) = &assets.textures[texture] else { continue };
            let native = image.twin(manager.backend(), &one.to())?;
            twins.push(Twin { planned, texture, native });
        }
        for twin in &twins {
            pass.decide(twin.planned, Decision::OwnerCopies)?;
        }
        pass.start()?;
        let copies = device.submit(manager, |commands| {
            for twin in &twins {
                copy(device, commands, assets, twin);
            }
        })?;
        Ok(Self { pass, twins, copies })
    }

    /// Ends the pass: the next frame finds everything at its new place. No frame is under way.
    pub(crate) fn end(
        self,
        device: &Device,
        manager: &Manager<Vulkan>,
        assets: &mut Assets,
        pipeline: &Pipeline,
    ) -> Result<(Moved, usize), Box<dyn Error>> {
        device.finish(manager, self.copies)?;
        let outcome = self.pass.commit()?;
        let mut moved = 0;
        for twin in self.twins {
            // A move that was called off leaves the texture as it is; the twin goes.
            if outcome.moves[twin.planned].1 == MoveOutcome::Moved
                && let Some(image) = &mut assets.textures[twin.texture]
            {
                image.become_twin(twin.native);
                pipeline.show(twin.texture, image.native.view);
                moved += 1;
            }
        }
        Ok((outcome.moved, moved))
    }
}

/// Records the copy of a texture into its twin; frames go on reading the texture.
fn copy(device: &Device, commands: vk::CommandBuffer, assets: &Assets, twin: &Twin) {
    use vk::{AccessFlags as A, ImageLayout as L, PipelineStageFlags as S};
    let Some(image) = &assets.textures[twin.texture] else { return };
    let (from, to) = (image.native.handle, twin.native.handle);
    let shown = (L::SHADER_READ_ONLY_OPTIMAL, A::SHADER_READ);
    let source = (L::TRANSFER_SRC_OPTIMAL, A::TRANSFER_READ);
    let target = (L::TRANSFER_DST_OPTIMAL, A::TRANSFER_WRITE);
    let (fragment, transfer) = (S::FRAGMENT_SHADER, S::TRANSFER);
    turn(&device.raw, commands, from, (shown, source, fragment, transfer));
    let fresh = (L::UNDEFINED, A::empty());
    turn(&device.raw, commands, to, (fresh, target, S::ALL_COMMANDS, transfer));
    let layers = vk::ImageSubresourceLayers {
        aspect_mask: vk::ImageAspectFlags::COLOR,
        layer_count: 1,
        ..Default::default()
    };
    let region = [vk::ImageCopy {
        src_subresource: layers,
        dst_subresource: layers,
        extent: image.extent(),
        ..Default::default()
    }];
    // SAFETY: recording; both images have that size and are in these layouts.
    unsafe { device.raw.cmd_copy_image(commands, from, source.0, to, target.0, &region) };
    turn(&device.raw, commands, from, (source, shown, transfer, fragment));
    turn(&device.raw, commands, to, (target, shown, transfer, fragment));
}
