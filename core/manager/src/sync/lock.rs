//! The spin lock of the hot path.
#![expect(unsafe_code, reason = "a lock hands out a reference to what it guards")]
use super::primitive::{AtomicBool, UnsafeCell, take};
use core::fmt;
use core::hint;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::thread;

/// Tries before a waiting thread yields, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 1024;

/// A lock that costs one atomic exchange to take and one plain store to release.
///
/// Waiters spin briefly, then yield, then sleep. A panic does not poison it, because no change of the guarded state
/// can panic half-way.
pub(crate) struct Mutex<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` gives access to one thread at a time, so sharing the lock only ever sends the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to the value of a [`Mutex`]; dropping it releases the lock.
pub(crate) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        #[cfg(windows_between_locks)]
        windows::enter();
        if !self.take() {
            self.wait();
        }
        Guard { mutex: self }
    }

    /// Takes the lock if it is free; returns whether it did.
    #[inline]
    fn take(&self) -> bool {
        take(&self.taken)
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
            if self.take() {
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
        #[cfg(windows_between_locks)]
        windows::leave();
    }
}

/// Windows before locks, where a thread that holds none may be overtaken: the worlds of `tests/exhaustive` let another one act there.
/// No other crate is built with them.
#[cfg(windows_between_locks)]
pub(crate) mod windows {
    use core::cell::Cell;
    use std::thread_local;

    thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
        static ACT: Cell<fn()> = const { Cell::new(|| ()) };
    }

    /// Sets what the calling thread does from now on before it takes a lock while it holds none.
    pub fn act_between_locks(act: fn()) {
        ACT.set(act);
    }

    pub(super) fn enter() {
        if HELD.get() == 0 {
            ACT.get()();
        }
        HELD.set(HELD.get() + 1);
    }

    pub(super) fn leave() {
        HELD.set(HELD.get() - 1);
    }
}

/// A model of the lock's ordering. It leaves out waiting: a thread that finds the lock taken gives up.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use alloc::sync::Arc;

    fn add(shared: &Mutex<u32>) -> u32 {
        if !shared.take() {
            return 0;
        }
        let mut guard = Guard { mutex: shared };
        *guard += 1;
        1
    }

    #[test]
    fn one_is_inside_and_sees_what_the_last_did() {
        loom::model(|| {
            let shared = Arc::new(Mutex::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || add(&shared) + add(&shared))
                })
                .collect();
            let mut added = add(&shared);
            added +=
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u32>();
            assert!(shared.take(), "everyone gave it back");
            assert_eq!(*Guard { mutex: &shared }, added);
        });
    }
}
