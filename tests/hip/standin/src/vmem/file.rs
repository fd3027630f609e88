//! Files that are memory: what stands for physical memory of a device.

#![expect(unsafe_code, reason = "takes descriptors over")]

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};

use crate::abi::Status;

/// Makes `size` bytes of zeroed memory.
pub(super) fn create(size: u64) -> Result<File, Status> {
    // SAFETY: the name is a terminated string.
    let descriptor = unsafe { libc::memfd_create(c"device memory".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Status::OUT_OF_RESOURCES);
    }
    // SAFETY: the call above made this descriptor, and nobody else has it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(size).map_err(|_| Status::OUT_OF_RESOURCES)?;
    Ok(file)
}

/// Makes a file of ours of a descriptor that C lends for a call.
pub(super) fn borrow(descriptor: i32) -> Result<File, Status> {
    // SAFETY: C lends an open descriptor for this call; `File` must not close it, which `into_raw_fd` sees to.
    let lent = unsafe { File::from_raw_fd(descriptor) };
    let ours = lent.try_clone();
    let _ = lent.into_raw_fd();
    ours.map_err(|_| Status::INVALID_ARGUMENT)
}
