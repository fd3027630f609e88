//! Host memory that a manager takes, and managers that get none.
//!
//! A binary of its own, because its global allocator counts and refuses; one, because each builds the manager anew.
#![expect(unsafe_code, reason = "counts and refuses what the global allocator is asked for")]
use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use std::alloc::System;

#[path = "../manager/before.rs"]
mod before;
mod footprint;
mod scarce;

thread_local! {
    /// Number of this thread's requests for memory.
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that it has taken and not given back.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// Bytes above which it gets none.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The call that gets none, counted from the next one on; zero for no call.
    static REFUSED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work, and to refuse is allowed; the counters are plain numbers of the calling thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !MOST.try_with(Cell::get).is_ok_and(|most| layout.size() <= most) {
            return core::ptr::null_mut();
        }
        if REFUSED.try_with(|left| left.replace(left.get().saturating_sub(1)) == 1) == Ok(true) {
            return core::ptr::null_mut();
        }
        CALLS.with(|calls| calls.set(calls.get() + 1));
        BYTES.with(|bytes| bytes.set(bytes.get() + i64::try_from(layout.size()).expect("a size")));
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.with(|bytes| bytes.set(bytes.get() - i64::try_from(layout.size()).expect("a size")));
        // SAFETY: the caller's promise is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
