//! PyTorch's default caching allocator as a policy over offsets.

use super::{Model, Observe, Place};
use crate::event::StreamId;
use std::collections::BTreeSet;

/// From here on a request has a block of its own size, rounded to [`LARGE_ROUNDING`].
const LARGE: u64 = 10 << 20;
const LARGE_ROUNDING: u64 = 2 << 20;

const NONE: u32 = u32::MAX;

/// One piece of a block: allocated, or free and listed.
#[derive(Debug, Clone, Copy)]
struct Piece {
    address: u64,
    size: u64,
    before: u32,
    after: u32,
    block: u32,
    stream: u16,
    pool: u8,
    allocated: bool,
}

/// Order of a free list: stream, then best fit, then lowest address.
type Key = (u16, u64, u64, u32);

/// The policy's state: its blocks, their pieces and two ordered free lists.
///
/// # Algorithm
/// Sizes are rounded to 512 bytes. Up to 1 MiB they share 2 MiB blocks (small pool), below 10 MiB they share 20 MiB
/// blocks, above that a block is the size rounded to 2 MiB. The best fit among free pieces of the same stream and
/// pool is taken and split when 512 bytes (small pool) or more than 1 MiB (large pool) remain. A free piece merges
/// with free neighbours of its block. Blocks go back to the driver only when it has no more.
///
/// Among free pieces of one size the lowest address wins. A trace does not hold the driver's addresses, which go down, up
/// and into gaps: see [`BlockOrder`]. The order changes the outcome where many blocks have one size: by up to 8 % on the
/// recordings tried, by nothing on most.
///
/// # Cost
/// *O*(log pieces) per allocate and free.
#[derive(Debug)]
pub struct PyTorch {
    pieces: Vec<Piece>,
    vacant_pieces: Vec<u32>,
    free: [BTreeSet<Key>; 2],
    /// Address of each block, by its number.
    block_starts: Vec<u64>,
    vacant_blocks: Vec<u32>,
    order: BlockOrder,
    /// Bytes of all blocks that were ever taken.
    taken: u64,
    capacity: u64,
    reserved: u64,
    peak_reserved: u64,
    driver_calls: u64,
}

/// Place of a new block among those that are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockOrder {
    /// Below all others, as drivers mostly hand out address space.
    #[default]
    Below,
    /// Above all others.
    Above,
    /// At random; the number is the seed.
    Scattered(u64),
}

impl BlockOrder {
    /// The orders to try: that of the driver is not known.
    pub const TRIED: [Self; 4] = [Self::Below, Self::Above, Self::Scattered(1), Self::Scattered(2)];

    /// Returns the address of a block of `size` bytes that is taken after `taken` bytes; `None` past 64 bits.
    fn address(self, taken: u64, size: u64) -> Option<u64> {
        let end = taken.checked_add(size)?;
        Some(match self {
            Self::Below => u64::MAX - end,
            Self::Above => taken,
            // Multiplied by odd numbers, the bits of different sums look random.
            Self::Scattered(seed) => {
                let mixed = (taken ^ seed << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).min(u64::MAX - size)
            }
        })
    }
}

impl PyTorch {
    /// Every size is rounded up to a multiple of this.
    pub const ROUNDING: u64 = 512;
    /// Largest rounded size that goes to the small pool.
    pub const SMALL: u64 = 1 << 20;
    /// Block size of the small pool.
    pub const SMALL_BLOCK: u64 = 2 << 20;
    /// Block size for requests above [`SMALL`](Self::SMALL) and below 10 MiB.
    pub const LARGE_BLOCK: u64 = 20 << 20;

    /// Creates a device that never runs out.
    pub fn unlimited() -> Self {
        Self::with_capacity(u64::MAX)
    }

    /// Creates a device of `capacity` bytes.
    pub fn with_capacity(capacity: u64) -> Self {
        Self::with_order(capacity, BlockOrder::default())
    }

    /// Creates a device of `capacity` bytes with another order of blocks.
    pub fn with_order(capacity: u64, order: BlockOrder) -> Self {
        Self {
            pieces: Vec::new(),
            vacant_pieces: Vec::new(),
            free: [BTreeSet::new(), BTreeSet::new()],
            block_starts: Vec::new(),
            vacant_blocks: Vec::new(),
            order,
            taken: 0,
            capacity,
            reserved: 0,
            peak_reserved: 0,
            driver_calls: 0,
        }
    }

    fn piece(&self, index: u32) -> Piece {
        self.pieces[index as usize]
    }

    fn is_free(&self, index: u32) -> bool {
        index != NONE && !self.piece(index).allocated
    }

    fn key(&self, index: u32) -> Key {
        let piece = self.piece(index);
        (piece.stream, piece.size, piece.address, index)
    }

    fn list(&mut self, index: u32) {
        let key = self.key(index);
        self.free[self.piece(index).pool as usize].insert(key);
    }

    fn unlist(&mut self, index: u32) {
        let key = self.key(index);
        self.free[self.piece(index).pool as usize].remove(&key);
    }

    fn best_fit(&mut self, pool: u8, stream: u16, size: u64) -> Option<u32> {
        let list = &mut self.free[pool as usize];
        let key = *list.range((stream, size, 0, 0)..=(stream, u64::MAX, u64::MAX, NONE)).next()?;
        list.remove(&key);
        Some(key.3)
    }

