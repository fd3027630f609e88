//! Moving live data until it is done: all of it on purpose, or as much as a request needs.
#![forbid(unsafe_code)]
use super::ladder::Taken;
use super::{Defragmentation, Manager, Rung};
use crate::defrag::{Budget, BudgetMeter, Goal, Holes, Moved, Order, Slid};
use crate::pool::{Ask, Lane, Patience, Pool};
use crate::{Backend, Result};
use alloc::{sync::Arc, vec::Vec};
use std::time::Instant;

impl<B: Backend> Manager<B> {
    /// Moves live data out of little used blocks and pages until nothing more can be gained, and gives those back; then
    /// closes the holes of the blocks that stay, and packs pages whose holes add up into fresh ones, of which it holds
    /// up to 128 more meanwhile where there is memory for them.
    ///
    /// Returns by how many bytes less the driver gave in the end. Allocations that are pinned, or whose binding is held, stay where they
    /// are, and those that move on consent do. Waits for the device.
    ///
    /// # Errors
    ///
    /// What the driver says; every allocation is then still at one place with its bytes.
    pub fn defragment(&self) -> Result<u64> {
        let before = self.trim()?;
        let mut moved = self.release_by_moving(&self.all_pools(), &Goal::ALL)?;
        moved.add(&self.pack_pages()?);
        for lane in self.all_pools().iter().flat_map(|pool| pool.lanes()) {
            // Each slide closes one block's holes; others may make new ones meanwhile, and that must end.
            let blocks = lane.state.lock().blocks.len();
            for _ in 0..blocks {
                if !self.slide(|| lane.close_up())? {
                    break;
                }
            }
        }
        let returned = before + moved.returned_bytes + self.trim()?;
        Ok(returned.saturating_sub(moved.taken_bytes))
    }

    /// Slides live data over holes and counts it; whether something moved.
    pub(super) fn slide(&self, slide: impl FnOnce() -> Result<Option<Slid>>) -> Result<bool> {
        let began = Instant::now();
        let Some(Slid { moves, bytes }) = slide()? else { return Ok(false) };
        let host_time = began.elapsed();
        self.inner.defrag_stats.add(&Moved {
            passes: 1,
            moves,
            bytes,
            host_time,
            ..Moved::default()
        });
        tracing::debug!(moves, bytes, "closed holes of a block");
        Ok(true)
    }

    /// Packs pages whose holes add up into fresh ones, until nothing more can be gained.
    fn pack_pages(&self) -> Result<Moved> {
        let (goal, mut sum) = (Goal { holes: Holes::Pack, ..Goal::ALL }, Moved::default());
        let paged = |pool: &Arc<Pool<B>>| pool.shared.page().is_some();
        let pools: Vec<_> = self.all_pools().into_iter().filter(paged).collect();
        let reserved = || pools.iter().map(|pool| pool.shared.reserved()).sum::<u64>();
        let mut least = reserved();
        loop {
            sum.add(&self.one_pass(&pools, &goal)?);
            // Fresh pages come first: where others need what was to be packed, nothing is gained, and this ends.
            if reserved() >= least {
                return Ok(sum);
            }
            least = reserved();
        }
    }

    /// Plans and makes one pass, and waits for it.
    fn one_pass(&self, pools: &[Arc<Pool<B>>], goal: &Goal) -> Result<Moved> {
        let mut meter = BudgetMeter::new(&Budget::new(), Instant::now());
        let mut planners = self.planners(pools, goal);
        let pass = self.plan_pass(&mut planners, goal, &mut meter, Order::Idle)?;
        if pass.is_empty() { Ok(Moved::default()) } else { Ok(pass.commit()?.moved) }
    }

