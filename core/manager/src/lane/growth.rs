//! Growth of a pool, and the driver calls that it may spend on saving memory (its ration).
#![forbid(unsafe_code)]
use crate::Align;

/// Sizes of a pool's next blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The block that small requests share.
    pub smallest: u64,
    /// No block is larger; larger requests are refused.
    pub largest: u64,
    /// Blocks are multiples of this.
    pub granule: Align,
    /// Requests up to this size may share a block with others of their size; zero makes every block `largest`.
    pub shared_up_to: u64,
    /// Part of what the pool holds that its next block has at least: eight for an eighth, up to `shared_up_to`. Zero for blocks that do
    /// not grow with the pool.
    pub part: u64,
}

/// Most requests of one size that a new block makes room for.
const MOST_TOGETHER: u64 = 8;
/// A block is good enough when at most this part of it is left over: one in sixteen.
const GOOD_ENOUGH: u64 = 16;

impl Growth {
    /// The growth that suits most pools of a heap whose largest block is `largest`.
    #[must_use]
    pub fn new(largest: u64, granule: Align) -> Self {
        let granule = granule.max(Align::of(2 << 20));
        let granule = if granule.get() > largest { Align::ONE } else { granule };
        Self { smallest: (4 << 20).min(largest), largest, granule, shared_up_to: 32 << 20, part: 0 }
    }

    /// Bytes of the block that small requests share in a pool that holds `held`: a power of two where it grows.
    fn shared(&self, held: u64) -> u64 {
        let part = held.checked_div(self.part).and_then(u64::checked_ilog2);
        part.map_or(0, |log| 1 << log).min(self.shared_up_to).max(self.smallest)
    }

    /// The next block for a request of `size` bytes in a pool that holds `held`, or `None` when no block can hold it.
    ///
    /// Small requests share a small block. Others get a block of their size, or of the fewest times their size that
    /// leaves little over after rounding to the granule: a block of one size is filled again by requests of that size.
    #[must_use]
    pub fn block_for(&self, size: u64, held: u64) -> Option<u64> {
        if size > self.largest {
            return None;
        }
        let shared = self.shared(held).min(self.largest);
        if size <= shared / 4 {
            return Some(shared);
        }
        let most = (self.shared_up_to / size).clamp(1, MOST_TOGETHER);
        let fewest = if self.part == 0 { 1 } else { (shared / size).clamp(1, most) };
        let (mut best, mut least) = (self.exact(size)?, u128::MAX);
        for together in fewest..=most {
            let used = size * together;
            let Some(block) = self.exact(used).filter(|block| *block <= self.largest) else {
                break;
            };
            let left = u128::from(block - used) * 1024 / u128::from(used);
            if left < least {
                (best, least) = (block, left);
            }
            if left <= 1024 / u128::from(GOOD_ENOUGH) {
                break;
            }
        }
        Some(best)
    }

    /// The smallest block that holds `size` bytes, or `None` when none does.
    #[must_use]
    pub fn exact(&self, size: u64) -> Option<u64> {
        if size > self.largest {
            return None;
        }
        if self.shared_up_to == 0 {
            return Some(self.largest);
        }
        Some(self.granule.up(size)?.min(self.largest))
    }
}

/// Ration of a pool: the driver calls that it may make to save memory, earned by the operations it served without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ration {
    calls: u64,
}

/// Memory that an exchange of a block saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saving {
    /// More than 2 % of the pool's high-water mark.
    Large,
    /// More than 1 % of it.
    Small,
}

impl Saving {
    /// Returns the driver calls granted in advance, because a new pool has to grow, and the operations that pay for one more call.
    ///
    /// Small savings leave most of the ration to large ones. They are allowed while there is at most one call for 200 operations
    /// in the first 96,000, and less later.
    const fn price(self) -> (u64, u64) {
        match self {
            Self::Large => (512, 140),
            Self::Small => (240, 400),
        }
    }
}

