//! Moving live data on purpose: at once, pass by pass, or a little with every step.
use super::ladder::{Climb, Taken};
use super::{Allocation, Background, Defragmentation, Manager};
use crate::defrag::{
    Budget, BudgetMeter, Goal, Holes, How, LanePlanner, Mode, Moved, Outcome, Pass, PlannedMove,
    Portion, Slid,
};
use crate::lane::{Ask, Consent, Lane, WaitMode};
use crate::pool::Pool;
use crate::{Backend, ErrorKind, Result, TimelineId, Timelines};
use alloc::{sync::Arc, vec::Vec};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// There is nothing to gain, or the manager does not work in the background.
    Idle,
    /// Copies run on the device, or the budget was spent on planning; a later step goes on.
    UnderWay,
    /// Moves were committed, or memory that they emptied was returned to the driver. More may follow.
    Committed(Outcome),
}

/// The state of background defragmentation.
pub(super) struct Work<B: Backend>(Mutex<State<B>>);

struct State<B: Backend> {
    pass: Option<Pass<B>>,
    /// Lanes that may have empty blocks or pages to return.
    returns: Vec<Arc<Lane<B>>>,
    planners: Vec<LanePlanner<B>>,
    /// The operation count at which to look again.
    rest_until: u64,
    /// True while it works: it began above one threshold, and is not below the other yet.
    works: bool,
}

impl<B: Backend> Work<B> {
    pub(super) const fn new() -> Self {
        let (rest_until, works) = (0, false);
        let state =
            State { pass: None, returns: Vec::new(), planners: Vec::new(), rest_until, works };
        Self(Mutex::new(state))
    }

    /// Ends the current pass when the manager is dropped.
    pub(super) fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).pass.take());
    }
}

/// Operations to wait before looking again after nothing could be gained.
const REST: u64 = 256;

