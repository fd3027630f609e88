//! State behind the lock of a lane: its allocations, the places of their bytes, and the order in which those are used.
//!
//! Each of the three has a file of its own and private fields; what concerns two of them is a method of [`State`].
#![forbid(unsafe_code)]
use super::bytes::{Ask, Bytes, Suballocator};
use super::config::Uses;
use super::extra::{SlotId, Stored};
use super::occupancy::{Occupancy, REMOTE, Slot};
use super::order::{Order, Pending, User};
use super::shared::{Leaving, Shared};
use crate::device::Block;
use crate::event::AllocationId;
use crate::sleep::BackingStore;
use crate::sync::{Guard, Mutex, Signal};
use crate::{Align, Backend, Class, ErrorKind, HeapId, Layout, Sharing, Span, TimelineId};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::AtomicU32;
use omniheap_strategy::{Grant, Key, LastUse};

/// One lane.
pub(crate) struct Lane<B: Backend> {
    pub(crate) shared: Arc<Shared<B>>,
    /// Tells lanes of one manager apart.
    pub(crate) number: u32,
    /// The manager, by number.
    pub(crate) manager: u32,
    pub(super) state: StateLock<B>,
    /// Requests that other lanes served since this one last thought of a block of its own.
    pub(super) borrowed: AtomicU32,
    /// Raised when allocations that were moving have arrived.
    pub(super) moved: Signal,
}

/// State behind the lock.
pub(super) struct State<B: Backend> {
    /// The allocations, what is known of them, and their sums.
    pub(super) occupancy: Occupancy,
    /// Blocks, and the strategy that divides them.
    pub(super) bytes: Bytes<B>,
    /// The timelines that use the bytes, and what waits for them.
    pub(super) order: Order,
    /// Places of the allocations whose bytes are in another lane, by slot.
    pub(super) remote: BTreeMap<u32, RemoteSpan<B>>,
    /// Notes of a lane whose memory is away, from the start of a sleep to the end of a wake. No hole is granted
    /// meanwhile.
    pub(super) away: Option<Away>,
    /// Allocations that callers own: together they keep the lane alive.
    pub(super) owners: u64,
}

/// The lock of a lane's state.
pub(super) struct StateLock<B: Backend>(Mutex<State<B>>);

impl<B: Backend> StateLock<B> {
    /// Takes the lock; the span that was freed last may not be a hole yet.
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, State<B>> {
        self.0.lock()
    }

    /// Takes the lock to look at holes or to change them: everything that is free is one.
    pub(super) fn lock_flushed(&self) -> Guard<'_, State<B>> {
        let mut state = self.0.lock();
        state.bytes.flush();
        state
    }
}

/// Place of an allocation in another lane than its slot's. Dropping it frees the bytes there: not under a lock.
pub(super) struct RemoteSpan<B: Backend> {
    pub(super) lane: Arc<Lane<B>>,
    pub(super) slot: SlotId,
    pub(super) block: Arc<Block<B>>,
    /// Everything that it occupies there, padding included.
    pub(super) span: Span,
}

impl<B: Backend> RemoteSpan<B> {
    pub(super) fn heap(&self) -> HeapId {
        self.lane.shared.heap
    }
}

impl<B: Backend> Drop for RemoteSpan<B> {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock_flushed();
        let freed = state.free(self.slot);
        drop(state);
        debug_assert!(matches!(freed, Ok(None)), "a remote span's slot lives as long as it does");
    }
}

/// Notes of a lane whose memory is away.
pub(super) struct Away {
    pub(super) store: Arc<dyn BackingStore>,
    /// Addresses that had memory when the lane fell asleep: whole pages.
    pub(super) spans: Vec<Span>,
    /// Residue: places of secrets that were freed while the lane sleeps or wakes up and have memory: their bytes may have come back,
    /// or never have left. They are held until zeros are there.
    pub(super) residue: Vec<Grant>,
    /// True if nothing on the device uses the lane's memory any more, which goes: what is freed is free at once.
    pub(super) is_gone: bool,
    /// The lane, by the numbers of its manager and its own.
    pub(super) lane: (u32, u32),
}