impl Ration {
    pub(super) const NEW: Self = Self { calls: 0 };

    pub(super) const fn spend(&mut self, calls: u64) {
        self.calls += calls;
    }

    /// Returns whether the operations so far pay for two more calls: one block returned and one taken.
    pub(super) const fn allows_exchange(&self, operations: u64, saving: Saving) -> bool {
        let (advance, operations_per_call) = saving.price();
        (self.calls + 2).saturating_sub(advance) * operations_per_call <= operations
    }
}

/// Rule that decides if a small request leaves a large empty block whole.
///
/// Near the high-water mark, a block that one small allocation keeps from being returned costs as much memory as the
/// block is larger than the request. Then a block of the right size is worth its driver calls. For a huge block that holds
/// anywhere: it is returned, or serves the next huge request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thrift {
    /// Live bytes above which empty blocks are kept whole.
    live_above: u64,
    /// Bytes left over above which a request does not break an empty block.
    left_above: u64,
    /// Bytes left over above which the saving is large.
    much_above: u64,
    /// Bytes left over from which a request never breaks an empty block.
    huge: u64,
    /// True if a block has that many bytes.
    has_huge: bool,
    /// Sizes of new blocks.
    growth: Growth,
}

/// No block is huge that has fewer bytes.
const LEAST_HUGE: u64 = 64 << 20;
/// A request gets a new block if a huge block would have more than this fraction (one in eight) of its size left over.
const HUGE_REST: u64 = 8;

impl Thrift {
    /// Breaks whatever fits.
    pub(super) const OFF: Self = Self {
        live_above: u64::MAX,
        left_above: u64::MAX,
        much_above: u64::MAX,
        huge: u64::MAX,
        has_huge: false,
        growth: Growth { smallest: 0, largest: 0, granule: Align::ONE, shared_up_to: 0, part: 0 },
    };

    /// The rule for a pool that once held `high` bytes: in force above 70 % of it, for 1 % of it and more left over; for blocks
    /// of 25 % of it and more, always. Where the pool says how large blocks are, or they grow with it, a new one leaves as much over as
    /// an empty one.
    pub(super) fn new(high: u64, largest_block: u64, growth: &Growth) -> Self {
        if growth.shared_up_to == 0 || growth.part > 0 {
            return Self::OFF;
        }
        let has_one_size = growth.smallest == growth.largest;
        let huge = if has_one_size { u64::MAX } else { LEAST_HUGE.max(high / 4) };
        Self {
            live_above: high / 10 * 7,
            left_above: high / 100,
            much_above: high / 50,
            huge,
            has_huge: largest_block >= huge,
            growth: *growth,
        }
    }

    #[inline]
    pub(super) const fn is_on(&self, live: u64) -> bool {
        self.has_huge || self.is_near(live)
    }

    /// Returns whether `live` bytes are near the most that the pool ever held.
    #[inline]
    pub(super) const fn is_near(&self, live: u64) -> bool {
        live > self.live_above
    }

