//! The locks of the hot path. A lane's lock is held for tens of nanoseconds and never over a driver call.
#![expect(unsafe_code, reason = "a lock hands out a reference to what it guards")]
use core::cell::UnsafeCell;
use core::fmt;
use core::hint;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::PoisonError;
use std::thread;

/// Tries before a waiting thread gives its core away, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 1024;

/// A lock that costs one atomic exchange to take and a plain store to give back.
///
/// Waiters spin briefly, then yield, then sleep. A panic does not poison it: the state that it guards is changed only
/// by steps that cannot panic half-way.
pub(crate) struct Mutex<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` gives access to one thread at a time, so sharing the lock only ever sends the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to what a [`Mutex`] guards, until it is dropped.
pub(crate) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Guard { mutex: self }
    }

    /// Waits until the lock is free, and takes it.
    #[cold]
    fn wait(&self) {
        let mut tries = 0;
        loop {
            while self.taken.load(Ordering::Relaxed) {
                match tries {
                    0..SPINS => hint::spin_loop(),
                    SPINS..YIELDS => thread::yield_now(),
                    _ => thread::sleep(Duration::from_micros(50)),
                }
                tries += 1;
            }
            if !self.taken.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `lock` made this guard after taking the lock, which only its drop gives back.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.taken.store(false, Ordering::Release);
    }
}

/// Something that happens again and again, and that threads wait for.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    count: std::sync::Mutex<u64>,
    changed: std::sync::Condvar,
}

impl Signal {
    /// How often it happened so far.
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that it happened.
    pub(crate) fn raise(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until it has happened more than `count` times.
    pub(crate) fn wait_beyond(&self, count: u64) {
        let seen = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.changed
                .wait_while(seen, |now| *now <= count)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}