/// Remains of a freed allocation, to be given back without a lock.
pub(super) enum FreeOutcome<B: Backend> {
    /// A block that was its own.
    Block(Leaving<B>),
    /// Its place in another lane.
    Remote(RemoteSpan<B>),
    /// Its bytes in a backing store.
    Stored(Stored),
}

/// Reason why the fast path did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathMiss {
    /// The strategy's answer.
    Refused(ErrorKind),
    /// A hole fits, but an empty block would be broken for it: a block of the right size is better.
    WouldBreak,
    /// A hole fits, but others may still use it; or the timeline is not known here.
    InUse(LastUse),
}

impl<B: Backend> Lane<B> {
    pub(crate) fn new(
        shared: Arc<Shared<B>>,
        suballocator: Suballocator,
        manager: u32,
        number: u32,
    ) -> Self {
        let state = State::new(suballocator, shared.config.uses);
        Self {
            shared,
            number,
            manager,
            state: StateLock(Mutex::new(state)),
            borrowed: AtomicU32::new(0),
            moved: Signal::default(),
        }
    }

    /// The name of the allocation in a slot.
    pub(crate) const fn id_of(&self, slot: SlotId) -> AllocationId {
        AllocationId {
            manager: self.manager,
            lane: self.number,
            slot: slot.index,
            generation: slot.generation,
        }
    }

    /// Gives back what freed allocations left; call it without a lock. Returns the bytes that others can take.
    pub(super) fn give_back_freed(&self, left: impl IntoIterator<Item = FreeOutcome<B>>) -> u64 {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        for one in left {
            match one {
                FreeOutcome::Block(block) => blocks.push(block),
                FreeOutcome::Remote(remote) => bytes += remote.span.size,
                FreeOutcome::Stored(stored) => stored.forget(),
            }
        }
        bytes + self.shared.give_back(blocks)
    }
}

/// Requests that holes serve.
impl<B: Backend> State<B> {
    fn new(suballocator: Suballocator, uses: Uses) -> Self {
        Self {
            occupancy: Occupancy::new(),
            bytes: Bytes::new(suballocator),
            order: Order::new(uses),
            remote: BTreeMap::new(),
            away: None,
            owners: 0,
        }
    }

    /// The fast path: a span of what the lane holds.
    #[inline]
    pub(super) fn allocate(&mut self, ask: Ask) -> Result<SlotId, FastPathMiss> {
        self.occupancy.reserve().map_err(FastPathMiss::Refused)?;
        let user = self.order.find(ask.timeline).ok_or(FastPathMiss::InUse(LastUse::NONE))?;
        let granted = self.occupancy.counts().granted_bytes;
        if let Some(grant) = self.bytes.take_last_freed(ask, user, granted) {
            return Ok(self.admit(grant, ask.bytes(), user));
        }
        self.allocate_hole(ask, user)
    }

    /// Takes a hole; a slot is reserved.
    #[inline]
    fn allocate_hole(&mut self, ask: Ask, user: User) -> Result<SlotId, FastPathMiss> {
        if !self.order.is_alone(user) {
            return self.allocate_beside_others(ask.layout, ask.class, ask.size, user);
        }
        let grant = self.bytes.take_hole(ask.layout, ask.class).map_err(FastPathMiss::Refused)?;
        self.admit_unless_broken(grant, ask.bytes(), user)
    }

    /// As [`allocate`](Self::allocate), where other timelines may still use some holes.
    #[inline(never)]
    fn allocate_beside_others(
        &mut self,
        layout: Layout,
        class: Class,
        size: u64,
        user: User,
    ) -> Result<SlotId, FastPathMiss> {
        let grant = self.bytes.take_hole_where(layout, class, |last| self.order.may(user, last));
        self.admit_unless_broken(grant.map_err(FastPathMiss::InUse)?, (size, layout.align), user)
    }

