//! The allocations of a lane, by number: the slots that [`Allocation`](crate::Allocation)s name, further facts about
//! them, and their sums.
#![forbid(unsafe_code)]
use super::extra::{Consent, Ending, Residence, SlotExtra, SlotId};
use super::order::User;
use crate::event::Rung;
use crate::{Align, Class, ErrorKind, Privacy, Reason, Region};
use alloc::{boxed::Box, vec::Vec};
use omniheap_strategy::{Grant, Key};

/// The key of a slot whose bytes another lane has; no strategy grants it.
pub(crate) const REMOTE: Key = Key::new(u32::MAX, u32::MAX);

const NONE: u32 = u32::MAX;

/// One live allocation: 32 bytes. An unused slot keeps the next unused one in `pins`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Key that frees the span.
    pub(super) key: Key,
    /// Bytes asked for.
    pub(super) size: u64,
    generation: u32,
    pins: u32,
    state: State,
    /// The user whose timeline orders the uses of the bytes.
    pub(super) user: User,
    flags: u8,
    /// Decision that put it where it is. Means something with `HAS_CAUSE` only, so that the fast path does not write
    /// it.
    decided: Decided,
}

const _: () = assert!(size_of::<Slot>() == 32, "the cause of a placement has only spare bytes");

/// Decision about an allocation, and the rung that served it.
#[derive(Clone, Copy, Debug)]
struct Decided {
    reason: Reason,
    region: Region,
    rung: Option<Rung>,
}

/// Reason why an allocation is where it is: the slow path knows it, and the fast path need not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause {
    /// Reason for the choice of `region`.
    pub(crate) reason: Reason,
    pub(crate) region: Region,
    /// The rung that served it; none for a hole that was free.
    pub(crate) rung: Option<Rung>,
    /// True if it lies in memory of another kind, because the decided one was full.
    pub(crate) elsewhere: bool,
}

/// The lane keeps more about an allocation: a name, other timelines.
const HAS_EXTRA: u8 = 1;
/// An observer was told of an allocation.
const IS_OBSERVED: u8 = 2;
/// The bytes of an allocation are not in memory, or are on their way: its pool is asleep.
const IS_AWAY: u8 = 4;
/// Its cause is noted.
const HAS_CAUSE: u8 = 8;
/// The allocation lies in memory of another kind than was decided, because that was full.
const IS_ELSEWHERE: u8 = 16;
/// Flags that a free need not look at.
const ONLY_CAUSE: u8 = HAS_CAUSE | IS_ELSEWHERE;

impl Slot {
    /// Returns the obstacle to a move.
    #[inline]
    pub(super) fn standing(&self) -> Standing {
        match self.state {
            State::Live if self.pins == 0 && !self.is_away() => Standing::Free,
            State::Copying => Standing::OnItsWay,
            _ => Standing::Held,
        }
    }

    #[inline]
    pub(super) const fn has_extra(&self) -> bool {
        self.flags & HAS_EXTRA != 0
    }

    /// Returns true if its bytes are not in memory.
    pub(super) const fn is_away(&self) -> bool {
        self.flags & IS_AWAY != 0
    }

    /// Returns true if a pass moves it.
    pub(super) const fn is_moving(&self) -> bool {
        !matches!(self.state, State::Live | State::Deferred)
    }

    /// Returns true if its place can be shown now.
    #[inline]
    pub(super) const fn is_shown(&self) -> bool {
        !matches!(self.state, State::Moving)
    }

    /// Returns the number of pins that keep it where it is.
    pub(super) const fn pins(&self) -> u32 {
        self.pins
    }

    /// Returns true if its owner has freed it, and something still uses the bytes.
    pub(super) const fn is_deferred(&self) -> bool {
        matches!(self.state, State::Deferred | State::MovingFreed)
    }

    /// Returns true if it may not move now. In a slot that is not in use, `pins` has another meaning.
    pub(super) const fn is_pinned(&self) -> bool {
        self.pins > 0
    }
}

/// An allocation that may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mobile {
    pub(super) slot: SlotId,
    pub(super) align: Align,
    /// `Needed` if its owner must consent.
    pub(super) consent: Consent,
}

