//! Memory of graph captures: what is allocated during one stays where it is as long as the graph may run.
//!
//! PyTorch announces its captures, and says when their graphs are gone. Any other is found when a stream that takes part in it
//! allocates: the driver then tells when nothing is left of its graph.
#![expect(unsafe_code, reason = "takes over C++ function objects, and asks about graphs")]
use crate::arena::{Arena, block_size};
use crate::filter::{Filter, Function};
use crate::lock;
use crate::meter::{SizeClass, UNIT};
use crate::seats::{Handle, mark_all};
use crate::streams::Streams;
use crate::tags::{Source, Tag};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use omniheap::cuda::Capture;
use omniheap::strategy::Key;
use omniheap::{AllocateError, Allocation, ErrorKind, Manager, seam::Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// PyTorch's name for a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId {
    /// Pools that PyTorch made for a capture.
    pub captured: u64,
    /// Pools that a program asked for.
    pub named: u64,
}

impl PoolId {
    /// Memory that belongs to no pool.
    pub(crate) const NONE: Self = Self { captured: 0, named: 0 };
}

/// Owner of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Captures that PyTorch announced.
    Announced(PoolId),
    /// A capture that was found, by the driver's number.
    Found(u64),
}

impl Owner {
    /// The name that PyTorch's snapshots show.
    const fn id(self) -> PoolId {
        match self {
            Self::Announced(pool) => pool,
            Self::Found(capture) => PoolId { captured: capture, named: 0 },
        }
    }
}

/// Bytes of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    owner: Owner,
    arena: ArenaKey,
    key: Key,
    pub(crate) address: u64,
    /// Bytes that it has.
    pub(crate) granted: u64,
}

impl Kept {
    /// Returns true if they belong to the captures that PyTorch announced by this name.
    pub(crate) fn is_in(&self, pool: PoolId) -> bool {
        self.owner == Owner::Announced(pool)
    }
}

/// Key of an arena of a pool: the stream, the class of requests, and the tag whose memory it has, if any.
type ArenaKey = (Handle, SizeClass, Option<Tag>);

/// The pools of one device, and the captures that fill them now.
pub(crate) struct Graphs<B: Streams> {
    /// Number of captures known to be under way, so that others need no lock to know that there is none.
    underway: AtomicUsize,
    /// Number of graphs that are watched: the driver sets a flag when one is gone, and calls nobody.
    watched: AtomicUsize,
    inner: Mutex<Inner<B>>,
}

struct Inner<B: Streams> {
    /// Captures that were announced and have not ended.
    open: Vec<Open>,
    /// Other captures that are not known to have ended.
    found: Vec<Found>,
    pools: HashMap<Owner, Pool<B>>,
    /// Memory of graphs that are gone, while others may write into it.
    ended: Vec<Ended<B>>,
    /// Grows with every pool and every end of a capture, to tell which came first.
    clock: u64,
}

/// A capture that was announced.
struct Open {
    pool: PoolId,
    filter: Option<Filter>,
    thread: ThreadId,
}

/// Memory of a graph that is gone.
struct Ended<B: Streams> {
    class: SizeClass,
    arena: Arena<B>,
    /// Pools of other graphs that were captured while this memory was in use. Programs replay such a graph when the memory is
    /// free already, and it writes there: PyTorch's own allocator lets them.
    writers: Vec<Owner>,
}

/// A capture without a pool of PyTorch's.
struct Found {
    /// The driver's number, once a stream that takes part in it has allocated.
    id: Option<u64>,
    /// Streams that were seen to take part in it.
    streams: Vec<Handle>,
}

struct Pool<B: Streams> {
    arenas: HashMap<ArenaKey, Arena<B>>,
    /// Time at which it was made.
    born: u64,
    /// Time at which its last capture ended; never, while one is under way; before all others, where there was none.
    captured: u64,
    /// Captures and graphs that use it.
    users: usize,
    /// Set once the graph of a capture that was found is gone.
    gone: Option<Arc<AtomicBool>>,
    live: usize,
    /// Freed bytes that keep their place until the pool ends, because other streams used them; by address.
    stranded: HashMap<u64, Kept>,
    split: Split,
}

/// A time after all others.
const NEVER: u64 = u64::MAX;

/// Sharing of blocks among the requests of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    Allowed,
    Never,
}

