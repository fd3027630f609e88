//! Hand-over by file descriptor, to another API or process.
#![expect(unsafe_code, reason = "hands descriptors to the driver")]
use crate::{
    Block, Vulkan,
    block::{Backing, Shared},
    driver::{
        check,
        objects::{Ask, Buffer, Kind, Memory, Share},
    },
};
use ash::vk;
use omniheap_seam::{ErrorKind, Export, Exported, HeapId, Result};

impl Vulkan {
    fn import_memory(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        check_length(exported)?;
        let (slot, rounded) = self.checked(heap, exported.size)?;
        if rounded != exported.size || !self.takes_buffers(slot) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let buffer = Buffer::create(&self.device, exported.size, Kind::Shared)?;
        if buffer.requirements().size > exported.size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let (size, memory_type) = (exported.size, slot.memory_type);
        let dedicated = self.sharing.dedicated(buffer.raw);
        let memory = exported.give_copy(|fd| {
            let share = Share::Import(fd);
            Memory::allocate(
                &self.device,
                Ask { size, memory_type, priority: None, dedicated, share },
            )
        })?;
        buffer.bind(&memory)?;
        let (buffer, shared) = (Some(buffer), Shared::Imported);
        self.based(Block::with_memory(&self.device, heap, size, buffer, memory, shared))
    }
}

/// Bytes that a driver may add to the exported file: a header and rounding, at most two pages of 64 KiB.
#[cfg(unix)]
const ADDED: u64 = 128 << 10;

/// Refuses a file whose length does not go with the memory that it is said to hold.
#[cfg(unix)]
fn check_length(exported: &Exported) -> Result<()> {
    let copy = exported.fd.try_clone().map_err(|_| ErrorKind::OutOfHostMemory)?;
    // Devices report no length; where there is one, reading past it would fault.
    let length = std::fs::File::from(copy).metadata().map_or(0, |data| data.len());
    let fits = exported.size..=exported.size.saturating_add(ADDED);
    match length == 0 || fits.contains(&length) {
        true => Ok(()),
        false => Err(ErrorKind::ExceedsLimit.into()),
    }
}

/// There are no descriptors here.
#[cfg(not(unix))]
fn check_length(exported: &Exported) -> Result<()> {
    match exported.fd {}
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
        // SAFETY: the driver just made it, for us to close.
        unsafe { Exported::own(fd, memory.size, self.table.caps.device.uuid) }
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
