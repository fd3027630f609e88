//! Textures in memory of a manager, where wgpu lets us place them.
use crate::Wgpu;
use omniheap_core::{AllocateError, Allocation, Manager};
use omniheap_seam::{ErrorKind, Point, TimelineId, Timelines};

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
    /// Own memory needs a backend that was opened [`with_own_memory`](Wgpu::with_own_memory), and serves textures that
    /// are sampled, stored to by shaders and copied, in colour formats that every Vulkan device knows alike, and for usages
    /// that wgpu guarantees for them. wgpu keeps all others: render targets (and so textures of several samples), depth
    /// formats, ETC2, ASTC, planes, and compressed formats without `COPY_DST`. [`allocation`](Self::allocation) is `None`
    /// then, and [`bytes_of_wgpu`](Wgpu::bytes_of_wgpu) counts them.
    ///
    /// wgpu cannot clear a texture that it did not place. So [`wgpu::CommandEncoder::clear_texture`] refuses those with an
    /// allocation, and render targets, which wgpu clears after `StoreOp::Discard`, stay with wgpu.
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
            return match image.hand_over(wgpu, &memory, descriptor) {
                Ok(raw) => Ok(Self { raw, memory: Some(memory), manager: manager.clone() }),
                Err(error) => {
                    // The queue may have its first commands already.
                    free_after_queue(wgpu, memory);
                    Err(error.into())
                }
            };
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
        if let Some(memory) = self.memory.take() {
            free_after_queue(self.manager.backend(), memory);
        }
    }
}

/// Frees memory of a texture once the queue has passed everything that names the texture.
fn free_after_queue(wgpu: &Wgpu, memory: Allocation<Wgpu>) {
    let timeline = TimelineId::MAIN;
    // Writes to the texture that wgpu has not sent yet go now, so that the epoch covers them.
    let sent = wgpu.driver.scoped(|| wgpu.queue().submit([]));
    match sent.and_then(|_| wgpu.mark(timeline)) {
        Ok(epoch) => memory.free_after(Point { timeline, epoch }),
        // A lost device uses nothing any more.
        Err(error) if error.kind() == ErrorKind::DeviceLost => drop(memory),
        Err(error) => {
            tracing::error!(%error, "memory of a texture is lost: the queue cannot be marked");
            core::mem::forget(memory);
        }
    }
}
