//! Owned address ranges, with or without memory behind them.
#![expect(unsafe_code, reason = "calls mmap, and owns what it returns")]
use super::last_error;
use super::narrow;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, Result};
use std::sync::Once;

/// An address range of this process. Dropping it gives addresses and memory back.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to the process, not to a thread; the users of `base` decide who touches the bytes when.
unsafe impl Send for Memory {}
// SAFETY: no method touches the bytes, and the fields never change.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory, committed page by page when it is first touched.
    pub(crate) fn anonymous(size: u64, align: u64) -> Result<Self> {
        Self::aligned(size, align, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Addresses without memory; touching them faults.
    #[cfg(target_os = "linux")]
    pub(crate) fn reserve(size: u64, align: u64) -> Result<Self> {
        Self::aligned(size, align, libc::PROT_NONE)
    }

    fn aligned(size: u64, align: u64, protection: i32) -> Result<Self> {
        let page = os_page();
        let size = size.checked_next_multiple_of(page).ok_or(ErrorKind::ExceedsLimit)?;
        let extra = if align > page { align } else { 0 };
        let wide = size.checked_add(extra).ok_or(ErrorKind::ExceedsLimit)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let whole = Self::new(narrow(wide)?, protection, flags)?;
        Ok(if extra == 0 { whole } else { whole.trim(narrow(size)?, narrow(align)?) })
    }

    /// Returns the first `size` bytes of a file, shared with everyone who maps it.
    #[cfg(target_os = "linux")]
    pub(crate) fn shared(file: &super::File, size: u64, align: u64) -> Result<Self> {
        let memory = Self::reserve(size, align)?;
        // SAFETY: the whole of a range that was just reserved.
        unsafe { memory.back(0, memory.len, file, 0) }?;
        Ok(memory)
    }

    fn new(len: usize, protection: i32, flags: i32) -> Result<Self> {
        // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing uses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        let base = check(at)?;
        Ok(Self { base, len })
    }

    /// Keeps `len` bytes that start at a multiple of `align` and gives the rest back.
    fn trim(self, len: usize, align: usize) -> Self {
        let before = self.base.align_offset(align);
        let after = self.len - before - len;
        // SAFETY: `before` is below `align`, and the range was made `align` bytes longer than `len`.
        let base = unsafe { self.base.add(before) };
        // SAFETY: `before + len` is at most the length of the range, see above.
        let end = unsafe { base.add(len) };
        unmap(self.base, before);
        unmap(end, after);
        core::mem::forget(self);
        Self { base, len }
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Backs `at..at + len` with the bytes of `file` from `offset` on.
    ///
    /// # Safety
    ///
    /// `self` came from [`reserve`](Self::reserve), and the range lies inside it.
    #[cfg(target_os = "linux")]
    pub(crate) unsafe fn back(
        &self,
        at: usize,
        len: usize,
        file: &super::File,
        offset: u64,
    ) -> Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let offset = i64::try_from(offset).map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: the caller promises that `at` lies inside the range.
        let to = unsafe { self.base.add(at) }.as_ptr().cast();
        // SAFETY: replaces only addresses of `self`, by the caller's promise; no Rust value lives in a reserved range.
        let got = unsafe { libc::mmap(to, len, protection, flags, file.descriptor(), offset) };
        check(got)?;
        // A forked process would write into its parent's memory. Where the system cannot keep it from that, its calls are refused
        // all the same.
        // SAFETY: changes what a fork copies, and nothing of the bytes that were mapped just now.
        let _ = unsafe { libc::madvise(to, len, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// Takes the memory behind `at..at + len` away again.
    ///
    /// # Safety
    ///
    /// As for [`back`](Self::back), and nothing uses these bytes any more.
    #[cfg(target_os = "linux")]
    pub(crate) unsafe fn unback(&self, at: usize, len: usize) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the caller promises that `at` lies inside the range.
        let to = unsafe { self.base.add(at) }.as_ptr().cast();
        // SAFETY: replaces only addresses of `self`, which the caller promises are unused.
        let got = unsafe { libc::mmap(to, len, libc::PROT_NONE, flags, -1, 0) };
        check(got).map(drop)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

fn unmap(base: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: called by `Memory` only, for a part of a range that it owns and never uses again.
        let code = unsafe { libc::munmap(base.as_ptr().cast(), len) };
        debug_assert_eq!(code, 0, "munmap of an owned, page-aligned range succeeds");
    }
}

fn check(at: *mut libc::c_void) -> Result<NonNull<u8>> {
    match NonNull::new(at.cast::<u8>()) {
        Some(base) if at != libc::MAP_FAILED => Ok(base),
        _ => Err(last_error(ErrorKind::OutOfHostMemory)),
    }
}

/// Returns the number of forks between this process and the ancestor that called this first.
pub(crate) fn forks() -> u64 {
    static FORKS: AtomicU64 = AtomicU64::new(0);
    static COUNTED: Once = Once::new();
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    COUNTED.call_once(|| {
        // SAFETY: `count` adds to an atomic number, which a forked child may do.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        debug_assert_eq!(refused, 0, "there is memory for one handler");
    });
    FORKS.load(Ordering::Relaxed)
}

/// Returns the bytes of the operating system's own page.
pub(crate) fn os_page() -> u64 {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Returns the bytes of memory in this machine.
pub(crate) fn ram() -> u64 {
    // SAFETY: reads a constant of the system.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(os_page())
}