/// The result of looking at an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// An allocation that may move.
    Mobile(Mobile),
    /// An allocation that may not move now.
    Held,
    /// An unmapped range, a span that a pass holds, or an allocation newer than the list of slots.
    Nothing,
}

/// Obstacle to a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: it is live and not pinned.
    Free,
    /// Another copy of it is under way.
    OnItsWay,
    /// The allocation stays: it is pinned, away, or not live.
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unused,
    Live,
    /// Freed by its owner, held until its timelines have passed.
    Deferred,
    /// Live, and its bytes are on their way over themselves: its place is not shown.
    Moving,
    /// Live, and its bytes are being copied elsewhere: its old place holds until the pass ends.
    Copying,
    /// As `Copying`, but its place was asked for meanwhile, so it stays there.
    Staying,
    /// Freed by its owner while a pass had it.
    MovingFreed,
}

/// Counters of a lane; sums of bytes are of what callers asked for unless they say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) live_bytes: u64,
    pub(super) granted_bytes: u64,
    pub(super) peak_live_bytes: u64,
    /// The most that owners had at a time, without what was freed and waited for a timeline.
    pub(super) peak_owned_bytes: u64,
    /// The lower of the two peaks. What is owned is never more than what lives: up to here neither peak rises.
    lower_peak: u64,
    pub(super) allocated: u64,
    pub(super) freed: u64,
}

impl Counts {
    /// Notes new peaks; `deferred` bytes were freed and wait for a timeline.
    fn raise_peaks(&mut self, deferred: u64) {
        let owned = self.live_bytes.saturating_sub(deferred);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.peak_owned_bytes = self.peak_owned_bytes.max(owned);
        self.lower_peak = self.peak_live_bytes.min(self.peak_owned_bytes);
    }

    /// Allocations that are live or wait for a timeline.
    pub(super) const fn live(&self) -> u64 {
        self.allocated - self.freed
    }

    /// Requests served so far.
    pub(super) const fn operations(&self) -> u64 {
        self.allocated + self.freed
    }
}

/// Every slot of a lane.
#[derive(Debug)]
pub(super) struct Occupancy {
    slots: Vec<Slot>,
    /// The alignment of each, as a power of two: a slot has no byte to spare.
    aligns: Vec<u8>,
    unused: u32,
    /// Further facts about each. Most lanes have none, and pay nothing.
    extras: Vec<Option<Box<SlotExtra>>>,
    counts: Counts,
}

