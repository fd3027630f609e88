//! Puts the pools of a set to sleep and wakes them: on request, by budget, and ahead of use on the set's thread.
#![forbid(unsafe_code)]
use super::members::{Asker, Member, Need, State, Task, address};
use super::{Resident, WhenFull};
use crate::{available_host_memory, lock};
use core::panic::AssertUnwindSafe;
use omniheap_core::{
    AllocateError, Backend, ErrorKind, HeapId, Manager, Pressure, Relief, Residence, Result, Sleep,
    Sleepable, Slept, Wake,
};
use std::collections::HashSet;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Fraction of a limit (1/16) that must stay free when a pool comes back: a smaller change of the budget moves nothing.
const MARGIN: u64 = 16;

/// Moves pools between the device and their stores. The set, its holds and its thread share it.
pub(super) struct Mover<B: Backend> {
    pub(super) manager: Manager<B>,
    pub(super) state: Mutex<State>,
    /// Notified when a pool is no longer leaving, a task is queued or done, or the set is dropped.
    pub(super) changed: Condvar,
}

/// A pool that a thread is putting to sleep. Dropping this clears `is_leaving`, even if the store panicked.
struct Leaving<'a, B: Backend> {
    mover: &'a Mover<B>,
    pool: &'a Arc<dyn Sleepable>,
}

impl<B: Backend> Drop for Leaving<'_, B> {
    fn drop(&mut self) {
        if let Some(member) = lock(&self.mover.state).of(self.pool) {
            member.is_leaving = false;
        }
        self.mover.changed.notify_all();
    }
}

/// A thread that wakes something, until this is dropped.
struct Waking<'a>(&'a Mutex<State>);

impl<'a> Waking<'a> {
    fn begin(state: &'a Mutex<State>) -> Self {
        lock(state).waking.push(thread::current().id());
        Self(state)
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        let mut state = lock(self.0);
        let own = state.waking.iter().rposition(|thread| *thread == thread::current().id());
        let _ = own.map(|at| state.waking.swap_remove(at));
    }
}

impl<B: Backend> Mover<B> {
    /// Evicts pools until `wanted` bytes went back to the driver, or no candidate is left. Returns whether one fell asleep.
    fn make_room(&self, asker: &Asker, wanted: u64) -> bool {
        let (mut returned, mut tried, mut has_slept) = (0, HashSet::new(), false);
        while returned < wanted {
            let victim = lock(&self.state).victim(asker, &tried);
            let Some((pool, sleep)) = victim else { break };
            if let Some(slept) = self.put_to_sleep(&pool, &sleep) {
                has_slept = true;
                returned += slept.returned;
            }
            tried.insert(address(&pool));
        }
        has_slept
    }

