//! Limits set from outside of the process: read when a device is opened and when memory is refused.
#![forbid(unsafe_code)]
use crate::sync::Mutex;
use crate::{Backend, ErrorKind, HeapId, LimitKind, LimitValue, SystemLimit};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapLimit {
    /// The heap. A limit of the process counts all heaps in the memory of the device together
    /// ([`Caps::is_device_memory`](crate::Caps::is_device_memory)), and names the first of them.
    pub heap: HeapId,
    /// The limit.
    pub limit: SystemLimit,
}

/// All counted heaps, over all domains.
#[derive(Debug, Default)]
struct Booked {
    /// Bytes that are held.
    held: u64,
    /// Bytes that were promised to domains and that those do not hold yet.
    promised: u64,
}

/// The latest readings, and what they count. All domains of a device share them: they are limits of the process.
#[derive(Debug)]
pub(super) struct SystemLimits {
    /// True for each heap whose bytes count. Nobody outside counts pinned host memory.
    counted: Vec<bool>,
    booked: Mutex<Booked>,
    /// The least limits; `u64::MAX` where there are none.
    hard: AtomicU64,
    soft: AtomicU64,
    told: Mutex<Vec<HeapLimit>>,
}

impl SystemLimits {
    /// Reads the limits of a device that is being opened.
    pub(super) fn new<B: Backend>(backend: &B) -> Self {
        let caps = backend.caps();
        let limits = Self {
            counted: caps.heap_ids().map(|(heap, _)| caps.is_device_memory(heap)).collect(),
            booked: Mutex::new(Booked::default()),
            hard: AtomicU64::new(u64::MAX),
            soft: AtomicU64::new(u64::MAX),
            told: Mutex::new(Vec::new()),
        };
        limits.read(backend);
        limits
    }

    /// Reads all limits anew, once for each physical memory: its heaps have the same ones.
    pub(super) fn read<B: Backend>(&self, backend: &B) {
        let Some(budget) = backend.as_budget() else { return };
        let (mut told, mut asked) = (Vec::<HeapLimit>::new(), Vec::new());
        for (heap, about) in backend.caps().heap_ids().filter(|(heap, _)| self.counts(*heap)) {
            if asked.contains(&about.physical) {
                continue;
            }
            asked.push(about.physical);
            for limit in budget.limits(heap) {
                if !told.iter().any(|known| known.limit == limit) {
                    told.push(HeapLimit { heap, limit });
                }
            }
        }
        self.hard.store(least_of(&told, LimitKind::Hard), Relaxed);
        self.soft.store(least_of(&told, LimitKind::Soft), Relaxed);
        let mut before = self.told.lock();
        if *before != told {
            told.iter().for_each(say);
            *before = told;
        }
    }

    fn counts(&self, heap: HeapId) -> bool {
        self.counted.get(usize::from(heap.0)).copied().unwrap_or(false)
    }

    /// Books bytes of one domain, whose own unheld promise in the heap goes from `before` to `after`, if all counted heaps together
    /// stay within the limit beside what other promises keep.
    pub(super) fn claim(
        &self,
        heap: HeapId,
        bytes: u64,
        before: u64,
        after: u64,
    ) -> Result<(), ErrorKind> {
        if !self.counts(heap) {
            return Ok(());
        }
        let mut booked = self.booked.lock();
        let others = booked.promised - before;
        let held = booked.held.checked_add(bytes).ok_or(ErrorKind::OverBudget)?;
        if held.saturating_add(others) > self.hard.load(Relaxed) {
            return Err(ErrorKind::OverBudget);
        }
        *booked = Booked { held, promised: others + after };
        Ok(())
    }

    /// Books bytes of one domain back.
    pub(super) fn release(&self, heap: HeapId, bytes: u64, before: u64, after: u64) {
        if self.counts(heap) {
            let mut booked = self.booked.lock();
            booked.held -= bytes;
            booked.promised = booked.promised - before + after;
        }
    }

    /// Changes one domain's unheld promise in a heap.
    pub(super) fn promise(&self, heap: HeapId, before: u64, after: u64) -> Result<(), ErrorKind> {
        if !self.counts(heap) {
            return Ok(());
        }
        let mut booked = self.booked.lock();
        let promised = (booked.promised - before).saturating_add(after);
        // To ask for less is never too much.
        if after > before && promised.saturating_add(booked.held) > self.hard.load(Relaxed) {
            return Err(ErrorKind::ExceedsLimit);
        }
        booked.promised = promised;
        Ok(())
    }

    /// Returns the bytes that all domains hold in all counted heaps.
    pub(super) fn held(&self) -> u64 {
        self.booked.lock().held
    }

    /// Returns the bytes of all counted heaps that the process may hold; `u64::MAX` for a heap that is not counted.
    pub(super) fn hard(&self, heap: HeapId) -> u64 {
        if self.counts(heap) { self.hard.load(Relaxed) } else { u64::MAX }
    }

    /// Returns how much of a heap a domain may hold, and above how much memory is returned early. The domain holds `own` in this
    /// heap, and was promised `unheld` more there.
    pub(super) fn left(&self, heap: HeapId, own: u64, unheld: u64) -> (u64, u64) {
        if !self.counts(heap) {
            return (u64::MAX, u64::MAX);
        }
        let booked = self.booked.lock();
        let others = booked.held.saturating_sub(own) + booked.promised.saturating_sub(unheld);
        drop(booked);
        let left = |most: u64| if most < u64::MAX { most.saturating_sub(others) } else { most };
        let hard = left(self.hard.load(Relaxed));
        (hard, left(self.soft.load(Relaxed)).min(hard))
    }

    /// Returns the limits as they were last read.
    pub(super) fn told(&self) -> Vec<HeapLimit> {
        self.told.lock().clone()
    }
}

fn least_of(told: &[HeapLimit], kind: LimitKind) -> u64 {
    let own = told.iter().filter(|each| each.limit.kind == kind);
    let bytes = own.filter_map(|each| match each.limit.value {
        LimitValue::Bytes(bytes) => Some(bytes),
        _ => None,
    });
    bytes.min().unwrap_or(u64::MAX)
}

fn say(each: &HeapLimit) {
    let (heap, source) = (each.heap.0, &*each.limit.source);
    match &each.limit.value {
        LimitValue::Bytes(bytes) => {
            tracing::info!(target: "omniheap", heap, source, bytes, "memory is limited from outside");
        }
        LimitValue::Unreadable(why) => {
            tracing::warn!(target: "omniheap", heap, source, why, "a memory limit cannot be read");
        }
        _ => {}
    }
}
