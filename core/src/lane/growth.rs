//! How large the next block is, and when a cached one is worth keeping whole. Pure arithmetic.
#![forbid(unsafe_code)]
use crate::Align;

/// How a pool grows.
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
        Self { smallest: (4 << 20).min(largest), largest, granule, shared_up_to: 32 << 20 }
    }

    /// The next block for a request of `size` bytes, or `None` when no block can hold it.
    ///
    /// Small requests share a small block. Others get a block of their size, or of the fewest times their size that
    /// leaves little over after rounding to the granule: a block of one size is filled again by requests of that size.
    #[must_use]
    pub fn block_for(&self, size: u64) -> Option<u64> {
        if size > self.largest {
            return None;
        }
        if size <= self.smallest / 4 || self.shared_up_to == 0 {
            return Some(self.smallest);
        }
        let most = (self.shared_up_to / size).clamp(1, MOST_TOGETHER);
        let (mut best, mut least) = (self.exact(size)?, u64::MAX);
        for together in 1..=most {
            let used = size * together;
            let Some(block) = self.exact(used).filter(|block| *block <= self.largest) else {
                break;
            };
            let left = (block - used) * 1024 / used;
            if left < least {
                (best, least) = (block, left);
            }
            if left <= 1024 / GOOD_ENOUGH {
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

/// How many driver calls a pool may make to save memory, earned by the operations it served without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ration {
    calls: u64,
}

/// Operations that pay for one driver call.
const OPERATIONS_PER_CALL: u64 = 140;
/// Driver calls granted in advance: a pool that starts has to grow.
const ADVANCE: u64 = 512;

impl Ration {
    pub(super) const NEW: Self = Self { calls: 0 };

    pub(super) fn spend(&mut self, calls: u64) {
        self.calls += calls;
    }

    /// Whether two more calls, one block returned and one taken, are paid for by so many operations.
    pub(super) const fn allows_exchange(&self, operations: u64) -> bool {
        (self.calls + 2).saturating_sub(ADVANCE) * OPERATIONS_PER_CALL <= operations
    }
}

/// Whether a small request should leave a large empty block whole.
///
/// Near the high-water mark, a block that one small allocation keeps from being returned costs as much memory as the
/// block is larger than the request. Then a block of the right size is worth its driver calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thrift {
    /// Live bytes above which empty blocks are kept whole.
    live_above: u64,
    /// Bytes left over above which a request does not break an empty block.
    left_above: u64,
}

impl Thrift {
    /// Breaks whatever fits.
    pub(super) const OFF: Self = Self { live_above: u64::MAX, left_above: u64::MAX };

    /// The rule for a pool that once held `high` bytes: in force above 70 % of it, for blocks of 2 % of it and more.
    pub(crate) const fn near(high: u64) -> Self {
        Self { live_above: high / 10 * 7, left_above: high / 50 }
    }

    #[inline]
    pub(super) const fn is_on(&self, live: u64) -> bool {
        live > self.live_above
    }

    /// Whether a request of `size` that would leave `left` of an empty block over should have a block of its own.
    pub(super) const fn keeps_whole(&self, size: u64, left: u64) -> bool {
        left > self.left_above && left > size / 10
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
            assert_eq!(growth.block_for(size), Some(block), "for {size}");
        }
    }

    #[test]
    fn a_small_heap_is_one_block_and_refuses_more() {
        let growth = Growth::new(65_536, Align::of(256));
        assert_eq!(growth.block_for(1), Some(65_536));
        assert_eq!(growth.block_for(65_536), Some(65_536));
        assert_eq!(growth.block_for(65_537), None);
        assert_eq!(growth.block_for(u64::MAX), None);
    }

    #[test]
    fn calls_are_paid_for_by_operations() {
        let mut ration = Ration::NEW;
        ration.spend(ADVANCE);
        assert!(!ration.allows_exchange(2 * OPERATIONS_PER_CALL - 1));
        assert!(ration.allows_exchange(2 * OPERATIONS_PER_CALL));
        ration.spend(2);
        assert!(!ration.allows_exchange(2 * OPERATIONS_PER_CALL));
    }
}
