//! Growing by blocks.
#![forbid(unsafe_code)]
use super::reuse::WaitMode;
use super::table::SlotId;
use super::users::User;
use super::{Ask, Lane, State, Suballocator};
use crate::device::{Block, insist};
use crate::{Align, Backend, Error, ErrorKind, Result, Sharing, Span};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_strategy::pages::Pager;

impl<B: Backend> State<B> {
    /// Adds a block and takes the request from it; all or nothing.
    fn admit_new(
        &mut self,
        block: Arc<Block<B>>,
        sharing: Sharing,
        ask: Ask,
    ) -> Result<SlotId, ErrorKind> {
        // A dedicated block is handed out whole: no other allocation gets the rest. So is a very large one, which a
        // small allocation in the rest would keep from being returned.
        let whole = sharing == Sharing::Dedicated || ask.layout.size >= WHOLE_FROM;
        let size = if whole { block.size() } else { ask.layout.size };
        self.slots.reserve()?;
        let user = self.enter(ask.timeline)?;
        let id = self.add_block(block, sharing)?;
        let grant = match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.carve(id, Span { offset: 0, size }, ask.class),
            Suballocator::Other(other) => other.allocate(ask.layout, ask.class),
        };
        let grant = grant.inspect_err(|_| drop(self.remove_block(id)))?;
        Ok(self.admit(grant, ask.size, ask.layout.align, user))
    }
}

impl<B: Backend> Lane<B> {
    /// Takes a new block of at most `room` bytes from the driver, and the request from it: a comfortable one, or the smallest
    /// that will do where there is no memory for that. `None` where that has more bytes.
    pub(crate) fn grow(&self, ask: Ask, room: u64, lanes: &[Arc<Self>]) -> Result<Option<SlotId>> {
        let (shared, size) = (&self.shared, ask.layout.size);
        let grow = |size: u64| {
            let make = || shared.device.backend().allocate(shared.heap, size);
            self.grow_by(ask, size, Sharing::Shared, lanes, make).map(Some)
        };
        let sizes = [shared.growth.block_for(size), shared.growth.exact(size)];
        let mut sizes = sizes.into_iter().flatten().filter(|size| *size <= room);
        let Some(block) = sizes.next() else { return Ok(None) };
        match (grow(block), sizes.next()) {
            (Err(error), Some(exact)) if error.kind().is_out_of_memory() && exact < block => {
                grow(exact)
            }
            (grown, _) => grown,
        }
    }

    /// Takes a new block of `size` bytes from the driver, which `make` asks, and the request from it.
    ///
    /// Cached empty blocks, of any of the pool's `lanes`, are returned first where the pool would otherwise hold more than
    /// it ever did.
    pub(crate) fn grow_by(
        &self,
        ask: Ask,
        size: u64,
        sharing: Sharing,
        lanes: &[Arc<Self>],
        make: impl FnOnce() -> Result<B::Block>,
    ) -> Result<SlotId> {
        let trimmed = self.make_room(size, ask.layout.size, lanes)?;
        let in_flight = self.shared.device.in_flight.begin();
        let block = self.shared.take_made(size, make)?;
        let mut state = self.state.lock();
        state.ration.spend(1 + trimmed);
        let blocks = state.blocks.iter().flatten().map(|held| held.block.size());
        let largest = blocks.fold(size, u64::max);
        state.thrift = Thrift::new(self.shared.high(), largest, &self.shared.growth);
        if sharing == Sharing::Shared
            && let Ok(slot) = state.allocate(ask)
        {
            // Another thread made room meanwhile; together they need one block, not two.
            drop(state);
            self.shared.give_back(Vec::from([block]));
            in_flight.publish();
            return Ok(slot);
        }
        let taken = state.admit_new(Arc::clone(&block), sharing, ask);
        drop(state);
        if taken.is_err() {
            self.shared.give_back(Vec::from([block]));
        }
        in_flight.publish();
        taken.map_err(Error::from)
    }

    /// Adds an empty block, for a pool with a minimum.
    pub(crate) fn prime(&self, size: u64) -> Result<()> {
        let block = self.shared.take_block(size)?;
        let added = self.state.lock().add_block(Arc::clone(&block), Sharing::Shared);
        match added {
            Ok(_) => Ok(()),
            Err(kind) => {
                self.shared.give_back(Vec::from([block]));
                Err(kind.into())
            }
        }
    }

