//! Calls about files that the standard library lacks.
#![expect(unsafe_code, reason = "calls the system")]
use core::mem::MaybeUninit;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Returns whether a file's bytes are in memory, not on a disk.
pub(crate) fn is_in_memory(file: &File) -> bool {
    const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open, and the structure is large enough by its type.
    if unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: all zeros are a valid structure, and the system has filled it since.
    let kind = unsafe { about.assume_init() }.f_type;
    [libc::TMPFS_MAGIC, RAMFS_MAGIC].iter().any(|known| i128::from(*known) == i128::from(kind))
}

/// Opens a file again, past the page cache.
pub(crate) fn open_direct(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Gives the bytes of a range back to the disk, where the file system can. They read as zeros then.
pub(crate) fn punch(file: &File, from: u64, size: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    if let (Ok(from), Ok(size)) = (from.try_into(), size.try_into()) {
        // SAFETY: the descriptor is open. Where the call fails, the bytes stay until the file is closed.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, from, size) };
    }
}
