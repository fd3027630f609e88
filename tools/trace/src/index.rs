//! A hash table of numbers alone: what they stand for is kept, and hashed, elsewhere.

/// Finds numbers by the content they stand for, at four bytes a slot.
///
/// The caller gives hashes and comparisons; hashes must be keyed at random where content is untrusted. Slots grow by
/// half, so that the table is never much larger than what it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// A number plus one; 0 is vacant.
    slots: Vec<u32>,
    used: usize,
}

impl Index {
    /// Returns the number for which `is` holds, among those of this hash; when there is none, adds `next` and
    /// returns `None`. `hash_of` gives the hash of any number added before.
    pub(crate) fn find_or_add(
        &mut self,
        hash: u64,
        next: u32,
        is: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if self.used >= self.slots.len() / 8 * 7 {
            self.grow(hash_of);
        }
        let mut at = self.start(hash);
        while let Some(number) = self.slots[at].checked_sub(1) {
            if is(number) {
                return Some(number);
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        self.slots[at] = next + 1;
        self.used += 1;
        None
    }

    fn start(&self, hash: u64) -> usize {
        // The high half times the length, over 2^32: an even spread for any length, without a division.
        let spread = ((hash >> 32) * self.slots.len() as u64) >> 32;
        usize::try_from(spread).expect("it is less than a length")
    }

    fn grow(&mut self, hash_of: impl Fn(u32) -> u64) {
        let length = (self.slots.len() + self.slots.len() / 2).max(64);
        let old = core::mem::replace(&mut self.slots, vec![0; length]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let mut at = self.start(hash_of(slot - 1));
            while self.slots[at] != 0 {
                at = if at + 1 == length { 0 } else { at + 1 };
            }
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Index;

    #[test]
    fn every_number_is_found_again_even_when_all_hashes_collide() {
        for spread in [0x9e37_79b9_7f4a_7c15_u64, 0] {
            let hash = |number: u32| u64::from(number).wrapping_mul(spread);
            let mut index = Index::default();
            let count = if spread == 0 { 300 } else { 20_000 };
            for number in 0..count {
                assert_eq!(
                    index.find_or_add(hash(number), number, |other| other == number, hash),
                    None
                );
            }
            for number in 0..count {
                assert_eq!(
                    index.find_or_add(hash(number), count, |other| other == number, hash),
                    Some(number)
                );
            }
        }
    }
}
