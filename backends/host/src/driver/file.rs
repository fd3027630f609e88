//! Memory without an address: anonymous files.
#![expect(unsafe_code, reason = "calls memfd_create and fallocate")]
use super::last_error;
use omniheap_seam::{Error, ErrorKind, Result};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// An anonymous file: it has no name, and its memory is committed when first touched.
#[derive(Debug)]
pub(crate) struct File(fs::File);

impl File {
    /// Creates an empty file.
    pub(crate) fn new() -> Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the call has no other input.
        let fd = unsafe { libc::memfd_create(c"omniheap".as_ptr(), flags) };
        if fd < 0 {
            return Err(last_error(ErrorKind::OutOfHostMemory));
        }
        // SAFETY: `fd` was just opened and nobody else has it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(owned.into()))
    }

    /// Creates a second reference to the file behind `fd`.
    pub(crate) fn of(fd: &OwnedFd) -> Result<Self> {
        fd.try_clone().map(|copy| Self(copy.into())).map_err(|e| native(&e))
    }

    /// Returns a second descriptor of the file.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from).map_err(|e| native(&e))
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Returns the bytes in the file.
    pub(crate) fn len(&self) -> Result<u64> {
        self.0.metadata().map(|m| m.len()).map_err(|e| native(&e))
    }

    /// Makes the file `size` bytes long; new bytes are zero and cost nothing until touched.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.0.set_len(size).map_err(|e| native(&e))
    }

    /// Seals the size, so that no process that shares the file can shrink it.
    pub(crate) fn seal(&self) -> Result<()> {
        // SAFETY: the descriptor is open for as long as `self` lives; the flags are its only input.
        let code = unsafe { libc::fcntl(self.descriptor(), libc::F_ADD_SEALS, SEALS) };
        if code == 0 { Ok(()) } else { Err(last_error(ErrorKind::Driver)) }
    }

    /// Returns whether [`seal`](Self::seal) was called, here or in another process.
    pub(crate) fn is_sealed(&self) -> bool {
        // SAFETY: the descriptor is open for as long as `self` lives.
        let seals = unsafe { libc::fcntl(self.descriptor(), libc::F_GET_SEALS) };
        seals >= 0 && seals & SEALS == SEALS
    }

    /// Releases the memory of `offset..offset + size`; the bytes read as zero afterwards.
    pub(crate) fn punch(&self, offset: u64, size: u64) -> Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let offset = i64::try_from(offset).map_err(|_| ErrorKind::ExceedsLimit)?;
        let size = i64::try_from(size).map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: the descriptor is open for as long as `self` lives; the kernel checks the range.
        let code = unsafe { libc::fallocate(self.descriptor(), mode, offset, size) };
        if code == 0 { Ok(()) } else { Err(last_error(ErrorKind::Driver)) }
    }
}

fn native(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Driver).with_native(error.raw_os_error().unwrap_or(0).into())
}
