//! Memory on its way between the driver and the pools: for a moment no search finds it.
//!
//! A thread that is refused by the driver while another thread carries memory must not fail: what that one carries may
//! be just what is missing. So a thread that carries memory registers it, and a thread that is refused waits for those that do, and looks
//! again if one of them arrived.
#![forbid(unsafe_code)]
use crate::sync::{Mutex, Signal, thread_address};
use alloc::vec::Vec;
use core::time::Duration;
use std::time::Instant;

/// A driver that takes longer than this is not waited for: it may itself wait for something that the waiter holds.
const LONGEST: Duration = Duration::from_secs(1);

/// Everything under way on one device.
#[derive(Debug)]
pub(crate) struct InFlight {
    counts: Mutex<Counts>,
    ended: Signal,
}

#[derive(Debug, Default)]
struct Counts {
    next: u64,
    under_way: Vec<u64>,
    /// Watches: a number, the thread that watches, and whether another one has published memory since.
    watches: Vec<(u64, usize, bool)>,
}

/// One thread carries memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard<'a> {
    all: &'a InFlight,
    number: u64,
    arrived: bool,
}

/// Sees whether other threads publish memory while it lives.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    all: &'a InFlight,
    number: u64,
}

impl InFlight {
    pub(super) fn new() -> Self {
        Self { counts: Mutex::new(Counts::default()), ended: Signal::default() }
    }

    /// Registers that the calling thread takes memory out of sight.
    pub(crate) fn begin(&self) -> InFlightGuard<'_> {
        let mut counts = self.counts.lock();
        let number = counts.next;
        counts.next += 1;
        counts.under_way.push(number);
        InFlightGuard { all: self, number, arrived: false }
    }

    /// Looks on what other threads than the calling one bring from now on.
    pub(crate) fn watch(&self) -> Watch<'_> {
        let counts = &mut *self.counts.lock();
        counts.next += 1;
        counts.watches.push((counts.next, thread_address(), false));
        Watch { all: self, number: counts.next }
    }

    /// Waits for all threads that carry memory now; the calling thread must carry none.
    pub(crate) fn wait(&self) {
        let (before, start) = (self.counts.lock().next, Instant::now());
        loop {
            let ended = self.ended.count();
            let busy = self.counts.lock().under_way.iter().any(|number| *number < before);
            let left = LONGEST.saturating_sub(start.elapsed());
            if !busy || left.is_zero() {
                return;
            }
            self.ended.wait_beyond_for(ended, left);
        }
    }
}

impl InFlightGuard<'_> {
    /// Records that what was carried can be found again.
    pub(crate) fn publish(mut self) {
        self.arrived = true;
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut counts = self.all.counts.lock();
        counts.under_way.retain(|number| *number != self.number);
        if self.arrived {
            let own = thread_address();
            let others = counts.watches.iter_mut().filter(|(_, thread, _)| *thread != own);
            others.for_each(|(.., arrived)| *arrived = true);
        }
        drop(counts);
        self.all.ended.raise();
    }
}

impl Watch<'_> {
    /// Returns true if another thread has published memory.
    pub(crate) fn has_seen(&self) -> bool {
        let counts = self.all.counts.lock();
        counts.watches.iter().any(|(number, _, arrived)| *number == self.number && *arrived)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.all.counts.lock().watches.retain(|(number, ..)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::thread;

    #[test]
    fn who_is_refused_waits_for_everyone_that_carries_memory() {
        let (all, ended) = (InFlight::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            let carried = all.begin();
            let waiter = scope.spawn(|| {
                all.wait();
                assert!(ended.load(SeqCst), "somebody still carries memory");
            });
            // Long enough for the waiter to begin; what is shorter cannot make it fail.
            thread::sleep(Duration::from_millis(30));
            ended.store(true, SeqCst);
            drop(carried);
            waiter.join().expect("it waited");
        });
        all.wait();
    }

    #[test]
    fn what_others_brought_counts_and_what_came_to_nothing_does_not() {
        let (all, elsewhere) = (InFlight::new(), InFlight::new());
        let watch = all.watch();
        drop(all.begin());
        all.begin().publish();
        assert!(!watch.has_seen(), "nothing, and what this thread brought itself");
        elsewhere.begin().publish();
        assert!(!watch.has_seen(), "what it brought to another device is not here");
        let by_another = |publish: bool| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let carried = all.begin();
                    if publish {
                        carried.publish();
                    }
                });
            });
        };
        by_another(false);
        assert!(!watch.has_seen());
        by_another(true);
        assert!(
            watch.has_seen() && !all.watch().has_seen(),
            "who looks later sees what comes later"
        );
    }
}