    #[inline]
    fn admit_unless_broken(
        &mut self,
        grant: Grant,
        bytes: (u64, Align),
        user: User,
    ) -> Result<SlotId, FastPathMiss> {
        let (key, size, counts) = (grant.key, grant.span.size, self.occupancy.counts());
        let (granted, operations) = (counts.granted_bytes, counts.operations());
        if self.bytes.is_thrifty(granted) && self.bytes.keeps_whole(key, size, granted, operations)
        {
            return Err(FastPathMiss::WouldBreak);
        }
        self.bytes.set_last_taken(key);
        Ok(self.admit(grant, bytes, user))
    }

    /// As [`allocate`](Self::allocate), breaking whatever fits and looking at every hole.
    pub(super) fn allocate_usable(&mut self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.occupancy.reserve()?;
        let user = self.enter(ask.timeline)?;
        let grant = self.bytes.search(ask.layout, ask.class, |last| self.order.may(user, last))?;
        Ok(self.admit(grant, ask.bytes(), user))
    }

    /// As [`allocate`](Self::allocate), from the lowest hole for which `look` returns something.
    pub(super) fn allocate_lowest<R>(
        &mut self,
        ask: Ask,
        look: impl Fn(&B::Block, Span) -> Option<R>,
    ) -> Result<(SlotId, R), ErrorKind> {
        self.occupancy.reserve()?;
        let user = self.enter(ask.timeline)?;
        let may = |last| self.order.may(user, last);
        let (grant, seen) = self.bytes.take_lowest(ask, may, look)?;
        Ok((self.admit(grant, ask.bytes(), user), seen))
    }

    /// As [`allocate`](Self::allocate), from the lowest hole between two allocations of a block.
    pub(super) fn allocate_between<R>(
        &mut self,
        ask: Ask,
        (after, before): (Option<SlotId>, SlotId),
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Result<(SlotId, R), ErrorKind> {
        self.occupancy.reserve()?;
        let user = self.enter(ask.timeline)?;
        let key = |id: SlotId| self.occupancy.get(id).map(|slot| slot.key);
        let spans = (after.map(key).transpose()?, key(before)?);
        let may = |last| self.order.may(user, last);
        let (grant, seen) = self.bytes.take_between(ask, spans, may, look)?;
        Ok((self.admit(grant, ask.bytes(), user), seen))
    }

    /// Takes whatever fits, also what other timelines may still use: see [`last_use`](Self::last_use).
    pub(super) fn allocate_anyhow(&mut self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.occupancy.reserve()?;
        let user = self.enter(ask.timeline)?;
        let grant = self.bytes.take_anyhow(ask)?;
        Ok(self.admit(grant, ask.bytes(), user))
    }

    /// Takes exactly `span` of the first block.
    pub(super) fn take(
        &mut self,
        span: Span,
        align: Align,
        timeline: Option<TimelineId>,
    ) -> Result<SlotId, FastPathMiss> {
        self.occupancy.reserve().map_err(FastPathMiss::Refused)?;
        let user = self.enter(timeline).map_err(FastPathMiss::Refused)?;
        let last = self.bytes.last_use_of_first();
        if !self.order.may(user, last) {
            return Err(FastPathMiss::InUse(last));
        }
        let grant = self.bytes.take_at(span).map_err(FastPathMiss::Refused)?;
        Ok(self.admit(grant, (span.size, align), user))
    }

    /// Makes a granted span a live allocation; a slot was reserved.
    #[inline]
    pub(super) fn admit(&mut self, grant: Grant, bytes: (u64, Align), user: User) -> SlotId {
        self.order.admit(user);
        self.occupancy.admit(grant, bytes, user, || self.order.deferred_bytes())
    }

    /// Refuses requests of a lane that has no memory.
    #[inline]
    pub(super) fn check_awake(&self) -> Result<(), ErrorKind> {
        if self.away.is_some() { Err(ErrorKind::Asleep) } else { Ok(()) }
    }

    /// The user of a request's timeline, made known where it is not.
    pub(super) fn enter(&mut self, timeline: Option<TimelineId>) -> Result<User, ErrorKind> {
        self.check_awake()?;
        self.order.enter(timeline)
    }
}

/// Allocations that end.
impl<B: Backend> State<B> {
    /// Frees an allocation of which nothing more is known than its bytes; `false` where that is not so.
    #[inline]
    pub(super) fn free_plain(&mut self, id: SlotId) -> bool {
        let Some((key, size, user)) = self.occupancy.take_plain(id) else { return false };
        let last = self.order.free(user);
        let granted = self.bytes.release_last(key, user, last);
        self.order.leave(user);
        self.occupancy.count_free(size, granted.expect("a live slot has a live span"));
        true
    }

