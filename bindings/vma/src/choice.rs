//! The memory type that suits a request best, by its required, preferred and unwanted properties.
#![forbid(unsafe_code)]
use crate::abi::{
    VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT,
    VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT,
    VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT, VMA_MEMORY_USAGE_AUTO,
    VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE, VMA_MEMORY_USAGE_AUTO_PREFER_HOST,
    VMA_MEMORY_USAGE_CPU_COPY, VMA_MEMORY_USAGE_CPU_ONLY, VMA_MEMORY_USAGE_CPU_TO_GPU,
    VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED, VMA_MEMORY_USAGE_GPU_ONLY, VMA_MEMORY_USAGE_GPU_TO_CPU,
    VMA_MEMORY_USAGE_UNKNOWN, VmaAllocationCreateInfo,
};
use crate::call::Refused;
use ash::vk::{self, MemoryPropertyFlags as F};

/// Known uses of the resource that the memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Unknown: only the requirements are given.
    Unknown,
    /// Copies from and to it, and nothing else.
    Transfers,
    /// Shaders or other stages of the device.
    Device,
}

impl Access {
    pub(crate) fn of_buffer(usage: vk::BufferUsageFlags) -> Self {
        use vk::BufferUsageFlags as U;
        Self::of(!(usage & !(U::TRANSFER_SRC | U::TRANSFER_DST)).is_empty())
    }

    pub(crate) fn of_image(usage: vk::ImageUsageFlags) -> Self {
        use vk::ImageUsageFlags as U;
        Self::of(!(usage & !(U::TRANSFER_SRC | U::TRANSFER_DST)).is_empty())
    }

    const fn of(is_used: bool) -> Self {
        if is_used { Self::Device } else { Self::Transfers }
    }
}

/// Properties of a memory type that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    required: F,
    preferred: F,
    avoided: F,
}

/// The facts of a device that the choice depends on.
#[derive(Clone, Debug)]
pub(crate) struct Types {
    pub(crate) flags: Vec<F>,
    /// Types that may be used at all, as a bit set.
    pub(crate) usable: u32,
    pub(crate) is_integrated: bool,
}

const BOTH: u32 = VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT
    | VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;

/// Returns true if the usage leaves the choice to the library.
pub(crate) const fn is_auto(info: &VmaAllocationCreateInfo) -> bool {
    matches!(
        info.usage,
        VMA_MEMORY_USAGE_AUTO
            | VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE
            | VMA_MEMORY_USAGE_AUTO_PREFER_HOST
    )
}

/// Returns whether the program may map the memory of such a request.
pub(crate) const fn may_map(info: &VmaAllocationCreateInfo) -> bool {
    !is_auto(info) || info.flags & BOTH != 0
}

impl Types {
    /// Returns the memory type among `bits` that suits best.
    ///
    /// # Errors
    ///
    /// `ERROR_FEATURE_NOT_PRESENT` if none has the required properties.
    pub(crate) fn find(
        &self,
        bits: u32,
        info: &VmaAllocationCreateInfo,
        access: Access,
    ) -> Result<u32, Refused> {
        let wish = self.wish(info, access)?;
        let asked = if info.memory_type_bits == 0 { u32::MAX } else { info.memory_type_bits };
        let bits = bits & asked & self.usable;
        let types = (0u32..).zip(&self.flags).filter(|(at, _)| bits & (1 << at) != 0);
        let suiting = types.filter(|(_, flags)| flags.contains(wish.required));
        // The first of equals, as the driver lists better types first.
        let best = suiting.min_by_key(|(_, flags)| wish.misses(**flags));
        best.map(|(at, _)| at).ok_or_else(|| {
            Refused::quietly(
                vk::Result::ERROR_FEATURE_NOT_PRESENT,
                "no memory type has what is required",
            )
        })
    }

    fn wish(&self, info: &VmaAllocationCreateInfo, access: Access) -> Result<Wish, Refused> {
        let mut wish = Wish {
            required: info.required_flags,
            preferred: info.preferred_flags,
            avoided: F::empty(),
        };
        let wants_device = !self.is_integrated || !wish.preferred.contains(F::HOST_VISIBLE);
        match info.usage {
            VMA_MEMORY_USAGE_UNKNOWN => {}
            VMA_MEMORY_USAGE_GPU_ONLY if wants_device => wish.preferred |= F::DEVICE_LOCAL,
            VMA_MEMORY_USAGE_GPU_ONLY => {}
            VMA_MEMORY_USAGE_CPU_ONLY => wish.required |= F::HOST_VISIBLE | F::HOST_COHERENT,
            VMA_MEMORY_USAGE_CPU_TO_GPU => {
                wish.required |= F::HOST_VISIBLE;
                wish.preferred |= if wants_device { F::DEVICE_LOCAL } else { F::empty() };
            }
            VMA_MEMORY_USAGE_GPU_TO_CPU => {
                wish.required |= F::HOST_VISIBLE;
                wish.preferred |= F::HOST_CACHED;
            }
            VMA_MEMORY_USAGE_CPU_COPY => wish.avoided |= F::DEVICE_LOCAL,
            VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED => wish.required |= F::LAZILY_ALLOCATED,
            _ if is_auto(info) => self.decide(&mut wish, info, access)?,
            other => {
                return Err(Refused::new(
                    vk::Result::ERROR_FEATURE_NOT_PRESENT,
                    format!("usage {other} is no VmaMemoryUsage"),
                ));
            }
        }
        let special = F::DEVICE_COHERENT_AMD | F::DEVICE_UNCACHED_AMD;
        if !(wish.required | wish.preferred).intersects(special) {
            wish.avoided |= F::DEVICE_UNCACHED_AMD;
        }
        Ok(wish)
    }

