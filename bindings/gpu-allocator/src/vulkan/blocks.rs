//! The memory objects that allocations lie in, and when empty ones go back to the driver.
use super::allocation::Pointer;
use ash::vk;
use core::num::NonZeroU64;
use omniheap_core::HeapId;

/// Empty bytes that may be held: one in 32 of what is live, and this much at least.
const LEAST_SLACK: u64 = 4 << 20;
/// The most that is held besides because the program took it again soon.
const MOST_MISSED: u64 = 64 << 20;
/// A program that grows before it has allocated this many times what was returned needed its empty blocks.
const SOON: u64 = 4;

/// A memory object that allocations lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) memory: vk::DeviceMemory,
    pub(super) size: u64,
    pub(super) heap: HeapId,
    pub(super) properties: vk::MemoryPropertyFlags,
    /// Host address of its first byte.
    pub(super) base: Option<Pointer>,
}

#[derive(Debug)]
struct Known {
    block: Block,
    /// Tag that the memory object carries; none when it was returned.
    tag: Option<Tag>,
    live: u64,
}

/// The place of a memory object, in the lower half, and one number for all that ever had the place, in the upper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(NonZeroU64);

impl Tag {
    fn new(at: usize, number: u32) -> Self {
        let at = u32::try_from(at).expect("fewer memory objects than allocations");
        let tag = NonZeroU64::new(u64::from(number) << 32 | u64::from(at));
        Self(tag.expect("numbers start at one"))
    }

    /// Reads what a memory object carries; none in a new one.
    pub(super) fn from_raw(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    pub(super) const fn into_raw(self) -> u64 {
        self.0.get()
    }

    /// Returns the place.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(super) const fn at(self) -> usize {
        self.0.get() as u32 as usize
    }
}

/// Every memory object that an allocation ever lay in, until it is trimmed.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    known: Vec<Known>,
    /// Places without a memory object.
    free: Vec<usize>,
    /// Number of memory objects that there ever were.
    count: u32,
    live_bytes: u64,
    empty_bytes: u64,
    /// Empty bytes to hold besides, because they were returned too soon before. Halved each time when returning them was right.
    missed: u64,
    /// Bytes that were returned of late and not missed since, how many may be allocated until that counts as right, and whether it
    /// was wrong already.
    returned: u64,
    on_trial: u64,
    was_missed: bool,
    /// Bytes that were freed since the last allocation.
    freed_in_a_row: u64,
}

impl Blocks {
    /// Notes an allocation of `bytes` in a memory object that carries `tag`. Returns its place; none where nothing is
    /// known of it.
    #[inline]
    pub(super) fn enter(&mut self, tag: Option<Tag>, bytes: u64) -> Option<usize> {
        let at = tag?.at();
        let known = self.known.get_mut(at).filter(|known| known.tag == tag)?;
        if known.live == 0 {
            self.empty_bytes = self.empty_bytes.saturating_sub(known.block.size);
        }
        known.live += 1;
        self.allocated(bytes);
        Some(at)
    }

    /// Notes the first allocation in a memory object. Returns what the object is to carry from now on.
    pub(super) fn enter_new(&mut self, block: Block, bytes: u64) -> Tag {
        self.grew(block.size);
        self.count = self.count.checked_add(1).expect("four billion memory objects");
        let at = self.free.pop().unwrap_or(self.known.len());
        let tag = Tag::new(at, self.count);
        let known = Known { block, tag: Some(tag), live: 1 };
        match self.known.get_mut(at) {
            Some(place) => *place = known,
            None => self.known.push(known),
        }
        self.allocated(bytes);
        tag
    }

    /// Notes that the program needed one more memory object of so many bytes. It misses no more than was returned.
    fn grew(&mut self, bytes: u64) {
        if self.on_trial > 0 {
            let missed = bytes.min(self.returned);
            self.returned -= missed;
            self.missed = (self.missed + missed).min(MOST_MISSED);
            self.was_missed = true;
        }
    }

    #[inline]
    fn allocated(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        self.freed_in_a_row = 0;
        if self.on_trial > 0 {
            self.on_trial = self.on_trial.saturating_sub(bytes);
            if self.on_trial == 0 {
                self.end_trial();
            }
        }
    }

    fn end_trial(&mut self) {
        self.missed /= if self.was_missed { 1 } else { 2 };
        (self.returned, self.was_missed) = (0, false);
    }

