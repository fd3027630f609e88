//! The oracle: what is live, in ordered maps, and nothing else.
use omniheap_core::strategy::{BlockId, Grant, Key};
use omniheap_core::{Align, Class, Layout, Span};
use std::collections::BTreeMap;

/// A live span as the oracle knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The grant.
    pub grant: Grant,
    /// Class that it was granted as.
    pub class: Class,
}

/// The live spans of every block, by offset.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    blocks: BTreeMap<BlockId, Block>,
    /// Everything live, oldest first.
    order: Vec<Live>,
}

#[derive(Clone, Debug)]
struct Block {
    size: u64,
    spans: BTreeMap<u64, Live>,
}

impl Shadow {
    /// Notes a block.
    ///
    /// # Panics
    ///
    /// Panics when the id is that of a block that is still there.
    pub fn add_block(&mut self, id: BlockId, size: u64) {
        let old = self.blocks.insert(id, Block { size, spans: BTreeMap::new() });
        assert!(old.is_none(), "{id:?} was given to two blocks");
    }

    /// Forgets a block.
    ///
    /// # Panics
    ///
    /// Panics when it is not there, or something in it is live.
    pub fn remove_block(&mut self, id: BlockId) {
        let block = self.blocks.remove(&id).expect("a block that is not there was removed");
        assert!(block.spans.is_empty(), "{id:?} was removed with live spans");
    }

    /// Checks a new grant against everything live, and notes it.
    ///
    /// # Panics
    ///
    /// Panics when it is out of bounds, misaligned, too small, overlaps, shares a granule with an unlike span, or has a
    /// key that is live already.
    pub fn grant(&mut self, grant: Grant, layout: Layout, class: Class, granularity: Align) {
        let Grant { block, span, key } = grant;
        let home = self.blocks.get_mut(&block).expect("a grant names a block that is not there");
        let end = span.offset.checked_add(span.size).expect("a grant overflows");
        assert!(end <= home.size, "{span:?} reaches past its block of {} bytes", home.size);
        assert!(
            layout.align.divides(span.offset),
            "{span:?} is not at a multiple of {:?}",
            layout.align
        );
        assert!(
            span.size >= layout.size,
            "{span:?} is smaller than the {} bytes asked",
            layout.size
        );
        for other in home.spans.values() {
            let theirs = other.grant.span;
            assert!(!span.overlaps(theirs), "{span:?} overlaps {theirs:?}");
            let apart = granularity.down(span.offset) > granularity.down(theirs.end() - 1)
                || granularity.down(theirs.offset) > granularity.down(span.end() - 1);
            assert!(
                class == other.class || apart,
                "{span:?} {class:?} and {theirs:?} {:?} share a granule of {granularity:?}",
                other.class
            );
        }
        assert!(self.order.iter().all(|live| live.grant.key != key), "{key:?} was given out twice");
        let live = Live { grant, class };
        home.spans.insert(span.offset, live);
        self.order.push(live);
    }

    /// Forgets a live span.
    ///
    /// # Panics
    ///
    /// Panics when the key is not live, or the grant is not the one that was given.
    pub fn free(&mut self, grant: Grant) {
        let position = self.order.iter().position(|live| live.grant.key == grant.key);
        let live = self.order.remove(position.expect("a key that is not live was freed"));
        assert_eq!(live.grant, grant, "a free reported another span");
        let block = self.blocks.get_mut(&grant.block).expect("live spans keep their block");
        block.spans.remove(&grant.span.offset);
    }

    /// Everything live, oldest first.
    #[must_use]
    pub fn live(&self) -> &[Live] {
        &self.order
    }

    /// The blocks, with their sizes.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, u64)> {
        self.blocks.iter().map(|(&id, block)| (id, block.size))
    }

    /// The live spans of a block, lowest first.
    pub fn spans(&self, id: BlockId) -> impl Iterator<Item = (Span, Key, Class)> {
        let block = self.blocks.get(&id);
        block.into_iter().flat_map(|block| block.spans.values()).map(|live| {
            let Live { grant, class } = *live;
            (grant.span, grant.key, class)
        })
    }

    /// Returns true if nothing of a block is live; a block that is not there is not empty.
    #[must_use]
    pub fn is_empty(&self, id: BlockId) -> bool {
        self.blocks.get(&id).is_some_and(|block| block.spans.is_empty())
    }

    /// Returns true if the block is there.
    #[must_use]
    pub fn knows(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }
}
