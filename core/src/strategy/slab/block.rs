//! One block of a slab: which of its slots are free, and who has the others.
use super::bits::Bits;
use super::keys::{Keys, NONE};
use crate::strategy::BlockId;
use crate::{Class, ErrorKind};
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) size: u64,
    pub(super) free: Bits,
    /// The record of each slot, as an index; `NONE` where the slot is free.
    pub(super) owners: Vec<u32>,
    pub(super) live: u32,
    /// The class of the live spans; means nothing while there are none.
    pub(super) class: Class,
}

/// Where a live span is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) block: BlockId,
    pub(super) slot: u32,
}

impl Block {
    /// Cuts `size` bytes into slots, all free.
    pub(super) fn cut(size: u64, slot: u64) -> Result<Self, ErrorKind> {
        // The last index means "free", so a block stays below it.
        let slots = u32::try_from(size / slot).ok().filter(|&slots| slots != NONE);
        let slots = slots.filter(|&slots| slots > 0).ok_or(ErrorKind::ExceedsLimit)? as usize;
        let free = Bits::full(slots)?;
        let mut owners = Vec::new();
        owners.try_reserve_exact(slots).map_err(|_| ErrorKind::OutOfHostMemory)?;
        owners.resize(slots, NONE);
        Ok(Self { size, free, owners, live: 0, class: Class::default() })
    }

    /// Checks every slot against its record.
    pub(super) fn validate(&self, id: BlockId, records: &Keys<Record>) -> Result<(), &'static str> {
        let mut live = 0;
        for (slot, &owner) in (0..).zip(&self.owners) {
            if self.free.contains(slot as usize) != (owner == NONE) {
                return Err("a slot's bit disagrees with its owner");
            }
            if owner == NONE {
                continue;
            }
            let (_, record) = records.at(owner).ok_or("a slot's record is vacant")?;
            if (record.block, record.slot) != (id, slot) {
                return Err("a record belongs to another slot");
            }
            live += 1;
        }
        if live == self.live { Ok(()) } else { Err("a block's count disagrees with its slots") }
    }
}
