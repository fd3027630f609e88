//! Memory that a graph keeps: blocks that never go back while the graph may run, divided in its stream's order.
use crate::meter::{SizeClass, UNIT};
use crate::streams::Streams;
use crate::tags::Source;
use omniheap::strategy::{BlockId, Key, Strategy as _, Tlsf};
use omniheap::{
    Align, AllocateError, Allocation, ErrorKind,
    seam::{Class, Layout, Span},
};

/// Blocks are multiples of this: the page of the devices that have one. Small requests share one block of it, as PyTorch's do.
const STEP: u64 = 2 << 20;

/// Large requests share a block of this, unless they are half of it or more: as PyTorch's do, whose graphs have as many segments.
const SHARED: u64 = 20 << 20;

/// The bytes of a new block for a request, where there are enough.
pub(crate) const fn block_size(size: u64) -> u64 {
    match SizeClass::of(size) {
        SizeClass::Small => STEP,
        SizeClass::Large if size < SHARED / 2 => SHARED,
        SizeClass::Large => size,
    }
}

/// The blocks of one stream of one pool.
pub(crate) struct Arena<B: Streams> {
    division: Tlsf,
    /// Blocks by the strategy's number: the address, and the owner of the bytes.
    blocks: Vec<Option<(u64, Allocation<B>)>>,
}

impl<B: Streams> Arena<B> {
    pub(crate) fn new() -> Self {
        Self { division: Tlsf::new(Align::ONE), blocks: Vec::new() }
    }

    /// Takes bytes, from a new block where no hole fits.
    pub(crate) fn allocate(
        &mut self,
        source: &Source<'_, B>,
        size: u64,
    ) -> Result<(u64, Key), AllocateError> {
        let size = size.checked_next_multiple_of(UNIT).ok_or(ErrorKind::SizeOverflow)?;
        let layout = Layout::new(size).align(Align::of(UNIT));
        if let Some(found) = self.take(layout) {
            return Ok(found);
        }
        self.grow(source, block_size(size)).or_else(|error| match error.kind() {
            kind if kind.is_out_of_memory() => self.grow(source, size),
            _ => Err(error),
        })?;
        self.take(layout).ok_or(ErrorKind::OutOfDeviceMemory.into())
    }

    fn take(&mut self, layout: Layout) -> Option<(u64, Key)> {
        let grant = self.division.allocate(layout, Class::Linear).ok()?;
        let (base, _) = self.blocks[grant.block.0 as usize].as_ref()?;
        Some((base + grant.span.offset, grant.key))
    }

    /// One more block.
    fn grow(&mut self, source: &Source<'_, B>, size: u64) -> Result<(), AllocateError> {
        let size = size.checked_next_multiple_of(STEP).ok_or(ErrorKind::SizeOverflow)?;
        let take = || source.allocate_kept(size);
        let taken = take().or_else(|error| match error.kind().is_out_of_memory() {
            true => source.manager.trim().map_err(Into::into).and_then(|_| take()),
            false => Err(error),
        })?;
        let base = taken.pin_for_life().ok_or(ErrorKind::Unsupported)?;
        let id = self.division.add_block(size)?;
        let at = id.0 as usize;
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, || None);
        }
        self.blocks[at] = Some((base, taken));
        Ok(())
    }

    /// Takes the bytes at an address, where they are free.
    pub(crate) fn retake(&mut self, address: u64, size: u64) -> Result<Key, ErrorKind> {
        let holds = |block: &Option<(u64, Allocation<B>)>| {
            block.as_ref().is_some_and(|(base, block)| {
                address.checked_sub(*base).is_some_and(|offset| offset < block.size())
            })
        };
        let at = self.blocks.iter().position(holds).ok_or(ErrorKind::OutOfRange)?;
        let (base, _) = self.blocks[at].as_ref().ok_or(ErrorKind::OutOfRange)?;
        let span = Span { offset: address - base, size };
        let block = BlockId(u32::try_from(at).map_err(|_| ErrorKind::OutOfRange)?);
        self.division.carve(block, span, Class::Linear).map(|grant| grant.key)
    }

    /// Splits off the blocks in which nothing is live; nothing where there are none.
    pub(crate) fn split_empty(&mut self) -> Option<Self> {
        let mut empty = Self::new();
        for (id, block) in (0..).map(BlockId).zip(&mut self.blocks) {
            if block.is_some() && self.division.remove_block(id).is_ok() {
                empty.blocks.push(block.take());
            }
        }
        (!empty.blocks.is_empty()).then_some(empty)
    }

    /// Allocations that own the bytes of the blocks.
    pub(crate) fn into_blocks(self) -> impl Iterator<Item = Allocation<B>> {
        self.blocks.into_iter().flatten().map(|(_, block)| block)
    }

    /// Bytes that are live.
    pub(crate) fn used(&self) -> u64 {
        self.division.usage().used
    }

    /// The blocks, with their addresses.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &(u64, Allocation<B>)> {
        self.blocks.iter().flatten()
    }

    /// Gives bytes back to this stream of this pool.
    pub(crate) fn free(&mut self, key: Key) -> Result<(), ErrorKind> {
        self.division.free(key).map(|_| ())
    }
}
