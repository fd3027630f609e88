//! Owned memory where the system has no `mmap`: the program's own heap.
#![expect(unsafe_code, reason = "calls the global allocator, and owns what it returns")]
use super::narrow;
use core::alloc::Layout;
use core::ptr::NonNull;
use omniheap_seam::{ErrorKind, Result};
use std::alloc::{alloc_zeroed, dealloc};

/// Memory of this process. Dropping it gives the memory back.
pub(crate) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the process, not to a thread; the users of `base` decide who touches the bytes when.
unsafe impl Send for Memory {}
// SAFETY: no method touches the bytes, and the fields never change.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory.
    pub(crate) fn anonymous(size: u64, align: u64) -> Result<Self> {
        let layout = Layout::from_size_align(narrow(size.max(1))?, narrow(align)?)
            .map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(ErrorKind::OutOfHostMemory)?;
        Ok(Self { base, layout })
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) const fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `base` came from the global allocator with this layout, in `anonymous`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Processes are never copied here.
pub(crate) const fn forks() -> u64 {
    0
}

/// Returns the alignment that `allocate` can always give.
pub(crate) const fn os_page() -> u64 {
    4096
}

/// Returns a size that any machine of this kind has.
pub(crate) const fn ram() -> u64 {
    8 << 30
}
