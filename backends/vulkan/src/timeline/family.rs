//! Queue families: an engine's own resource leaves one and enters another.
#![expect(unsafe_code, reason = "records barriers over handles that the caller owns")]
use crate::{Vulkan, timeline::queue::QueueTimeline};
use ash::vk;
use omniheap_seam::{Result, TimelineId};

/// A buffer or image of the engine's that one queue family owns at a time (`VK_SHARING_MODE_EXCLUSIVE`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Exclusive {
    /// All of a buffer.
    Buffer(vk::Buffer),
    /// A part of an image, and its layouts before and after.
    Image {
        /// The image.
        image: vk::Image,
        /// Affected subresources.
        range: vk::ImageSubresourceRange,
        /// The layout it has.
        from: vk::ImageLayout,
        /// The layout it gets.
        to: vk::ImageLayout,
    },
}

/// One end of the way between two families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The family that owned it gives it up.
    Release,
    /// The family that gets it takes it.
    Acquire,
    /// Both are one family: a plain barrier.
    Both,
}

impl Side {
    /// Returns source and destination access: the releasing side makes writes available, the acquiring side makes them visible.
    fn access(self) -> (vk::AccessFlags, vk::AccessFlags) {
        use vk::AccessFlags as A;
        let (before, after) = (A::MEMORY_WRITE, A::MEMORY_READ | A::MEMORY_WRITE);
        match self {
            Self::Release => (before, A::empty()),
            Self::Acquire => (A::empty(), after),
            Self::Both => (before, after),
        }
    }
}

impl Vulkan {
    /// Makes resources that were used on `from` usable on `to`, whatever families the two timelines run on.
    ///
    /// If the families differ, the release is recorded on one timeline, the acquire on the other, and the second is
    /// ordered after the first; if they are one, a barrier and the order remain. Images get their new layout. Blocks
    /// need none of this: every family in use may touch them at any time.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`; the driver's error.
    ///
    /// # Safety
    ///
    /// - The resources belong to this device, are exclusive, and live until both timelines have passed.
    /// - The last work on them was done on `from`, and images are in the layouts said.
    pub unsafe fn change_family(
        &self,
        resources: &[Exclusive],
        from: TimelineId,
        to: TimelineId,
    ) -> Result<()> {
        let (here, there) = (self.timelines.get(from)?, self.timelines.get(to)?);
        if resources.is_empty() {
            return Ok(());
        }
        let families = [&here, &there].map(|timeline| self.device.queues[timeline.home].family);
        let sides: &[(Side, &QueueTimeline)] = match families[0] == families[1] {
            true => &[(Side::Both, &here)],
            false => &[(Side::Release, &here), (Side::Acquire, &there)],
        };
        for (side, timeline) in sides {
            let mut state = timeline.hold();
            let epoch = timeline.run(&mut state, |commands| {
                self.record_sides(commands, resources, *side, families);
            })?;
            drop(state);
            if *side != Side::Acquire && from != to {
                there.order(&here, epoch)?;
            }
        }
        Ok(())
    }

    fn record_sides(
        &self,
        commands: vk::CommandBuffer,
        resources: &[Exclusive],
        side: Side,
        families: [u32; 2],
    ) {
        let (before, after) = side.access();
        let [from, to] = match side {
            Side::Both => [vk::QUEUE_FAMILY_IGNORED; 2],
            _ => families,
        };
        let (mut buffers, mut images) = (Vec::new(), Vec::new());
        for resource in resources {
            match *resource {
                Exclusive::Buffer(buffer) => buffers.push(
                    vk::BufferMemoryBarrier::default()
                        .src_access_mask(before)
                        .dst_access_mask(after)
                        .src_queue_family_index(from)
                        .dst_queue_family_index(to)
                        .buffer(buffer)
                        .size(vk::WHOLE_SIZE),
                ),
                Exclusive::Image { image, range, from: old, to: new } => images.push(
                    vk::ImageMemoryBarrier::default()
                        .src_access_mask(before)
                        .dst_access_mask(after)
                        .src_queue_family_index(from)
                        .dst_queue_family_index(to)
                        .old_layout(old)
                        .new_layout(new)
                        .image(image)
                        .subresource_range(range),
                ),
            }
        }
        let (all, none) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::DependencyFlags::empty());
        // SAFETY: recording (only `QueueTimeline::run` calls this); the caller of `change_family` answers for the handles.
        unsafe {
            let raw = &self.device.raw;
            raw.cmd_pipeline_barrier(commands, all, all, none, &[], &buffers, &images);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_says_what_it_knows() {
        use vk::AccessFlags as A;
        assert_eq!(Side::Release.access(), (A::MEMORY_WRITE, A::empty()));
        assert_eq!(Side::Acquire.access(), (A::empty(), A::MEMORY_READ | A::MEMORY_WRITE));
        assert_eq!(Side::Both.access(), (A::MEMORY_WRITE, A::MEMORY_READ | A::MEMORY_WRITE));
    }
}