impl Occupancy {
    pub(super) fn new() -> Self {
        let (slots, aligns, extras) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, aligns, unused: NONE, extras, counts: Counts::default() }
    }

    #[inline]
    pub(super) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts peaks from now on.
    pub(super) fn reset_peaks(&mut self) {
        let counts = &mut self.counts;
        counts.peak_live_bytes = counts.live_bytes;
        counts.lower_peak = counts.live_bytes.min(counts.peak_owned_bytes);
    }

    /// Makes sure that the next insertion needs no memory.
    #[inline]
    pub(super) fn reserve(&mut self) -> Result<(), ErrorKind> {
        if self.unused != NONE || self.slots.len() < self.slots.capacity() {
            return Ok(());
        }
        self.grow()
    }

    #[cold]
    fn grow(&mut self) -> Result<(), ErrorKind> {
        let more = (self.slots.len() / 2).clamp(16, 1 << 16);
        if self.slots.len() + more >= NONE as usize {
            return Err(ErrorKind::OutOfHostMemory);
        }
        // First, so that room for a slot is room for its alignment.
        self.aligns.try_reserve_exact(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.slots.try_reserve_exact(more).map_err(|_| ErrorKind::OutOfHostMemory)
    }

    /// Makes a granted span a live allocation of `size` bytes; room was [reserved](Self::reserve). `deferred` says how
    /// many bytes were freed and wait for a timeline.
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        grant: Grant,
        (size, align): (u64, Align),
        user: User,
        deferred: impl FnOnce() -> u64,
    ) -> SlotId {
        let counts = &mut self.counts;
        counts.allocated += 1;
        counts.live_bytes += size;
        counts.granted_bytes += grant.span.size;
        if counts.live_bytes > counts.lower_peak {
            counts.raise_peaks(deferred());
        }
        self.insert(grant.key, size, align, user)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the power of an alignment is below 64")]
    fn insert(&mut self, key: Key, size: u64, align: Align, user: User) -> SlotId {
        let (index, align) = (self.unused, align.get().trailing_zeros() as u8);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.unused = slot.pins;
            slot.generation += 1;
            (slot.key, slot.size, slot.pins) = (key, size, 0);
            (slot.state, slot.flags, slot.user) = (State::Live, 0, user);
            self.aligns[index as usize] = align;
            return SlotId { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("bounded by grow");
        let decided = Decided { reason: Reason::Named, region: Region::Device, rung: None };
        let (state, flags) = (State::Live, 0);
        let slot = Slot { key, size, generation: 0, pins: 0, state, user, flags, decided };
        self.slots.push(slot);
        self.aligns.push(align);
        SlotId { index, generation: 0 }
    }

    /// The live or deferred allocation, if the generation is the latest.
    #[inline]
    fn current(&self, id: SlotId) -> Result<&Slot, ErrorKind> {
        self.slots
            .get(id.index as usize)
            .filter(|slot| slot.generation == id.generation && slot.state != State::Unused)
            .ok_or(ErrorKind::Stale)
    }

    #[inline]
    fn current_mut(&mut self, id: SlotId) -> Result<&mut Slot, ErrorKind> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation && slot.state != State::Unused)
            .ok_or(ErrorKind::Stale)
    }

    /// A live allocation.
    #[inline]
    pub(super) fn get(&self, id: SlotId) -> Result<&Slot, ErrorKind> {
        self.current(id).and_then(|slot| match slot.state {
            State::Live | State::Moving | State::Copying | State::Staying => Ok(slot),
            State::Deferred | State::MovingFreed | State::Unused => Err(ErrorKind::Stale),
        })
    }

    /// Returns the alignment that a live or deferred allocation keeps when it moves.
    #[inline]
    pub(super) fn align(&self, id: SlotId) -> Align {
        Align::of(1 << self.aligns[id.index as usize])
    }

    /// Returns the user whose timeline orders the uses of a live or deferred allocation.
    pub(super) fn user(&self, id: SlotId) -> Result<User, ErrorKind> {
        self.current(id).map(|slot| slot.user)
    }

    /// Sets the user whose timeline orders the uses of an allocation.
    pub(super) fn set_user(&mut self, id: SlotId, user: User) {
        let _ = self.current_mut(id).map(|slot| slot.user = user);
    }

    /// The key of an allocation whose owner has freed it.
    pub(super) fn deferred_key(&self, id: SlotId) -> Option<Key> {
        self.current(id).ok().filter(|slot| slot.state == State::Deferred).map(|slot| slot.key)
    }

    /// Notes why an allocation is where it is.
    pub(super) fn set_cause(&mut self, id: SlotId, cause: Cause) {
        if let Ok(slot) = self.current_mut(id) {
            let Cause { reason, region, rung, elsewhere } = cause;
            slot.decided = Decided { reason, region, rung };
            let elsewhere = if elsewhere { IS_ELSEWHERE } else { 0 };
            slot.flags = slot.flags & !ONLY_CAUSE | HAS_CAUSE | elsewhere;
        }
    }

    /// Returns why a live allocation is where it is, where that was noted.
    pub(super) fn cause(&self, id: SlotId) -> Option<Cause> {
        let slot = self.get(id).ok().filter(|slot| slot.flags & HAS_CAUSE != 0)?;
        let Decided { reason, region, rung } = slot.decided;
        Some(Cause { reason, region, rung, elsewhere: slot.flags & IS_ELSEWHERE != 0 })
    }

    /// Returns the further facts about an allocation.
    pub(super) fn extra(&self, id: SlotId) -> Option<&SlotExtra> {
        self.extras.get(id.index as usize)?.as_deref()
    }

    /// As [`extra`](Self::extra), for a slot that was looked up.
    #[inline]
    pub(super) fn extra_of(&self, id: SlotId, slot: &Slot) -> Option<&SlotExtra> {
        if slot.has_extra() { self.extra(id) } else { None }
    }

    /// Changes the further facts about an allocation.
    pub(super) fn change<R>(
        &mut self,
        id: SlotId,
        change: impl FnOnce(&mut SlotExtra) -> R,
    ) -> Result<R, ErrorKind> {
        self.current_mut(id)?.flags |= HAS_EXTRA;
        let index = id.index as usize;
        if index >= self.extras.len() {
            self.extras.resize_with(index + 1, || None);
        }
        Ok(change(self.extras[index].get_or_insert_default()))
    }

    /// Returns whether an allocation's bytes must not outlive it.
    pub(super) fn privacy(&self, id: SlotId) -> Privacy {
        self.extra(id).map_or(Privacy::Open, |extra| extra.privacy)
    }

    /// Returns whether the host accesses an allocation's bytes directly.
    pub(super) fn has_host_access(&self, id: SlotId) -> bool {
        self.extra(id).is_some_and(|extra| extra.host_access)
    }

    /// Returns whether the guard of an allocation is being looked at now.
    pub(super) fn is_looked_at(&self, id: SlotId) -> bool {
        self.extra(id).is_some_and(|extra| extra.looked_at)
    }

    /// Returns whether the guard of an allocation is looked at when it ends.
    pub(super) fn is_sanitized(&self, id: SlotId) -> bool {
        self.extra(id).is_some_and(|extra| extra.sanitized > 0)
    }

    fn forget_extra(&mut self, id: SlotId) {
        if let Some(extra) = self.extras.get_mut(id.index as usize) {
            *extra = None;
        }
    }

    /// Remembers that an observer was told of an allocation, and is to hear the rest.
    pub(super) fn set_observed(&mut self, id: SlotId) {
        let _ = self.current_mut(id).map(|slot| slot.flags |= IS_OBSERVED);
    }

    /// Returns true if an observer was told of an allocation.
    pub(super) fn is_observed(&self, id: SlotId) -> bool {
        self.current(id).is_ok_and(|slot| slot.flags & IS_OBSERVED != 0)
    }

    /// Forgets what a live allocation is called, and that an observer was told of it; `false` where a free must look at more.
    /// An allocation that moves or is away needs that look: its free also concerns the pass or the backing store.
    pub(super) fn forget_label(&mut self, id: SlotId) -> bool {
        let slot = self.current(id).ok().filter(|slot| slot.state == State::Live);
        let is_label =
            slot.filter(|slot| !slot.is_away()).is_some_and(|slot| match self.extra_of(id, slot) {
                Some(extra) => extra.is_label(),
                None => slot.flags & IS_OBSERVED != 0,
            });
        if is_label {
            self.forget_extra(id);
            let _ = self.current_mut(id).map(|slot| slot.flags = 0);
        }
        is_label
    }

    /// Marks every allocation that has its bytes here as away, or as back.
    pub(super) fn set_away(&mut self, away: bool) {
        let here = |slot: &&mut Slot| slot.state != State::Unused && slot.key != REMOTE;
        for slot in self.slots.iter_mut().filter(here) {
            slot.flags = if away { slot.flags | IS_AWAY } else { slot.flags & !IS_AWAY };
        }
    }

    /// Returns true if the bytes of an allocation are not in memory.
    pub(super) fn is_away(&self, id: SlotId) -> bool {
        self.current(id).is_ok_and(Slot::is_away)
    }

    /// Ends the owner's claim on an allocation. Returns the key to free, or `None` where the pass that moves it frees it.
    #[inline]
    pub(super) fn end_ownership(&mut self, id: SlotId) -> Result<Option<Key>, ErrorKind> {
        let slot = self.current_mut(id)?;
        match slot.state {
            State::Live | State::Deferred => Ok(Some(slot.key)),
            State::Moving | State::Copying | State::Staying => {
                slot.state = State::MovingFreed;
                Ok(None)
            }
            State::MovingFreed | State::Unused => Err(ErrorKind::Stale),
        }
    }

    /// Ends the owner's claim; the bytes stay until [`end`](Self::end). Returns how many were asked for.
    pub(super) fn defer(&mut self, id: SlotId) -> Result<u64, ErrorKind> {
        let size = self.get(id)?.size;
        self.current_mut(id)?.state = State::Deferred;
        Ok(size)
    }

    /// Ends a live allocation that has no note and does not move; its key, size and user, or `None` where that is not so.
    #[inline]
    pub(super) fn take_plain(&mut self, id: SlotId) -> Option<(Key, u64, User)> {
        let unused = self.unused;
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation
            || slot.state != State::Live
            || slot.flags & !ONLY_CAUSE != 0
        {
            return None;
        }
        let taken = (slot.key, slot.size, slot.user);
        slot.state = State::Unused;
        if slot.generation < u32::MAX - 1 {
            slot.pins = unused;
            self.unused = id.index;
        }
        Some(taken)
    }

    /// Counts an allocation as freed that [`take_plain`](Self::take_plain) has ended.
    #[inline]
    pub(super) const fn count_free(&mut self, size: u64, granted: u64) {
        self.counts.freed += 1;
        self.counts.live_bytes -= size;
        self.counts.granted_bytes -= granted;
    }

    /// Ends an allocation of `granted` bytes, live or deferred, and says what it was.
    pub(super) fn end(&mut self, id: SlotId, granted: u64) -> Result<Slot, ErrorKind> {
        let slot = self.remove(id)?;
        if slot.has_extra() {
            self.forget_extra(id);
        }
        self.count_free(slot.size, granted);
        Ok(slot)
    }

    /// Takes back an allocation of `granted` bytes that was not used, as if it had never been. Returns its user.
    pub(super) fn withdraw(&mut self, id: SlotId, granted: u64) -> Result<User, ErrorKind> {
        let slot = self.remove(id)?;
        self.counts.allocated -= 1;
        self.counts.live_bytes -= slot.size;
        self.counts.granted_bytes -= granted;
        Ok(slot.user)
    }

    #[inline]
    fn remove(&mut self, id: SlotId) -> Result<Slot, ErrorKind> {
        let unused = self.unused;
        let slot = self.current_mut(id)?;
        let removed = *slot;
        slot.state = State::Unused;
        // A slot whose generations ran out is not used again, so an old allocation never fits a new one.
        if slot.generation < u32::MAX - 1 {
            slot.pins = unused;
            self.unused = id.index;
        }
        Ok(removed)
    }

    /// Keeps the allocation where it is until the matching [`unpin`](Self::unpin).
    #[inline]
    pub(super) fn pin(&mut self, id: SlotId) -> Result<Slot, ErrorKind> {
        let slot = self.current_mut(id)?;
        if slot.is_deferred() {
            return Err(ErrorKind::Stale);
        }
        slot.pins = slot.pins.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        if slot.state == State::Copying {
            // A caller that knows its place may write there during the copy.
            slot.state = State::Staying;
        }
        Ok(*slot)
    }

    /// Ends one pin. An allocation that is gone has none.
    #[inline]
    pub(super) fn unpin(&mut self, id: SlotId) {
        let _ = self.current_mut(id).map(|slot| slot.pins = slot.pins.saturating_sub(1));
    }

    /// Shows the live and deferred among `count` slots; whether there were any slots to look at.
    pub(super) fn visit(
        &self,
        from: usize,
        count: usize,
        mut visit: impl FnMut(SlotId, &Slot),
    ) -> bool {
        let end = self.slots.len().min(from.saturating_add(count));
        let Some(part) = self.slots.get(from..end) else { return false };
        for (index, slot) in (from..).zip(part).filter(|(_, slot)| slot.state != State::Unused) {
            let index = u32::try_from(index).expect("bounded by grow");
            visit(SlotId { index, generation: slot.generation }, slot);
        }
        !part.is_empty()
    }

    /// The allocation that has a slot now, live or deferred.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<(SlotId, &Slot)> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.state != State::Unused)?;
        Some((SlotId { index, generation: slot.generation }, slot))
    }

    /// Every allocation that is live or deferred.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.state != State::Unused)
            .map(|(index, slot)| (SlotId { index, generation: slot.generation }, slot))
    }
}

