//! Handles that know when they are stale: a shard, what they stand for, an index, and a generation.
use crate::status::{Failure, OmniheapStatus};
use core::sync::atomic::{AtomicUsize, Ordering};
use omniheap::seam::lock;
use std::sync::{Arc, Mutex};

const SHARD_BITS: u32 = 4;
const KIND_BITS: u32 = 3;
const INDEX_BITS: u32 = 25;
const SHARDS: usize = 1 << SHARD_BITS;

/// Table of the objects behind handles. Sharded, so that threads do not queue behind one lock.
pub(crate) struct Table<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    kind: Kind,
}

/// Kind of the objects in a table. The kind is part of a handle's number, so that none is good where another kind is
/// wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Manager = 1,
    Allocation = 2,
    Pool = 3,
    Weights = 4,
    #[cfg(target_os = "linux")]
    Attached = 5,
    Pass = 6,
}

impl Kind {
    /// Returns the word for it in messages.
    const fn name(self) -> &'static str {
        match self {
            #[cfg(target_os = "linux")]
            Self::Attached => "attached memory",
            Self::Manager => "manager",
            Self::Allocation => "allocation",
            Self::Pool => "pool",
            Self::Weights => "weights",
            Self::Pass => "pass",
        }
    }
}

struct Shard<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    /// Counts the values that were here; a handle that names another count is stale.
    generation: u32,
    value: Option<Arc<T>>,
}

/// What a handle says that it stands for.
const fn kind(id: u64) -> u64 {
    (id >> SHARD_BITS) & ((1 << KIND_BITS) - 1)
}

/// Returns the shard that a thread uses for its new objects.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    MINE.try_with(|shard| *shard).unwrap_or(0)
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        let shards = [const { Mutex::new(Shard { slots: Vec::new(), free: Vec::new() }) }; SHARDS];
        Self { shards, kind }
    }

    fn stale(&self, id: u64) -> Failure {
        let name = self.kind.name();
        let message = match id {
            0 => format!("the {name} handle is zero; pass one that a call returned"),
            _ if kind(id) != self.kind as u64 => {
                format!("the handle stands for no {name}; pass one that a call returned for it")
            }
            _ => format!("the {name} was freed, closed or ended already, or never existed"),
        };
        Failure::new(OmniheapStatus::Stale, message)
    }

    /// Makes a handle; never zero.
    pub(crate) fn insert(&self, value: impl Into<Arc<T>>) -> Result<u64, Failure> {
        let number = own_shard();
        let mut shard = lock(&self.shards[number]);
        let index = match shard.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(shard.slots.len()).unwrap_or(u32::MAX);
                if index >> INDEX_BITS != 0 {
                    let message = format!("too many {} handles; free some", self.kind.name());
                    return Err(Failure::new(OmniheapStatus::ExceedsLimit, message));
                }
                shard.slots.push(Slot { generation: 1, value: None });
                index
            }
        };
        let slot = &mut shard.slots[index as usize];
        slot.value = Some(value.into());
        Ok(self.id(slot.generation, index, number))
    }

    /// Runs `with` on the live slot of a handle.
    fn slot<R>(&self, id: u64, with: impl FnOnce(&mut Shard<T>, usize) -> R) -> Result<R, Failure> {
        let number = usize::try_from(id).unwrap_or(0) % SHARDS;
        let index = (id >> (SHARD_BITS + KIND_BITS)) & ((1 << INDEX_BITS) - 1);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let mut shard = lock(&self.shards[number]);
        let generation = id >> (SHARD_BITS + KIND_BITS + INDEX_BITS);
        let live =
            |slot: &Slot<T>| u64::from(slot.generation) == generation && slot.value.is_some();
        if kind(id) != self.kind as u64 || !shard.slots.get(index).is_some_and(live) {
            return Err(self.stale(id));
        }
        Ok(with(&mut shard, index))
    }

    /// Returns the object behind a handle.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<T>, Failure> {
        self.slot(id, |shard, index| shard.slots[index].value.clone())?
            .ok_or_else(|| self.stale(id))
    }

    /// Shows every live handle; `show` must not use the table.
    pub(crate) fn for_each(&self, mut show: impl FnMut(u64, &T)) {
        for (number, shard) in self.shards.iter().enumerate() {
            for (index, slot) in (0..).zip(&lock(shard).slots) {
                if let Some(value) = &slot.value {
                    show(self.id(slot.generation, index, number), value);
                }
            }
        }
    }

    fn id(&self, generation: u32, index: u32, shard: usize) -> u64 {
        let high = (u64::from(generation) << INDEX_BITS) | u64::from(index);
        (((high << KIND_BITS) | self.kind as u64) << SHARD_BITS) | shard as u64
    }

    /// Makes a handle stale; what it stood for ends with the last call that uses it.
    pub(crate) fn remove(&self, id: u64) -> Result<Arc<T>, Failure> {
        let removed = self.slot(id, |shard, index| shard.vacate(index))?;
        removed.ok_or_else(|| self.stale(id))
    }

    /// Takes away what a handle stands for; the handle is stale afterwards.
    ///
    /// # Errors
    ///
    /// `Busy` while another call uses it; it stays then.
    pub(crate) fn take(&self, id: u64) -> Result<T, Failure> {
        let taken = self.slot(id, |shard, index| {
            let held = shard.slots[index].value.take()?;
            match Arc::try_unwrap(held) {
                Ok(value) => {
                    shard.vacate(index);
                    Some(value)
                }
                Err(shared) => {
                    shard.slots[index].value = Some(shared);
                    None
                }
            }
        })?;
        taken.ok_or_else(|| {
            let message =
                format!("another call uses the {} right now; try again after it", self.kind.name());
            Failure::new(OmniheapStatus::Busy, message)
        })
    }
}

impl<T> Shard<T> {
    /// Empties a slot. One whose generations have run out is not used again: no two values share a handle.
    fn vacate(&mut self, index: usize) -> Option<Arc<T>> {
        let slot = &mut self.slots[index];
        let value = slot.value.take();
        if let (Some(next), Ok(index)) = (slot.generation.checked_add(1), u32::try_from(index)) {
            slot.generation = next;
            self.free.push(index);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_once() {
        let table = Table::new(Kind::Pool);
        let first = table.insert(1).unwrap_or(0);
        assert_ne!(first, 0);
        assert_eq!(table.get(first).ok().as_deref(), Some(&1));
        assert_eq!(table.take(first).ok(), Some(1));
        assert!(table.get(first).is_err() && table.take(first).is_err());
        let second = table.insert(2).unwrap_or(0);
        assert_ne!(first, second, "the slot is used again under another handle");
        let slots = table.shards.iter().map(|shard| lock(shard).slots.len()).sum::<usize>();
        assert_eq!(slots, 1, "and no other was made");
        assert!(table.get(first).is_err());
        assert_eq!(table.take(second).ok(), Some(2));
    }

    #[test]
    fn what_is_in_use_stays() {
        let table = Table::new(Kind::Pool);
        let id = table.insert(1).unwrap_or(0);
        let held = table.get(id).ok();
        assert!(table.take(id).is_err());
        drop(held);
        assert_eq!(table.take(id).ok(), Some(1));
    }

    #[test]
    fn made_up_handles_are_refused() {
        let table: Table<u8> = Table::new(Kind::Pool);
        for id in [0, 1, 42, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            assert!(table.get(id).is_err() && table.take(id).is_err());
        }
    }
}