    /// Returns the saving if a request of `size`, which would leave `left` bytes of an empty block over, gets a new block. `None` if
    /// the saving is too small, or a new block would leave as much over.
    pub(super) fn saving(&self, size: u64, left: u64, live: u64) -> Option<Saving> {
        let is_waste = self.is_near(live) && left > size / 10;
        let is_huge = left >= self.huge && left > size / HUGE_REST;
        let saving = match left {
            _ if is_huge => Saving::Large,
            left if is_waste && left > self.much_above => Saving::Large,
            left if is_waste && left > self.left_above => Saving::Small,
            _ => return None,
        };
        self.growth.block_for(size, 0).filter(|fresh| fresh - size < left).map(|_| saving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn blocks_hold_the_request_and_leave_little_over() {
        let growth = Growth::new(1 << 40, Align::of(2 << 20));
        let table = [
            (1, 4 * MIB),
            (MIB, 4 * MIB),
            (2 * MIB, 2 * MIB),
            (9 * MIB / 4, 14 * MIB),
            (3 * MIB, 6 * MIB),
            (64 * MIB, 64 * MIB),
            (65 * MIB, 66 * MIB),
        ];
        for (size, block) in table {
            assert_eq!(growth.block_for(size, u64::MAX), Some(block), "for {size}");
        }
    }

    #[test]
    fn a_small_heap_is_one_block_and_refuses_more() {
        let growth = Growth::new(65_536, Align::of(256));
        assert_eq!(growth.block_for(1, 0), Some(65_536));
        assert_eq!(growth.block_for(65_536, 0), Some(65_536));
        assert_eq!(growth.block_for(65_537, 0), None);
        assert_eq!(growth.block_for(u64::MAX, 0), None);
        let huge = Growth { smallest: 1 << 60, largest: 1 << 60, shared_up_to: 0, ..growth };
        assert_eq!(huge.block_for(1 << 59, 0), Some(1 << 60));
    }

    #[test]
    fn blocks_grow_with_the_pool_up_to_a_bound() {
        const KIB: u64 = 1 << 10;
        let granule = Align::of(64 * KIB);
        let growth =
            Growth { smallest: 256 * KIB, granule, part: 8, ..Growth::new(1 << 40, Align::ONE) };
        let table = [
            (1, 0, 256 * KIB),
            (1, 4 * MIB - 1, 256 * KIB),
            (1, 4 * MIB, 512 * KIB),
            (1, 100 * MIB, 8 * MIB),
            (1, u64::MAX, 32 * MIB),
            (MIB, 0, MIB),
            (MIB, 100 * MIB, 8 * MIB),
            (4 * MIB, 100 * MIB, 8 * MIB),
            (3 * MIB, 100 * MIB, 6 * MIB),
            (40 * MIB, u64::MAX, 40 * MIB),
        ];
        for (size, held, block) in table {
            assert_eq!(growth.block_for(size, held), Some(block), "for {size} beside {held}");
        }
        assert_eq!(growth.block_for(u64::MAX, 0), None);
        let small = Growth { largest: 128 * KIB, ..growth };
        assert_eq!(small.block_for(1, u64::MAX), Some(128 * KIB));
    }

    #[test]
    fn an_empty_block_stays_whole_only_for_a_better_one() {
        let growth = Growth::new(1 << 40, Align::of(2 << 20));
        let (thrift, live) = (Thrift::new(100 * MIB, 8 * MIB, &growth), 90 * MIB);
        let saving = |left: u64, live| thrift.saving(MIB, left, live);
        assert_eq!(saving(7 * MIB, live), Some(Saving::Large), "a new block has 4 MiB");
        assert_eq!(saving(3 * MIB, live), None, "a new block would be the same");
        assert_eq!(saving(7 * MIB, 60 * MIB), None, "far from the peak");
        let thrift = Thrift::new(400 * MIB, 8 * MIB, &growth);
        let saving = |left: u64| thrift.saving(MIB, left, 390 * MIB);
        assert_eq!(saving(7 * MIB), Some(Saving::Small), "between 1 % and 2 % of the peak");
        assert_eq!(saving(4 * MIB), None, "1 % of the peak");
    }

    #[test]
    fn calls_are_paid_for_by_operations() {
        for saving in [Saving::Large, Saving::Small] {
            let (mut ration, (advance, operations_per_call)) = (Ration::NEW, saving.price());
            ration.spend(advance);
            assert!(!ration.allows_exchange(2 * operations_per_call - 1, saving));
            assert!(ration.allows_exchange(2 * operations_per_call, saving));
            ration.spend(2);
            assert!(!ration.allows_exchange(2 * operations_per_call, saving));
        }
        let mut ration = Ration::NEW;
        ration.spend(400);
        assert!(!ration.allows_exchange(0, Saving::Small), "the rest is for large savings");
        assert!(ration.allows_exchange(0, Saving::Large));
    }
}
