//! Host memory taken straight from the system, filled by several threads.
#![expect(unsafe_code, reason = "maps memory, and hands out parts of it")]
use crate::lock;
use core::ptr::NonNull;
use omniheap_core::{ErrorKind, HostPin, HostPinner, Result};
use std::sync::Mutex;
use std::thread;

/// A piece starts at a multiple of this: a large page of most machines.
pub(crate) const ALIGN: usize = 2 << 20;

/// A piece of memory with a single owner.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    size: usize,
    /// Devices that have it pinned.
    pins: Mutex<Vec<HostPin>>,
}

// SAFETY: it owns the bytes from `start` on, which may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above; through a shared reference it only tells where they are.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes `size` bytes, a multiple of [`ALIGN`], and has `threads` threads touch all of them.
    pub(crate) fn take(size: usize, threads: usize) -> Result<Self> {
        debug_assert!(size > 0 && size.is_multiple_of(ALIGN));
        let start = system::map(size)
            .ok_or(ErrorKind::OutOfHostMemory.because("the system maps no more memory"))?;
        let memory = Self { start, size, pins: Mutex::default() };
        memory.populate(threads)?;
        Ok(memory)
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Has a device pin it, unless it is pinned already.
    pub(crate) fn pin(&self, pinner: &HostPinner<'_>) -> Result<()> {
        // SAFETY: the bytes are mapped until `drop`, which drops the pins first.
        let pin = unsafe { pinner.pin(self.start, self.size) }?;
        lock(&self.pins).extend(pin);
        Ok(())
    }

    /// Returns a pointer to a byte inside.
    pub(crate) const fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.size);
        // SAFETY: the offset was just checked to lie inside the piece.
        unsafe { self.start.add(offset) }
    }

    /// Has the system back all bytes now, so that no copy waits for it later.
    fn populate(&self, threads: usize) -> Result<()> {
        let share = (self.size / threads.max(1)).next_multiple_of(ALIGN);
        let populated = thread::scope(|scope| {
            let parts = (0..self.size).step_by(share).map(|from| {
                let size = share.min(self.size - from);
                let populate = move || system::populate(self.at(from), size);
                thread::Builder::new().spawn_scoped(scope, populate)
            });
            let parts: Vec<_> = parts.collect();
            parts.into_iter().all(|part| part.is_ok_and(|part| part.join().unwrap_or(false)))
        });
        let why = "the system does not back the memory that it mapped, or starts no thread for it";
        if populated { Ok(()) } else { Err(ErrorKind::OutOfHostMemory.because(why)) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        lock(&self.pins).clear();
        // SAFETY: mapped by `take` with this size, and nothing refers to it once its owner is gone.
        unsafe { system::unmap(self.start, self.size) };
    }
}

#[cfg(unix)]
mod system {
    use super::ALIGN;
    use core::ptr::{NonNull, null_mut};

    /// Maps memory that is not backed yet.
    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        let (read_write, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        let wide = size.checked_add(ALIGN)?;
        // SAFETY: a fresh anonymous mapping touches nothing that exists.
        let base = unsafe { libc::mmap(null_mut(), wide, read_write, private, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = base.cast::<u8>();
        let before = base.align_offset(ALIGN);
        let start = base.wrapping_add(before);
        // SAFETY: the part before the first aligned byte belongs to this mapping alone.
        unsafe { trim(base, before) };
        // SAFETY: so does the part behind the piece, because `before` is at most `ALIGN`.
        unsafe { trim(start.wrapping_add(size), wide - before - size) };
        NonNull::new(start)
    }

    /// Gives part of a mapping back.
    ///
    /// # Safety
    ///
    /// The bytes are mapped, and nothing uses them.
    unsafe fn trim(from: *mut u8, size: usize) {
        if size > 0 {
            // SAFETY: the caller promises it.
            unsafe { libc::munmap(from.cast(), size) };
        }
    }

    /// Gives a piece back.
    ///
    /// # Safety
    ///
    /// `start` came from [`map`] with this size, and nothing uses the piece.
    pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
        // SAFETY: the caller promises it.
        unsafe { trim(start.as_ptr(), size) };
    }

    /// Backs unused bytes of a piece; returns true if the system did.
    pub(super) fn populate(start: NonNull<u8>, size: usize) -> bool {
        #[cfg(target_os = "linux")]
        {
            let bytes = start.as_ptr().cast();
            // SAFETY: advice about bytes of a mapping that the caller owns. Large pages are a wish only.
            unsafe { libc::madvise(bytes, size, libc::MADV_HUGEPAGE) };
            // SAFETY: as above; it writes no byte.
            let populated = unsafe { libc::madvise(bytes, size, libc::MADV_POPULATE_WRITE) };
            let error = std::io::Error::last_os_error().raw_os_error();
            if populated == 0 || error != Some(libc::EINVAL) {
                return populated == 0;
            }
        }
        // Kernels before 5.14 do not know it.
        for at in (0..size).step_by(4096) {
            // SAFETY: the bytes are mapped, and no reference to them exists yet.
            unsafe { start.as_ptr().wrapping_add(at).write_volatile(0) };
        }
        true
    }
}

#[cfg(not(unix))]
mod system {
    use super::ALIGN;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        // SAFETY: callers ask for at least one byte.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    /// # Safety
    ///
    /// As for `dealloc`: it came from [`map`] with this size.
    pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
        if let Ok(layout) = Layout::from_size_align(size, ALIGN) {
            // SAFETY: the caller promises it.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }

    pub(super) fn populate(_: NonNull<u8>, _: usize) -> bool {
        true
    }
}