/// Allocations that move.
impl Occupancy {
    /// Marks a live allocation as moving: its place is not shown until [`end_move`](Self::end_move).
    pub(super) fn set_moving(&mut self, id: SlotId) {
        if let Ok(slot) = self.current_mut(id)
            && slot.state == State::Live
        {
            slot.state = State::Moving;
        }
    }

    /// Marks an allocation that may move as being copied; its size, and whether it is noted. `None` for another one.
    #[inline]
    pub(super) fn set_copying(&mut self, id: SlotId) -> Option<(u64, bool)> {
        let slot = self.current_mut(id).ok()?;
        if slot.standing() != Standing::Free {
            return None;
        }
        slot.state = State::Copying;
        Some((slot.size, slot.has_extra()))
    }

    /// Returns whether an allocation is still being copied: its place was not asked for, and it was not freed.
    #[inline]
    pub(super) fn is_copying(&self, id: SlotId) -> bool {
        self.current(id).is_ok_and(|slot| slot.state == State::Copying)
    }

    /// Returns true if a pass has the allocation, and it has an owner.
    pub(super) fn is_in_pass(&self, id: SlotId) -> bool {
        self.get(id).is_ok_and(|slot| slot.state != State::Live)
    }

    /// The key of an allocation that a pass has, freed or not.
    #[inline]
    pub(super) fn moving_key(&self, id: SlotId) -> Option<Key> {
        self.current(id).ok().filter(|slot| slot.is_moving()).map(|slot| slot.key)
    }

