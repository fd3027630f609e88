//! Plain memory that leaves the process by a handle.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{Block, BlockKind, Device, Driver, Memory, Source};
use omniheap_seam::{ErrorKind, HeapId, Result};

/// Names a block's memory to another process of this machine. Plain bytes: send it as you like.
///
/// The block must outlive every use of it in the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle {
    /// The driver's handle.
    pub bytes: [u8; 64],
    /// Bytes of memory behind it.
    pub size: u64,
    /// The device it belongs to.
    pub uuid: Option<[u8; 16]>,
}

impl<D: Driver> Device<D> {
    /// Makes a handle that another process opens with [`open_ipc`](Self::open_ipc).
    ///
    /// # Errors
    ///
    /// `Foreign` for another backend's block, `Unsupported` for one that is no plain device memory: allocate such a block
    /// with [`Export`](omniheap_seam::Export) instead. Otherwise what the driver says.
    pub fn ipc_handle<K: BlockKind>(&self, block: &Block<K>) -> Result<IpcHandle> {
        self.owns(block)?;
        if block.memory() != Memory::Device {
            return Err(ErrorKind::Unsupported.into());
        }
        // SAFETY: a block of this kind is plain memory that lives as long as the block.
        let bytes = unsafe { self.driver().ipc_handle(block.base) }?;
        Ok(IpcHandle { bytes, size: block.size, uuid: self.caps().device.uuid })
    }

    /// Opens memory of another process, as a block that is closed instead of freed.
    ///
    /// # Errors
    ///
    /// `Foreign` when the device differs, `Unsupported` for a heap that is not device memory, `ZeroSize` for a handle of
    /// no bytes, `ExceedsLimit` when the memory has fewer bytes than the handle says, or the driver's error: a process
    /// cannot open its own handle.
    pub fn open_ipc(&self, heap: HeapId, handle: &IpcHandle) -> Result<Block<D::Kind>> {
        let (source, _) = self.source(heap)?;
        if source != Source::Device {
            return Err(ErrorKind::Unsupported.into());
        }
        if handle.uuid.is_some() && handle.uuid != self.caps().device.uuid {
            return Err(ErrorKind::Foreign.into());
        }
        if handle.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let base = self.driver().open_ipc(handle.bytes)?;
        if !self.driver().holds(base, handle.size) {
            // SAFETY: opened just above and used by nothing.
            let _ = unsafe { self.driver().close_ipc(base) };
            let detail = "the memory has fewer bytes than the handle's `size`; send the handle as it was made";
            return Err(ErrorKind::ExceedsLimit.because(detail));
        }
        // SAFETY: opened just above, with at least as many bytes, which stay until it is closed.
        Ok(unsafe { self.block(heap, base, handle.size, D::Kind::opened()) })
    }
}
