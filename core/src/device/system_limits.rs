//! Limits that somebody outside of the process has set: read when a device is opened and when memory is refused.
#![forbid(unsafe_code)]
use crate::sync::Mutex;
use crate::{Backend, HeapId, HeapKind, LimitKind, LimitValue, SystemLimit};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit of one heap, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapLimit {
    /// The heap.
    pub heap: HeapId,
    /// The limit.
    pub limit: SystemLimit,
}

/// The least hard and soft limit of one heap; `u64::MAX` where there is none.
#[derive(Debug)]
struct Least {
    hard: AtomicU64,
    soft: AtomicU64,
}

/// The latest readings. All domains of a device share them: they are limits of the process.
#[derive(Debug)]
pub(super) struct SystemLimits {
    heaps: Vec<Least>,
    told: Mutex<Vec<HeapLimit>>,
}

impl SystemLimits {
    /// Reads the limits of a device that is being opened.
    pub(super) fn new<B: Backend>(backend: &B) -> Self {
        let none = || Least { hard: AtomicU64::new(u64::MAX), soft: AtomicU64::new(u64::MAX) };
        let heaps = backend.caps().heaps.iter().map(|_| none()).collect();
        let limits = Self { heaps, told: Mutex::new(Vec::new()) };
        limits.read(backend);
        limits
    }

    /// Reads all limits anew. Device memory alone is limited: nobody outside counts pinned host memory.
    pub(super) fn read<B: Backend>(&self, backend: &B) {
        let Some(budget) = backend.as_budget() else { return };
        let caps = backend.caps().heap_ids();
        let device = caps.filter(|(_, heap)| heap.kind == HeapKind::Device).map(|(heap, _)| heap);
        let each = |heap| {
            let limits = budget.limits(heap).into_iter();
            limits.map(move |limit| HeapLimit { heap, limit })
        };
        let told: Vec<HeapLimit> = device.flat_map(each).collect();
        for ((heap, _), least) in backend.caps().heap_ids().zip(&self.heaps) {
            least.hard.store(least_of(&told, heap, LimitKind::Hard), Relaxed);
            least.soft.store(least_of(&told, heap, LimitKind::Soft), Relaxed);
        }
        let mut before = self.told.lock();
        if *before != told {
            told.iter().for_each(say);
            *before = told;
        }
    }

    /// Returns the bytes of a heap that the process may hold.
    pub(super) fn hard(&self, heap: HeapId) -> u64 {
        self.heaps.get(usize::from(heap.0)).map_or(u64::MAX, |least| least.hard.load(Relaxed))
    }

    /// Returns the bytes of a heap above which memory is returned early: the soft limit, or the hard one.
    pub(super) fn soft(&self, heap: HeapId) -> u64 {
        let soft = self.heaps.get(usize::from(heap.0)).map(|least| least.soft.load(Relaxed));
        soft.unwrap_or(u64::MAX).min(self.hard(heap))
    }

    /// Returns the limits as they were last read.
    pub(super) fn told(&self) -> Vec<HeapLimit> {
        self.told.lock().clone()
    }
}

fn least_of(told: &[HeapLimit], heap: HeapId, kind: LimitKind) -> u64 {
    let own = told.iter().filter(|each| each.heap == heap && each.limit.kind == kind);
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
