//! Locks and signals. A lane's lock is held for tens of nanoseconds and never during a driver call.
#[cfg_attr(loom, expect(dead_code, reason = "models use the checker's lock"))]
mod lock;

#[cfg(not(loom))]
pub(crate) use self::lock::{Guard, Mutex};
#[cfg(loom)]
pub(crate) use self::primitive::{Guard, Mutex};
pub(crate) use self::primitive::{arrivals_of_this_thread, count_arrival, thread_number};

use self::primitive::{Condvar, StdMutex};
use core::time::Duration;
use std::sync::PoisonError;

/// A counted event that threads wait for.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    count: StdMutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// Returns how often the event happened.
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the event and wakes all waiting threads.
    pub(crate) fn raise(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until the event has happened more than `count` times.
    pub(crate) fn wait_beyond(&self, count: u64) {
        let mut seen = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *seen <= count {
            seen = self.changed.wait(seen).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`wait_beyond`](Self::wait_beyond), but for at most `most`. May return early.
    pub(crate) fn wait_beyond_for(&self, count: u64, most: Duration) {
        let seen = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen <= count {
            drop(self.changed.wait_timeout(seen, most));
        }
    }
}

/// The parts of locks.
#[cfg(not(loom))]
mod primitive {
    pub(super) use core::cell::UnsafeCell;
    pub(super) use core::sync::atomic::AtomicBool;
    pub(super) use std::sync::{Condvar, Mutex as StdMutex};

    use core::cell::Cell;
    use core::sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed},
    };

    /// Takes a lock that is free; returns whether it did.
    #[inline]
    pub(super) fn take(taken: &AtomicBool) -> bool {
        !taken.swap(true, Acquire)
    }

    /// Returns a small number for the calling thread. Numbers repeat only after 2³² threads.
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

    /// Counts an arrival of memory that the calling thread carried.
    pub(crate) fn count_arrival() {
        ARRIVALS.with(|count| count.set(count.get().wrapping_add(1)));
    }

    /// Returns the arrivals that the calling thread counted.
    pub(crate) fn arrivals_of_this_thread() -> u64 {
        ARRIVALS.with(Cell::get)
    }
}

/// The parts of locks for the model checker: see `models`.
#[cfg(loom)]
mod primitive {
    pub(crate) use loom::sync::MutexGuard as Guard;
    pub(super) use loom::sync::atomic::AtomicBool;
    pub(super) use loom::sync::{Condvar, Mutex as StdMutex};

    use core::cell::Cell;
    use core::sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed},
    };
    use std::sync::PoisonError;

    /// Takes a lock that is free; returns whether it did.
    ///
    /// The checker does not order a swap that finds `true` before the store of `false` that it overlaps. A failed
    /// compare-exchange stores nothing, so it stands for the swap.
    pub(super) fn take(taken: &AtomicBool) -> bool {
        taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    /// A cell that fails a model in which two threads may access it at once.
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

    /// The checker's own lock. It replaces ours, because the checker lets a loop that only loads see an old value for ever.
    /// Our lock has a model of its own.
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

    /// Returns a small number for the calling thread, the same in every run of a model.
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

    /// Counts an arrival of memory that the calling thread carried.
    pub(crate) fn count_arrival() {
        ARRIVALS.with(|count| count.set(count.get().wrapping_add(1)));
    }

    /// Returns the arrivals that the calling thread counted.
    pub(crate) fn arrivals_of_this_thread() -> u64 {
        ARRIVALS.with(Cell::get)
    }
}
