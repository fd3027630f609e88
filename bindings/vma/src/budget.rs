//! Budgets of the driver's heaps: what the driver told last, and what the allocator has taken since.
#![forbid(unsafe_code)]
use crate::abi::{VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT, VmaBudget};
use crate::allocator::Allocator;
use ash::vk;
use omniheap_seam::{HeapBudget, lock};
use std::sync::Mutex;

/// Requests that one answer of the driver serves. VMA asks again after as many operations.
const CHECKS: u32 = 30;

type OfHeaps<T> = [T; vk::MAX_MEMORY_HEAPS];

/// An answer of the driver, the bytes that the allocator held then, and the requests that it has served.
#[derive(Clone, Copy, Debug)]
struct Told {
    heaps: OfHeaps<HeapBudget>,
    held: OfHeaps<u64>,
    checks: u32,
}

impl Told {
    /// Returns what is used and what may be used of a heap, where the driver knows that; it says zero where it does not.
    fn of(&self, heap: usize, held: &OfHeaps<u64>) -> Option<HeapBudget> {
        let HeapBudget { budget, used } = self.heaps[heap];
        let used = used.saturating_add(held[heap]).saturating_sub(self.held[heap]);
        (budget > 0).then_some(HeapBudget { budget, used })
    }
}

/// The last answer of the driver, unless it is too old.
#[derive(Debug, Default)]
pub(crate) struct LastTold(Mutex<Option<Told>>);

impl LastTold {
    /// Forgets the answer: a new frame asks again.
    pub(crate) fn forget(&self) {
        *lock(&self.0) = None;
    }

    /// Returns the answer for one more request.
    fn for_request(&self) -> Option<Told> {
        let mut last = lock(&self.0);
        let told = last.as_mut().filter(|told| told.checks < CHECKS)?;
        told.checks += 1;
        Some(*told)
    }
}

impl Allocator {
    /// Returns the bytes of all blocks, by the driver's heaps.
    fn held(&self) -> OfHeaps<u64> {
        let mut held = [0; vk::MAX_MEMORY_HEAPS];
        for memory_type in 0..self.type_count() {
            held[self.heap_of(memory_type)] += self.counts.blocks_of(memory_type).1;
        }
        held
    }

    /// Asks the driver about all heaps, by one call. `None` if it tells nothing.
    fn ask_driver(&self, held: &OfHeaps<u64>) -> Option<Told> {
        let is_told = self.flags & VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT != 0;
        let heaps = if is_told { self.vulkan.budgets() } else { None }?;
        let told = Told { heaps, held: *held, checks: 0 };
        *lock(&self.told.0) = Some(told);
        Some(told)
    }

    /// Returns what is used and what may be used of a heap.
    fn room(&self, told: Option<&Told>, heap: usize, held: &OfHeaps<u64>) -> HeapBudget {
        let size = self.memory.memory_heaps[heap].size;
        match told.and_then(|told| told.of(heap, held)) {
            Some(told) => HeapBudget { budget: told.budget.min(size), ..told },
            None => HeapBudget { budget: usual_budget(size), used: held[heap] },
        }
    }

    /// Returns true if so many more bytes of one of the driver's heaps are within its budget. Asks the driver at times only.
    pub(crate) fn has_room(&self, heap: usize, bytes: u64) -> bool {
        let held = self.held();
        let told = self.told.for_request().or_else(|| self.ask_driver(&held));
        let room = self.room(told.as_ref(), heap, &held);
        room.used.checked_add(bytes).is_some_and(|sum| sum <= room.budget)
    }

    /// Returns the budget of each of the driver's heaps, which is asked once.
    pub(crate) fn budgets(&self) -> Vec<VmaBudget> {
        let held = self.held();
        let (told, tally) = (self.ask_driver(&held), self.slots.tally());
        let heaps = 0..self.memory.memory_heaps_as_slice().len();
        let budget = |heap| {
            let room = self.room(told.as_ref(), heap, &held);
            let mut of = VmaBudget { usage: room.used, budget: room.budget, ..Default::default() };
            of.statistics.block_bytes = held[heap];
            for one in (0..self.type_count()).filter(|at| self.heap_of(*at) == heap) {
                let (live, bytes) = tally.of(one);
                of.statistics.block_count += small(self.counts.blocks_of(one).0);
                of.statistics.allocation_count += small(live);
                of.statistics.allocation_bytes += bytes;
            }
            of
        };
        heaps.map(budget).collect()
    }
}

/// Returns as much of a heap as most drivers give to one process: eight tenths, rounded down.
const fn usual_budget(size: u64) -> u64 {
    size / 10 * 8 + size % 10 * 8 / 10
}

/// Returns a count as VMA's structures have it.
pub(crate) fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_no_driver_tells_is_eight_tenths_rounded_down() {
        for size in [0, 1, 9, 10, 19, 2 << 30, (1 << 60) - 1] {
            assert_eq!(usual_budget(size), size * 8 / 10);
        }
        assert_eq!(usual_budget(u64::MAX), 14_757_395_258_967_641_292);
    }

    #[test]
    fn an_answer_counts_what_was_taken_since_and_wears_out() {
        let mut heaps = [HeapBudget { budget: 0, used: 0 }; vk::MAX_MEMORY_HEAPS];
        heaps[1] = HeapBudget { budget: 100, used: 50 };
        let (mut held, last) = ([0; vk::MAX_MEMORY_HEAPS], LastTold::default());
        held[1] = 30;
        assert!(last.for_request().is_none(), "nobody was asked");
        *lock(&last.0) = Some(Told { heaps, held, checks: 0 });
        let used = |held_now| {
            let mut now = held;
            now[1] = held_now;
            last.for_request().and_then(|told| told.of(1, &now)).map(|room| room.used)
        };
        assert_eq!([30, 45, 10, 0].map(used), [50, 65, 30, 20].map(Some));
        assert_eq!(used(u64::MAX), Some(u64::MAX - 30));
        assert!(last.for_request().is_some_and(|told| told.of(0, &held).is_none()), "no budget");
        assert!((6..CHECKS).all(|_| used(30).is_some()));
        assert_eq!(used(30), None);
        *lock(&last.0) = Some(Told { heaps, held, checks: 0 });
        last.forget();
        assert_eq!(used(30), None);
    }
}