    /// Returns empty blocks so that the pool stays below the most it ever held, its own first, then those of the pool's
    /// other lanes. Returns how many.
    fn make_room(&self, block: u64, request: u64, lanes: &[Arc<Self>]) -> Result<u64> {
        let shared = &self.shared;
        let granted = |lane: &Arc<Self>| lane.state.lock().counts.granted_bytes;
        let granted: u64 = lanes.iter().map(granted).sum();
        let floor = shared.high().max(granted.saturating_add(request));
        let others = lanes.iter().map(Arc::as_ref).filter(|lane| !core::ptr::eq(self, *lane));
        let mut returned = 0;
        for lane in core::iter::once(self).chain(others) {
            let excess = shared.reserved().saturating_add(block).saturating_sub(floor);
            if excess == 0 {
                break;
            }
            lane.poll_users(WaitMode::Poll)?;
            returned += lane.return_empty(excess);
        }
        Ok(returned)
    }

    /// Returns empty blocks of `excess` bytes in total, or all, to the driver. Returns the number of blocks.
    fn return_empty(&self, mut excess: u64) -> u64 {
        let shared = &self.shared;
        let in_flight = shared.device.in_flight.begin();
        let mut state = self.state.lock();
        let mut returned = Vec::new();
        let mut left = shared.reserved();
        let mut empty = state.empty_blocks();
        empty.sort_unstable();
        while excess > 0 && !empty.is_empty() {
            // The smallest block that is enough, else the largest.
            let at = empty.partition_point(|(size, _)| *size < excess).min(empty.len() - 1);
            let (size, id) = empty.remove(at);
            if left.saturating_sub(size) < shared.config.minimum {
                break;
            }
            left = left.saturating_sub(size);
            returned.extend(state.remove_block(id));
            excess = excess.saturating_sub(size);
        }
        drop(state);
        let count = returned.len() as u64;
        shared.give_back(returned);
        if count > 0 {
            in_flight.publish();
        }
        count
    }

    /// Returns empty blocks to the driver until they are `enough` bytes, down to the pool's minimum. Returns the numbers of bytes
    /// and of blocks.
    pub(crate) fn trim_some_blocks(&self, enough: u64) -> (u64, u64) {
        let in_flight = self.shared.device.in_flight.begin();
        let mut returned: Vec<Arc<Block<B>>> = Vec::new();
        let mut state = self.state.lock();
        let held = self.shared.reserved();
        let mut left = held;
        for (size, id) in state.empty_blocks() {
            if held - left < enough && left.saturating_sub(size) >= self.shared.config.minimum {
                left -= size;
                returned.extend(state.remove_block(id));
            }
        }
        drop(state);
        let count = returned.len() as u64;
        let bytes = self.shared.give_back(returned);
        if count > 0 {
            in_flight.publish();
        }
        (bytes, count)
    }

    /// Whether the lane has so much to spare that another should use it before it grows: more than an eighth. A thread that
    /// frees into another thread's lane takes that one's lock.
    pub(crate) fn lends_gladly(&self) -> bool {
        let (free, total) = self.state.lock().suballocator.free_and_total();
        free > total / 8
    }

    /// Counts a request that another lane served.
    pub(crate) fn count_borrowed(&self) {
        self.borrowed.fetch_add(1, Relaxed);
    }

    /// Whether the lane should ask for a block of its own for a request that others could serve: it borrows time and again,
    /// which takes the long way and other threads' locks, and has little itself. All lanes together take no more than one block
    /// each, or an eighth of what the pool holds, in this way.
    pub(crate) fn should_stop_borrowing(
        &self,
        bytes: u64,
        lanes: impl FnOnce() -> Vec<Arc<Self>>,
    ) -> bool {
        let smallest = self.shared.growth.smallest;
        let is_usual = self.shared.page().is_none() && bytes <= smallest / 4;
        if !is_usual || self.borrowed.load(Relaxed) < PATIENCE {
            return false;
        }
        self.borrowed.store(0, Relaxed);
        let total = |lane: &Self| lane.state.lock().suballocator.free_and_total().1;
        let (own, lanes) = (total(self), lanes());
        let all: u64 = lanes.iter().map(|lane| total(lane)).sum();
        let is_first = own == 0 && self.shared.config.block.is_none();
        is_first || own.saturating_add(smallest) <= all / 8 / lanes.len().max(1) as u64
    }
}

impl<B: Backend> Drop for Lane<B> {
    fn drop(&mut self) {
        if self.is_bare() {
            return;
        }
        // Even a lost device is asked again: if the report was wrong, it still works.
        let idle = insist(|| self.shared.device.backend().wait_idle());
        match idle.map_err(|error| error.kind()) {
            Ok(()) | Err(ErrorKind::DeviceLost) => self.dismantle(),
            Err(_) if self.is_out_of_use(WaitMode::Block) => self.dismantle(),
            Err(kind) => self.abandon(kind),
        }
    }
}

impl<B: Backend> Lane<B> {
    /// Returns whether the lane has no memory, here or in another lane.
    pub(crate) fn is_bare(&self) -> bool {
        let state = self.state.lock();
        state.blocks.iter().flatten().next().is_none() && state.remote.is_empty()
    }

