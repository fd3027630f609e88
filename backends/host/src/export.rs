//! Hand-over: a block that is an anonymous file of its own.
#![expect(unsafe_code, reason = "signs the contract of Export")]
use crate::block::{Backing, Block};
use crate::device::Host;
use crate::driver::{File, Memory};
use omniheap_seam::{ErrorKind, Export, Exported, HeapId, Result};

// SAFETY: every block has a mapping of its own over a file whose size is sealed, so its bytes stay until it is freed.
unsafe impl Export for Host {
    type Block = Block;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Block> {
        self.admit(heap, size, |heap, size| {
            let file = File::new()?;
            file.resize(size)?;
            file.seal()?;
            Ok((Memory::shared(&file, size, heap.align.get())?, Backing::Shared(file)))
        })
    }

    fn export(&self, block: &Block) -> Result<Exported> {
        self.check_alive()?;
        let body = self.own(block)?;
        let Backing::Shared(file) = &body.backing else {
            return Err(ErrorKind::Unsupported.into());
        };
        let (size, uuid) = (body.size, self.caps.device.uuid);
        Ok(Exported { fd: file.duplicate()?, size, uuid })
    }

    /// The memory counts against `heap` again: the exporter may be another process. A descriptor that no host device
    /// exported is `Foreign`, because its owner could shrink it under us.
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        if exported.uuid != self.caps.device.uuid {
            return Err(ErrorKind::Foreign.into());
        }
        self.check_alive()?;
        let file = File::of(&exported.fd)?;
        if !file.is_sealed() {
            return Err(ErrorKind::Foreign.into());
        }
        if file.len()? != exported.size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        self.admit(heap, exported.size, |about, size| {
            if size != exported.size {
                return Err(ErrorKind::ExceedsLimit.into());
            }
            Ok((Memory::shared(&file, size, about.align.get())?, Backing::Shared(file)))
        })
    }
}
