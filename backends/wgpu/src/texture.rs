//! Textures in memory of a manager, where wgpu lets us place them.
use crate::Wgpu;
use omniheap_core::{AllocateError, Allocation, Manager};
use omniheap_seam::{Point, TimelineId, Timelines};

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod format;
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod image;

/// A texture and the memory behind it.
///
/// Dropping it destroys the texture, as [`wgpu::Texture::destroy`] does, whoever else holds a handle or a view; its
/// memory is reused once the device has finished what was submitted before.
#[derive(Debug)]
pub struct Texture {
    raw: wgpu::Texture,
    memory: Option<Allocation<Wgpu>>,
    manager: Manager<Wgpu>,
}

impl Texture {
    /// Makes a texture of zeros in memory of `manager`, or has wgpu place it where that cannot be.
    ///
    /// It can be where the backend was opened [`with_own_memory`](Wgpu::with_own_memory), for what every Vulkan device
    /// knows alike: formats that mean one native format, usages that wgpu guarantees for them. Others (depth formats whose
    /// width the device chooses, ETC2, ASTC, planes) are wgpu's: [`allocation`](Self::allocation) is `None` then, and
    /// [`bytes_of_wgpu`](Wgpu::bytes_of_wgpu) counts them.
    ///
    /// # Errors
    ///
    /// As for [`Manager::allocate`]; `Driver` for a description that wgpu refuses.
    pub fn create(
        manager: &Manager<Wgpu>,
        descriptor: &wgpu::TextureDescriptor<'_>,
    ) -> Result<Self, AllocateError> {
        let wgpu = manager.backend();
        #[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
        if let Some(image) = image::Image::create(wgpu, descriptor)? {
            let memory = image.place(manager, descriptor.label)?;
            let raw = image.hand_over(wgpu, &memory, descriptor)?;
            return Ok(Self { raw, memory: Some(memory), manager: manager.clone() });
        }
        let raw = wgpu.driver.scoped(|| wgpu.device().create_texture(descriptor))?;
        Ok(Self { raw, memory: None, manager: manager.clone() })
    }

    /// Returns the texture, for views, copies and the rest of wgpu.
    #[must_use]
    pub const fn raw(&self) -> &wgpu::Texture {
        &self.raw
    }

    /// Returns its memory; `None` where wgpu placed it.
    #[must_use]
    pub const fn allocation(&self) -> Option<&Allocation<Wgpu>> {
        self.memory.as_ref()
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        self.raw.destroy();
        let Some(memory) = self.memory.take() else { return };
        let wgpu = self.manager.backend();
        // Writes to the texture that wgpu has not sent yet go now, so that the epoch covers them.
        let sent = wgpu.driver.scoped(|| wgpu.queue().submit([]));
        let timeline = TimelineId::MAIN;
        // A lost device uses nothing any more.
        if let Ok(epoch) = sent.and_then(|_| wgpu.mark(timeline)) {
            memory.free_after(Point { timeline, epoch });
        }
    }
}
