//! Memory of graph captures: what is allocated during one stays where it is as long as the graph may run.
#![expect(unsafe_code, reason = "takes over C++ function objects")]
use crate::arena::Arena;
use crate::filter::{Filter, Function};
use crate::lock;
use crate::streams::Streams;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};
use omniheap::strategy::Key;
use omniheap::{AllocateError, Allocation, Manager};
use std::collections::HashMap;
use std::sync::Mutex;

/// PyTorch's name for a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId {
    /// Pools that PyTorch made for a capture.
    pub captured: u64,
    /// Pools that a program asked for.
    pub named: u64,
}

/// Bytes of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pool: PoolId,
    stream: usize,
    key: Key,
}

/// The pools of one device, and the captures that fill them now.
pub(crate) struct Graphs<B: Streams> {
    /// How many captures are under way, so that others need no lock to know that there is none.
    captures: AtomicUsize,
    inner: Mutex<Inner<B>>,
}

struct Inner<B: Streams> {
    open: Vec<(PoolId, Option<Filter>)>,
    pools: HashMap<PoolId, Pool<B>>,
    ended: Ended<B>,
}

/// What is given back once no capture is under way.
struct Ended<B: Streams> {
    arenas: Vec<Arena<B>>,
    allocations: Vec<Allocation<B>>,
}

impl<B: Streams> Ended<B> {
    const fn new() -> Self {
        Self { arenas: Vec::new(), allocations: Vec::new() }
    }
}

struct Pool<B: Streams> {
    arenas: HashMap<usize, Arena<B>>,
    /// Captures and graphs that use it.
    users: usize,
    live: usize,
}

impl<B: Streams> Graphs<B> {
    pub(crate) fn new() -> Self {
        let inner = Inner { open: Vec::new(), pools: HashMap::new(), ended: Ended::new() };
        Self { captures: AtomicUsize::new(0), inner: Mutex::new(inner) }
    }

    /// Whether a capture is under way.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Relaxed) > 0
    }

    /// From now on, what the filter's streams allocate comes from `pool`; without a filter, what all streams do.
    ///
    /// # Safety
    ///
    /// As for [`Filter::take`].
    pub(crate) unsafe fn begin(&self, pool: PoolId, filter: *mut Function) {
        // SAFETY: the caller's promise.
        let filter = unsafe { Filter::take(filter) };
        let mut inner = lock(&self.inner);
        let entry = inner.pools.entry(pool);
        entry.or_insert_with(|| Pool { arenas: HashMap::new(), users: 0, live: 0 }).users += 1;
        inner.open.push((pool, filter));
        self.captures.store(inner.open.len(), Ordering::Relaxed);
    }

    /// Ends what [`begin`](Self::begin) began; the pool stays.
    pub(crate) fn end(&self, pool: PoolId, manager: &Manager<B>) {
        let mut inner = lock(&self.inner);
        if let Some(at) = inner.open.iter().rposition(|(open, _)| *open == pool) {
            inner.open.remove(at);
        }
        self.captures.store(inner.open.len(), Ordering::Relaxed);
        self.give_back(inner, manager);
    }

    /// One user less; the last one ends the pool once nothing in it is live.
    pub(crate) fn release(&self, pool: PoolId, manager: &Manager<B>) {
        let mut inner = lock(&self.inner);
        if let Some(found) = inner.pools.get_mut(&pool) {
            found.users = found.users.saturating_sub(1);
        }
        inner.end_if_unused(pool);
        self.give_back(inner, manager);
    }

    /// Bytes from the pool that takes this stream; nothing where none does.
    pub(crate) fn allocate(
        &self,
        manager: &Manager<B>,
        size: u64,
        stream: *mut c_void,
    ) -> Option<Result<(u64, Kept), AllocateError>> {
        let mut inner = lock(&self.inner);
        let takes = |filter: &Option<Filter>| filter.as_ref().is_none_or(|f| f.accepts(stream));
        let pool = inner.open.iter().rev().find(|(_, filter)| takes(filter))?.0;
        let found = inner.pools.get_mut(&pool)?;
        let arena = found.arenas.entry(stream.addr()).or_insert_with(Arena::new);
        let taken = arena.allocate(manager, size);
        found.live += usize::from(taken.is_ok());
        Some(taken.map(|(address, key)| (address, Kept { pool, stream: stream.addr(), key })))
    }

    /// Gives bytes of a pool back: to its stream, or with the pool where other streams used them too.
    pub(crate) fn free(&self, kept: Kept, shared: Shared, manager: &Manager<B>) {
        let mut inner = lock(&self.inner);
        let Some(pool) = inner.pools.get_mut(&kept.pool) else { return };
        pool.live = pool.live.saturating_sub(1);
        if shared == Shared::No
            && let Some(arena) = pool.arenas.get_mut(&kept.stream)
        {
            // The key came with the bytes and is used once, so it is live.
            let _ = arena.free(kept.key);
        }
        inner.end_if_unused(kept.pool);
        self.give_back(inner, manager);
    }

    /// Keeps an allocation until no capture is under way: to free it now would put an event into a capture.
    pub(crate) fn free_later(&self, allocation: Allocation<B>, manager: &Manager<B>) {
        let mut inner = lock(&self.inner);
        inner.ended.allocations.push(allocation);
        self.give_back(inner, manager);
    }

    /// Frees what ended, unless a capture is under way. Graphs run on any stream, so their blocks wait for all of them.
    fn give_back(&self, mut inner: std::sync::MutexGuard<'_, Inner<B>>, manager: &Manager<B>) {
        if !inner.open.is_empty() {
            return;
        }
        let ended = core::mem::replace(&mut inner.ended, Ended::new());
        drop(inner);
        if !ended.arenas.is_empty() {
            // A device that is lost runs nothing.
            let _ = manager.backend().wait_idle();
        }
        drop(ended);
    }
}

impl<B: Streams> Inner<B> {
    fn end_if_unused(&mut self, id: PoolId) {
        let unused = self.pools.get(&id).is_some_and(|pool| pool.users == 0 && pool.live == 0);
        if unused && let Some(pool) = self.pools.remove(&id) {
            self.ended.arenas.extend(pool.arenas.into_values());
        }
    }
}

/// Whether streams besides the one that allocated used the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Yes,
    No,
}