impl<B: Streams> Pool<B> {
    fn new(born: u64, gone: Option<Arc<AtomicBool>>) -> Self {
        let (arenas, captured, split) = (HashMap::new(), 0, Split::Allowed);
        let stranded = HashMap::new();
        Self { arenas, born, captured, users: 0, gone, live: 0, stranded, split }
    }

    fn free(&mut self, kept: Kept, shared: Shared) {
        self.live = self.live.saturating_sub(1);
        match shared {
            Shared::Yes => drop(self.stranded.insert(kept.address, kept)),
            // The key came with the bytes and is used once, so it is live.
            Shared::No => {
                let _ = self.arenas.get_mut(&kept.arena).map(|arena| arena.free(kept.key));
            }
        }
    }

    /// Takes bytes again that something had once.
    fn retake(&mut self, kept: Kept) -> Result<(Kept, Shared), ErrorKind> {
        let taken = match self.stranded.remove(&kept.address) {
            Some(stranded) => (stranded, Shared::Yes),
            None => {
                let arena = self.arenas.get_mut(&kept.arena).ok_or(ErrorKind::Stale)?;
                (Kept { key: arena.retake(kept.address, kept.granted)?, ..kept }, Shared::No)
            }
        };
        self.live += 1;
        Ok(taken)
    }

    /// Returns true if nothing is left of the graph of a capture that was found.
    fn is_gone(&self) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.load(Ordering::Acquire))
    }

    /// Returns true if no graph uses it any more.
    fn is_released(&self) -> bool {
        self.users == 0 || self.is_gone()
    }
}

impl<B: Streams> Graphs<B> {
    pub(crate) fn new() -> Self {
        let (open, found, ended) = (Vec::new(), Vec::new(), Vec::new());
        let inner = Inner { open, found, pools: HashMap::new(), ended, clock: 0 };
        let [underway, watched] = [0, 0].map(AtomicUsize::new);
        Self { underway, watched, inner: Mutex::new(inner) }
    }

