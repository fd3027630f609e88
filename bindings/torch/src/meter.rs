//! Memory of a program, as the program sees it: bytes count from the allocation to the free, wherever streams are.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use serde_json::{Map, Value, json};

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
        raise(&self.peak, now);
    }

    pub(crate) fn take(&self, amount: u64) {
        self.taken.fetch_add(amount, Relaxed);
    }

    /// Returns the present amount.
    pub(crate) fn now(&self) -> u64 {
        // The taken amount is read first: beside other threads this may show too much, never too little.
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

    /// Resets the peak to the present amount.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.now(), Relaxed);
    }
}

/// Unit of every address and every size, as PyTorch and CuPy have it: programs write a little behind the end of what
/// they asked for, and nobody noticed.
pub(crate) const UNIT: u64 = 512;

/// PyTorch's two classes of requests, which its figures tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SizeClass {
    Small,
    Large,
}

impl SizeClass {
    pub(crate) const ALL: [(Self, &'static str); 2] =
        [(Self::Small, "small_pool"), (Self::Large, "large_pool")];

    pub(crate) const fn of(size: u64) -> Self {
        if size <= 1 << 20 { Self::Small } else { Self::Large }
    }
}

/// Sums of a class of requests.
#[derive(Debug, Default)]
struct Sums {
    /// Allocations.
    count: Gauge,
    /// Their bytes, as they were asked for.
    bytes: Gauge,
    /// Their bytes in whole units, as PyTorch counts what is allocated.
    rounded: Gauge,
}

impl Sums {
    fn gauges(&self) -> [&Gauge; 3] {
        [&self.count, &self.bytes, &self.rounded]
    }
}

/// The names of a quantity's figures: what is there, its peak, what came and what went.
const NAMES: [[&str; 4]; 3] = [
    ["live", "peak_live", "allocated", "freed"],
    ["live_bytes", "peak_live_bytes", "allocated_bytes", "freed_bytes"],
    ["rounded_bytes", "peak_rounded_bytes", "rounded_allocated_bytes", "rounded_freed_bytes"],
];

/// One device's meter.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    small: Sums,
    large: Sums,
    /// The most that was there of both classes together: of allocations, bytes and bytes in whole units.
    peaks: [AtomicU64; 3],
    /// Requests that failed.
    pub(crate) failures: AtomicU64,
}

impl Meter {
    /// Bytes in whole units of one class.
    pub(crate) fn rounded(&self, class: SizeClass) -> u64 {
        self.of(class).rounded.now()
    }

    const fn of(&self, class: SizeClass) -> &Sums {
        match class {
            SizeClass::Small => &self.small,
            SizeClass::Large => &self.large,
        }
    }

    /// Both classes' gauges of each quantity, with the peak of their sum.
    fn pairs(&self) -> impl Iterator<Item = ([&Gauge; 2], &AtomicU64)> {
        let pairs = self.small.gauges().into_iter().zip(self.large.gauges());
        pairs.map(|(small, large)| [small, large]).zip(&self.peaks)
    }

    pub(crate) fn allocated(&self, size: u64) {
        let amounts = [1, size, size.next_multiple_of(UNIT)];
        let gauges = self.of(SizeClass::of(size)).gauges();
        gauges.into_iter().zip(amounts).for_each(|(gauge, amount)| gauge.add(amount));
        for (pair, peak) in self.pairs() {
            raise(peak, pair.iter().map(|gauge| gauge.now()).sum());
        }
    }

    pub(crate) fn freed(&self, size: u64) {
        let amounts = [1, size, size.next_multiple_of(UNIT)];
        let gauges = self.of(SizeClass::of(size)).gauges();
        gauges.into_iter().zip(amounts).for_each(|(gauge, amount)| gauge.take(amount));
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn reset_peaks(&self) {
        for (pair, peak) in self.pairs() {
            pair.iter().for_each(|gauge| gauge.reset_peak());
            peak.store(pair.iter().map(|gauge| gauge.now()).sum(), Relaxed);
        }
    }

    /// Every figure of both classes together.
    pub(crate) fn total(&self) -> Map<String, Value> {
        let figures = self.pairs().map(|(pair, peak)| {
            let sum = |of: fn(&Gauge) -> u64| pair.iter().map(|gauge| of(gauge)).sum();
            [sum(Gauge::now), peak.load(Relaxed), sum(Gauge::added), sum(Gauge::taken)]
        });
        named(figures)
    }

    /// Every figure of one class.
    pub(crate) fn figures(&self, class: SizeClass) -> Map<String, Value> {
        let figures = |gauge: &Gauge| [gauge.now(), gauge.peak(), gauge.added(), gauge.taken()];
        named(self.of(class).gauges().into_iter().map(figures))
    }
}

fn named(figures: impl Iterator<Item = [u64; 4]>) -> Map<String, Value> {
    let named = NAMES.iter().zip(figures).flat_map(|(names, figures)| names.iter().zip(figures));
    named.map(|(name, figure)| ((*name).to_owned(), json!(figure))).collect()
}

/// Raises a peak. It is looked at first: most programs stay below, and a load disturbs no other thread.
fn raise(peak: &AtomicU64, now: u64) {
    if now > peak.load(Relaxed) {
        peak.fetch_max(now, Relaxed);
    }
}
