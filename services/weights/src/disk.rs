//! Calls to the operating system, behind a trait so that tests can make each of them fail.
#![expect(unsafe_code, reason = "reads into raw memory, and calls Linux directly")]

use crate::error::Fault;
use crate::file::{State, open_file};
use std::fs::File;
use std::io;
use std::path::Path;

/// Way in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the page cache.
    Cached,
    /// Past it, from the disk to the buffer.
    Direct,
}

/// A buffer of raw memory, laid out as Unix has it (`iovec`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

/// Most buffers that a call takes everywhere.
#[cfg(unix)]
const MOST_BUFFERS: libc::c_int = 1024;

/// Leaves out the first bytes of buffers.
pub(crate) fn skip(buffers: &mut [Buffer], mut bytes: usize) -> &mut [Buffer] {
    let is_over = |buffer: &Buffer| {
        let is_over = bytes >= buffer.length;
        bytes -= if is_over { buffer.length } else { 0 };
        !is_over
    };
    let over = buffers.iter().position(is_over).unwrap_or(buffers.len());
    let rest = &mut buffers[over..];
    if let Some(first) = rest.first_mut() {
        first.start = first.start.wrapping_add(bytes);
        first.length -= bytes;
    }
    rest
}

/// Returns a size or offset inside memory, which therefore fits.
pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside memory that has addresses")
}

/// File calls.
pub(crate) trait Disk: Sync {
    fn open(&self, path: &Path, access: Access) -> io::Result<File>;

    fn state(&self, file: &File) -> Result<State, Fault>;

    /// Returns whether most of a range is in the page cache.
    fn is_cached(&self, file: &File, offset: u64, length: u64) -> io::Result<bool>;

    /// Reads into buffers, one after the other; returns the bytes that arrived, zero at the end of the file.
    ///
    /// # Safety
    ///
    /// The buffers are valid for writes, and nothing else uses them during the call.
    unsafe fn read(&self, file: &File, offset: u64, buffers: &[Buffer]) -> io::Result<usize>;

    /// As [`read`](Self::read), to a slice.
    fn read_to(&self, file: &File, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let buffer = Buffer { start: to.as_mut_ptr(), length: to.len() };
        // SAFETY: the slice is borrowed exclusively during the call.
        unsafe { self.read(file, offset, &[buffer]) }
    }
}

/// The operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct System;

impl Disk for System {
    fn open(&self, path: &Path, access: Access) -> io::Result<File> {
        match access {
            Access::Cached => open_file(path),
            Access::Direct => open_direct(path),
        }
    }

    fn state(&self, file: &File) -> Result<State, Fault> {
        State::of(file)
    }

    #[cfg(target_os = "linux")]
    fn is_cached(&self, file: &File, offset: u64, length: u64) -> io::Result<bool> {
        linux::is_cached(file, offset, length)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_cached(&self, _: &File, _: u64, _: u64) -> io::Result<bool> {
        Ok(true)
    }

    #[cfg(unix)]
    unsafe fn read(&self, file: &File, offset: u64, buffers: &[Buffer]) -> io::Result<usize> {
        use std::os::fd::AsRawFd;
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let first = buffers.as_ptr().cast();
        let count = buffers.len().try_into().unwrap_or(MOST_BUFFERS).min(MOST_BUFFERS);
        // SAFETY: the buffers are laid out as `iovec`s, and the caller promises that they may be written.
        let read = unsafe { libc::preadv(file.as_raw_fd(), first, count, offset) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    #[cfg(not(unix))]
    unsafe fn read(&self, mut file: &File, offset: u64, buffers: &[Buffer]) -> io::Result<usize> {
        use std::io::{Read, Seek, SeekFrom};
        /// Held over seek and read: threads share the file's position.
        static POSITION: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let Some(buffer) = buffers.first() else { return Ok(0) };
        let mut bytes = vec![0; buffer.length];
        let alone = POSITION.lock();
        file.seek(SeekFrom::Start(offset))?;
        let read = file.read(&mut bytes)?;
        drop(alone);
        // SAFETY: the caller promises that the buffer may be written; `read` is at most its length.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.start, read) };
        Ok(read)
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_DIRECT | libc::O_NONBLOCK;
    std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{File, io};
    use std::os::fd::AsRawFd;

    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct Cached {
        pages: u64,
        others: [u64; 4],
    }

    /// `cachestat`, which libc does not wrap; the number is the same on every architecture.
    const CACHESTAT: libc::c_long = 451;

    /// Bytes of a long range that the kernel is asked about at a time. It looks at page after page, so that asking about all of
    /// them would take a tenth of the time that reading takes.
    const SAMPLE: u64 = 64 << 10;

    pub(super) fn is_cached(file: &File, offset: u64, length: u64) -> io::Result<bool> {
        if length <= 4 * SAMPLE {
            return is_range_cached(file, offset, length);
        }
        for offset in [offset, offset + length / 2, offset + length - SAMPLE] {
            if !is_range_cached(file, offset, SAMPLE)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_range_cached(file: &File, offset: u64, length: u64) -> io::Result<bool> {
        let (range, mut cached) = (Range { offset, length }, Cached::default());
        let (range, result) = (&raw const range, &raw mut cached);
        // SAFETY: both structures are as the call documents them and outlive it; zero is the only flag.
        let code = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range, result, 0) };
        if code == 0 {
            return Ok(cached.pages.saturating_mul(4096) >= length / 2);
        }
        probe(file, offset)
    }

    /// Asks for one page, but only if it is there: for kernels before 6.5.
    fn probe(file: &File, offset: u64) -> io::Result<bool> {
        let mut page = [0_u8; 4096];
        let part = libc::iovec { iov_base: page.as_mut_ptr().cast(), iov_len: page.len() };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the vector has one part, whose memory is valid for writes.
        let read = unsafe {
            libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT)
        };
        if read >= 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
            error => Err(error),
        }
    }
}
