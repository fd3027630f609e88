//! Files in memory: a device reads them where they are, and the processor copies nothing.
//!
//! Only the device touches the mapping. Its pages are pinned first, so they stay when the file is cut short meanwhile; pinning a
//! page that is gone fails, and then the bytes are read through the page cache, which says what became of the file. So it is never
//! SIGBUS. At the end the loader compares size and time of the file, as for every file.
#![expect(unsafe_code, reason = "pins mapped files")]

use crate::disk::{Disk, Mapping, PAGE, size};
use crate::plan::{Read, Want};
use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap_core::{HostPin, Transfer};
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smaller slices may be copied by the processor: see [`Transfer::pin_host`].
const LEAST: u64 = 2 << 20;

/// Reads of files in memory. Threads that map take them from the front, and threads that read from the back.
pub(crate) struct Mapped {
    reads: Vec<Read>,
    left: Mutex<Range<usize>>,
    /// Something was not pinned: the driver is not asked again.
    is_refused: AtomicBool,
}

impl Mapped {
    pub(crate) fn new(reads: Vec<Read>) -> Self {
        let left = Mutex::new(0..reads.len());
        Self { reads, left, is_refused: AtomicBool::new(false) }
    }

    pub(crate) const fn len(&self) -> usize {
        self.reads.len()
    }

    /// Returns whether bytes are worth a mapping.
    pub(crate) const fn pays_for(want: &Want) -> bool {
        want.size >= LEAST
    }

    fn left(&self) -> MutexGuard<'_, Range<usize>> {
        // Nothing panics while it holds the lock.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a read to map it.
    pub(crate) fn first(&self) -> Option<&Read> {
        let may_map = !self.is_refused.load(Ordering::Relaxed);
        may_map.then(|| self.left().next()).flatten().map(|at| &self.reads[at])
    }

    /// Takes a read from the other end, to read it.
    pub(crate) fn last(&self) -> Option<&Read> {
        self.left().next_back().map(|at| &self.reads[at])
    }

    /// Maps nothing any more.
    pub(crate) fn give_up(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}

/// Bytes of a file that a device can read. The pin goes before the mapping.
pub(crate) struct Pinned {
    _pin: HostPin,
    mapping: Mapping,
    /// Where the mapping starts in the file.
    offset: u64,
}

impl Pinned {
    /// Maps a read and has the device pin it; nothing where the system or the driver refuses.
    pub(crate) fn new<B>(
        disk: &dyn Disk,
        file: &File,
        read: &Read,
        transfer: &dyn Transfer<Block = B>,
    ) -> Option<Self> {
        let offset = read.offset - read.offset % PAGE;
        // Not a byte more: there is no page behind the end of the file.
        let length = size(read.offset - offset + read.needs);
        let mapping = disk.map(file, offset, length).ok()?;
        // SAFETY: the fields are dropped in their order, so that the mapping stays until the pin is dropped.
        let pin = unsafe { transfer.pin_host(mapping.start(), mapping.length()) };
        // A pin of somebody else says nothing about these pages.
        Some(Self { _pin: pin.ok()??, mapping, offset })
    }

    /// Returns bytes of the file, for the device alone.
    ///
    /// # Panics
    ///
    /// Where they are not part of the read that was pinned.
    pub(crate) fn bytes(&self, want: &Want) -> &[u8] {
        let (at, length) = (size(want.offset - self.offset), size(want.size));
        assert!(at + length <= self.mapping.length(), "the read was mapped whole");
        // SAFETY: just seen inside the mapping.
        let start = unsafe { self.mapping.start().add(at) };
        // SAFETY: the bytes are mapped as long as `self`, and initialized, as those of every file are. Nothing here writes them or
        // reads them but the device; another process that writes the file changes its time, and the load fails.
        unsafe { slice::from_raw_parts(start.as_ptr(), length) }
    }
}