    /// Puts an allocation that moves somewhere else.
    #[inline]
    pub(super) fn set_key(&mut self, id: SlotId, key: Key) {
        if let Ok(slot) = self.current_mut(id) {
            slot.key = key;
        }
    }

    /// Puts an allocation that moves into another lane, which counts its bytes from now on; `granted` bytes here are free.
    pub(super) fn move_out(&mut self, id: SlotId, granted: u64) -> Result<(), ErrorKind> {
        let size = self.get(id)?.size;
        self.count_free(size, granted);
        self.change(id, |extra| extra.residence = Residence::Remote)?;
        self.set_key(id, REMOTE);
        Ok(())
    }

    /// Ends an allocation whose bytes are in another lane. Returns its user.
    pub(super) fn end_remote(&mut self, id: SlotId) -> Result<User, ErrorKind> {
        let slot = self.remove(id)?;
        self.forget_extra(id);
        Ok(slot.user)
    }

    /// Looks at the allocation in a slot: whether it may move.
    #[inline]
    pub(super) fn mobile(&self, id: SlotId, slot: &Slot, class: Class) -> Found {
        match slot.standing() {
            Standing::Free => {}
            Standing::OnItsWay => return Found::Nothing,
            Standing::Held => return Found::Held,
        }
        let consent = match (class, self.extra_of(id, slot).map(|extra| extra.consent)) {
            // The bytes of a tiled image may depend on their address; only the owner can copy them.
            (Class::Tiled, _) | (_, Some(Consent::Needed)) => Consent::Needed,
            _ => Consent::Given,
        };
        Found::Mobile(Mobile { slot: id, align: self.align(id), consent })
    }

    /// Ends a move. Returns whether the owner freed it meanwhile.
    #[inline]
    pub(super) fn end_move(&mut self, id: SlotId) -> bool {
        let Ok(slot) = self.current_mut(id) else { return false };
        let is_freed = slot.state == State::MovingFreed;
        slot.state = State::Live;
        is_freed
    }

    /// Takes out how an allocation ends that was freed while it moved.
    pub(super) fn take_ending(&mut self, id: SlotId) -> Option<Ending> {
        self.extras.get_mut(id.index as usize)?.as_mut()?.ending.take()
    }
}
