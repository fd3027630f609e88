//! A lock for a few loads and stores. Taking it costs one atomic exchange and giving it back none: every allocation takes two.
#![expect(unsafe_code, reason = "shares what the lock keeps to one thread")]
use core::cell::UnsafeCell;
use core::fmt;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread::yield_now;

/// Looks at a lock that is held before the thread lets others run.
const LOOKS: u32 = 64;

/// A value that one thread at a time uses.
#[derive(Default)]
pub(crate) struct Spin<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, of which there is one at a time; it moves between threads, so it is `Send`.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> fmt::Debug for Spin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spin").field("is_held", &self.is_held).finish_non_exhaustive()
    }
}

impl<T> Spin<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    #[inline]
    pub(crate) fn take(&self) -> Held<'_, T> {
        if self.is_held.swap(true, Acquire) {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..LOOKS {
                if !self.is_held.load(Relaxed) && !self.is_held.swap(true, Acquire) {
                    return;
                }
                spin_loop();
            }
            yield_now();
        }
    }
}

/// The value, until this is dropped.
pub(crate) struct Held<'a, T>(&'a Spin<T>);

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `take` made this the only guard, and the reference ends before it does.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` excludes other references of this guard.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_held.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_take_turns() {
        let count = Spin::new(0u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *count.take() += 1));
            }
        });
        assert_eq!(*count.take(), 40_000);
    }
}
