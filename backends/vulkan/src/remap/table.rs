//! Table of the mapped positions of a reserved block. Its lock is never held while the device binds.
#![forbid(unsafe_code)]
use core::ops::Range;
use omniheap_seam::{ErrorKind, Page, Result, lock};
use std::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    /// A bind is under way; no other may begin, and nothing may be accessed here.
    Changing,
    Mapped(Page),
}

/// The pages of one block, by position.
#[derive(Debug)]
pub(crate) struct PageTable {
    /// Positions of the block; most never have a page.
    count: u64,
    /// The first of them, up to the highest that ever changed.
    slots: Mutex<Vec<Slot>>,
}

/// Positions whose bind is under way. Dropped without [`commit`](Self::commit), they are what they were.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change<'a> {
    table: &'a PageTable,
    range: Range<usize>,
    before: Vec<Slot>,
    after: Vec<Slot>,
}

impl PageTable {
    pub(crate) const fn new(count: u64) -> Self {
        Self { count, slots: Mutex::new(Vec::new()) }
    }

    /// Begins to map pages from position `first` on.
    ///
    /// # Errors
    ///
    /// `OutOfRange` beyond the block; `Busy` where something is mapped or changes; `OutOfHostMemory`.
    pub(crate) fn begin_map(&self, first: u64, pages: &[Page]) -> Result<Change<'_>> {
        let after = pages.iter().map(|page| Slot::Mapped(*page)).collect();
        self.begin(first, after, |slot| match slot {
            Slot::Empty => Ok(()),
            _ => Err(ErrorKind::Busy),
        })
    }

    /// Begins to unmap `count` positions from `first` on.
    ///
    /// # Errors
    ///
    /// `OutOfRange` beyond the block and where nothing is mapped; `Busy` where something changes.
    pub(crate) fn begin_unmap(&self, first: u64, count: u64) -> Result<Change<'_>> {
        let range = self.positions(first, count)?;
        if range.end > lock(&self.slots).len() {
            return Err(ErrorKind::OutOfRange.into()); // Nothing was ever mapped there.
        }
        self.begin(first, vec![Slot::Empty; range.len()], |slot| match slot {
            Slot::Mapped(_) => Ok(()),
            Slot::Empty => Err(ErrorKind::OutOfRange),
            Slot::Changing => Err(ErrorKind::Busy),
        })
    }

    /// Checks that `count` positions from `first` on are mapped.
    ///
    /// # Errors
    ///
    /// `OutOfRange`.
    pub(crate) fn check_mapped(&self, first: u64, count: u64) -> Result<()> {
        let range = self.positions(first, count)?;
        let is_mapped = |slot: &Slot| matches!(slot, Slot::Mapped(_));
        match lock(&self.slots).get(range).is_some_and(|slots| slots.iter().all(is_mapped)) {
            true => Ok(()),
            false => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// Returns positions as indices, or `OutOfRange`.
    fn positions(&self, first: u64, count: u64) -> Result<Range<usize>> {
        let end = first.checked_add(count).filter(|end| *end <= self.count);
        let end = end.ok_or(ErrorKind::OutOfRange)?;
        let index = |n: u64| usize::try_from(n).map_err(|_| ErrorKind::OutOfRange);
        Ok(index(first)?..index(end)?)
    }

    fn begin(
        &self,
        first: u64,
        after: Vec<Slot>,
        check: impl Fn(&Slot) -> Result<(), ErrorKind>,
    ) -> Result<Change<'_>> {
        let range = self.positions(first, after.len() as u64)?;
        let mut slots = lock(&self.slots);
        let slot = |at: usize| slots.get(at).unwrap_or(&Slot::Empty);
        range.clone().try_for_each(|at| check(slot(at)))?;
        if let Some(more) = range.end.checked_sub(slots.len()) {
            slots.try_reserve(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
            slots.resize(range.end, Slot::Empty);
        }
        let before = slots[range.clone()].to_vec();
        slots[range.clone()].fill(Slot::Changing);
        Ok(Change { table: self, range, before, after })
    }
}

impl Change<'_> {
    /// Makes the change visible: the device has bound.
    pub(crate) fn commit(mut self) {
        self.before = core::mem::take(&mut self.after);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        lock(&self.table.slots)[self.range.clone()].copy_from_slice(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind<T: core::fmt::Debug>(result: Result<T>) -> ErrorKind {
        result.expect_err("refused").kind()
    }

    #[test]
    fn positions_change_apart_from_each_other_and_undo_themselves() {
        let table = PageTable::new(8);
        let pages: Vec<_> = (0..4).map(Page).collect();
        let low = table.begin_map(0, &pages).expect("empty");
        // Beside a bind that is under way, others go on.
        table.begin_map(4, &pages).expect("empty").commit();
        table.check_mapped(4, 4).expect("mapped");
        assert_eq!(kind(table.check_mapped(0, 1)), ErrorKind::OutOfRange);
        assert_eq!(kind(table.begin_map(3, &pages[..1])), ErrorKind::Busy);
        assert_eq!(kind(table.begin_unmap(0, 1)), ErrorKind::Busy);
        drop(low);
        assert_eq!(kind(table.begin_unmap(0, 1)), ErrorKind::OutOfRange);
        drop(table.begin_unmap(4, 4).expect("mapped"));
        table.check_mapped(4, 4).expect("the unbind failed, so they are still mapped");
        table.begin_unmap(5, 2).expect("mapped").commit();
        assert_eq!(kind(table.check_mapped(4, 4)), ErrorKind::OutOfRange);
        table.begin_map(5, &pages[..2]).expect("empty again").commit();
        table.check_mapped(4, 4).expect("mapped");
    }

    #[test]
    fn a_long_block_costs_what_was_mapped_in_it() {
        let table = PageTable::new(1 << 44);
        table.begin_map(7, &[Page(1)]).expect("empty").commit();
        table.check_mapped(7, 1).expect("mapped");
        for first in [6, 8, 1 << 43] {
            assert_eq!(kind(table.check_mapped(first, 1)), ErrorKind::OutOfRange);
            assert_eq!(kind(table.begin_unmap(first, 1)), ErrorKind::OutOfRange);
        }
        assert_eq!(kind(table.begin_unmap(7, 1 << 43)), ErrorKind::OutOfRange);
    }

    #[test]
    fn nothing_beyond_the_block_changes() {
        let table = PageTable::new(2);
        for first in [1, 2, 3, u64::MAX] {
            assert_eq!(kind(table.begin_map(first, &[Page(0), Page(1)])), ErrorKind::OutOfRange);
            assert_eq!(kind(table.begin_unmap(first, 2)), ErrorKind::OutOfRange);
        }
        assert_eq!(kind(table.begin_unmap(0, u64::MAX)), ErrorKind::OutOfRange);
        drop(table.begin_map(2, &[]).expect("nothing at the end"));
    }
}