impl<B: Backend> Manager<B> {
    /// Plans a pass within a budget, and holds the places that its moves need. Copies nothing yet.
    ///
    /// Blocks and pages that can be emptied whole come first, the least used before the others. Allocations that are
    /// pinned, bound or dedicated stay; nothing leaves its heap or its pool. An empty pass says that there is nothing
    /// to gain within the budget.
    ///
    /// # Examples
    ///
    /// `docs/defragmentation.md` has one that runs.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn begin_defragment(&self, budget: &Budget) -> Result<Pass<B>> {
        self.retire()?;
        let goal = Goal { asks: Consent::Needed, ..Goal::ALL };
        let mut meter = BudgetMeter::new(budget, Instant::now());
        let mut planners = self.planners(&self.all_pools(), &goal);
        self.plan_pass(&mut planners, &goal, &mut meter, Mode::Concurrent)
    }

    /// Does a bounded amount of defragmentation: call it once a frame, or from a thread of your own.
    ///
    /// A manager that stays [within the driver's budget](super::ManagerConfig::within_driver_budget) also reads it here.
    ///
    /// A step does one thing: it commits copies that have finished, or returns one block that they left empty, or plans
    /// the next copies within the budget and submits them. It never waits for the device, and threads that come
    /// together do not wait for each other. One call of the driver cannot be divided, whatever the budget says.
    ///
    /// # Errors
    ///
    /// Driver errors; every allocation is then still at one place with its bytes.
    pub fn step(&self) -> Result<Step> {
        self.inner.device.read_budgets();
        let Defragmentation::Background(how) = self.inner.config.defragmentation else {
            return Ok(Step::Idle);
        };
        let mut state = match self.inner.work.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Step::UnderWay),
        };
        if let Some(outcome) = self.commit_step(&mut state)? {
            return Ok(Step::Committed(outcome));
        }
        if state.pass.is_none() {
            self.begin_step(&mut state, &how)?;
        }
        let works = state.pass.is_some() || state.works;
        Ok(if works { Step::UnderWay } else { Step::Idle })
    }

    /// Commits copies that have finished, or else returns some memory that earlier ones emptied.
    fn commit_step(&self, state: &mut State<B>) -> Result<Option<Outcome>> {
        if let Some(mut pass) = state.pass.take() {
            if !pass.is_ready()? {
                state.pass = Some(pass);
                return Ok(None);
            }
            let (outcome, lanes) = pass.show()?;
            let new = lanes
                .into_iter()
                .filter(|lane| !state.returns.iter().any(|known| Arc::ptr_eq(known, lane)));
            let new: Vec<_> = new.collect();
            state.returns.extend(new);
            if outcome.moved.moves == 0 {
                state.rest(self.operations());
            }
            return Ok(Some(outcome));
        }
        while let Some(lane) = state.returns.last() {
            let (began, mut moved) = (Instant::now(), Moved::default());
            lane.give_back_empty(Portion::Little, &mut moved);
            if moved.returned_bytes > 0 {
                moved.host_time = began.elapsed();
                self.inner.defrag_stats.add(&moved);
                return Ok(Some(Outcome { moved, ..Outcome::default() }));
            }
            state.returns.pop();
        }
        Ok(None)
    }

    /// Plans and submits the next copies, if the thresholds allow.
    fn begin_step(&self, state: &mut State<B>, how: &Background) -> Result<()> {
        let mut meter = BudgetMeter::new(&how.budget, Instant::now());
        if !self.is_worth_it(state, how) {
            return Ok(());
        }
        if state.planners.is_empty() {
            self.retire()?;
            state.planners = self.planners(&self.all_pools(), &Goal::ALL);
        }
        let mut pass =
            self.plan_pass(&mut state.planners, &Goal::ALL, &mut meter, Mode::Concurrent)?;
        state.planners.retain(|planner| !planner.is_done());
        if pass.is_empty() {
            if state.planners.is_empty() {
                state.rest(self.operations());
            }
            return Ok(());
        }
        pass.start()?;
        state.pass = Some(pass);
        Ok(())
    }

    /// Returns true if enough memory is free to start or continue.
    fn is_worth_it(&self, state: &mut State<B>, how: &Background) -> bool {
        let totals = self.totals();
        let held = totals.free_bytes.saturating_add(totals.granted_bytes);
        let percent = u128::from(totals.free_bytes) * 100 / u128::from(held.max(1));
        let operations = totals.allocated + totals.freed;
        if !state.works {
            state.works = percent > u128::from(how.begin_above) && operations >= state.rest_until;
        } else if percent < u128::from(how.end_below) {
            state.rest(operations);
        }
        state.works
    }

    fn operations(&self) -> u64 {
        let totals = self.totals();
        totals.allocated + totals.freed
    }

    pub(super) fn planners(&self, pools: &[Arc<Pool<B>>], goal: &Goal) -> Vec<LanePlanner<B>> {
        let lanes = pools.iter().flat_map(|pool| pool.lanes());
        let planner = |lane| LanePlanner::new(&lane, &self.inner.defrag_stats, goal);
        lanes.map(planner).filter(|planner| !planner.is_done()).collect()
    }

    pub(super) fn plan_pass(
        &self,
        planners: &mut [LanePlanner<B>],
        goal: &Goal,
        meter: &mut BudgetMeter,
        mode: Mode,
    ) -> Result<Pass<B>> {
        Ok(self.new_pass(mode, planners.is_empty())?.plan(planners, goal, meter))
    }

    /// A pass without moves; one that will get none needs no timeline of its own.
    pub(super) fn new_pass(&self, mode: Mode, stays_empty: bool) -> Result<Pass<B>> {
        let (device, stats) =
            (Arc::clone(&self.inner.device), Arc::clone(&self.inner.defrag_stats));
        let on = if stays_empty { TimelineId::MAIN } else { self.mover()? };
        Ok(Pass::new(device, stats, on, mode))
    }

    /// The timeline of copies: a dedicated one, where the device has one to spare.
    pub(super) fn mover(&self) -> Result<TimelineId> {
        if let Some(mover) = self.inner.mover.get() {
            return Ok(*mover);
        }
        let mover = match self.backend().as_timelines().map(Timelines::open) {
            Some(Ok(own)) => own,
            Some(Err(error)) if error.kind() == ErrorKind::DeviceLost => return Err(error),
            Some(Err(_)) | None => TimelineId::MAIN,
        };
        let kept = *self.inner.mover.get_or_init(|| mover);
        if kept != mover
            && mover != TimelineId::MAIN
            && let Some(timelines) = self.backend().as_timelines()
        {
            timelines.close(mover)?; // Another thread was first.
        }
        Ok(kept)
    }
}

impl<B: Backend> State<B> {
    fn rest(&mut self, operations: u64) {
        self.works = false;
        self.rest_until = operations + REST;
        self.planners.clear();
    }
}

