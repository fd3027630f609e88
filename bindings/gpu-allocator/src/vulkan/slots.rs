//! Table of live allocations: the manager's allocations, their places and their names.
use core::num::NonZeroU64;
use omniheap_core::Allocation as Managed;
use omniheap_vulkan::Vulkan;
use std::backtrace::Backtrace;

/// One live allocation, but for its name.
pub(super) struct Live {
    pub(super) id: NonZeroU64,
    pub(super) managed: Managed<Vulkan>,
    /// Its place in the table of blocks.
    pub(super) block: usize,
    pub(super) offset: u64,
    pub(super) is_fallback: bool,
    pub(super) trace: Option<Box<Backtrace>>,
}

/// A place for an allocation. Its name stays behind, so that the next one's is written without asking for memory.
#[derive(Default)]
struct Slot {
    live: Option<Live>,
    name: String,
}

/// All live allocations.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Slots without an allocation.
    free: Vec<usize>,
}

impl Slots {
    /// Returns the slot of what is kept.
    #[inline]
    pub(super) fn keep(&mut self, name: &str, live: Live) -> usize {
        let at = self.free.pop().unwrap_or_else(|| self.grow());
        let slot = &mut self.slots[at];
        assert!(slot.live.is_none(), "a free slot is empty");
        slot.live = Some(live);
        slot.name.clear();
        slot.name.push_str(name);
        at
    }

    #[cold]
    fn grow(&mut self) -> usize {
        self.slots.push(Slot::default());
        self.slots.len() - 1
    }

    /// Returns whether the allocation `id` is in a slot.
    #[inline]
    pub(super) fn has(&self, at: usize, id: NonZeroU64) -> bool {
        let live = self.slots.get(at).and_then(|slot| slot.live.as_ref());
        live.is_some_and(|live| live.id == id)
    }

    /// Frees what is in a slot, and returns the place of its block.
    #[inline]
    pub(super) fn release(&mut self, at: usize) -> Option<usize> {
        let slot = self.slots.get_mut(at)?;
        let block = slot.live.as_ref()?.block;
        slot.live = None;
        self.free.push(at);
        Some(block)
    }

    pub(super) fn name(&self, at: usize) -> &str {
        self.slots.get(at).map_or("<null>", |slot| &slot.name)
    }

    pub(super) fn rename(&mut self, at: usize, name: &str) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.name = name.into();
        }
    }

    /// Returns what lives, and its names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Live)> {
        self.slots.iter().filter_map(|slot| Some((&*slot.name, slot.live.as_ref()?)))
    }
}
