//! Physical pages, carved from larger driver allocations so that their number stays within the driver's limit.
#![forbid(unsafe_code)]
use crate::driver::{
    device::Device,
    objects::{Ask, Memory, Share},
    turns::Turns,
};
use ash::vk;
use omniheap_seam::{ErrorKind, HeapId, Page, Result, lock};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

/// The most bytes in one driver allocation, unless the limit on their number needs more. The driver takes 0.02 ms for a MiB on an H200, and other
/// threads' submissions wait for that long.
pub(crate) const MOST: u64 = 16 << 20;
/// Low bits of a page's number: its place in the driver allocation; the rest says which one.
const PLACE_BITS: u32 = 24;

/// Properties of the pages of one heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) heap: HeapId,
    pub(crate) memory_type: u32,
    /// Bytes of one page.
    pub(crate) page: u64,
    /// Pages that the heap could ever hold.
    pub(crate) heap_pages: u64,
    /// Pages in the largest driver allocation.
    pub(crate) max_pages: u64,
}

impl Kind {
    /// Returns how many of the missing pages one driver allocation has, and how many pages it has in all.
    fn in_one(self, missing: u64, sure_blocks: u64) -> (u64, u64) {
        // Never more than a quarter of the driver's allocations, even if all of the heap were pages.
        let least = self.heap_pages.div_ceil((sure_blocks / 4).max(1)).max(1);
        let most = self.max_pages.min(1 << PLACE_BITS);
        let exact = missing.min((MOST / self.page).max(least)).min(most);
        (exact, exact.max(least).min(most))
    }
}

/// Every page of a device.
#[derive(Debug)]
pub(crate) struct Pages {
    sources: Mutex<Sources>,
    device: Arc<Device>,
}

#[derive(Debug, Default)]
struct Sources {
    by_number: BTreeMap<u64, Source>,
    /// Allocations with a free page.
    open: BTreeSet<(HeapId, u64)>,
    next: u64,
}

/// One driver allocation and which of its pages are free.
#[derive(Debug)]
struct Source {
    memory: Memory,
    heap: HeapId,
    page: u64,
    count: u64,
    /// Places, highest first, so that low ones go out first.
    free: Vec<u64>,
}

impl Source {
    fn is_free(&self) -> bool {
        self.free.len() as u64 == self.count
    }

    /// Searches a place among the free ones, as `binary_search` does.
    fn find(&self, place: u64) -> Result<usize, usize> {
        self.free.binary_search_by(|free| place.cmp(free))
    }
}

impl Pages {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { sources: Mutex::default(), device: Arc::clone(device) }
    }

    /// Appends `count` pages: all or none.
    pub(crate) fn create(&self, kind: Kind, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let (mut taken, mut turns) = (Vec::new(), Turns::begin(&self.device));
        while (taken.len() as u64) < count {
            let missing = count - taken.len() as u64;
            let mut sources = lock(&self.sources);
            if sources.take(kind.heap, missing, &mut taken) {
                continue;
            }
            if let Err(why) = sources.grow(&self.device, kind, missing) {
                drop(sources);
                self.destroy(kind.heap, &taken)?; // In turns, and others bind meanwhile.
                return Err(why);
            }
            sources.take(kind.heap, missing, &mut taken);
            drop(sources);
            turns.pass();
        }
        pages.append(&mut taken);
        Ok(())
    }

    /// Takes pages back, and gives driver allocations back that are all free.
    ///
    /// # Errors
    ///
    /// `Stale` when a page is unknown; the rest are taken back all the same.
    pub(crate) fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        let (known, freed) = lock(&self.sources).give_back(heap, pages);
        let mut turns = Turns::begin(&self.device);
        for source in freed {
            drop(source);
            turns.pass();
        }
        if known { Ok(()) } else { Err(ErrorKind::Stale.into()) }
    }

    /// Returns the binds that put `pages` at consecutive positions from `at`, neighbours joined.
    ///
    /// # Errors
    ///
    /// `Stale` for an unknown page, `Foreign` for one of another heap.
    pub(crate) fn binds(
        &self,
        heap: HeapId,
        page: u64,
        at: u64,
        pages: &[Page],
    ) -> Result<Vec<vk::SparseMemoryBind>> {
        let sources = lock(&self.sources);
        let mut binds: Vec<vk::SparseMemoryBind> = Vec::new();
        for (index, wanted) in (0u64..).zip(pages) {
            let (memory, offset) = sources.find(heap, *wanted)?;
            let position = at + index * page;
            match binds.last_mut() {
                Some(last) if last.memory == memory && last.memory_offset + last.size == offset => {
                    last.size += page;
                }
                _ => binds.push(
                    vk::SparseMemoryBind::default()
                        .resource_offset(position)
                        .size(page)
                        .memory(memory)
                        .memory_offset(offset),
                ),
            }
        }
        Ok(binds)
    }
}

