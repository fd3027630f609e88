//! Bump: spans go one after another, and a block comes back whole.
#![forbid(unsafe_code)]
pub(in crate::strategy) mod cursors;
mod rooms;

use self::cursors::Cursors;
use super::{BlockId, Grant, Key, Piece, Strategy, Usage};
use crate::{Align, Class, ErrorKind, Layout};

/// Hands out ascending offsets, and takes a block back when nothing in it is live.
///
/// # Algorithm
///
/// Each block has a cursor. A request goes to the first block, in the order of their ids, whose rest can hold it;
/// the span starts at the cursor, rounded up to its alignment, and the cursor moves to its end. Freeing a span only
/// counts it: its bytes are padding until the block's last live span goes, and then the cursor is back at zero.
///
/// Neighbours: where the class changes from the span placed before, the new span starts at the next granule. All
/// spans that share a granule are then of one class, because every one of them has the class of the one before it.
///
/// # Cost
///
/// Allocating is *O*(log blocks), plus one try for each block whose rest is long enough but not once aligned; a rest of
/// `size + max(align, granularity) - 1` bytes always holds the request. Freeing is *O*(log blocks).
/// A live span costs 40 bytes of bookkeeping, which is used again at once when the span is freed. Allocating takes host
/// memory only when more spans are live than ever before.
///
/// # When to choose it
///
/// For what is made together and dies together: a frame's or a step's temporary data. Not where one long-lived span
/// may sit among short-lived ones, because it keeps its whole block.
///
/// # Examples
///
/// ```
/// use omniheap_core::strategy::{Bump, Strategy};
/// use omniheap_core::{Align, Class, Layout};
///
/// let mut bump = Bump::new(Align::ONE);
/// let block = bump.add_block(1024)?;
/// let a = bump.allocate(Layout::new(100), Class::Linear)?;
/// let b = bump.allocate(Layout::new(100).align(Align::of(64)), Class::Linear)?;
/// assert_eq!((a.span.offset, b.span.offset), (0, 128));
///
/// bump.free(a.key)?;
/// assert_eq!(bump.usage().free, 1024 - 228);
/// bump.free(b.key)?;
/// assert!(bump.is_empty(block));
/// assert_eq!(bump.usage().free, 1024);
/// # Ok::<(), omniheap_core::ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bump {
    cursors: Cursors,
}

impl Bump {
    /// A strategy without blocks that keeps unlike neighbours `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self { cursors: Cursors::new(granularity) }
    }
}

impl Strategy for Bump {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        self.cursors.add_block(size)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.cursors.remove_block(block)
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        self.cursors.allocate(layout, class)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let grant = self.cursors.release(key)?;
        if self.cursors.is_empty(grant.block) {
            self.cursors.rewind(grant.block);
        }
        Ok(grant)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.cursors.grant(key)
    }

    fn usage(&self) -> Usage {
        self.cursors.usage()
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.cursors.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.cursors.for_each(visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        self.cursors.validate()
    }
}