    /// Empties blocks and pages of some pools by moving what is in them, until nothing more can be gained.
    fn release_by_moving(&self, pools: &[Arc<Pool<B>>], goal: &Goal) -> Result<Moved> {
        let mut sum = Moved::default();
        while sum.returned_bytes < goal.wanted {
            let left = Goal { wanted: goal.wanted - sum.returned_bytes, ..*goal };
            let moved = self.one_pass(pools, &left)?;
            sum.add(&moved);
            if moved.moves == 0 {
                break;
            }
        }
        Ok(sum)
    }

    /// Whether moving live data together made room in the request's lane, or in one that can lend it.
    pub(super) fn defragment_for(
        &self,
        pool: &Arc<Pool<B>>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
    ) -> Result<Option<Taken<B>>> {
        if self.inner.config.defragmentation == Defragmentation::Off
            || !self.could_fit(pool, ask)?
        {
            return Ok(None);
        }
        if let Some(taken) = self.slide_for(pool, lane, ask)? {
            return Ok(Some(taken));
        }
        if self.close_runs(pool, ask)?
            && let Some(taken) = self.slide_for(pool, lane, ask)?
        {
            return Ok(Some(taken));
        }
        let own = ask.unsettled(pool.shared.unit);
        let goal = Goal { wanted: ask.layout.size, own, holes: Holes::Leave, ..Goal::ALL };
        if self.release_by_moving(core::slice::from_ref(pool), &goal)?.moves > 0 {
            self.trim_beside(pool)?;
            if let Some(taken) = self.retry(pool, lane, ask, Rung::Defragment)? {
                return Ok(Some(taken));
            }
        }
        if let Some(taken) = self.free_pages_by_sliding(pool, lane, ask)? {
            return Ok(Some(taken));
        }
        self.lengthen_last_hole(pool, lane, ask)
    }

    /// Whether a request fits beside what lives in its pool, however that lies: nothing is moved for one that does not.
    fn could_fit(&self, pool: &Pool<B>, ask: Ask) -> Result<bool> {
        let device = &self.inner.device;
        let most = device.heap(pool.shared.heap)?.size.min(pool.shared.config.maximum);
        let most = most.min(device.heap_use(pool.shared.heap)?.hard_limit);
        let lanes = pool.lanes();
        let live: u64 = lanes.iter().map(|lane| lane.state.lock().counts.granted_bytes).sum();
        Ok(live.saturating_add(ask.layout.size) <= most)
    }

    /// Slides live data of one lane together until it has a hole for a request, the request's own lane first.
    pub(super) fn slide_for(
        &self,
        pool: &Arc<Pool<B>>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
    ) -> Result<Option<Taken<B>>> {
        let mut lanes = pool.lanes();
        lanes.sort_by_key(|each| !Arc::ptr_eq(each, lane));
        for each in lanes {
            if !self.slide(|| each.make_hole(ask))? {
                continue;
            }
            each.settle(Patience::Wait)?;
            let taken = each.state.lock().allocate_usable(ask);
            if let Ok(slot) = taken {
                self.climbed(Rung::Defragment, ask.size, ask.timeline);
                return Ok(Some((each, slot)));
            }
        }
        Ok(None)
    }

    /// Serves a request of a paged lane by copying live data together, where that is expected to take less than mapping
    /// free pages side by side.
    pub(super) fn copy_instead(&self, lane: &Arc<Lane<B>>, ask: Ask) -> Result<Option<Taken<B>>> {
        let config = &self.inner.config;
        let heap = self.inner.device.heap(lane.shared.heap)?;
        if !config.remapping.weighs(heap) || config.defragmentation == Defragmentation::Off {
            return Ok(None);
        }
        let Some(nanos) = lane.cost_of_remapping(ask) else { return Ok(None) };
        if !self.slide(|| lane.make_hole_within(ask, nanos))? {
            return Ok(None);
        }
        let taken = lane.state.lock().allocate_usable(ask);
        if taken.is_ok() {
            self.climbed(Rung::Defragment, ask.size, ask.timeline);
        }
        Ok(taken.ok().map(|slot| (Arc::clone(lane), slot)))
    }
}
