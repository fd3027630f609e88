//! Growing by blocks.
#![forbid(unsafe_code)]
use super::bytes::Ask;
use super::extra::SlotId;
use super::order::User;
use super::reuse::WaitMode;
use super::state::{Lane, State};
use crate::device::{Block, insist};
use crate::{Backend, Error, ErrorKind, Result, Sharing};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_strategy::BlockId;

/// Requests that other lanes serve before this one wants a block of its own: one driver call for 256 requests is
/// little.
const PATIENCE: u32 = 256;
/// Requests of this size and larger get all of a new block.
const WHOLE_FROM: u64 = 1 << 30;

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
        self.occupancy.reserve()?;
        let user = self.enter(ask.timeline)?;
        let grant = self.bytes.take_of_new(block, sharing, size, ask)?;
        Ok(self.admit(grant, ask.bytes(), user))
    }

    /// Empty blocks that can be returned to the driver, with their sizes: nothing on the device uses them.
    fn empty_blocks(&self) -> Vec<(u64, BlockId)> {
        self.bytes.empty_blocks(|last| self.order.may(User::HOST, last))
    }

    /// Returns the part of `held` bytes that a minimum counts once a block has left; `None` where that would be too little. A block
    /// that was taken for one allocation counts for no minimum.
    fn left_without(&self, id: BlockId, held: u64, minimum: u64) -> Option<u64> {
        match self.bytes.sharing(id) {
            Sharing::Dedicated => Some(held),
            Sharing::Shared => {
                held.checked_sub(self.bytes.block(id).size()).filter(|left| *left >= minimum)
            }
        }
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
        let sizes = [shared.growth.block_for(size, shared.reserved()), shared.growth.exact(size)];
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
        let block = self.shared.take_made(size, sharing, make)?;
        let mut state = self.state.lock_flushed();
        // Another thread may have made room meanwhile; together they need one block, not two. Asked before the calls count: a
        // ration that has paid for this block still leaves the empty ones whole for which it was taken.
        let found = if sharing == Sharing::Shared { state.allocate(ask).ok() } else { None };
        state.bytes.note_growth(1 + trimmed, self.shared.high(), size, &self.shared.growth);
        if let Some(slot) = found {
            drop(state);
            self.shared.give_back(Vec::from([(block, sharing)]));
            in_flight.publish();
            return Ok(slot);
        }
        let taken = state.admit_new(Arc::clone(&block), sharing, ask);
        drop(state);
        if taken.is_err() {
            self.shared.give_back(Vec::from([(block, sharing)]));
        }
        in_flight.publish();
        taken.map_err(Error::from)
    }

    /// Adds an empty block, for a pool with a minimum.
    pub(crate) fn prime(&self, size: u64) -> Result<()> {
        let block = self.shared.take_block(size)?;
        let added = self.state.lock_flushed().bytes.add_block(Arc::clone(&block), Sharing::Shared);
        match added {
            Ok(_) => Ok(()),
            Err(kind) => {
                self.shared.give_back(Vec::from([(block, Sharing::Shared)]));
                Err(kind.into())
            }
        }
    }

    /// Returns empty blocks so that the pool stays below the most it ever held, its own first, then those of the pool's
    /// other lanes. Returns how many.
    fn make_room(&self, block: u64, request: u64, lanes: &[Arc<Self>]) -> Result<u64> {
        let shared = &self.shared;
        let granted = |lane: &Arc<Self>| lane.granted_bytes();
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
        let mut state = self.state.lock_flushed();
        let mut returned = Vec::new();
        let mut left = shared.reserved_for_all();
        let mut empty = state.empty_blocks();
        empty.sort_unstable();
        while excess > 0 && !empty.is_empty() {
            // The smallest block that is enough, else the largest.
            let at = empty.partition_point(|(size, _)| *size < excess).min(empty.len() - 1);
            let (size, id) = empty.remove(at);
            let Some(rest) = state.left_without(id, left, shared.config.minimum) else { break };
            left = rest;
            returned.extend(state.bytes.remove_block(id));
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
        let (mut returned, mut bytes) = (Vec::new(), 0);
        let mut state = self.state.lock_flushed();
        let mut left = self.shared.reserved_for_all();
        let mut empty = state.empty_blocks();
        empty.sort_unstable_by_key(|(_, id)| *id);
        for (size, id) in empty {
            if bytes < enough
                && let Some(rest) = state.left_without(id, left, self.shared.config.minimum)
            {
                (left, bytes) = (rest, bytes + size);
                returned.extend(state.bytes.remove_block(id));
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

    /// Returns true if more than an eighth of the lane is free, so that another lane should use it before it grows. A
    /// thread that frees into another thread's lane takes that one's lock.
    pub(crate) fn lends_gladly(&self) -> bool {
        let (free, total) = self.state.lock_flushed().bytes.free_and_total();
        free > total / 8
    }

    /// Counts a request that another lane served.
    pub(crate) fn count_borrowed(&self) {
        self.borrowed.fetch_add(1, Relaxed);
    }

    /// Returns true if the lane should ask for a block of its own for a request that others could serve: it borrows
    /// time and again, which takes the long way and other threads' locks, and has little itself. All lanes together
    /// take no more than one block each, or an eighth of what the pool holds, in this way.
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
        let total = |lane: &Self| lane.state.lock().bytes.free_and_total().1;
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
            Ok(()) | Err(ErrorKind::DeviceLost) => self.give_back_all(),
            Err(_) if self.is_out_of_use(WaitMode::Block) => self.give_back_all(),
            Err(kind) => self.abandon(kind),
        }
    }
}

impl<B: Backend> Lane<B> {
    /// Returns whether the lane has no memory, here or in another lane.
    pub(crate) fn is_bare(&self) -> bool {
        let state = self.state.lock();
        state.bytes.blocks().next().is_none() && state.remote.is_empty()
    }

    /// Returns whether nothing on the device uses the lane's memory, as far as the timelines tell that used it. For a device that
    /// cannot be waited for as a whole.
    pub(crate) fn is_out_of_use(&self, wait: WaitMode) -> bool {
        let polled = self.poll_users(wait);
        let state = self.state.lock();
        let (live, bytes) = (state.occupancy.counts().live(), &state.bytes);
        polled.is_ok()
            && state.order.is_alone(User::HOST)
            && state.remote.is_empty()
            && live + bytes.held_bytes() + bytes.stranded_bytes() == 0
    }

    /// Returns all memory to the driver but where a secret stays, for the end of the lane. The device is idle.
    fn give_back_all(&self) {
        let reservation = self.state.lock().bytes.reservation();
        let is_paged =
            |block: &Arc<_>| reservation.as_ref().is_some_and(|own| Arc::ptr_eq(own, block));
        let secrets = self.zero_last().into_iter();
        let (in_pages, in_blocks): (Vec<_>, Vec<_>) =
            secrets.partition(|(block, _)| is_paged(block));
        self.dismantle(|span| in_pages.iter().any(|(_, secret)| secret.overlaps(span)));
        let blocks: Vec<_> = self.state.lock().bytes.take_blocks().collect();
        for block in blocks {
            if in_blocks.iter().any(|(held, _)| Arc::ptr_eq(held, &block)) {
                self.shared.device.abandon(block, "a secret could not be zeroed");
            }
        }
    }

    /// Leaves all memory with the driver, for the end of a lane whose work could not be waited for: it may still run.
    fn abandon(&self, why: ErrorKind) {
        let device = &self.shared.device;
        let mut state = self.state.lock();
        // They are counted with their block or their pages from now on.
        state.bytes.take_kept().iter().for_each(|one| device.recover(one.grant.span.size));
        let (mapped, blocks) = (state.bytes.mapped_spans(), state.bytes.take_blocks());
        // Their bytes in other lanes may be in use too, and stay live there.
        core::mem::forget(core::mem::take(&mut state.remote));
        drop(state);
        tracing::error!(?why, "the end of a pool could not wait for the device");
        for (span, _) in mapped {
            device.quarantine(span.size, "work on pages could not be followed");
        }
        blocks.for_each(|block| device.abandon(block, "work on a block could not be followed"));
    }
}
