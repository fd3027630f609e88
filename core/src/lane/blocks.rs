//! Growing by blocks.
#![forbid(unsafe_code)]
use super::growth::Thrift;
use super::reuse::WaitMode;
use super::table::SlotId;
use super::{Ask, Lane, State, Suballocator};
use crate::device::{Block, insist};
use crate::{Backend, Error, ErrorKind, Result, Sharing, Span};
use alloc::{sync::Arc, vec::Vec};

impl<B: Backend> State<B> {
    /// Adds a block and takes the request from it; all or nothing.
    fn admit_new(
        &mut self,
        block: Arc<Block<B>>,
        sharing: Sharing,
        ask: Ask,
    ) -> Result<SlotId, ErrorKind> {
        // A dedicated block is handed out whole: what rounding left over is nobody else's.
        let whole = sharing == Sharing::Dedicated;
        let size = if whole { block.size() } else { ask.layout.size };
        self.slots.reserve()?;
        let user = self.enter(ask.timeline)?;
        let id = self.add_block(block, sharing)?;
        let grant = match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.carve(id, Span { offset: 0, size }, ask.class),
            Suballocator::Other(other) => other.allocate(ask.layout, ask.class),
        };
        let grant = grant.inspect_err(|_| drop(self.remove_block(id)))?;
        Ok(self.admit(grant, ask.size, user))
    }
}

impl<B: Backend> Lane<B> {
    /// Takes a new block from the driver and the request from it.
    ///
    /// Cached empty blocks, of any of the pool's `lanes`, are returned first where the pool would otherwise hold more than
    /// it ever did.
    pub(crate) fn grow(&self, ask: Ask, size: u64, lanes: &[Arc<Self>]) -> Result<SlotId> {
        let shared = &self.shared;
        let make = || shared.device.backend().allocate(shared.heap, size);
        self.grow_by(ask, size, Sharing::Shared, lanes, make)
    }

    /// As [`grow`](Self::grow); `make` asks the driver.
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
        state.thrift = Thrift::near(self.shared.high());
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
    /// other lanes; says how many.
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

    /// Returns empty blocks of so many bytes together, or all; says how many blocks.
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

    /// Returns empty blocks to the driver, down to the pool's minimum; says how many bytes.
    pub(crate) fn trim_blocks(&self) -> u64 {
        self.trim_some_blocks(usize::MAX).0
    }

    /// Returns at most so many empty blocks; says how many bytes, and how many blocks.
    pub(crate) fn trim_some_blocks(&self, most: usize) -> (u64, u64) {
        let in_flight = self.shared.device.in_flight.begin();
        let mut returned: Vec<Arc<Block<B>>> = Vec::new();
        let mut state = self.state.lock();
        let mut left = self.shared.reserved();
        for (size, id) in state.empty_blocks() {
            if returned.len() < most && left.saturating_sub(size) >= self.shared.config.minimum {
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
}

impl<B: Backend> Drop for Lane<B> {
    fn drop(&mut self) {
        let state = self.state.lock();
        let is_bare = state.blocks.iter().flatten().next().is_none() && state.remote.is_empty();
        drop(state);
        if is_bare {
            return;
        }
        // A lost device has nothing in flight, so its answer does not matter; another one is asked again.
        let _ = insist(|| self.shared.device.backend().wait_idle());
        self.dismantle();
    }
}
