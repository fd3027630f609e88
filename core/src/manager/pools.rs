//! The pools of a manager: one of each heap, made at first use, and those that users make.
#![forbid(unsafe_code)]
use super::{Manager, UserPool};
use crate::pool::{Patience, Pool};
use crate::{Backend, Error, ErrorKind, HeapId, PoolConfig, Result};
use alloc::{sync::Arc, vec::Vec};
use std::sync::OnceLock;

impl<B: Backend> Manager<B> {
    /// The default pool of a heap, made at first use.
    pub(super) fn pool(&self, heap: HeapId) -> Result<&Arc<Pool<B>>> {
        let slot = self.inner.pools.get(usize::from(heap.0)).ok_or(ErrorKind::NoSuchHeap)?;
        if let Some(pool) = slot.get() {
            return Ok(pool);
        }
        let config = self.inner.config.pool_for(self.caps(), heap);
        let made = Arc::new(self.make_pool(heap, config)?);
        Ok(slot.get_or_init(|| made))
    }

    /// A pool with its minimum.
    pub(super) fn make_pool(&self, heap: HeapId, config: PoolConfig) -> Result<Pool<B>> {
        let device = Arc::clone(&self.inner.device);
        let names = Arc::clone(&self.inner.names);
        let pool = Pool::new(
            device,
            heap,
            config,
            self.inner.config.unit,
            names,
            self.inner.sentry.clone(),
        )?;
        pool.prime()?;
        Ok(pool)
    }

    /// Every pool that exists.
    pub(super) fn all_pools(&self) -> Vec<Arc<Pool<B>>> {
        let mut pools: Vec<_> =
            self.inner.pools.iter().filter_map(OnceLock::get).cloned().collect();
        pools.extend(self.inner.user_pools.lock().iter().cloned());
        pools
    }

    /// Makes a pool of your own.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `InvalidConfig`, `ExceedsLimit`; when the pool has a minimum, what the driver says.
    pub fn create_pool(&self, heap: HeapId, config: PoolConfig) -> Result<UserPool<B>> {
        let pool = Arc::new(self.make_pool(heap, config)?);
        self.inner.user_pools.lock().push(Arc::clone(&pool));
        Ok(UserPool::new(self.clone(), pool))
    }

    /// Ends a pool. Its blocks go back to the driver.
    ///
    /// # Errors
    ///
    /// `Busy` with the pool when something in it is live or waits for a timeline; `Foreign` for another manager's.
    pub fn destroy_pool(&self, pool: UserPool<B>) -> Result<(), (UserPool<B>, Error)> {
        let find = |pools: &Vec<Arc<Pool<B>>>| {
            pools.iter().position(|known| Arc::ptr_eq(known, pool.pool()))
        };
        if find(&self.inner.user_pools.lock()).is_none() {
            return Err((pool, ErrorKind::Foreign.into()));
        }
        if let Err(error) = Self::check_idle(pool.pool()) {
            return Err((pool, error));
        }
        let mut pools = self.inner.user_pools.lock();
        let removed = find(&pools).map(|at| pools.swap_remove(at));
        drop(pools);
        drop((pool, removed));
        Ok(())
    }

    /// Retires what it can; `Busy` when something in the pool is live or waits for a timeline.
    pub(super) fn check_idle(pool: &Pool<B>) -> Result<()> {
        for lane in pool.lanes() {
            lane.retire(Patience::Look)?;
            if lane.state.lock().counts.live() > 0 {
                return Err(ErrorKind::Busy.into());
            }
        }
        Ok(())
    }
}