impl Sources {
    /// Moves up to `missing` free pages of `heap` into `taken`; tells whether there was any.
    fn take(&mut self, heap: HeapId, missing: u64, taken: &mut Vec<Page>) -> bool {
        let before = taken.len();
        let goal = before.saturating_add(usize::try_from(missing).unwrap_or(usize::MAX));
        while taken.len() < goal
            && let Some((_, number)) = self.open.range((heap, 0)..=(heap, u64::MAX)).next().copied()
        {
            let source = self.by_number.get_mut(&number).expect("open sources are known");
            while taken.len() < goal
                && let Some(place) = source.free.pop()
            {
                taken.push(Page(number << PLACE_BITS | place));
            }
            if source.free.is_empty() {
                self.open.remove(&(heap, number));
            }
        }
        taken.len() > before
    }

    /// Allocates the missing pages from the driver, within bounds.
    fn grow(&mut self, device: &Arc<Device>, kind: Kind, missing: u64) -> Result<()> {
        let (exact, wanted) = kind.in_one(missing, device.sure_blocks());
        if wanted == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        let source = match source(device, kind, wanted) {
            // Rounding up was our wish, not the caller's.
            Err(_) if wanted > exact => source(device, kind, exact)?,
            other => other?,
        };
        self.by_number.insert(self.next, source);
        self.open.insert((kind.heap, self.next));
        self.next += 1;
        Ok(())
    }

    /// Returns whether every page was known, and the driver allocations that are all free.
    fn give_back(&mut self, heap: HeapId, pages: &[Page]) -> (bool, Vec<Source>) {
        let (mut known, mut freed) = (true, Vec::new());
        for page in pages {
            let (number, place) = split(*page);
            let source = self.by_number.get_mut(&number);
            let source = source.filter(|source| source.heap == heap && place < source.count);
            let Some((Err(at), source)) = source.map(|source| (source.find(place), source)) else {
                known = false;
                continue;
            };
            source.free.insert(at, place);
            if source.is_free() {
                freed.extend(self.by_number.remove(&number));
                self.open.remove(&(heap, number));
            } else {
                self.open.insert((heap, number));
            }
        }
        (known, freed)
    }

    fn find(&self, heap: HeapId, page: Page) -> Result<(vk::DeviceMemory, u64)> {
        let (number, place) = split(page);
        let source = self.by_number.get(&number).ok_or(ErrorKind::Stale)?;
        if source.heap != heap {
            return Err(ErrorKind::Foreign.into());
        }
        if place >= source.count || source.find(place).is_ok() {
            return Err(ErrorKind::Stale.into());
        }
        Ok((source.memory.raw, place * source.page))
    }
}

const fn split(page: Page) -> (u64, u64) {
    (page.0 >> PLACE_BITS, page.0 & ((1 << PLACE_BITS) - 1))
}

fn source(device: &Arc<Device>, kind: Kind, count: u64) -> Result<Source> {
    let ask = Ask {
        size: count * kind.page,
        memory_type: kind.memory_type,
        priority: None,
        dedicated: None,
        share: Share::No,
    };
    let memory = Memory::allocate(device, ask)?;
    Ok(Source { memory, heap: kind.heap, page: kind.page, count, free: (0..count).rev().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_allocation_is_short_unless_there_would_be_too_many() {
        let (mib, many) = (1 << 20, 1 << 32);
        let kind = |page: u64| Kind {
            heap: HeapId(0),
            memory_type: 0,
            page,
            heap_pages: (140 << 30) / page,
            max_pages: (4 << 30) / page,
        };
        assert_eq!(kind(2 * mib).in_one(1000, many), (8, 8), "16 MiB");
        assert_eq!(kind(1 << 16).in_one(1000, many), (256, 256), "16 MiB");
        assert_eq!(kind(64 * mib).in_one(1000, many), (1, 1), "one page at least");
        assert_eq!(kind(2 * mib).in_one(3, many), (3, 3), "no more than needed");
        assert_eq!(kind(2 * mib).in_one(1000, 4096), (70, 70), "1,024 of them hold the heap");
        assert_eq!(kind(2 * mib).in_one(3, 4096), (3, 70));
        assert_eq!(Kind { max_pages: 5, ..kind(2 * mib) }.in_one(3, 4096), (3, 5));
    }
}