    fn decide(
        &self,
        wish: &mut Wish,
        info: &VmaAllocationCreateInfo,
        access: Access,
    ) -> Result<(), Refused> {
        if access == Access::Unknown {
            return Err(Refused::new(
                vk::Result::ERROR_FEATURE_NOT_PRESENT,
                "VMA_MEMORY_USAGE_AUTO needs a buffer or an image with a usage; call vmaCreateBuffer, vmaCreateImage or a function \
                 …ForBufferInfo or …ForImageInfo, or say which flags the memory needs",
            ));
        }
        let prefers_host = info.usage == VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
        let has = |flag| info.flags & flag != 0;
        let may_copy = has(VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT);
        let is_used = access == Access::Device;
        let rather_device = !self.is_integrated && is_used && may_copy && !prefers_host;
        let visible = |wish: &mut Wish| match may_copy {
            true => wish.preferred |= F::HOST_VISIBLE,
            false => wish.required |= F::HOST_VISIBLE,
        };
        if has(VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT) {
            wish.preferred |= F::HOST_CACHED;
            match rather_device {
                // Host-visible memory is not preferred here, so device-local and cached memory weigh the same.
                true => wish.preferred |= F::DEVICE_LOCAL,
                false => visible(wish),
            }
        } else if has(VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT) {
            wish.avoided |= F::HOST_CACHED;
            if rather_device {
                wish.preferred |= F::DEVICE_LOCAL | F::HOST_VISIBLE;
            } else {
                visible(wish);
                let prefers_device = info.usage == VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE;
                match if is_used { !prefers_host } else { prefers_device } {
                    true => wish.preferred |= F::DEVICE_LOCAL,
                    false => wish.avoided |= F::DEVICE_LOCAL,
                }
            }
        } else if prefers_host {
            wish.avoided |= F::DEVICE_LOCAL;
        } else {
            wish.preferred |= F::DEVICE_LOCAL;
        }
        Ok(())
    }
}

impl Wish {
    fn misses(self, flags: F) -> u32 {
        (self.preferred & !flags).as_raw().count_ones()
            + (self.avoided & flags).as_raw().count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::VmaPool;

    /// A device as most desktops have it: its own memory, a window into it, and two kinds of host memory.
    fn desktop() -> Types {
        let device = F::DEVICE_LOCAL;
        let host = F::HOST_VISIBLE | F::HOST_COHERENT;
        let flags = vec![device, host, host | F::HOST_CACHED, device | host];
        Types { flags, usable: u32::MAX, is_integrated: false }
    }

    fn info(usage: u32, flags: u32) -> VmaAllocationCreateInfo {
        VmaAllocationCreateInfo {
            flags,
            usage,
            required_flags: F::empty(),
            preferred_flags: F::empty(),
            memory_type_bits: 0,
            pool: VmaPool::NULL,
            p_user_data: core::ptr::null_mut(),
            priority: 0.5,
            min_alignment: 0,
        }
    }

    #[test]
    fn every_use_gets_the_type_that_vma_chooses() {
        const WRITE: u32 = VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT;
        const RANDOM: u32 = VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
        const INSTEAD: u32 = VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT;
        let rows = [
            (VMA_MEMORY_USAGE_UNKNOWN, 0, Access::Unknown, 0),
            (VMA_MEMORY_USAGE_GPU_ONLY, 0, Access::Unknown, 0),
            (VMA_MEMORY_USAGE_CPU_ONLY, 0, Access::Unknown, 1),
            (VMA_MEMORY_USAGE_CPU_TO_GPU, 0, Access::Unknown, 3),
            (VMA_MEMORY_USAGE_GPU_TO_CPU, 0, Access::Unknown, 2),
            (VMA_MEMORY_USAGE_CPU_COPY, 0, Access::Unknown, 1),
            (VMA_MEMORY_USAGE_AUTO, 0, Access::Device, 0),
            (VMA_MEMORY_USAGE_AUTO, WRITE, Access::Device, 3),
            (VMA_MEMORY_USAGE_AUTO, WRITE, Access::Transfers, 1),
            (VMA_MEMORY_USAGE_AUTO, RANDOM, Access::Device, 2),
            (VMA_MEMORY_USAGE_AUTO, WRITE | INSTEAD, Access::Device, 3),
            (VMA_MEMORY_USAGE_AUTO, RANDOM | INSTEAD, Access::Device, 0),
            (VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE, WRITE, Access::Transfers, 3),
            (VMA_MEMORY_USAGE_AUTO_PREFER_HOST, WRITE, Access::Device, 1),
            (VMA_MEMORY_USAGE_AUTO_PREFER_HOST, 0, Access::Device, 1),
        ];
        for (usage, flags, access, expected) in rows {
            let found = desktop().find(u32::MAX, &info(usage, flags), access);
            assert_eq!(found.ok(), Some(expected), "usage {usage}, flags {flags:#x}, {access:?}");
        }
    }

    #[test]
    fn what_no_type_has_is_refused() {
        let lazily = info(VMA_MEMORY_USAGE_GPU_LAZILY_ALLOCATED, 0);
        let refused = [
            desktop().find(u32::MAX, &lazily, Access::Device),
            desktop().find(0, &info(VMA_MEMORY_USAGE_UNKNOWN, 0), Access::Device),
            desktop().find(u32::MAX, &info(VMA_MEMORY_USAGE_AUTO, 0), Access::Unknown),
            desktop().find(u32::MAX, &info(77, 0), Access::Device),
        ];
        for found in refused {
            assert_eq!(found.map_err(|why| why.code), Err(vk::Result::ERROR_FEATURE_NOT_PRESENT));
        }
    }
}
