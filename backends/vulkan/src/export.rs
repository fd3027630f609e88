//! Hand-over by file descriptor, to another API or process.
#![expect(unsafe_code, reason = "hands descriptors to the driver")]
use crate::{
    Block, Vulkan,
    block::{Backing, Shared},
    device::Device,
    driver::check,
    features::Feature,
    objects::{Ask, Buffer, Kind, Memory, Share, usage},
};
use ash::vk;
use omniheap_core::{ErrorKind, Export, Exported, HeapId, Result};

/// What the driver says about sharing a block's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing(vk::ExternalMemoryFeatureFlags);

impl Sharing {
    /// Asks the driver, where descriptors are enabled.
    pub(crate) fn read(device: &Device) -> Self {
        if !device.features.has(Feature::ExternalMemoryFd) {
            return Self(vk::ExternalMemoryFeatureFlags::empty());
        }
        let info = vk::PhysicalDeviceExternalBufferInfo::default()
            .usage(usage(device))
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut answer = vk::ExternalBufferProperties::default();
        let (raw, instance) = (device.physical, &device.instance.raw);
        // SAFETY: the physical device is this instance's.
        unsafe {
            instance.get_physical_device_external_buffer_properties(raw, &info, &mut answer);
        }
        Self(answer.external_memory_properties.external_memory_features)
    }

    /// Whether blocks can leave and enter.
    pub(crate) fn works(self) -> bool {
        use vk::ExternalMemoryFeatureFlags as F;
        self.0.contains(F::EXPORTABLE | F::IMPORTABLE)
    }

    /// The memory's one resource, where the driver insists on one.
    pub(crate) fn dedicated(
        self,
        buffer: vk::Buffer,
    ) -> Option<vk::MemoryDedicatedAllocateInfo<'static>> {
        match self.0.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY) {
            true => Some(vk::MemoryDedicatedAllocateInfo::default().buffer(buffer)),
            false => None,
        }
    }
}

impl Vulkan {
    fn import_memory(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        let copy = descriptor::Copy::of(exported)?;
        let (slot, rounded) = self.checked(heap, exported.size)?;
        if rounded != exported.size || !self.takes_buffers(slot) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let buffer = Buffer::create(&self.device, exported.size, Kind::Shared)?;
        if buffer.requirements().size > exported.size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let ask = Ask {
            size: exported.size,
            memory_type: slot.memory_type,
            priority: None,
            dedicated: self.sharing.dedicated(buffer.raw),
            share: Share::Import(copy.raw()),
        };
        let memory = Memory::allocate(&self.device, ask)?;
        copy.given_away();
        buffer.bind(&memory)?;
        let (size, none) = (exported.size, Shared::No);
        let block = Block::with_memory(&self.device, heap, size, Some(buffer), memory, none);
        let block = self.based(block)?;
        // The caller's own goes last: a failure above leaves it open.
        descriptor::close(exported);
        Ok(block)
    }
}

/// Descriptors, where the system has them.
#[cfg(unix)]
mod descriptor {
    use omniheap_core::{ErrorKind, Exported, Result};
    use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};

    /// What a driver adds to the file that holds the memory: a header and rounding, at most two pages of 64 KiB.
    const ADDED: u64 = 128 << 10;

    /// A descriptor of our own for the same memory.
    pub(super) struct Copy(OwnedFd);

    impl Copy {
        /// Refuses what is no descriptor, or one of a file whose length does not go with the memory it is said to hold.
        pub(super) fn of(exported: &Exported) -> Result<Self> {
            if exported.fd < 0 {
                return Err(ErrorKind::Foreign.into());
            }
            // SAFETY: the holder of `Exported` keeps the descriptor open while it is borrowed; a wrong number only fails.
            let borrowed = unsafe { BorrowedFd::borrow_raw(exported.fd) };
            let copy = || borrowed.try_clone_to_owned().map_err(|_| ErrorKind::Foreign);
            // Devices report no length; where there is one, reading past it would fault.
            let length = std::fs::File::from(copy()?).metadata().map_or(0, |data| data.len());
            let fits = exported.size..=exported.size.saturating_add(ADDED);
            match length == 0 || fits.contains(&length) {
                true => Ok(Self(copy()?)),
                false => Err(ErrorKind::ExceedsLimit.into()),
            }
        }

        pub(super) fn raw(&self) -> i32 {
            self.0.as_raw_fd()
        }

        /// The driver owns it now.
        pub(super) fn given_away(self) {
            let _ = self.0.into_raw_fd();
        }
    }

    /// Closes the descriptor that a successful import used up.
    pub(super) fn close(exported: &Exported) {
        // SAFETY: the caller of `import` hands it over with success, and `Copy::of` found it open.
        drop(unsafe { OwnedFd::from_raw_fd(exported.fd) });
    }
}

/// Systems without descriptors never report that sharing works; these keep the code whole.
#[cfg(not(unix))]
mod descriptor {
    use omniheap_core::{ErrorKind, Exported, Result};

    pub(super) struct Copy;

    impl Copy {
        pub(super) fn of(_: &Exported) -> Result<Self> {
            Err(ErrorKind::Unsupported.into())
        }
        pub(super) fn raw(&self) -> i32 {
            -1
        }
        pub(super) fn given_away(self) {}
    }

    pub(super) fn close(_: &Exported) {}
}

// SAFETY: exportable blocks are driver allocations of their own; imported memory keeps a reference of its own to bytes whose
// length was checked.
unsafe impl Export for Vulkan {
    type Block = Block;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Block> {
        if !self.sharing.works() {
            return Err(ErrorKind::Unsupported.into());
        }
        let (slot, size) = self.checked(heap, size)?;
        if !self.takes_buffers(slot) {
            return Err(ErrorKind::Unsupported.into());
        }
        self.block(heap, slot, size, None, Shared::Exportable)
    }

    fn export(&self, block: &Block) -> Result<Exported> {
        block.belongs_to(&self.device)?;
        let memory = match (block.shared(), block.backing()) {
            (Shared::Exportable, Backing::Memory { memory, .. }) => memory,
            _ => return Err(ErrorKind::Unsupported.into()),
        };
        let call = self.device.external_fd.as_ref().ok_or(ErrorKind::Unsupported)?;
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory.raw)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: the memory is alive in `block` and was allocated for this handle type.
        let fd = check(unsafe { call.get_memory_fd(&info) })?;
        Ok(Exported { fd, size: memory.size, uuid: self.table.caps.device.uuid })
    }

    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        if !self.sharing.works() {
            return Err(ErrorKind::Unsupported.into());
        }
        let here = self.table.caps.device.uuid;
        if exported.uuid.is_some() && exported.uuid != here {
            return Err(ErrorKind::Foreign.into());
        }
        self.import_memory(heap, exported)
    }
}
