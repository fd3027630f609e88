//! Map from the ids of a format to the allocations of a trace.

use core::hash::BuildHasher;
use std::collections::HashMap;
use std::hash::RandomState;

/// State of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Allocated.
    Live = 1,
    /// Asked to be freed.
    Requested = 2,
    /// Freed; the id may be used again.
    Gone = 3,
}

/// The number of an allocation's event and how far it has come, in 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u32);

const LIFE_SHIFT: u32 = 30;

impl Slot {
    const VACANT: Self = Self(0);

    #[inline]
    pub(crate) fn new(event: u32, life: Life) -> Self {
        debug_assert!(event < 1 << LIFE_SHIFT, "events number below 2^30");
        Self(event | (life as u32) << LIFE_SHIFT)
    }

    #[inline]
    pub(crate) fn event(self) -> u32 {
        self.0 & ((1 << LIFE_SHIFT) - 1)
    }

    #[inline]
    pub(crate) fn life(self) -> Life {
        match self.0 >> LIFE_SHIFT {
            1 => Life::Live,
            2 => Life::Requested,
            _ => Life::Gone,
        }
    }
}

/// A map from raw ids to slots: an array where ids are dense, hash tables for the rest.
///
/// The hash tables are keyed at random, so a hostile file cannot make them slow; the array never grows past twice the
/// number of ids it holds, so a hostile file cannot make it large. There are many small tables because a table that
/// grows exists twice for a moment.
#[derive(Debug)]
pub(crate) struct IdMap {
    dense: Vec<Slot>,
    /// Keys are halves, which pack closer beside a slot than one whole number would.
    sparse: Vec<HashMap<[u32; 2], Slot>>,
    /// Spreads ids over tables; odd, and different in every run.
    spread: u64,
    inserted: usize,
}

const TABLES: u32 = 64;

impl Default for IdMap {
    fn default() -> Self {
        let spread = RandomState::new().hash_one(TABLES) | 1;
        Self { dense: Vec::new(), sparse: Vec::new(), spread, inserted: 0 }
    }
}

impl IdMap {
    #[inline]
    pub(crate) fn get(&self, raw: u64) -> Option<Slot> {
        if let Some(&slot) = usize::try_from(raw).ok().and_then(|raw| self.dense.get(raw))
            && slot != Slot::VACANT
        {
            return Some(slot);
        }
        self.sparse.get(self.table(raw))?.get(&halves(raw)).copied()
    }

    /// Adds `raw`, or replaces what an earlier life of it left.
    #[inline]
    pub(crate) fn insert(&mut self, raw: u64, slot: Slot) {
        self.inserted += 1;
        let room = 2 * self.inserted + 64;
        match usize::try_from(raw) {
            // Entries that an earlier life left in a hash table may stay: the array is always asked first.
            Ok(index) if index < room => {
                if index >= self.dense.len() {
                    self.lengthen(index + 1);
                }
                self.dense[index] = slot;
            }
            _ => self.insert_sparse(raw, slot),
        }
    }

    /// Changes the slot of `raw`, which [`Self::get`] has found.
    #[inline]
    pub(crate) fn replace(&mut self, raw: u64, slot: Slot) {
        if let Some(place) = usize::try_from(raw).ok().and_then(|raw| self.dense.get_mut(raw))
            && *place != Slot::VACANT
        {
            *place = slot;
            return;
        }
        self.insert_sparse(raw, slot);
    }

    fn insert_sparse(&mut self, raw: u64, slot: Slot) {
        if self.sparse.is_empty() {
            self.sparse.resize_with(TABLES as usize, HashMap::new);
        }
        let table = self.table(raw);
        self.sparse[table].insert(halves(raw), slot);
    }

    #[expect(clippy::cast_possible_truncation, reason = "six bits are left")]
    fn table(&self, raw: u64) -> usize {
        (raw.wrapping_mul(self.spread) >> (64 - TABLES.trailing_zeros())) as usize
    }

    fn lengthen(&mut self, length: usize) {
        if length > self.dense.capacity() {
            // A quarter more keeps copies rare and what is reserved close to what is used.
            self.dense.reserve_exact(length + length / 4 - self.dense.len());
        }
        self.dense.resize(length, Slot::VACANT);
    }
}

/// Returns the low and the high half: a key that needs less alignment.
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
pub(crate) fn halves(raw: u64) -> [u32; 2] {
    [raw as u32, (raw >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::{IdMap, Life, Slot};
    use std::collections::HashMap;

    #[test]
    fn dense_sparse_and_late_ids_are_one_map() {
        let (mut map, mut model) = (IdMap::default(), HashMap::new());
        let mut state = 7_u64;
        for event in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Ids that are at first far ahead of the array, and later inside it.
            let raw = if state >> 63 == 0 { u64::from(event) } else { (state >> 40) % 60_000 };
            let slot = Slot::new(event, if event % 3 == 0 { Life::Gone } else { Life::Live });
            assert_eq!(map.get(raw), model.get(&raw).copied());
            model.insert(raw, slot);
            if state & 1 == 0 && map.get(raw).is_some() {
                map.replace(raw, slot);
            } else {
                map.insert(raw, slot);
            }
        }
        assert!((0..60_000).all(|raw| map.get(raw) == model.get(&raw).copied()));
    }
}
