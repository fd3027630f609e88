//! Virtual addresses apart from memory: the capability of vendors that map pages.
#![expect(unsafe_code, reason = "declares the contract that a vendor signs who maps pages")]
use crate::{ErrorKind, HeapId, Result};
use alloc::vec::Vec;

/// A physical page: a number that means something to the backend that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

/// Capability: blocks whose pages are mapped one by one.
///
/// A reserved block has addresses but no memory. Pages have memory but no address. Positions and counts are in pages
/// of [`Heap::page`](crate::Heap::page). One call covers a whole range: that is what makes it cheap.
///
/// # Safety
///
/// The implementer guarantees:
///
/// - Position `first + i` is backed by exactly `pages[i]`, from a successful [`map_pages`](Self::map_pages) until it is unmapped.
/// - A page keeps its bytes while it is unmapped.
/// - A reserved block's addresses belong to no other block.
pub unsafe trait Remap: Send + Sync {
    /// The backend's blocks.
    type Block;

    /// Reserves addresses for `size` bytes, a multiple of the page size, without memory behind them.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `ZeroSize`, `Unsupported` (the heap has no pages), `ExceedsLimit`.
    fn reserve(&self, heap: HeapId, size: u64) -> Result<Self::Block>;

    /// Creates `count` physical pages and appends them to `pages`: all or none.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `Unsupported`, `OutOfDeviceMemory`.
    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()>;

    /// Creates pages like [`create`](Self::create), and may group up to `most` of them under one driver handle.
    ///
    /// Pages of a group compare equal. They must be mapped side by side, and unmapped and destroyed together.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    fn create_groups(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let _ = most;
        self.create(heap, count, pages)
    }

    /// Creates pages like [`create_groups`](Self::create_groups), of host memory that the device reaches at the addresses where they are
    /// mapped. They take nothing from the heap, and are mapped and unmapped as its own pages are.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `Unsupported` where the driver maps no host memory at device addresses.
    fn create_on_host(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let _ = (heap, count, most, pages);
        Err(ErrorKind::Unsupported.into())
    }

    /// Returns pages of [`create_on_host`](Self::create_on_host). They are gone whatever the result says.
    ///
    /// # Errors
    ///
    /// As for [`destroy`](Self::destroy).
    ///
    /// # Safety
    ///
    /// As for [`destroy`](Self::destroy), and all of them are of host memory.
    unsafe fn destroy_on_host(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.destroy(heap, pages) }
    }

    /// Returns physical pages to the driver. They are gone whatever the result says.
    ///
    /// # Errors
    ///
    /// Those of every call, when the driver refused one of them; the rest are returned all the same.
    ///
    /// # Safety
    ///
    /// The pages came from `self` and `heap`, none is mapped, and of a page group all are named.
    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()>;

    /// Maps `pages` at positions `first..` of a reserved block: all or none.
    ///
    /// A page that moves is mapped at its new position before its old one is unmapped, so that it always has an address. It
    /// is at two positions meanwhile, and no device work uses it.
    ///
    /// # Errors
    ///
    /// `OutOfRange`; `Busy` also where a position is mapped already.
    ///
    /// # Safety
    ///
    /// `block` came from [`reserve`](Self::reserve) of this backend, the pages from [`create`](Self::create) or its kin for the
    /// same heap, none of them is mapped at more than one other position, and of a page group all are named, side by side.
    unsafe fn map_pages(&self, block: &Self::Block, first: u64, pages: &[Page]) -> Result<()>;

    /// Unmaps positions `first..first + count`, which are all mapped.
    ///
    /// # Errors
    ///
    /// `OutOfRange`. After an error the positions count as mapped still.
    ///
    /// # Safety
    ///
    /// No device work uses these positions any more, and of a page group all are unmapped.
    unsafe fn unmap_pages(&self, block: &Self::Block, first: u64, count: u64) -> Result<()>;
}
