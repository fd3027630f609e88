//! The blocks that a recording holds from the driver, by the format's own names for them.

use crate::error::ErrorKind;
use crate::event::BlockId;
use crate::ids::halves;
use std::collections::HashMap;

/// Held blocks and the numbers they have in the trace.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Keys are halves, which pack closer beside a number than one whole would.
    held: HashMap<[u32; 2], BlockId>,
    /// By number.
    sizes: Vec<u64>,
    vacant: Vec<BlockId>,
    held_bytes: u64,
}

impl Blocks {
    /// Blocks that may be held at once.
    const MAX: u64 = 1 << 16;

    /// Numbers block `raw` of `size` bytes.
    pub(crate) fn take(&mut self, raw: u64, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        if self.held.contains_key(&halves(raw)) {
            return Err(ErrorKind::DuplicateBlock(raw));
        }
        let held_bytes = self.held_bytes.checked_add(size).ok_or(ErrorKind::LiveOverflow)?;
        let block = match self.vacant.pop() {
            Some(block) => block,
            None => self.number()?,
        };
        self.held_bytes = held_bytes;
        self.sizes[usize::from(block.0)] = size;
        self.held.insert(halves(raw), block);
        Ok(block)
    }

    fn number(&mut self) -> Result<BlockId, ErrorKind> {
        let number = u16::try_from(self.sizes.len())
            .map_err(|_| ErrorKind::OverLimit { what: "blocks held at once", limit: Self::MAX })?;
        self.sizes.push(0);
        Ok(BlockId(number))
    }

    /// The number and the size of block `raw`.
    pub(crate) fn get(&self, raw: u64) -> Result<(BlockId, u64), ErrorKind> {
        let block = *self.held.get(&halves(raw)).ok_or(ErrorKind::UnknownBlock(raw))?;
        Ok((block, self.sizes[usize::from(block.0)]))
    }

    /// Frees the number of block `raw`.
    pub(crate) fn give_back(&mut self, raw: u64) -> Result<(BlockId, u64), ErrorKind> {
        let (block, size) = self.get(raw)?;
        self.held.remove(&halves(raw));
        self.vacant.push(block);
        self.held_bytes -= size;
        Ok((block, size))
    }
}
