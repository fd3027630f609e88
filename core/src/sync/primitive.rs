//! What locks are made of.
#![forbid(unsafe_code)]
pub(super) use core::cell::UnsafeCell;
pub(super) use core::sync::atomic::AtomicBool;
pub(super) use std::sync::{Condvar, Mutex as StdMutex};

use core::cell::Cell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};

/// Takes what is not taken.
#[inline]
pub(super) fn take(taken: &AtomicBool) -> bool {
    !taken.swap(true, Acquire)
}

/// A small number for the calling thread: threads that live at the same time have different ones while they can.
#[inline]
pub(crate) fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(u32::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == u32::MAX {
            number.set(NEXT.fetch_add(1, Relaxed) % (u32::MAX - 1));
        }
        number.get()
    })
}

std::thread_local! {
    static ARRIVALS: Cell<u64> = const { Cell::new(0) };
}

/// Counts something that the calling thread brought.
pub(crate) fn count_arrival() {
    ARRIVALS.with(|count| count.set(count.get().wrapping_add(1)));
}

/// How often the calling thread brought something.
pub(crate) fn arrivals_of_this_thread() -> u64 {
    ARRIVALS.with(Cell::get)
}