    /// Frees an allocation that is live, or that was deferred and whose timelines have passed. Returns what it leaves.
    pub(super) fn free(&mut self, id: SlotId) -> Result<Option<FreeOutcome<B>>, ErrorKind> {
        let Some(key) = self.occupancy.end_ownership(id)? else { return Ok(None) };
        if key == REMOTE {
            let user = self.occupancy.end_remote(id)?;
            self.order.leave(user);
            return Ok(self.remote.remove(&id.index).map(FreeOutcome::Remote));
        }
        // Bytes that the host accessed have waited for all their users.
        let is_hosts = self.occupancy.has_host_access(id);
        let user = if is_hosts { User::HOST } else { self.occupancy.user(id)? };
        let last = self.order.free(user);
        self.end(id, key, last)
    }

    /// Ends an allocation whose bytes were used last as said.
    pub(super) fn end(
        &mut self,
        id: SlotId,
        key: Key,
        last: LastUse,
    ) -> Result<Option<FreeOutcome<B>>, ErrorKind> {
        let leaves_residue = self.leaves_residue(id, key);
        let grant = match leaves_residue {
            true => self.bytes.hold_freed(key, last)?,
            false => self.bytes.release(key, last)?,
        };
        let slot = self.occupancy.end(id, grant.span.size)?;
        self.order.leave(slot.user);
        Ok(match self.bytes.sharing(grant.block) {
            Sharing::Shared if slot.is_away() => self.stored(id, grant, leaves_residue),
            Sharing::Shared => None,
            Sharing::Dedicated => self.bytes.remove_block(grant.block).map(FreeOutcome::Block),
        })
    }

    /// Takes back an allocation that was not used.
    pub(super) fn withdraw(&mut self, id: SlotId) -> Result<(), ErrorKind> {
        let key = self.occupancy.get(id)?.key;
        let grant = self.bytes.release_unused(key)?;
        let user = self.occupancy.withdraw(id, grant.span.size)?;
        self.order.leave(user);
        Ok(())
    }
}

/// Facts about an allocation's bytes.
impl<B: Backend> State<B> {
    /// The block of what is in a slot, and everything that it occupies there, padding included.
    #[inline]
    pub(super) fn spot(
        &self,
        id: SlotId,
        slot: &Slot,
    ) -> Result<(&Arc<Block<B>>, Span), ErrorKind> {
        match self.remote.get(&id.index) {
            Some(remote) => Ok((&remote.block, remote.span)),
            None => self.bytes.spot(slot.key),
        }
    }

    /// As [`spot`](Self::spot), of a live allocation.
    pub(super) fn place(&self, id: SlotId) -> Result<(&Arc<Block<B>>, Span), ErrorKind> {
        self.spot(id, self.occupancy.get(id)?)
    }

    /// Returns the timeline that orders the uses of an allocation, if it has one.
    pub(super) fn home_of(&self, id: SlotId) -> Option<TimelineId> {
        self.order.timeline(self.occupancy.user(id).ok()?)
    }

    /// Returns the last user of the bytes of an allocation before it had them.
    pub(super) fn last_use(&self, id: SlotId) -> LastUse {
        self.occupancy.get(id).map_or(LastUse::NONE, |slot| self.bytes.last_use(slot.key))
    }

    /// Notes that everything that timelines freed up to a time is out of use.
    pub(super) fn pass<'a>(&mut self, each: impl Iterator<Item = (&'a Pending, u64)>) {
        self.order.pass(each);
        self.bytes.set_passed(self.order.passed());
    }

    /// Notes that everything that was freed up to a time has passed.
    pub(super) fn pass_all(&mut self, time: u64) {
        self.order.pass_all(time);
        self.bytes.set_passed(self.order.passed());
    }
}
