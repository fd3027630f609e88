//! Limits on the bytes held of a heap: budgets, domains that share a device, and asking the program to free something.
#![forbid(unsafe_code)]
use super::pools::number_of;
use super::{Manager, ManagerConfig};
use crate::device::HeapUse;
use crate::pool::Pool;
use crate::{Backend, ErrorKind, HeapId, Result};
use alloc::vec::Vec;
use core::cell::RefCell;

/// The budget of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes above which the manager returns empty memory to the driver before it grows.
    pub soft: u64,
    /// Bytes that the manager never holds more than.
    pub hard: u64,
}

impl Limits {
    /// No budget.
    pub const NONE: Self = Self::hard(u64::MAX);

    /// Returns a budget whose soft limit is the hard one.
    #[must_use]
    pub const fn hard(bytes: u64) -> Self {
        Self { soft: bytes, hard: bytes }
    }
}

/// Memory is short: what a pressure callback is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// The heap that is short.
    pub heap: HeapId,
    /// Bytes that are asked for.
    pub wanted: u64,
    /// Bytes held from the heap.
    pub reserved: u64,
    /// The pool that asks, as a number; none where no request does.
    pub(super) asker: Option<usize>,
}

/// Result of a pressure callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Something was freed: worth one more try.
    Freed,
    /// Nothing changed.
    Nothing,
}

impl<B: Backend> Manager<B> {
    /// Sets how much of a heap may be held: above `soft`, memory is given back early; above `hard`, requests fail.
    ///
    /// A limit below what is held frees nothing by force; it only stops growth.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `InvalidConfig` when `soft` is above `hard`.
    pub fn set_budget(&self, heap: HeapId, limits: Limits) -> Result<()> {
        self.inner.device.set_limits(heap, limits.soft, limits.hard)
    }

    /// Sets the hard limit of a heap to a share of its size; the soft limit is the same.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `InvalidConfig` unless the share is between 0 and 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size: checked to lie between nothing and all of it"
    )]
    pub fn set_budget_share(&self, heap: HeapId, share: f64) -> Result<()> {
        let size = self.inner.device.heap(heap)?.size;
        if !(0.0..=1.0).contains(&share) {
            return Err(ErrorKind::InvalidConfig.because("the share is not between 0 and 1"));
        }
        let limit = (size as f64 * share) as u64;
        self.set_budget(heap, Limits::hard(limit))
    }

    /// Resets the peaks of the report to the bytes live and held now.
    pub fn reset_peaks(&self) {
        self.inner.device.reset_peaks();
        for lane in self.all_pools().into_iter().flat_map(|pool| pool.lanes()) {
            lane.reset_peaks();
        }
    }

    /// Returns the bytes held from a heap, and their limits.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`.
    pub fn heap_use(&self, heap: HeapId) -> Result<HeapUse> {
        self.inner.device.heap_use(heap)
    }

    /// Makes another manager of the same device: a domain of its own, for a tenant that must not see what others left.
    ///
    /// Domains share the driver and its limits and nothing else: each has its own pools, budgets and report. As long as
    /// there is one domain, nothing is cleared; from the second on, every domain clears memory that it takes from the
    /// driver before anyone gets it. [`set_budget`](Self::set_budget) is a domain's quota,
    /// [`set_reserve`](Self::set_reserve) what the others must leave to it.
    ///
    /// # Errors
    ///
    /// `Unsupported` when the device cannot clear memory.
    pub fn domain(&self, config: ManagerConfig) -> Result<Self> {
        if self.backend().as_transfer().is_none() {
            return Err(ErrorKind::Unsupported.because("domains need a device that clears memory"));
        }
        Ok(Self::over(self.inner.device.another(), config))
    }

    /// Promises this domain bytes of a heap, held or not: other domains fail before they take them.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `ExceedsLimit` when the heap, or the limit of the process, has not that much beside what others hold and were
    /// promised.
    pub fn set_reserve(&self, heap: HeapId, bytes: u64) -> Result<()> {
        self.inner.device.promise(heap, bytes)
    }

    /// Returns memory of the device to the driver because another program needs `bytes`: empty memory first, then what
    /// pressure callbacks free. Returns how many bytes were returned, which may be more or less. Memory of the host
    /// stays ([`Caps::is_device_memory`](crate::Caps::is_device_memory)).
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn return_memory(&self, bytes: u64) -> Result<u64> {
        let of_device = |heap| self.caps().is_device_memory(heap);
        let heaps: Vec<HeapId> = self.caps().heap_ids().map(|(heap, _)| heap).collect();
        let held = || {
            let all = heaps.iter().filter(|heap| of_device(**heap));
            all.filter_map(|heap| self.heap_use(*heap).ok()).map(|it| it.reserved).sum::<u64>()
        };
        let mut returned = self.trim_some(bytes, of_device)?;
        for heap in heaps.iter().copied().filter(|heap| of_device(*heap)) {
            let before = held();
            if returned < bytes && self.relieve(heap, bytes - returned, None) == Relief::Freed {
                self.trim_some(bytes - returned, of_device)?;
                // Memory that callbacks free may have gone to the driver at once, from any heap.
                returned += before.saturating_sub(held());
            }
        }
        Ok(returned)
    }
}

std::thread_local! {
    /// The managers whose callbacks this thread runs now, by number.
    static ASKING: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Keeps this thread from running the callbacks of a manager again, while it lives.
struct Asking(u32);

impl Asking {
    /// Begins; `None` where this thread is asking already: a callback that allocates would be asked without end.
    fn begin(manager: u32) -> Option<Self> {
        let begun = ASKING.try_with(|asking| {
            let mut asking = asking.borrow_mut();
            let is_first = !asking.contains(&manager);
            if is_first {
                asking.push(manager);
            }
            is_first
        });
        // A thread that is ending runs no callbacks.
        begun.unwrap_or(false).then_some(Self(manager))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // A thread that is ending has forgotten already.
        let _ = ASKING.try_with(|asking| asking.borrow_mut().retain(|other| *other != self.0));
    }
}

impl<B: Backend> Manager<B> {
    /// Runs the pressure callbacks, without a lock; not again for what such a callback itself asks for.
    pub(super) fn relieve(&self, heap: HeapId, wanted: u64, asker: Option<&Pool<B>>) -> Relief {
        let Some(_asking) = Asking::begin(self.number()) else { return Relief::Nothing };
        let callbacks: Vec<_> = self.inner.callbacks.lock().clone();
        let reserved = self.inner.device.heap_use(heap).map_or(0, |heap| heap.reserved);
        let pressure = Pressure { heap, wanted, reserved, asker: asker.map(number_of) };
        let mut relief = Relief::Nothing;
        for callback in callbacks {
            if callback(&pressure) == Relief::Freed {
                relief = Relief::Freed;
            }
        }
        relief
    }
}
