//! What locks are made of while the model checker watches: see `models`.
#![forbid(unsafe_code)]
pub(crate) use loom::sync::MutexGuard as Guard;
pub(super) use loom::sync::atomic::AtomicBool;
pub(super) use loom::sync::{Condvar, Mutex as StdMutex};

use core::cell::Cell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};
use std::sync::PoisonError;

/// Takes what is not taken. The checker does not know that an exchange which finds `true` comes before the store of
/// `false` that it overlaps, so one that changes nothing stands for it.
pub(super) fn take(taken: &AtomicBool) -> bool {
    taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
}

/// Fails a model where two threads may be inside.
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    pub(super) fn get(&self) -> *mut T {
        self.0.with_mut(|at| at)
    }
}

/// The checker's own lock, in the place of ours, whose waiting it cannot follow: a loop that only looks may see an old
/// value for ever. `lock` has a model of its own.
#[derive(Debug)]
pub(crate) struct Mutex<T>(StdMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(StdMutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A small number for the calling thread, the same in every run of a model.
pub(crate) fn thread_number() -> u32 {
    loom::lazy_static! {
        static ref NEXT: AtomicU32 = AtomicU32::new(0);
    }
    loom::thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

loom::thread_local! {
    static ARRIVALS: Cell<u64> = Cell::new(0);
}

/// Counts something that the calling thread brought.
pub(crate) fn count_arrival() {
    ARRIVALS.with(|count| count.set(count.get().wrapping_add(1)));
}

/// How often the calling thread brought something.
pub(crate) fn arrivals_of_this_thread() -> u64 {
    ARRIVALS.with(Cell::get)
}
