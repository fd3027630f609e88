//! The positions of one reserved block, and the pages mapped there.
#![expect(unsafe_code, reason = "maps pages into a block's own reserved addresses")]
use crate::driver::{Memory, narrow};
use crate::pages::{Pages, runs};
use core::ops::Range;
use omniheap_seam::{ErrorKind, Page, Result, Span, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The positions of one reserved block.
pub(crate) struct Slots {
    pages: Arc<Pages>,
    table: Mutex<Table>,
}

/// Two levels, so that a reservation costs nothing before it is used, however many positions it has.
#[derive(Default)]
struct Table {
    leaves: BTreeMap<u64, Box<Leaf>>,
    mapped: u64,
}

type Leaf = [Slot; LEAF];
const LEAF: usize = 512;

#[derive(Clone, Copy)]
struct Slot {
    page: Option<Page>,
    /// Claims that cover the position.
    uses: u32,
}

const EMPTY: Slot = Slot { page: None, uses: 0 };

impl Table {
    /// Returns the number of a position's leaf, and its place there.
    fn split(at: u64) -> (u64, usize) {
        let leaf = LEAF as u64;
        (at / leaf, usize::try_from(at % leaf).expect("below the length of a leaf"))
    }

    fn get(&self, at: u64) -> Slot {
        let (leaf, slot) = Self::split(at);
        self.leaves.get(&leaf).map_or(EMPTY, |leaf| leaf[slot])
    }

    fn get_mut(&mut self, at: u64) -> &mut Slot {
        let (leaf, slot) = Self::split(at);
        &mut self.leaves.entry(leaf).or_insert_with(|| Box::new([EMPTY; LEAF]))[slot]
    }

    /// Returns the pages at these positions, in order; shorter when some have none.
    fn pages(&self, positions: Range<u64>) -> Vec<Page> {
        positions.filter_map(|at| self.get(at).page).collect()
    }
}

impl Slots {
    /// Positions without pages.
    pub(crate) fn new(pages: Arc<Pages>) -> Self {
        Self { pages, table: Mutex::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.table).mapped == 0
    }

    /// Maps `pages` from position `first` on: all or none.
    pub(crate) fn map(&self, memory: &Memory, first: u64, pages: &[Page]) -> Result<()> {
        let count = pages.len() as u64;
        let bytes = self.bytes(memory, first, count)?;
        let mut table = lock(&self.table);
        if (first..first + count).any(|at| table.get(at).page.is_some()) {
            return Err(ErrorKind::Busy.into());
        }
        self.pages.enter(pages)?;
        if let Err(error) = self.back(memory, bytes.start, pages) {
            // SAFETY: `bytes` was checked above; its positions were empty, so nobody uses them.
            let undone = unsafe { memory.unback(bytes.start, bytes.len()) };
            self.pages.leave(pages);
            return undone.and(Err(error));
        }
        for (at, page) in (first..).zip(pages) {
            table.get_mut(at).page = Some(*page);
        }
        table.mapped += count;
        Ok(())
    }

    /// One call for each run of consecutive pages.
    fn back(&self, memory: &Memory, mut at: usize, pages: &[Page]) -> Result<()> {
        for (page, count) in runs(pages) {
            let len = narrow(count * self.pages.size)?;
            // SAFETY: the runs add up to the bytes that `map` checked, from their start on.
            unsafe { memory.back(at, len, &self.pages.file, page.0 * self.pages.size) }?;
            at += len;
        }
        Ok(())
    }

    /// Unmaps `first..first + count`, all of which are mapped and none of which is in use.
    pub(crate) fn unmap(&self, memory: &Memory, first: u64, count: u64) -> Result<()> {
        let bytes = self.bytes(memory, first, count)?;
        let positions = first..first + count;
        let mut table = lock(&self.table);
        if positions.clone().any(|at| table.get(at).uses > 0) {
            return Err(ErrorKind::Busy.into());
        }
        let pages = table.pages(positions.clone());
        if pages.len() as u64 != count {
            return Err(ErrorKind::OutOfRange.into());
        }
        // SAFETY: `bytes` was checked above, and no claim covers it.
        unsafe { memory.unback(bytes.start, bytes.len()) }?;
        positions.for_each(|at| *table.get_mut(at) = EMPTY);
        table.mapped -= count;
        self.pages.leave(&pages);
        Ok(())
    }

    /// Marks the positions under `span` as used; refuses when one of them has no page.
    pub(crate) fn enter(&self, span: Span) -> Result<()> {
        let mut table = lock(&self.table);
        if self.positions(span).any(|at| table.get(at).page.is_none()) {
            return Err(ErrorKind::OutOfRange.into());
        }
        self.positions(span).for_each(|at| table.get_mut(at).uses += 1);
        Ok(())
    }

    /// Ends what [`enter`](Self::enter) began.
    pub(crate) fn leave(&self, span: Span) {
        let mut table = lock(&self.table);
        self.positions(span).for_each(|at| table.get_mut(at).uses -= 1);
    }

    fn positions(&self, span: Span) -> Range<u64> {
        span.offset / self.pages.size..span.end().div_ceil(self.pages.size)
    }

    /// Returns the bytes of some positions, as the operating system counts them.
    fn bytes(&self, memory: &Memory, first: u64, count: u64) -> Result<Range<usize>> {
        let all = memory.len() as u64 / self.pages.size;
        match first.checked_add(count) {
            Some(end) if end <= all && count > 0 => {
                Ok(narrow(first * self.pages.size)?..narrow(end * self.pages.size)?)
            }
            _ => Err(ErrorKind::OutOfRange.into()),
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        let slots = table.leaves.values().flat_map(|leaf| leaf.iter());
        let pages: Vec<_> = slots.filter_map(|slot| slot.page).collect();
        self.pages.leave(&pages);
    }
}
