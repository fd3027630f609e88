//! An allocator that counts: how many bytes a reader takes for an input. Ordinary tests share this file.
#![expect(unsafe_code, reason = "counting what is allocated takes a global allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::System;

/// Counts bytes that are allocated, now and at most. A program makes it its global allocator.
pub struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that any input may take: buffers of a fixed size.
const ALLOWANCE: usize = 1 << 20;

fn grew(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator with the arguments that the caller vouches for.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller promises a layout of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller promises a layout of non-zero size.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises that `pointer` came from one of the functions here with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Large blocks are grown by remapping pages, so a copy is not counted beside its original.
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        grew(size);
        // SAFETY: the caller promises that `pointer` came from here with this layout, and a size above zero.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Does `work`; asserts that it took at most `times` the bytes of `input`, beside buffers of a fixed size. Nothing else may allocate
/// meanwhile.
pub fn within<T>(times: usize, input: &[u8], work: impl FnOnce() -> T) -> T {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = work();
    let took = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let bytes = input.len();
    assert!(took <= times * bytes + ALLOWANCE, "{took} bytes for {bytes}: more than {times} times");
    outcome
}
