//! The blocks that a recording holds from the driver, by the format's own names for them.

use crate::error::ErrorKind;
use crate::event::{Backing, BlockId};
use crate::ids::halves;
use std::collections::HashMap;

/// Held blocks and the numbers they have in the trace.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Keys are halves, which pack closer beside a number than one whole would.
    held: HashMap<[u32; 2], BlockId>,
    /// Size and backing of each block, by number.
    sizes: Vec<(u64, Backing)>,
    vacant: Vec<BlockId>,
    /// Bytes of blocks with memory of their own, and of pages.
    held_bytes: u64,
    page_bytes: u64,
    /// Bytes of host memory at addresses of the device.
    host_bytes: u64,
}

impl Blocks {
    /// Blocks that may be held at once.
    const MAX: u64 = 1 << 16;

    /// Numbers block `raw` of `size` bytes.
    pub(crate) fn take(
        &mut self,
        raw: u64,
        size: u64,
        backing: Backing,
    ) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        if self.held.contains_key(&halves(raw)) {
            return Err(ErrorKind::DuplicateBlock(raw));
        }
        let memory = if backing == Backing::Memory { size } else { 0 };
        let held_bytes = self.held_bytes.checked_add(memory).ok_or(ErrorKind::LiveOverflow)?;
        let block = match self.vacant.pop() {
            Some(block) => block,
            None => self.number()?,
        };
        self.held_bytes = held_bytes;
        self.sizes[usize::from(block.0)] = (size, backing);
        self.held.insert(halves(raw), block);
        Ok(block)
    }

    fn number(&mut self) -> Result<BlockId, ErrorKind> {
        let number = u16::try_from(self.sizes.len())
            .map_err(|_| ErrorKind::OverLimit { what: "blocks held at once", limit: Self::MAX })?;
        self.sizes.push((0, Backing::Memory));
        Ok(BlockId(number))
    }

    /// Returns the number, the size and the backing of block `raw`.
    pub(crate) fn get(&self, raw: u64) -> Result<(BlockId, u64, Backing), ErrorKind> {
        let block = *self.held.get(&halves(raw)).ok_or(ErrorKind::UnknownBlock(raw))?;
        let (size, backing) = self.sizes[usize::from(block.0)];
        Ok((block, size, backing))
    }

    /// Frees the number of block `raw`.
    pub(crate) fn give_back(&mut self, raw: u64) -> Result<(BlockId, u64, Backing), ErrorKind> {
        let (block, size, backing) = self.get(raw)?;
        self.held.remove(&halves(raw));
        self.vacant.push(block);
        if backing == Backing::Memory {
            self.held_bytes -= size;
        }
        Ok((block, size, backing))
    }

    /// Counts pages.
    pub(crate) fn take_pages(&mut self, bytes: u64) -> Result<(), ErrorKind> {
        if bytes == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        self.held_bytes = self.held_bytes.checked_add(bytes).ok_or(ErrorKind::LiveOverflow)?;
        self.page_bytes += bytes;
        Ok(())
    }

    /// Counts pages back.
    pub(crate) fn return_pages(&mut self, bytes: u64) -> Result<(), ErrorKind> {
        let left = self.page_bytes.checked_sub(bytes);
        self.page_bytes = left.ok_or(ErrorKind::Malformed("pages: more given back than taken"))?;
        self.held_bytes -= bytes;
        Ok(())
    }

    /// Counts pages of host memory, which nobody holds of the device.
    pub(crate) fn take_host_pages(&mut self, bytes: u64) -> Result<(), ErrorKind> {
        if bytes == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        self.host_bytes = self.host_bytes.checked_add(bytes).ok_or(ErrorKind::LiveOverflow)?;
        Ok(())
    }

    /// Counts pages of host memory back.
    pub(crate) fn return_host_pages(&mut self, bytes: u64) -> Result<(), ErrorKind> {
        let left = self.host_bytes.checked_sub(bytes);
        self.host_bytes =
            left.ok_or(ErrorKind::Malformed("host pages: more given back than taken"))?;
        Ok(())
    }
}