    /// Waits until no thread puts a pool to sleep any more.
    fn wait_for_leaving<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        pool: &Arc<dyn Sleepable>,
    ) -> MutexGuard<'a, State> {
        while state.of(pool).is_some_and(|member| member.is_leaving) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Wakes a pool, for which others make room.
    pub(super) fn bring(&self, pool: &Arc<dyn Sleepable>, need: Need) -> Result<(), AllocateError> {
        let mut state = self.wait_for_leaving(lock(&self.state), pool);
        let Resident { priority, when_full, .. } = state.of(pool).ok_or(ErrorKind::Stale)?.how;
        drop(state);
        let asker = Asker { heap: pool.heap(), priority, pool: Some(Arc::downgrade(pool)), need };
        loop {
            let woken = self.wake(pool, Wake::all()).map(drop);
            if !woken.as_ref().is_err_and(is_full) {
                return woken;
            }
            if self.make_room(&asker, pool.residence().stored) {
                continue;
            }
            return match (when_full, need) {
                (WhenFull::HostMapped, Need::Now) => self.wake(pool, with_host_memory()).map(drop),
                _ => woken,
            };
        }
    }

    /// Replaces host memory at the addresses of a pool by device memory: the pool sleeps and wakes up. Does nothing while it is held.
    fn bring_home(&self, pool: &Arc<dyn Sleepable>) -> Result<(), AllocateError> {
        let mut state = lock(&self.state);
        let Some(member) = state.of(pool).filter(|one| one.holds == 0 && !one.is_leaving) else {
            return Ok(());
        };
        member.is_leaving = true;
        let sleep = Sleep::to(Arc::clone(&member.how.store));
        drop(state);
        match self.put_to_sleep(pool, &sleep) {
            Some(_) => self.wake(pool, with_host_memory()),
            None => Ok(()),
        }
    }

    /// Puts a pool to sleep that is leaving; nothing where it stays awake, or was asleep already.
    fn put_to_sleep(&self, pool: &Arc<dyn Sleepable>, sleep: &Sleep) -> Option<Slept> {
        let leaving = Leaving { mover: self, pool };
        let slept = pool.sleep(sleep);
        let mut state = lock(&self.state);
        if let Ok(slept) = &slept {
            state.moved.slept += 1;
            state.moved.returned += slept.returned;
            state.note_asleep(pool);
        }
        drop(state);
        drop(leaving);
        match slept {
            Ok(slept) => Some(slept),
            Err(error) if error.kind() == ErrorKind::AlreadyAsleep => None,
            Err(error) => {
                // Another one may be able to.
                tracing::debug!(%error, "a pool stays awake");
                None
            }
        }
    }

    /// Wakes a pool, unless it is awake.
    fn wake(&self, pool: &Arc<dyn Sleepable>, how: Wake) -> Result<(), AllocateError> {
        let waking = Waking::begin(&self.state);
        let woken = pool.wake(&how);
        drop(waking);
        let woken = match woken {
            Err(error) if error.kind() == ErrorKind::AlreadyAwake => 0,
            woken => woken.map(|()| 1)?,
        };
        let mut state = lock(&self.state);
        state.moved.woken += woken;
        state.note_awake(pool);
        Ok(())
    }

    /// Runs tasks until the set is dropped: the body of the background thread.
    pub(super) fn work(&self) {
        let mut state = lock(&self.state);
        while !state.is_closing {
            state = match state.next_task() {
                Some(task) => {
                    drop(state);
                    self.perform(task);
                    lock(&self.state)
                }
                None => {
                    self.changed.notify_all(); // For `settle`: pools that were dropped have left the queue.
                    self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }

    pub(super) fn perform(&self, task: Task) {
        match task {
            Task::Step(step) => {
                let followed = catch_panic(|| self.follow_budgets());
                let mut state = lock(&self.state);
                state.steps_made = step;
                state.failed = followed.err().or(state.failed.take());
            }
            Task::Bring(pool) => {
                let brought = catch_panic(|| self.bring(&pool, Need::Soon));
                if let Err(error) = brought {
                    tracing::debug!(%error, "a pool that is expected stays asleep");
                }
                let brought = address(&pool);
                drop(pool); // Perhaps the last reference: after `settle` the pool must be gone.
                lock(&self.state).dequeue(brought);
            }
        }
        self.changed.notify_all();
    }

    /// Makes room for a request.
    pub(super) fn relieve(&self, pressure: &Pressure) -> Relief {
        let is_asking =
            |member: &&Member| member.pool.upgrade().is_some_and(|it| it.is_asking(pressure));
        let state = lock(&self.state);
        if state.waking.contains(&thread::current().id()) {
            // Whoever wakes it sees that it does not fit, and knows who may leave for it.
            return Relief::Nothing;
        }
        let asks = state.members().find(is_asking);
        let (priority, pool) = asks
            .map_or((i32::MAX, None), |member| (member.how.priority, Some(member.pool.clone())));
        drop(state);
        let asker = Asker { heap: pressure.heap, priority, pool, need: Need::Now };
        match self.make_room(&asker, pressure.wanted) {
            false => Relief::Nothing,
            true => Relief::Freed,
        }
    }

    /// Evicts and wakes pools until the current budget of each heap is met. A pool or a heap that fails stops no other; returns the
    /// first error.
    fn follow_budgets(&self) -> Result<(), AllocateError> {
        let heaps = lock(&self.state).heaps.clone();
        heaps.into_iter().map(|heap| self.follow_budget(heap)).fold(Ok(()), Result::and)
    }

    fn follow_budget(&self, heap: HeapId) -> Result<(), AllocateError> {
        let (over, room) = self.over_and_room(heap)?;
        if over > 0 {
            let nobody = Asker { heap, priority: i32::MAX, pool: None, need: Need::Now };
            self.make_room(&nobody, over);
            return Ok(());
        }
        let (mut left, mut has_room, mut followed) = (room, true, Ok(()));
        let away = lock(&self.state).away();
        for pool in away.iter().filter(|pool| pool.heap() == heap) {
            let Residence { asleep, stored: need, .. } = pool.residence();
            // Stop at the first pool that does not fit: smaller ones behind it would starve it.
            has_room &= need <= left;
            if asleep && !has_room {
                continue;
            }
            // A pool that is awake here was woken by the program, and is no longer the set's to manage.
            match self.wake(pool, Wake::all()) {
                Ok(()) => left -= need.max(pool.residence().device).min(left),
                Err(error) if is_full(&error) => has_room = false,
                Err(error) => followed = followed.and(Err(error)),
            }
        }
        for pool in self.members_in(heap) {
            let need = pool.residence().host_mapped;
            if (1..=left).contains(&need) {
                match self.bring_home(&pool) {
                    Ok(()) => left -= need,
                    Err(error) => followed = followed.and(Err(error)),
                }
            }
        }
        followed
    }

    fn members_in(&self, heap: HeapId) -> Vec<Arc<dyn Sleepable>> {
        let state = lock(&self.state);
        let members = state.members().filter(|member| member.heap == heap);
        members.filter_map(|member| member.pool.upgrade()).collect()
    }

    /// Returns the bytes held above the limits of a heap, and the bytes that still fit below them.
    fn over_and_room(&self, heap: HeapId) -> Result<(u64, u64)> {
        let held = self.manager.heap_use(heap)?;
        let own = (held.soft_limit.min(held.hard_limit), held.reserved);
        let driver = held.driver.map(|driver| (driver.budget, driver.used));
        let limits = [Some(own), driver].into_iter().flatten();
        let over = |(limit, used): (u64, u64)| used.saturating_sub(limit);
        let room = |(limit, used): (u64, u64)| (limit - limit / MARGIN).saturating_sub(used);
        Ok((limits.clone().map(over).max().unwrap_or(0), limits.map(room).min().unwrap_or(0)))
    }
}

/// Turns a panic of a backing store into an error, so that the thread goes on and `settle` returns.
fn catch_panic(work: impl FnOnce() -> Result<(), AllocateError>) -> Result<(), AllocateError> {
    let failed = |_| Err(ErrorKind::Driver.because("a backing store panicked").into());
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(failed)
}

/// Returns whether a wake failed for want of the device's memory: pools that leave the device make no room on the host.
fn is_full(error: &AllocateError) -> bool {
    error.kind().is_out_of_memory() && error.kind() != ErrorKind::OutOfHostMemory
}

/// A wake that may use all host memory the process can have.
fn with_host_memory() -> Wake {
    Wake::all().host_mapped(available_host_memory().unwrap_or(u64::MAX))
}