    /// Cuts `size` bytes off the front of `index` and lists the rest.
    fn split(&mut self, index: u32, size: u64) {
        let whole = self.piece(index);
        let rest = Piece {
            address: whole.address + size,
            size: whole.size - size,
            before: index,
            ..whole
        };
        let rest_index = self.add(rest);
        if whole.after != NONE {
            self.pieces[whole.after as usize].before = rest_index;
        }
        let first = &mut self.pieces[index as usize];
        first.size = size;
        first.after = rest_index;
        self.list(rest_index);
    }

    fn absorb_next(&mut self, index: u32) {
        let next = self.piece(index).after;
        self.unlist(next);
        self.merge(index, next);
    }

    /// Joins `next` to the end of `index`; neither is listed.
    fn merge(&mut self, index: u32, next: u32) {
        let gone = self.piece(next);
        let kept = &mut self.pieces[index as usize];
        kept.size += gone.size;
        kept.after = gone.after;
        if gone.after != NONE {
            self.pieces[gone.after as usize].before = index;
        }
        self.vacant_pieces.push(next);
    }

    fn add(&mut self, piece: Piece) -> u32 {
        if let Some(index) = self.vacant_pieces.pop() {
            self.pieces[index as usize] = piece;
            return index;
        }
        let index = u32::try_from(self.pieces.len())
            .expect("each allocation splits at most once, below 2^30 of them");
        self.pieces.push(piece);
        index
    }

    /// Takes a block from the driver, giving cached ones back if it must.
    fn grow(
        &mut self,
        pool: u8,
        stream: u16,
        size: u64,
        observer: &mut impl Observe,
    ) -> Option<u32> {
        let block_size = block_size(size)?;
        if self.reserved.checked_add(block_size)? > self.capacity {
            self.release_cached(observer);
            if self.reserved + block_size > self.capacity {
                return None;
            }
        }
        let address = self.order.address(self.taken, block_size)?;
        self.taken += block_size;
        self.reserved += block_size;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        self.driver_calls += 1;
        let block = self.number_block(address);
        observer.block_allocated(block, block_size);
        observer.reserved(self.reserved);
        let (before, after, allocated) = (NONE, NONE, false);
        Some(self.add(Piece {
            address,
            size: block_size,
            before,
            after,
            block,
            stream,
            pool,
            allocated,
        }))
    }

    fn number_block(&mut self, address: u64) -> u32 {
        if let Some(block) = self.vacant_blocks.pop() {
            self.block_starts[block as usize] = address;
            return block;
        }
        self.block_starts.push(address);
        u32::try_from(self.block_starts.len() - 1)
            .expect("blocks are no more than allocations, below 2^30")
    }

    /// Returns every block without a live piece to the driver.
    fn release_cached(&mut self, observer: &mut impl Observe) {
        for pool in 0..2 {
            let whole: Vec<Key> = self.free[pool]
                .iter()
                .copied()
                .filter(|key| self.piece(key.3).before == NONE && self.piece(key.3).after == NONE)
                .collect();
            for key in whole {
                self.free[pool].remove(&key);
                let piece = self.piece(key.3);
                self.reserved -= piece.size;
                self.driver_calls += 1;
                self.vacant_blocks.push(piece.block);
                self.vacant_pieces.push(key.3);
                observer.block_freed(piece.block);
                observer.reserved(self.reserved);
            }
        }
    }
}

impl Model for PyTorch {
    fn peak_reserved_bytes(&self) -> u64 {
        self.peak_reserved
    }

    fn driver_calls(&self) -> u64 {
        self.driver_calls
    }

    fn locate(&self, place: Place) -> Option<(u32, u64)> {
        let piece = self.piece(place.0);
        Some((piece.block, piece.address - self.block_starts[piece.block as usize]))
    }

    fn extent(&self, place: Place) -> (u64, u64) {
        let piece = self.piece(place.0);
        (piece.address, piece.size)
    }

    fn allocate(
        &mut self,
        size: u64,
        stream: StreamId,
        observer: &mut impl Observe,
    ) -> Option<Place> {
        let size = size.checked_next_multiple_of(Self::ROUNDING)?;
        let pool = u8::from(size > Self::SMALL);
        let found = match self.best_fit(pool, stream.0, size) {
            Some(found) => found,
            None => self.grow(pool, stream.0, size, observer)?,
        };
        let left = self.piece(found).size - size;
        if if pool == 0 { left >= Self::ROUNDING } else { left > Self::SMALL } {
            self.split(found, size);
        }
        self.pieces[found as usize].allocated = true;
        Some(Place(found))
    }

    fn free(&mut self, place: Place) {
        let mut at = place.0;
        self.pieces[at as usize].allocated = false;
        let Piece { before, after, .. } = self.piece(at);
        if self.is_free(after) {
            self.absorb_next(at);
        }
        if self.is_free(before) {
            self.unlist(before);
            // Absorbing expects a listed neighbour; the one absorbed here was never listed.
            self.merge(before, at);
            at = before;
        }
        self.list(at);
    }
}

fn block_size(size: u64) -> Option<u64> {
    if size <= PyTorch::SMALL {
        Some(PyTorch::SMALL_BLOCK)
    } else if size < LARGE {
        Some(PyTorch::LARGE_BLOCK)
    } else {
        size.checked_next_multiple_of(LARGE_ROUNDING)
    }
}
