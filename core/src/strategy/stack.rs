//! Stack: the newest span is freed first.
#![forbid(unsafe_code)]
use super::bump::cursors::Cursors;
use super::{BlockId, Grant, Key, Piece, Strategy, Usage};
use crate::{Align, Class, ErrorKind, Layout};
use alloc::vec::Vec;

/// Hands out spans that are freed in the opposite order, over all blocks together.
///
/// # Algorithm
///
/// Each block has a cursor, as in [`Bump`](super::Bump), and requests are placed by the same rule. The keys of all
/// live spans lie on one stack: only the newest span can be freed, any other is `Busy`. Freeing moves its block's
/// cursor back to the end of the span below, so padding never outlives the span that needed it.
///
/// Neighbours: where the class changes from the span below, the new span starts at the next granule, so that all spans
/// which share a granule are of one class.
///
/// # Cost
///
/// Allocating and freeing are *O*(log blocks); allocating adds one try for each block whose rest is long enough but
/// not once aligned. A rest of `size + max(align, granularity) - 1` bytes always holds the request.
/// A live span costs 48 bytes, and nothing scatters: the rest of each block is one hole.
///
/// # When to choose it
///
/// For scopes that nest: a recursive algorithm's scratch, the inside of one function. Not where lifetimes overlap
/// without nesting; [`Bump`](super::Bump) or [`Ring`](super::Ring) serve those.
///
/// # Examples
///
/// ```
/// use omniheap_core::strategy::{Stack, Strategy};
/// use omniheap_core::{Align, Class, ErrorKind, Layout};
///
/// let mut stack = Stack::new(Align::ONE);
/// stack.add_block(1024)?;
/// let outer = stack.allocate(Layout::new(100), Class::Linear)?;
/// let inner = stack.allocate(Layout::new(100), Class::Linear)?;
/// assert_eq!(inner.span.offset, 100);
///
/// assert_eq!(stack.free(outer.key), Err(ErrorKind::Busy));
/// stack.free(inner.key)?;
/// stack.free(outer.key)?;
/// assert_eq!(stack.free(outer.key), Err(ErrorKind::Stale));
/// # Ok::<(), ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack {
    cursors: Cursors,
    /// The live keys, newest last.
    order: Vec<Key>,
}

impl Stack {
    /// A strategy without blocks that keeps unlike neighbours `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self { cursors: Cursors::new(granularity), order: Vec::new() }
    }
}

impl Strategy for Stack {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        self.cursors.add_block(size)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.cursors.remove_block(block)
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        self.order.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let grant = self.cursors.allocate(layout, class)?;
        self.order.push(grant.key);
        Ok(grant)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        self.cursors.grant(key)?;
        if self.order.last() != Some(&key) {
            return Err(ErrorKind::Busy);
        }
        self.order.pop();
        let grant = self.cursors.release(key)?;
        self.cursors.rewind(grant.block);
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
        self.cursors.validate()?;
        if self.order.len() as u64 != self.cursors.usage().live {
            return Err("the stack of keys disagrees with the live spans");
        }
        if self.order.iter().any(|&key| self.cursors.grant(key).is_err()) {
            return Err("the stack holds a key that is not live");
        }
        Ok(())
    }
}
