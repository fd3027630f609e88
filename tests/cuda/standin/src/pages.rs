//! Host pages that stand for device memory, and the bytes in them.
//!
//! Device addresses are a reserved range of this process that cannot be accessed, as on a device: a program that dereferences one
//! crashes. The bytes lie in a second range, always at the same distance. Managed and pinned memory has its bytes at its own
//! addresses.

#![expect(
    unsafe_code,
    reason = "maps memory and touches bytes at addresses that `space` has checked"
)]

use core::ffi::c_void;
use core::ptr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// Bytes of a page of the host.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of device addresses.
const ADDRESSES: u64 = 4 << 40;

const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The two ranges.
struct Arena {
    addresses: u64,
    homes: u64,
}

fn arena() -> &'static Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| {
        // No address needs more alignment than the granule of virtual memory.
        let take = |rights| map(0, ADDRESSES + (2 << 20), rights, PRIVATE, None);
        let both = take(libc::PROT_NONE).zip(take(READ_WRITE));
        let (addresses, homes) = both.expect("this system gives no addresses without memory");
        Arena {
            addresses: addresses.next_multiple_of(2 << 20),
            homes: homes.next_multiple_of(2 << 20),
        }
    })
}

/// Returns the range of device addresses.
pub(crate) fn addresses() -> core::ops::Range<u64> {
    let start = arena().addresses;
    start..start + ADDRESSES
}

/// Returns where the bytes of an address are.
fn home(address: u64) -> u64 {
    if addresses().contains(&address) {
        address - arena().addresses + arena().homes
    } else {
        address
    }
}

/// Maps zeroed pages of the host.
pub(crate) fn host(size: u64) -> Option<u64> {
    map(0, size, READ_WRITE, PRIVATE, None)
}

/// Unmaps pages of [`host`].
pub(crate) fn give_back(address: u64, size: u64) {
    let length = usize::try_from(size).expect("was mapped, so it fits");
    // SAFETY: `space` has just removed the range, which `host` made.
    let answer = unsafe { libc::munmap(pointer(address), length) };
    assert_eq!(answer, 0, "the range was mapped by this module");
}

/// Puts new zeroed pages behind device addresses.
pub(crate) fn clear(address: u64, size: u64) -> Option<()> {
    map(home(address), size, READ_WRITE, PRIVATE | libc::MAP_FIXED, None).map(drop)
}

/// Puts the first `size` bytes of a file behind device addresses.
pub(crate) fn place(address: u64, size: u64, file: BorrowedFd<'_>) -> Option<()> {
    map(home(address), size, READ_WRITE, libc::MAP_SHARED | libc::MAP_FIXED, Some(file)).map(drop)
}

fn map(
    address: u64,
    size: u64,
    rights: i32,
    flags: i32,
    file: Option<BorrowedFd<'_>>,
) -> Option<u64> {
    let length = usize::try_from(size).ok()?;
    let descriptor = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: without MAP_FIXED this only adds a mapping; with it, the range lies in the arena's second half, which nothing
    // but device addresses refers to.
    let start = unsafe { libc::mmap(pointer(address), length, rights, flags, descriptor, 0) };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance() as u64)
}

/// Copies bytes; the ranges may overlap.
pub(crate) fn copy(to: u64, from: u64, size: u64) {
    let length = usize::try_from(size).expect("a 64-bit machine");
    let (to, from) = (pointer(home(to)).cast::<u8>(), pointer(home(from)).cast::<u8>());
    // SAFETY: `space` has checked both ranges and keeps them, or they are host memory that the caller of the copy named.
    unsafe { ptr::copy(from, to, length) };
}

/// Writes bytes.
pub(crate) fn write(to: u64, bytes: &[u8]) {
    let to = pointer(home(to)).cast::<u8>();
    // SAFETY: as for `copy`.
    unsafe { ptr::copy(bytes.as_ptr(), to, bytes.len()) };
}

/// Writes one byte many times.
pub(crate) fn fill(to: u64, byte: u8, size: u64) {
    let length = usize::try_from(size).expect("a 64-bit machine");
    let to = pointer(home(to)).cast::<u8>();
    // SAFETY: as for `copy`.
    unsafe { ptr::write_bytes(to, byte, length) };
}

/// Reads bytes.
pub(crate) fn read(from: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let from = pointer(home(from)).cast::<u8>();
    // SAFETY: as for `copy`; `bytes` has `size` bytes.
    unsafe { ptr::copy(from, bytes.as_mut_ptr(), size) };
    bytes
}

/// Reads a word that another thread may be writing.
pub(crate) fn read_volatile(from: u64) -> u32 {
    let from = pointer(home(from)).cast::<u32>();
    // SAFETY: as for `copy`.
    unsafe { from.read_volatile() }
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).expect("a 64-bit machine"))
}