    /// Returns whether nothing on the device uses the lane's memory, as far as the timelines tell that used it. For a device that
    /// cannot be waited for as a whole.
    pub(crate) fn is_out_of_use(&self, wait: WaitMode) -> bool {
        let polled = self.poll_users(wait);
        let state = self.state.lock();
        let stranded = state.pager.as_ref().map_or(0, Pager::stranded_bytes);
        polled.is_ok()
            && state.users.is_alone(User::HOST)
            && state.remote.is_empty()
            && state.counts.live() + state.held_bytes + stranded == 0
    }

    /// Leaves all memory with the driver, for the end of a lane whose work could not be waited for: it may still run.
    fn abandon(&self, why: ErrorKind) {
        let device = &self.shared.device;
        let mut state = self.state.lock();
        let mapped = state.pager.as_ref().map_or(Vec::new(), Pager::mapped_spans);
        let blocks = core::mem::take(&mut state.blocks);
        // Their bytes in other lanes may be in use too, and stay live there.
        core::mem::forget(core::mem::take(&mut state.remote));
        drop(state);
        tracing::error!(?why, "the end of a pool could not wait for the device");
        for (span, _) in mapped {
            device.quarantine(span.size, "work on pages could not be followed");
        }
        blocks.into_iter().flatten().for_each(|held| device.abandon(held.block));
    }
}

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
        if size <= self.smallest / 4 {
            return Some(self.smallest);
        }
        let most = (self.shared_up_to / size).clamp(1, MOST_TOGETHER);
        let (mut best, mut least) = (self.exact(size)?, u128::MAX);
        for together in 1..=most {
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

    /// Returns whether the operations so far pay for two more calls: one block returned and one taken.
    pub(super) const fn allows_exchange(&self, operations: u64) -> bool {
        (self.calls + 2).saturating_sub(ADVANCE) * OPERATIONS_PER_CALL <= operations
    }
}

/// Whether a small request should leave a large empty block whole.
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
    /// Bytes left over from which a request never breaks an empty block.
    huge: u64,
    /// Whether a block has that many bytes.
    has_huge: bool,
    /// What a new block would be.
    growth: Growth,
}

/// Requests that a lane lets others serve before it wants a block of its own: a driver call for so many is little.
const PATIENCE: u32 = 256;
/// Requests of this size and larger get all of a new block.
const WHOLE_FROM: u64 = 1 << 30;
/// No block is huge that has fewer bytes.
const LEAST_HUGE: u64 = 64 << 20;
/// A request gets a new block if a huge block would have more than this fraction (one in eight) of its size left over.
const HUGE_REST: u64 = 8;

impl Thrift {
    /// Breaks whatever fits.
    pub(super) const OFF: Self = Self {
        live_above: u64::MAX,
        left_above: u64::MAX,
        huge: u64::MAX,
        has_huge: false,
        growth: Growth { smallest: 0, largest: 0, granule: Align::ONE, shared_up_to: 0 },
    };

    /// The rule for a pool that once held `high` bytes: in force above 70 % of it, for blocks of 2 % of it and more; for blocks
    /// of 25 % of it and more, always. Where the pool says how large blocks are, a new one leaves as much over as an empty one.
    fn new(high: u64, largest_block: u64, growth: &Growth) -> Self {
        if growth.shared_up_to == 0 {
            return Self::OFF;
        }
        let has_one_size = growth.smallest == growth.largest;
        let huge = if has_one_size { u64::MAX } else { LEAST_HUGE.max(high / 4) };
        let (live_above, left_above) = (high / 10 * 7, high / 50);
        Self { live_above, left_above, huge, has_huge: largest_block >= huge, growth: *growth }
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

    /// Whether a request of `size` that would leave `left` of an empty block over should have a block of its own. Not where a new
    /// block would have as much left over.
    pub(super) fn keeps_whole(&self, size: u64, left: u64, live: u64) -> bool {
        let is_worth_it = (self.is_near(live) && left > self.left_above && left > size / 10)
            || (left >= self.huge && left > size / HUGE_REST);
        is_worth_it && self.growth.block_for(size).is_some_and(|fresh| fresh - size < left)
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
        let huge = Growth { smallest: 1 << 60, largest: 1 << 60, shared_up_to: 0, ..growth };
        assert_eq!(huge.block_for(1 << 59), Some(1 << 60));
    }

    #[test]
    fn an_empty_block_stays_whole_only_for_a_better_one() {
        let growth = Growth::new(1 << 40, Align::of(2 << 20));
        let (thrift, live) = (Thrift::new(100 * MIB, 8 * MIB, &growth), 90 * MIB);
        assert!(thrift.keeps_whole(MIB, 7 * MIB, live), "a new block has 4 MiB");
        assert!(!thrift.keeps_whole(MIB, 3 * MIB, live), "a new block would be the same");
        assert!(!thrift.keeps_whole(MIB, 7 * MIB, 60 * MIB), "far from the peak");
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
