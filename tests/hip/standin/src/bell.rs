//! One bell for everything that can become true: whoever changes a value rings it, whoever waits looks again.

use core::sync::atomic::{AtomicUsize, Ordering, fence};
use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

static LOCK: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Looks before going to sleep: most waits are short.
const LOOKS: u32 = 200;
/// Longest sleep between two looks. HIP may write a signal's value without telling us.
const NAP: Duration = Duration::from_millis(20);

/// Wakes everyone who waits. Call it after the change.
pub(crate) fn ring() {
    // Pairs with the fence in `wait`: either we see the waiter, or the waiter sees the change.
    fence(Ordering::SeqCst);
    if WAITING.load(Ordering::SeqCst) > 0 {
        let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        CHANGED.notify_all();
    }
}

/// Waits until `look` answers something, at most until `deadline`.
pub(crate) fn wait<T>(deadline: Option<Instant>, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        if let Some(seen) = look() {
            return Some(seen);
        }
        core::hint::spin_loop();
    }
    let mut guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let seen = loop {
        let left = deadline
            .map_or(NAP, |deadline| deadline.saturating_duration_since(Instant::now()).min(NAP));
        if let Some(seen) = look() {
            break Some(seen);
        }
        if left.is_zero() {
            break None;
        }
        guard = CHANGED.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
    };
    WAITING.fetch_sub(1, Ordering::SeqCst);
    drop(guard);
    seen
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};
    use core::time::Duration;
    use std::time::Instant;

    use super::{ring, wait};

    #[test]
    fn a_waiter_sees_the_change() {
        static DONE: AtomicBool = AtomicBool::new(false);
        let waiter = std::thread::spawn(|| wait(None, || DONE.load(Ordering::SeqCst).then_some(7)));
        DONE.store(true, Ordering::SeqCst);
        ring();
        assert_eq!(waiter.join().expect("does not panic"), Some(7));
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let start = Instant::now();
        assert_eq!(wait(Some(start + Duration::from_millis(20)), || None::<()>), None);
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