impl<B: Backend> Manager<B> {
    /// Evacuates the least used blocks and pages until nothing more can be gained, and returns them to the driver. Then
    /// compacts the blocks that stay, and packs pages whose holes add up into fresh ones. Packing takes up to 128 more
    /// pages meanwhile, where there is memory for them.
    ///
    /// Returns the net number of bytes released to the driver. Pinned and bound allocations, and those created with
    /// `moved_on_consent`, are not moved. Waits for the device.
    ///
    /// # Errors
    ///
    /// Driver errors; every allocation is then still at one place with its bytes.
    pub fn defragment(&self) -> Result<u64> {
        let before = self.trim()?;
        let mut moved = self.release_by_moving(&self.all_pools(), &Goal::ALL)?;
        moved.add(&self.pack_pages()?);
        for lane in self.all_pools().iter().flat_map(|pool| pool.lanes()) {
            // Each slide closes one block's holes; others may make new ones meanwhile, and that must end.
            let blocks = lane.block_count();
            for _ in 0..blocks {
                if !self.slide(|| lane.close_up())? {
                    break;
                }
            }
        }
        let returned = before + moved.returned_bytes + self.trim()?;
        Ok(returned.saturating_sub(moved.taken_bytes))
    }

    /// Makes and counts exclusive moves; returns whether something moved.
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
        let pass = self.plan_pass(&mut planners, goal, &mut meter, Mode::Exclusive)?;
        if pass.is_empty() { Ok(Moved::default()) } else { Ok(pass.commit()?.moved) }
    }

    /// Evacuates blocks and pages of some pools until nothing more can be gained.
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

    /// Makes room for a request by moving live data, in its lane or in one that can lend it; `None` where it cannot.
    pub(super) fn defragment_for(&self, climb: &mut Climb<'_, B>) -> Result<Option<Taken<B>>> {
        let (pool, lane, ask) = (climb.pool, climb.lane, climb.ask);
        if self.inner.config.defragmentation == Defragmentation::Off
            || !self.could_fit(pool, ask)?
        {
            return Ok(None);
        }
        if let Some(taken) = self.slide_for(pool, lane, ask)? {
            return Ok(Some(taken));
        }
        if self.close_unmapped_ranges(pool)?
            && let Some(taken) = self.slide_for(pool, lane, ask)?
        {
            return Ok(Some(taken));
        }
        let goal = Goal { wanted: ask.layout.size, holes: Holes::Leave, ..Goal::ALL };
        if self.release_by_moving(core::slice::from_ref(pool), &goal)?.moves > 0 {
            self.trim_beside(pool, WaitMode::Poll)?;
            if let Some((_, taken)) = climb.retry()? {
                return Ok(Some(taken));
            }
        }
        if let Some(taken) = self.free_pages_by_sliding(climb)? {
            return Ok(Some(taken));
        }
        self.lengthen_last_hole(climb)
    }

    /// Returns true if a request fits beside the live bytes of its pool at all. Nothing is moved for one that does not.
    fn could_fit(&self, pool: &Pool<B>, ask: Ask) -> Result<bool> {
        let device = &self.inner.device;
        let most = device.heap(pool.shared.heap)?.size.min(pool.shared.config.maximum);
        let most = most.min(device.heap_use(pool.shared.heap)?.hard_limit);
        let lanes = pool.lanes();
        let live: u64 = lanes.iter().map(|lane| lane.granted_bytes()).sum();
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
            each.poll_users(WaitMode::Block)?;
            let taken = each.find_any_hole(ask);
            if let Ok(slot) = taken {
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
        let taken = lane.find_any_hole(ask);
        Ok(taken.ok().map(|slot| (Arc::clone(lane), slot)))
    }
}

/// An owner's decision about the move of its allocation.
#[derive(Debug)]
pub enum Decision<B: Backend> {
    /// Copy the bytes; the commit publishes the new place.
    Copy,
    /// The owner copies the bytes itself. Its copies must have finished before it commits the pass, or drops it: others may get the new
    /// place then. Nothing on the device uses the new place any more when [`decide`](Pass::decide) returns, which waits for earlier
    /// users where there are some.
    OwnerCopies,
    /// Leave the allocation where it is.
    Ignore,
    /// Free the allocation, at its old place and at its new one.
    Destroy(Allocation<B>),
}

