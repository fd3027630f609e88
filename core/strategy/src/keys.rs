//! A generation table: finds a record by key in constant time, and refuses keys of freed records.
use super::Key;
use alloc::vec::Vec;
use omniheap_seam::ErrorKind;

/// Marks the absence of an index. No table uses this index.
pub(super) const NONE: u32 = u32::MAX;

/// Records addressed by [`Key`]. A freed index is used again with a new stamp.
#[derive(Clone, Debug)]
pub(super) struct Keys<T> {
    entries: Vec<Entry<T>>,
    vacant: u32,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    stamp: u32,
    value: Value<T>,
}

#[derive(Clone, Debug)]
enum Value<T> {
    Live(T),
    /// Index of the next vacant entry.
    Vacant(u32),
}

impl<T> Keys<T> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), vacant: NONE }
    }

    /// Leaves every entry `lives` more lives.
    #[cfg(test)]
    pub(super) fn wear(&mut self, lives: u32) {
        self.entries.iter_mut().for_each(|entry| entry.stamp = u32::MAX - lives);
    }

    /// Stores a record. A failed call changes nothing.
    pub(super) fn insert(&mut self, value: T) -> Result<Key, ErrorKind> {
        if let Some(entry) = self.entries.get_mut(self.vacant as usize) {
            let Value::Vacant(next) = entry.value else {
                unreachable!(
                    "only `remove` extends the vacant list, and it empties the entry first"
                )
            };
            let key = Key { index: self.vacant, stamp: entry.stamp };
            entry.value = Value::Live(value);
            self.vacant = next;
            return Ok(key);
        }
        let index = u32::try_from(self.entries.len()).ok().filter(|&index| index != NONE);
        let index = index.ok_or(ErrorKind::ExceedsLimit)?;
        self.entries.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.entries.push(Entry { stamp: 0, value: Value::Live(value) });
        Ok(Key { index, stamp: 0 })
    }

    /// Returns the record of a live key, or `Stale`.
    pub(super) fn get(&self, key: Key) -> Result<&T, ErrorKind> {
        match self.entries.get(key.index as usize) {
            Some(Entry { stamp, value: Value::Live(value) }) if *stamp == key.stamp => Ok(value),
            _ => Err(ErrorKind::Stale),
        }
    }

    /// Removes and returns the record of a live key, or fails with `Stale`.
    pub(super) fn remove(&mut self, key: Key) -> Result<T, ErrorKind> {
        self.get(key)?;
        let entry = &mut self.entries[key.index as usize];
        let old = core::mem::replace(&mut entry.value, Value::Vacant(self.vacant));
        entry.stamp += 1;
        // An entry that has used all stamps is retired, so that no key repeats.
        if entry.stamp != u32::MAX {
            self.vacant = key.index;
        }
        match old {
            Value::Live(value) => Ok(value),
            Value::Vacant(_) => unreachable!("`get` above found the record live"),
        }
    }

    /// Returns the live record at an index, with its key.
    pub(super) fn at(&self, index: u32) -> Option<(Key, &T)> {
        match self.entries.get(index as usize)? {
            Entry { stamp, value: Value::Live(value) } => {
                Some((Key { index, stamp: *stamp }, value))
            }
            Entry { value: Value::Vacant(_), .. } => None,
        }
    }

    /// Returns the live record at an index, mutably.
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        match &mut self.entries.get_mut(index as usize)?.value {
            Value::Live(value) => Some(value),
            Value::Vacant(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_whose_stamps_are_used_up_is_not_used_again() {
        let mut keys = Keys::new();
        let first = keys.insert('a').expect("the table is empty");
        keys.remove(first).expect("it is live");
        keys.wear(1);
        let last = keys.insert('b').expect("one stamp is left");
        assert_eq!(last, Key { index: 0, stamp: u32::MAX - 1 });
        keys.remove(last).expect("it is live");
        let next = keys.insert('c').expect("the table grows");
        assert_eq!(next.index, 1);
        assert_eq!(keys.get(last), Err(ErrorKind::Stale));
    }
}
