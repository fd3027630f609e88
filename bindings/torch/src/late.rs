//! Frees that wait for other streams, and when to look whether those have passed.
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Requests between two looks, at most.
const MOST: u32 = 64;

/// Number of frees that wait for other streams, as far as is known.
///
/// PyTorch's own allocator looks at every request, and programs see the same addresses again. A look asks the driver, so that after
/// looks in vain ever more requests go without one.
#[derive(Debug, Default)]
pub(crate) struct LateFrees {
    frees: AtomicU64,
    /// Looks in vain since something has passed or was freed.
    vain: AtomicU32,
    /// Requests since the last look.
    since: AtomicU32,
}

impl LateFrees {
    /// Notes frees that wait for other streams.
    pub(crate) fn freed(&self, frees: u64) {
        if frees > 0 {
            self.frees.fetch_add(frees, Relaxed);
            self.vain.store(0, Relaxed);
        }
    }

    /// Returns true if frees wait.
    #[inline]
    pub(crate) fn are_waiting(&self) -> bool {
        self.frees.load(Relaxed) > 0
    }

    /// Before a request: looks with `look`, which says how many frees have passed, where it is time to.
    #[cold]
    pub(crate) fn look(&self, look: impl FnOnce() -> u64) {
        let vain = self.vain.load(Relaxed);
        if self.since.fetch_add(1, Relaxed) + 1 < vain {
            return;
        }
        self.since.store(0, Relaxed);
        match look() {
            0 => self.vain.store((vain + 1).min(MOST), Relaxed),
            passed => {
                self.vain.store(0, Relaxed);
                let less = |frees: u64| Some(frees.saturating_sub(passed));
                let _ = self.frees.fetch_update(Relaxed, Relaxed, less);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn looks_in_vain_become_rare_until_something_is_freed() {
        let (late, looks) = (LateFrees::default(), Cell::new(0));
        let request = |passed: u64| {
            if late.are_waiting() {
                late.look(|| {
                    looks.set(looks.get() + 1);
                    passed
                });
            }
        };
        request(0);
        assert_eq!(looks.get(), 0, "nothing waits");
        late.freed(1);
        (0..3).for_each(|_| request(0));
        assert_eq!(looks.get(), 2, "a look at once and one more, then one of two");
        (0..10_000).for_each(|_| request(0));
        let rare = looks.get();
        (0..640).for_each(|_| request(0));
        assert_eq!(looks.get() - rare, 10);
        late.freed(1);
        request(0);
        assert_eq!(looks.get() - rare, 11, "a free is looked at soon");
        request(2);
        assert_eq!(looks.get() - rare, 12);
        (0..10).for_each(|_| request(0));
        assert_eq!(looks.get() - rare, 12, "all have passed");
        late.freed(2);
        (0..1000).for_each(|_| request(0));
        let rare = looks.get();
        while looks.get() == rare {
            request(1);
        }
        request(0);
        assert_eq!(looks.get() - rare, 2, "where one has passed, the next may have");
    }
}