impl<B: Backend> Pass<B> {
    /// Decides about one move, by its position in [`moves`](Self::moves). A move without a decision is copied, or skipped if
    /// it needs consent.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if there is no such move, or if the allocation to destroy is not the one that moves; `Busy` once the
    /// pass has started, and where nothing tells now that the new place is out of use, which an owner would copy to; what the driver
    /// says of a wait. The move stays as it was. An allocation to destroy is freed in every case.
    pub fn decide(&mut self, which: usize, decision: Decision<B>) -> Result<()> {
        self.check_open()?;
        let how = match &decision {
            Decision::Copy => How::Copy,
            Decision::OwnerCopies => How::OwnerCopies,
            Decision::Ignore => How::Ignore,
            Decision::Destroy(allocation) => {
                let id = self.planned(which).map(|planned| planned.allocation());
                if id != Some(allocation.id()) {
                    return Err(ErrorKind::OutOfRange.into());
                }
                How::Ignore
            }
        };
        self.set_how(which, how)
    }

    /// Asks `owner` about every move, then copies, waits and commits.
    ///
    /// Nothing on the device uses the new place of a move when `owner` is asked about it, so `owner` may copy before it answers
    /// [`OwnerCopies`](Decision::OwnerCopies).
    ///
    /// # Errors
    ///
    /// Those of [`decide`](Self::decide) and [`commit`](Self::commit).
    pub fn run(
        mut self,
        mut owner: impl FnMut(&PlannedMove<'_, B>) -> Decision<B>,
    ) -> Result<Outcome> {
        let mut which = 0;
        while let Some(planned) = self.planned(which) {
            planned.wait_for_target()?;
            let decision = owner(&planned);
            self.decide(which, decision)?;
            which += 1;
        }
        self.commit()
    }
}

impl<B: Backend> Manager<B> {
    /// Slides live data of a paged pool together, here and there, until its whole free pages are enough for a request.
    ///
    /// Pages are mapped wherever they are needed, so several holes do as well as one. The longest come first, because a
    /// hole of many pages costs the fewest copies for each; then half as long, down to one page.
    pub(super) fn free_pages_by_sliding(
        &self,
        climb: &mut Climb<'_, B>,
    ) -> Result<Option<Taken<B>>> {
        let (pool, ask) = (climb.pool, climb.ask);
        let Some(page) = pool.shared.page() else { return Ok(None) };
        let lanes = pool.lanes();
        let mut hole = ask.layout.size / 2;
        while hole >= page / 2 {
            let mut gained = 0;
            for each in &lanes {
                let wanted = ask.layout.size.saturating_sub(gained);
                gained += self.pages_from(each, hole.max(page), wanted)?;
            }
            if gained > 0
                && let Some((_, taken)) = climb.retry()?
            {
                return Ok(Some(taken));
            }
            hole /= 2;
        }
        Ok(None)
    }

    /// Closes the unmapped ranges of a pool, so that slides can join holes that lay on both sides of one; whether there were any.
    pub(super) fn close_unmapped_ranges(&self, pool: &Pool<B>) -> Result<bool> {
        let mut closed = false;
        for lane in pool.lanes() {
            closed |= self.slide(|| lane.close_unmapped_ranges())?;
        }
        Ok(closed)
    }

    /// Serves a request from a hole behind everything else and the pages that can still be had: what is not a whole page is
    /// of use to it only there.
    pub(super) fn lengthen_last_hole(&self, climb: &mut Climb<'_, B>) -> Result<Option<Taken<B>>> {
        let (pool, ask) = (climb.pool, climb.ask);
        let Some(page) = pool.shared.page() else { return Ok(None) };
        let rest = (ask.layout.size - 1) % page + 1;
        for size in [rest, u64::MAX] {
            if self.slide(|| climb.lane.lay_hole_last(size))?
                && let Some((_, taken)) = climb.retry()?
            {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Joins holes of a lane to ones of at least `hole` bytes, and frees their pages, until those are `wanted` bytes; says
    /// how many bytes they are.
    fn pages_from(&self, lane: &Lane<B>, hole: u64, wanted: u64) -> Result<u64> {
        let mut gained = 0;
        while gained < wanted && self.slide(|| lane.join_holes(hole))? {
            // All of them: what was made as one goes as one, and may be more than is wanted.
            gained += lane.surrender(u64::MAX, None, WaitMode::Block)?;
        }
        Ok(gained)
    }
}
