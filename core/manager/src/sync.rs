//! Locks and signals. A lane's lock is held for tens of nanoseconds and never during a driver call.
#[cfg_attr(loom, expect(dead_code, reason = "models use the checker's lock"))]
mod lock;

#[cfg(windows_between_locks)]
pub use self::lock::windows::act_between_locks;
#[cfg(not(loom))]
pub(crate) use self::lock::{Guard, Mutex};
pub(crate) use self::primitive::thread_number;
#[cfg(loom)]
pub(crate) use self::primitive::{Guard, Mutex};

use self::primitive::{Condvar, StdMutex, thread_local};
use core::cell::Cell;
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

/// Returns a number that no other living thread has.
pub(crate) fn thread_address() -> usize {
    thread_local! {
        #[allow(clippy::missing_const_for_thread_local, reason = "the checker's macro takes no constant")]
        static HERE: Cell<u8> = Cell::new(0);
    }
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

/// The parts of locks.
#[cfg(not(loom))]
mod primitive {
    pub(super) use core::cell::UnsafeCell;
    pub(super) use core::sync::atomic::AtomicBool;
    pub(super) use std::sync::{Condvar, Mutex as StdMutex};
    pub(super) use std::thread_local;

    use core::cell::{Cell, RefCell};
    use core::sync::atomic::Ordering::Acquire;
    use std::sync::PoisonError;

    /// Takes a lock that is free; returns whether it did.
    #[inline]
    pub(super) fn take(taken: &AtomicBool) -> bool {
        !taken.swap(true, Acquire)
    }

    /// Numbers that threads have: as many as a pool has lanes at most.
    const NUMBERS: usize = 64;
    /// Number of living threads that have each number.
    static THREADS: StdMutex<[u32; NUMBERS]> = StdMutex::new([0; NUMBERS]);

    /// A thread's number, which the next thread gets once this one has ended. So numbers follow the threads that live, and not
    /// those that ever were.
    struct Number(usize);

    impl Number {
        /// The lowest of the numbers that the fewest threads have.
        fn take() -> Self {
            let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
            let number = (0..NUMBERS).min_by_key(|number| threads[*number]).unwrap_or(0);
            threads[number] += 1;
            Self(number)
        }
    }

    impl Drop for Number {
        fn drop(&mut self) {
            THREADS.lock().unwrap_or_else(PoisonError::into_inner)[self.0] -= 1;
        }
    }

    /// Returns a small number for the calling thread: its own while no more than 64 threads live that asked for one.
    #[inline]
    pub(crate) fn thread_number() -> usize {
        thread_local! {
            static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(take_number());
            }
            number.get()
        })
    }

    /// Takes a number until the thread ends. A thread that has no place for it any more gives it back at once.
    #[cold]
    fn take_number() -> usize {
        thread_local! {
            static TAKEN: RefCell<Option<Number>> = const { RefCell::new(None) };
        }
        let taken = Number::take();
        let number = taken.0;
        let _ = TAKEN.try_with(|keep| keep.replace(Some(taken)));
        number
    }
}

/// The parts of locks for the model checker: see `models`.
#[cfg(loom)]
mod primitive {
    pub(crate) use loom::sync::MutexGuard as Guard;
    pub(super) use loom::sync::atomic::AtomicBool;
    pub(super) use loom::sync::{Condvar, Mutex as StdMutex};
    pub(super) use loom::thread_local;

    use core::sync::atomic::{
        AtomicUsize,
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
    pub(crate) fn thread_number() -> usize {
        loom::lazy_static! {
            static ref NEXT: AtomicUsize = AtomicUsize::new(0);
        }
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
        }
        NUMBER.with(|number| *number)
    }
}

/// Models of threads; those that need a manager are in `tests/loom`.
#[cfg(all(test, loom))]
mod models {
    use super::{Mutex, Signal};
    use alloc::sync::Arc;
    use loom::thread;

    #[test]
    fn a_signal_is_never_missed() {
        loom::model(|| {
            let signal = Arc::new(Signal::default());
            let done = Arc::new(Mutex::new(false));
            let other = thread::spawn({
                let (signal, done) = (Arc::clone(&signal), Arc::clone(&done));
                move || {
                    *done.lock() = true;
                    signal.raise();
                }
            });
            // As those do who wait for something: count, look, wait.
            loop {
                let count = signal.count();
                if *done.lock() {
                    break;
                }
                signal.wait_beyond(count);
            }
            other.join().expect("no panic");
        });
    }
}
