//! Back to the heap that suits best: what went elsewhere because that was full.
use super::{Allocation, Manager};
use crate::defrag::{Budget, BudgetMeter, Mode, Pass, Spilled};
use crate::lane::{Ask, Reservation};
use crate::pool::Pool;
use crate::{
    Backend, ErrorKind, HeapId, HeapKind, Mobility, Privacy, Ranking, Request, Result, Sharing,
};
use alloc::{sync::Arc, vec::Vec};
use std::time::Instant;

impl<B: Backend> Manager<B> {
    /// Plans a pass that brings back, within a budget, what lies in a farther heap than its request preferred: it spilled,
    /// or the next heap served it, because the first was full. Copies nothing yet.
    ///
    /// The pass is like that of [`begin_defragment`](Self::begin_defragment), with the same decisions, pins and end;
    /// only such a pass leaves a heap. The largest come first. Each gets a hole of the heap that it prefers, or memory from
    /// the driver as long as the heap stays within its soft limit; no other data is moved for it, and no pressure callback
    /// runs. An allocation stays where it is when it is pinned, secret or dedicated, when its request names its heap, or
    /// when its host view would be lost: it was mapped, and the heap that it prefers cannot be.
    ///
    /// An allocation that came back has the same id, and stays there until it is freed. An empty pass says that nothing
    /// is to be brought back, or that there is no room.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device has only one heap, or copies nothing; what the driver says.
    pub fn begin_recall(&self, budget: &Budget) -> Result<Pass<B>> {
        let heaps = self.caps().heaps.iter().filter(|heap| heap.kind != HeapKind::Constant);
        if heaps.count() < 2 || self.backend().as_transfer().is_none() {
            return Err(ErrorKind::Unsupported.into());
        }
        self.retire()?;
        let mut meter = BudgetMeter::new(budget, Instant::now());
        let mut spilled: Vec<Spilled<B>> = Vec::new();
        for lane in self.all_pools().iter().flat_map(|pool| pool.lanes()) {
            spilled.extend(Spilled::of(&lane));
        }
        let pass = self.new_pass(Mode::Concurrent, spilled.is_empty())?;
        pass.recall(spilled, &mut meter, |one| self.reserve(one))
    }

    /// Reserves a place in the heap that an allocation prefers. Returns it with the bytes that the driver gave for it; `None` where
    /// there is no room.
    fn reserve(&self, one: &Spilled<B>) -> Result<Option<(Reservation<B>, u64)>> {
        let (heap, layout, class) = one.wants();
        let pool = self.pool(heap)?;
        if layout.align > self.inner.device.heap(heap)?.align {
            return Ok(None);
        }
        let timeline = match one.timeline() {
            Some(timeline) if self.inner.device.is_closed(timeline)? => None,
            open => open,
        };
        let mut wanted = Request::new(layout.size).layout(layout).class(class);
        wanted.timeline = timeline;
        let Ok(ask) = pool.ask(&wanted) else { return Ok(None) };
        if let Some(held) = pool.lanes().iter().find_map(|lane| lane.hold(ask)) {
            return Ok(Some((held, 0)));
        }
        let before = pool.shared.reserved();
        let grown = self.grow_for_recall(pool, ask);
        match grown {
            Err(error)
                if error.kind().is_out_of_memory() || error.kind() == ErrorKind::ExceedsLimit =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(held) => Ok(held.map(|held| (held, pool.shared.reserved().saturating_sub(before)))),
        }
    }

    /// Takes memory from the driver for an allocation that comes back, within the heap's soft limit.
    fn grow_for_recall(&self, pool: &Arc<Pool<B>>, ask: Ask) -> Result<Option<Reservation<B>>> {
        let (lanes, lane) = (pool.lanes(), pool.lane_for(ask.timeline)?);
        let held = self.inner.device.heap_use(pool.shared.heap)?;
        let room = held.soft_limit.saturating_sub(held.reserved);
        let slot = if let Some(page) = pool.shared.page() {
            let most = ask.layout.size.checked_next_multiple_of(page);
            if most.is_none_or(|most| most > room) {
                return Ok(None);
            }
            Some(lane.grow_paged(ask, &lanes)?)
        } else {
            lane.grow(ask, room, &lanes)?
        };
        Ok(slot.and_then(|slot| lane.hold_taken(slot)))
    }

    /// Remembers that an allocation lies elsewhere because the best heap of its request was full.
    pub(super) fn wish(&self, allocation: &Allocation<B>, request: &Request<'_>, heaps: &Ranking) {
        let stays = request.mobility == Mobility::Pinned
            || request.privacy == Privacy::Secret
            || request.sharing == Sharing::Dedicated;
        let Some(best) = heaps.as_slice().first().filter(|_| !stays) else { return };
        // Constants are read in another way than other memory: their users must know which it is.
        if self.caps().heap(*best).is_some_and(|heap| heap.kind != HeapKind::Constant) {
            allocation.lane().set_wish(allocation.slot(), *best);
        }
    }
}

impl<B: Backend> Allocation<B> {
    /// The heap that the bytes lie in. Only a [recall](Manager::begin_recall) changes it.
    #[must_use]
    pub fn heap(&self) -> HeapId {
        self.lane().heap_of(self.slot())
    }
}