    /// Notes a free; returns whether it is time to return empty blocks.
    #[inline]
    pub(super) fn freed(&mut self, at: usize, bytes: u64) -> bool {
        self.live_bytes -= bytes;
        self.freed_in_a_row = self.freed_in_a_row.saturating_add(bytes);
        let known = &mut self.known[at];
        known.live -= 1;
        self.empty_bytes += if known.live == 0 { known.block.size } else { 0 };
        if self.empty_bytes <= LEAST_SLACK {
            return false;
        }
        let missed = if self.is_the_end() { 0 } else { self.missed };
        self.empty_bytes > LEAST_SLACK.max(self.live_bytes / 32) + missed
    }

    /// Returns whether a level ended: who frees that much at once does not take it again at once.
    const fn is_the_end(&self) -> bool {
        self.freed_in_a_row > self.missed * 2
    }

    /// Forgets the empty blocks, which were returned.
    pub(super) fn trimmed(&mut self) {
        if self.is_the_end() {
            self.missed = 0;
        }
        self.returned += self.empty_bytes;
        self.on_trial = self.returned.saturating_mul(SOON);
        for (at, known) in self.known.iter_mut().enumerate() {
            if known.live == 0 && known.tag.take().is_some() {
                self.free.push(at);
            }
        }
        self.empty_bytes = 0;
    }

    /// Returns a memory object with live allocations.
    pub(super) fn get(&self, at: usize) -> &Block {
        &self.known[at].block
    }

    /// Returns the memory objects with live allocations, and their places.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (usize, &Block)> + '_ {
        let used = self.known.iter().enumerate().filter(|(_, known)| known.live > 0);
        used.map(|(at, known)| (at, &known.block))
    }

    pub(super) const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ash::vk::Handle as _;

    const MIB: u64 = 1 << 20;

    fn block(n: u64) -> Block {
        let (memory, properties) = (vk::DeviceMemory::from_raw(n), Default::default());
        Block { memory, size: 4 * MIB, heap: HeapId(0), properties, base: None }
    }

    /// Fills `count` blocks, those of `before` where they are still known.
    fn take(blocks: &mut Blocks, before: &[Tag], count: u64) -> Vec<Tag> {
        let mut before = before.iter().copied();
        let mut take =
            |n| match before.next().filter(|tag| blocks.enter(Some(*tag), 4 * MIB).is_some()) {
                Some(known) => known,
                None => blocks.enter_new(block(n), 4 * MIB),
            };
        (1..=count).map(&mut take).collect()
    }

    /// Empties them; returns how often empty blocks went back.
    fn give(blocks: &mut Blocks, full: &[Tag]) -> u32 {
        let mut trims = 0;
        for tag in full {
            if blocks.freed(tag.at(), 4 * MIB) {
                blocks.trimmed();
                trims += 1;
            }
        }
        trims
    }

    #[test]
    fn a_block_is_known_until_it_was_returned() {
        let mut blocks = Blocks::default();
        assert!(blocks.enter(None, 1).is_none(), "a new one carries nothing");
        let first = blocks.enter_new(Block { size: 32 * MIB, ..block(1) }, 1);
        let enter = |blocks: &mut Blocks| blocks.enter(Some(first), 1);
        assert_eq!(enter(&mut blocks), Some(first.at()));
        assert!(!blocks.freed(first.at(), 1));
        assert!(blocks.freed(first.at(), 1), "32 MiB are too much to keep");
        assert_eq!(blocks.empty_bytes, 32 * MIB);
        assert_eq!(enter(&mut blocks), Some(first.at()), "an empty one is still there");
        assert_eq!(blocks.empty_bytes, 0);
        blocks.freed(first.at(), 1);
        blocks.trimmed();
        assert!(enter(&mut blocks).is_none());
        let second = blocks.enter_new(block(1), 1);
        assert_eq!((second.at(), second == first), (first.at(), false), "the place, not the tag");
        assert!(enter(&mut blocks).is_none(), "the driver used the handle again");
    }

    #[test]
    fn rounds_that_come_back_keep_their_blocks_and_the_end_of_a_level_does_not() {
        let mut blocks = Blocks::default();
        let (mut last, mut full) = (u32::MAX, Vec::new());
        for _ in 0..8 {
            full = take(&mut blocks, &full, 6);
            last = give(&mut blocks, &full);
        }
        assert_eq!(last, 0, "24 MiB that come and go stay");
        let full = take(&mut blocks, &full, 100);
        assert!(give(&mut blocks, &full) > 0, "400 MiB that go do not");
        assert!(blocks.empty_bytes <= LEAST_SLACK);
    }
}
