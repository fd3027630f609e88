//! Memory files. They stand for physical memory, and for memory that processes share.

#![expect(unsafe_code, reason = "takes descriptors over")]

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};

use crate::code::{Answer, Code};

/// Makes `size` bytes of zeroed memory.
pub(crate) fn create(size: u64) -> Answer<File> {
    // SAFETY: the name is a terminated string.
    let descriptor = unsafe { libc::memfd_create(c"device memory".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the call above made this descriptor, and nobody else has it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(size).map_err(|_| Code::OUT_OF_MEMORY)?;
    Ok(file)
}

/// Returns a file over a copy of a descriptor that C lends for a call.
pub(crate) fn borrow(descriptor: i32) -> Answer<File> {
    if descriptor < 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: C lends an open descriptor for this call; `File` must not close it, which `into_raw_fd` sees to.
    let lent = unsafe { File::from_raw_fd(descriptor) };
    let ours = lent.try_clone();
    let _ = lent.into_raw_fd();
    ours.map_err(|_| Code::INVALID_VALUE)
}
