//! What a program holds, as it sees it: bytes count from the allocation to the free, wherever streams are.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One quantity: how much came, how much went, and the most that was there.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    added: AtomicU64,
    taken: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    pub(crate) fn add(&self, amount: u64) {
        let added = self.added.fetch_add(amount, Relaxed) + amount;
        let now = added.saturating_sub(self.taken.load(Relaxed));
        // Looked at first: most programs stay below their peak, and a load disturbs no other thread.
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    pub(crate) fn take(&self, amount: u64) {
        self.taken.fetch_add(amount, Relaxed);
    }

    /// What is there.
    pub(crate) fn now(&self) -> u64 {
        // What goes is read first: beside other threads this may show too much, never too little.
        let taken = self.taken.load(Relaxed);
        self.added.load(Relaxed).saturating_sub(taken)
    }

    pub(crate) fn added(&self) -> u64 {
        self.added.load(Relaxed)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// Lets the peak begin anew, at what is there.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.now(), Relaxed);
    }
}

/// What every address and every size is a multiple of, as PyTorch and CuPy have it: programs write a little behind the end of
/// what they asked for, and nobody noticed.
pub(crate) const UNIT: u64 = 512;

/// One device's meter.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Allocations.
    pub(crate) count: Gauge,
    /// Their bytes, as they were asked for.
    pub(crate) bytes: Gauge,
    /// Their bytes in whole units, as PyTorch counts what is allocated.
    pub(crate) rounded: Gauge,
    /// Requests that failed.
    pub(crate) failures: AtomicU64,
}

impl Meter {
    pub(crate) fn allocated(&self, size: u64) {
        self.count.add(1);
        self.bytes.add(size);
        self.rounded.add(size.next_multiple_of(UNIT));
    }

    pub(crate) fn freed(&self, size: u64) {
        self.count.take(1);
        self.bytes.take(size);
        self.rounded.take(size.next_multiple_of(UNIT));
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn reset_peaks(&self) {
        self.count.reset_peak();
        self.bytes.reset_peak();
        self.rounded.reset_peak();
    }
}