    /// Returns true if a capture may be under way.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.underway.load(Ordering::Relaxed) > 0
    }

    /// Returns true if a graph is watched, so that [`collect`](Self::collect) may find it gone.
    #[inline]
    pub(crate) fn is_watching(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    fn count(&self, inner: &Inner<B>) {
        self.underway.store(inner.open.len() + inner.found.len(), Ordering::Relaxed);
        let watched = inner.pools.keys().filter(|owner| matches!(owner, Owner::Found(_)));
        self.watched.store(watched.count(), Ordering::Relaxed);
    }

    /// From now on, what the filter's streams allocate comes from `pool`; without a filter, what all streams do.
    ///
    /// # Safety
    ///
    /// As for [`Filter::take`].
    pub(crate) unsafe fn begin(&self, backend: &B, pool: PoolId, filter: *mut Function) {
        // SAFETY: the caller's promise.
        let filter = unsafe { Filter::take(filter) };
        let mut inner = lock(&self.inner);
        let users = inner.announced(pool);
        users.users += 1;
        users.captured = NEVER;
        inner.open.push(Open { pool, filter, thread: thread::current().id() });
        self.count(&inner);
        drop(inner);
        backend.begin_capture();
    }

    /// Ends what [`begin`](Self::begin) began; the pool stays.
    pub(crate) fn end(&self, backend: &B, pool: PoolId) {
        self.end_open(backend, |open| open.pool == pool);
    }

    /// Ends what this thread began last, where it has not ended: its capture failed, so that no graph will release the pool.
    /// Returns how many blocks go back.
    pub(crate) fn fail(&self, manager: &Manager<B>) -> u64 {
        let this = thread::current().id();
        let failed = self.end_open(manager.backend(), |open| open.thread == this);
        failed.map_or(0, |pool| self.release(manager, pool))
    }

    /// Ends the last of the open captures that `is_it` says; returns its pool.
    fn end_open(&self, backend: &B, is_it: impl Fn(&Open) -> bool) -> Option<PoolId> {
        let mut inner = lock(&self.inner);
        let at = inner.open.iter().rposition(is_it)?;
        let pool = inner.open.remove(at).pool;
        if inner.open.iter().all(|open| open.pool != pool) {
            inner.note_captured(Owner::Announced(pool));
        }
        self.count(&inner);
        drop(inner);
        backend.end_capture();
        Some(pool)
    }

    /// One user more, of a pool whose requests share blocks or do not.
    pub(crate) fn hold(&self, pool: PoolId, split: Split) {
        let mut inner = lock(&self.inner);
        let pool = inner.announced(pool);
        pool.users += 1;
        pool.split = split;
    }

    /// Adds a user to a pool that is there; whether it is.
    pub(crate) fn retain(&self, pool: PoolId) -> bool {
        let mut inner = lock(&self.inner);
        let found = inner.pools.get_mut(&Owner::Announced(pool));
        found.map(|pool| pool.users += 1).is_some()
    }

    /// Returns the number of users of a pool.
    pub(crate) fn users(&self, pool: PoolId) -> usize {
        lock(&self.inner).pools.get(&Owner::Announced(pool)).map_or(0, |pool| pool.users)
    }

    /// One user less; the last one ends the pool once nothing in it is live. Returns how many blocks go back.
    pub(crate) fn release(&self, manager: &Manager<B>, pool: PoolId) -> u64 {
        let mut inner = lock(&self.inner);
        if let Some(found) = inner.pools.get_mut(&Owner::Announced(pool)) {
            found.users = found.users.saturating_sub(1);
        }
        inner.end_unused(Owner::Announced(pool));
        self.give_back(manager, inner)
    }

    /// Bytes from the announced pool that takes this stream; nothing where none does.
    pub(crate) fn allocate(
        &self,
        source: &Source<'_, B>,
        size: u64,
        stream: *mut c_void,
    ) -> Option<Result<(u64, Kept), AllocateError>> {
        let mut inner = lock(&self.inner);
        let takes = |open: &&Open| open.filter.as_ref().is_none_or(|it| it.accepts(stream));
        let pool = inner.open.iter().rev().find(takes)?.pool;
        Some(inner.take(Owner::Announced(pool), source, size, stream))
    }

    /// Takes bytes for a stream that takes part in a capture which was not announced.
    ///
    /// # Safety
    ///
    /// `capture` is under way.
    pub(crate) unsafe fn allocate_found(
        &self,
        source: &Source<'_, B>,
        size: u64,
        stream: *mut c_void,
        capture: Capture<B::Graph>,
    ) -> Result<(u64, Kept), AllocateError> {
        let owner = Owner::Found(capture.id);
        let backend = source.manager.backend();
        let mut inner = lock(&self.inner);
        inner.note(backend, capture.id, Handle::of(stream));
        let born = inner.tick();
        inner.pools.entry(owner).or_insert_with(|| {
            let gone = match capture.graph {
                // A graph that cannot be watched may run for ever.
                // SAFETY: the caller's promise.
                Some(graph) => unsafe { backend.watch(graph) }.ok(),
                None => Some(Arc::new(AtomicBool::new(true))),
            };
            Pool { users: 1, captured: NEVER, ..Pool::new(born, gone) }
        });
        self.count(&inner);
        inner.take(owner, source, size, stream)
    }

    /// Notes that a capture of a stream begins now.
    pub(crate) fn announce(&self, backend: &B, stream: *mut c_void) {
        let mut inner = lock(&self.inner);
        inner.found.push(Found { id: None, streams: vec![Handle::of(stream)] });
        self.count(&inner);
        drop(inner);
        backend.begin_capture();
    }

    /// Notes that captures have ended which a stream took part in: its work runs again.
    pub(crate) fn runs_again(&self, backend: &B, stream: *mut c_void) {
        let (mut inner, stream) = (lock(&self.inner), Handle::of(stream));
        inner.end_found(backend, |found| found.streams.contains(&stream));
        inner.end_gone(backend);
        self.count(&inner);
    }

    /// Gives bytes of a pool back: to its stream, or with the pool where other streams used them too. Returns how many blocks
    /// go back.
    pub(crate) fn free(&self, manager: &Manager<B>, kept: Kept, shared: Shared) -> u64 {
        let mut inner = lock(&self.inner);
        let Some(pool) = inner.pools.get_mut(&kept.owner) else { return 0 };
        pool.free(kept, shared);
        inner.end_unused(kept.owner);
        self.give_back(manager, inner)
    }

    /// Returns true if a pool is there.
    pub(crate) fn has(&self, pool: PoolId) -> bool {
        lock(&self.inner).pools.contains_key(&Owner::Announced(pool))
    }

    /// Takes bytes of a pool again, at the places that they had once: all, or none.
    pub(crate) fn retake(
        &self,
        pool: PoolId,
        wanted: impl Iterator<Item = Kept>,
    ) -> Result<Vec<(Kept, Shared)>, ErrorKind> {
        let mut inner = lock(&self.inner);
        let pool = inner.pools.get_mut(&Owner::Announced(pool)).ok_or(ErrorKind::Stale)?;
        let mut taken = Vec::new();
        for kept in wanted {
            match pool.retake(kept) {
                Ok(it) => taken.push(it),
                Err(error) => {
                    taken.into_iter().for_each(|(kept, shared)| pool.free(kept, shared));
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Looks for watched graphs that are gone. Returns how many blocks go back.
    pub(crate) fn collect(&self, manager: &Manager<B>) -> u64 {
        let mut inner = lock(&self.inner);
        inner.end_gone(manager.backend());
        self.give_back(manager, inner)
    }

    /// Gives the memory of graphs that are gone to the manager, where no other graph may write into it. It is free once all work
    /// that was submitted before has run: graphs run on any stream. Returns how many blocks these are.
    fn give_back(&self, manager: &Manager<B>, mut inner: MutexGuard<'_, Inner<B>>) -> u64 {
        let unused = inner.take_unused();
        self.count(&inner);
        drop(inner);
        if unused.is_empty() {
            return 0;
        }
        let Ok(point) = mark_all(manager.backend()) else {
            // The device is lost, or cannot follow all of its work: whoever runs short waits for it.
            lock(&self.inner).ended.extend(unused);
            return 0;
        };
        let blocks = unused.into_iter().flat_map(|ended| ended.arena.into_blocks());
        blocks.map(|block| block.free_after(point)).count() as u64
    }

    /// Gives the memory of all graphs that are gone back to the manager and waits until it is free, unless a capture is under way;
    /// whether there was any.
    pub(crate) fn give_back_all(&self, manager: &Manager<B>) -> bool {
        let mut inner = lock(&self.inner);
        inner.end_gone(manager.backend());
        self.count(&inner);
        if self.is_capturing() {
            return false;
        }
        let ended = core::mem::take(&mut inner.ended);
        drop(inner);
        if ended.is_empty() {
            return false;
        }
        if !wait_for_all(manager) {
            lock(&self.inner).ended.extend(ended);
            return false;
        }
        drop(ended);
        true
    }

    /// Returns the memory that pools keep for a class of requests.
    pub(crate) fn held(&self, class: SizeClass) -> Stock {
        let inner = lock(&self.inner);
        let pools = inner.pools.values().flat_map(|pool| &pool.arenas);
        let pools = pools.filter(|((_, of, _), _)| *of == class).map(|(_, arena)| arena);
        let ended = inner.ended.iter().filter(|ended| ended.class == class);
        let ended = ended.map(|ended| &ended.arena);
        pools.chain(ended).fold(Stock::default(), |sum, arena| {
            let sizes = arena.blocks().map(|(_, block)| block.size());
            Stock {
                blocks: sum.blocks + arena.blocks().count() as u64,
                bytes: sum.bytes + sizes.sum::<u64>(),
                used: sum.used + arena.used(),
            }
        })
    }

    /// Shows the blocks of all pools; those of graphs that are gone belong to no pool.
    pub(crate) fn for_each_block(&self, mut show: impl FnMut(PoolId, u64, &Allocation<B>)) {
        let inner = lock(&self.inner);
        let pools = inner
            .pools
            .iter()
            .flat_map(|(owner, pool)| pool.arenas.values().map(|arena| (owner.id(), arena)));
        let ended = inner.ended.iter().map(|ended| (PoolId::NONE, &ended.arena));
        for (id, arena) in pools.chain(ended) {
            arena.blocks().for_each(|(address, allocation)| show(id, *address, allocation));
        }
    }

    /// Takes captures that were found for ended: memory is short, and a request that fails spoils what is captured too.
    pub(crate) fn forget_found(&self, backend: &B) -> bool {
        let mut inner = lock(&self.inner);
        let had_found = !inner.found.is_empty();
        inner.end_found(backend, |_| true);
        self.count(&inner);
        had_found
    }
}

/// Waits for everything that the device has to do; whether it has done it. A lost device does nothing any more.
pub(crate) fn wait_for_all<B: Streams>(manager: &Manager<B>) -> bool {
    let backend = manager.backend();
    let Some(timelines) = backend.as_timelines() else { return backend.wait_idle().is_ok() };
    let waited = mark_all(backend).and_then(|point| timelines.wait(point));
    waited.err().is_none_or(|error| error.kind() == ErrorKind::DeviceLost)
}

impl<B: Streams> Inner<B> {
    const fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The pool of captures that PyTorch announces by this name.
    fn announced(&mut self, pool: PoolId) -> &mut Pool<B> {
        let born = self.tick();
        self.pools.entry(Owner::Announced(pool)).or_insert_with(|| Pool::new(born, None))
    }

    /// Notes that no capture fills a pool any more.
    fn note_captured(&mut self, owner: Owner) {
        let now = self.tick();
        if let Some(pool) = self.pools.get_mut(&owner) {
            pool.captured = now;
        }
    }

    fn take(
        &mut self,
        owner: Owner,
        source: &Source<'_, B>,
        size: u64,
        stream: *mut c_void,
    ) -> Result<(u64, Kept), AllocateError> {
        let born = self.tick();
        let pool = self.pools.entry(owner).or_insert_with(|| Pool::new(born, None));
        let size = if pool.split == Split::Never { block_size(size) } else { size };
        let which = (Handle::of(stream), SizeClass::of(size), source.tag());
        let (address, key) =
            pool.arenas.entry(which).or_insert_with(Arena::new).allocate(source, size)?;
        pool.live += 1;
        let granted = size.next_multiple_of(UNIT);
        Ok((address, Kept { owner, arena: which, key, address, granted }))
    }

    /// Notes that a stream takes part in a capture.
    fn note(&mut self, backend: &B, id: u64, stream: Handle) {
        let is_it = |found: &&mut Found| match found.id {
            Some(known) => known == id,
            None => found.streams.contains(&stream),
        };
        if let Some(found) = self.found.iter_mut().find(is_it) {
            found.id = Some(id);
            if !found.streams.contains(&stream) {
                found.streams.push(stream);
            }
            return;
        }
        backend.begin_capture();
        // The stream may have taken part in another one, which has ended then. This one is under way already: were none known for a moment,
        // what waits for the end of captures would be recorded into it.
        self.end_found(backend, |found| found.streams.contains(&stream));
        self.found.push(Found { id: Some(id), streams: vec![stream] });
    }

    /// Ends captures that were found.
    fn end_found(&mut self, backend: &B, has_ended: impl Fn(&Found) -> bool) {
        let ended: Vec<Found> = self.found.extract_if(.., |found| has_ended(found)).collect();
        for found in ended {
            found.id.into_iter().for_each(|id| self.note_captured(Owner::Found(id)));
            backend.end_capture();
        }
    }

    /// Ends captures whose graphs are gone, and pools of theirs that nothing lives in.
    fn end_gone(&mut self, backend: &B) {
        let gone = self.pools.iter().filter(|(_, pool)| pool.is_gone());
        let gone: Vec<Owner> = gone.map(|(owner, _)| *owner).collect();
        self.end_found(backend, |found| {
            found.id.is_some_and(|id| gone.contains(&Owner::Found(id)))
        });
        gone.into_iter().for_each(|owner| self.end_unused(owner));
    }

    /// Ends a pool that no graph uses any more; where something lives in it, only the blocks that have nothing.
    fn end_unused(&mut self, owner: Owner) {
        let Some(pool) = self.pools.get_mut(&owner).filter(|pool| pool.is_released()) else {
            return;
        };
        let born = pool.born;
        let arenas: Vec<(SizeClass, Arena<B>)> = match pool.live {
            0 => pool.arenas.drain().map(|((_, class, _), arena)| (class, arena)).collect(),
            _ => {
                let arenas = pool.arenas.iter_mut();
                arenas
                    .filter_map(|((_, class, _), arena)| Some((*class, arena.split_empty()?)))
                    .collect()
            }
        };
        if pool.live == 0 {
            self.pools.remove(&owner);
        }
        let may_write = |pool: &Pool<B>| !pool.is_released() && pool.captured > born;
        let writers = self.pools.iter().filter(|(_, pool)| may_write(pool));
        let writers: Vec<Owner> = writers.map(|(owner, _)| *owner).collect();
        let ended = |(class, arena)| Ended { class, arena, writers: writers.clone() };
        self.ended.extend(arenas.into_iter().map(ended));
    }

    /// Takes the memory that no graph may write into any more.
    fn take_unused(&mut self) -> Vec<Ended<B>> {
        let pools = &self.pools;
        let may_write = |owner: &Owner| pools.get(owner).is_some_and(|pool| !pool.is_released());
        self.ended.extract_if(.., |ended| !ended.writers.iter().any(may_write)).collect()
    }
}

/// Memory that pools keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    /// Bytes that are live.
    pub(crate) used: u64,
}

/// Use of the bytes by streams besides the one that allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Yes,
    No,
}
