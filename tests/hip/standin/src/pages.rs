//! Host pages that stand for device memory, and the bytes in them.
//!
//! Addresses are numbers here, as they are on a device. Those that are read or written come from HIP, which gets them
//! from this crate or from its caller; a wrong one kills the process, as a wrong one kills a process on a device.

#![expect(unsafe_code, reason = "maps memory and touches bytes at addresses that HIP names")]

use core::ffi::c_void;
use core::ptr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of a page of the host.
pub(crate) const PAGE: u64 = 4096;

/// Permission to touch pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    ReadWrite,
}

impl Access {
    const fn flags(self) -> i32 {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps new zeroed pages.
pub(crate) fn map(size: u64) -> Option<u64> {
    map_at(0, size, Access::ReadWrite, PRIVATE, None)
}

/// Takes addresses without memory, aligned to `align`.
pub(crate) fn reserve(size: u64, align: u64) -> Option<u64> {
    let whole = size.checked_add(align)?;
    let start = map_at(0, whole, Access::None, PRIVATE, None)?;
    let aligned = start.next_multiple_of(align);
    for (from, length) in
        [(start, aligned - start), (aligned + size, start + whole - aligned - size)]
    {
        if length > 0 {
            unmap(from, length);
        }
    }
    Some(aligned)
}

/// Puts the first `size` bytes of a file at reserved addresses, without access.
pub(crate) fn map_file(address: u64, size: u64, file: BorrowedFd<'_>) -> Option<u64> {
    map_at(address, size, Access::None, libc::MAP_SHARED | libc::MAP_FIXED, Some(file))
}

/// Takes memory away from reserved addresses and keeps them reserved.
pub(crate) fn clear(address: u64, size: u64) -> Option<u64> {
    map_at(address, size, Access::None, PRIVATE | libc::MAP_FIXED, None)
}

fn map_at(
    address: u64,
    size: u64,
    access: Access,
    flags: i32,
    file: Option<BorrowedFd<'_>>,
) -> Option<u64> {
    let length = usize::try_from(size).ok()?;
    let descriptor = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: without MAP_FIXED this only adds a mapping; with it, `vmem` has found the range inside a reservation of
    // its own, which nothing but HIP's device addresses refers to.
    let start =
        unsafe { libc::mmap(pointer(address), length, access.flags(), flags, descriptor, 0) };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance() as u64)
}

/// Gives pages or reserved addresses back.
pub(crate) fn unmap(address: u64, size: u64) {
    let length = usize::try_from(size).expect("was mapped, so it fits");
    // SAFETY: the callers own the range: `table` or `vmem` has just removed it, or `reserve` has just mapped it.
    let answer = unsafe { libc::munmap(pointer(address), length) };
    assert_eq!(answer, 0, "the range was mapped by this module");
}

/// Changes who may touch mapped pages.
pub(crate) fn protect(address: u64, size: u64, access: Access) -> Option<()> {
    let length = usize::try_from(size).ok()?;
    // SAFETY: `vmem` passes a mapping of its own; taking access away is what its caller asked for.
    let answer = unsafe { libc::mprotect(pointer(address), length, access.flags()) };
    (answer == 0).then_some(())
}

/// Copies bytes; the ranges may overlap.
pub(crate) fn copy(to: u64, from: u64, size: u64) {
    let length = usize::try_from(size).expect("a 64-bit machine");
    let (to, from) = (pointer(to).cast::<u8>(), pointer(from).cast::<u8>());
    // SAFETY: HIP named both ranges for this copy (module documentation).
    unsafe { ptr::copy(from, to, length) };
}

/// Writes bytes.
pub(crate) fn write(to: u64, bytes: &[u8]) {
    let to = pointer(to).cast::<u8>();
    // SAFETY: HIP named the range for this write, or it is a block that this crate has just mapped.
    unsafe { ptr::copy(bytes.as_ptr(), to, bytes.len()) };
}

/// Reads bytes.
pub(crate) fn read(from: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let from = pointer(from).cast::<u8>();
    // SAFETY: HIP named the range for this read (module documentation); `bytes` has `size` bytes.
    unsafe { ptr::copy(from, bytes.as_mut_ptr(), size) };
    bytes
}

/// Reads a word that another thread may be writing.
pub(crate) fn read_volatile(from: u64) -> u32 {
    let from = pointer(from).cast::<u32>();
    // SAFETY: HIP named the word for this read (module documentation).
    unsafe { from.read_volatile() }
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).expect("a 64-bit machine"))
}
