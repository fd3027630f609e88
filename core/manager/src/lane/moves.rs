//! All that defragmentation may do to a lane: look, hold both ends of a move, publish it or take it back.
#![forbid(unsafe_code)]
use super::extra::{Consent, Ending, SlotId};
use super::occupancy::Standing;
use super::order::User;
use super::reuse::WaitMode;
use super::snapshot::Resident;
use super::state::{Lane, State};
use crate::device::Block;
use crate::sync::Guard;
use crate::{Backend, Class, ErrorKind, Layout, Privacy, Result, Span, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use omniheap_strategy::{BlockId, Grant, Key, LastUse, Strategy};

/// A locked lane, for moves.
pub(crate) struct MoveGuard<'a, B: Backend> {
    lane: &'a Lane<B>,
    state: Guard<'a, State<B>>,
}

/// An allocation compared with an earlier look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The allocation is at the same place and may move.
    Free,
    /// The allocation is at the same place and may not move.
    Held,
    /// The allocation was freed, has moved, or is not what it was taken for.
    Gone,
}

/// The outcome of a planned move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveOutcome {
    /// The allocation is at its new place.
    Moved,
    /// The allocation is at its old place: its owner decided so, or its place was asked for during the pass.
    Stayed,
    /// The owner freed the allocation during the pass; both places are free.
    Freed,
}

impl MoveOutcome {
    pub(super) const fn of(is_freed: bool, arrives: bool) -> Self {
        match (is_freed, arrives) {
            (true, _) => Self::Freed,
            (false, true) => Self::Moved,
            (false, false) => Self::Stayed,
        }
    }
}

/// Facts about an allocation when its move starts.
pub(crate) struct Started {
    /// Requested bytes.
    pub(crate) size: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) consent: Consent,
}

impl<B: Backend> Lane<B> {
    /// Locks the lane to end moves.
    pub(crate) fn lock_moves(&self) -> MoveGuard<'_, B> {
        MoveGuard { lane: self, state: self.state.lock_flushed() }
    }

    /// Locks the lane to plan moves; `None` while it is asleep.
    pub(crate) fn lock_to_plan(&self) -> Option<MoveGuard<'_, B>> {
        Some(MoveGuard { lane: self, state: self.lock_state_to_plan()? })
    }

    pub(super) fn lock_state_to_plan(&self) -> Option<Guard<'_, State<B>>> {
        let state = self.state.lock_flushed();
        state.away.is_none().then_some(state)
    }

    /// Frees a place, or what is left of one, that was held for moves.
    pub(crate) fn free_held(&self, held: Grant) {
        self.state.lock_flushed().bytes.release_held(held);
    }

    /// Waits until nothing on the device uses a span that is held for a move.
    pub(crate) fn wait_for_held(&self, held: Key) -> Result<()> {
        for wait in [WaitMode::Poll, WaitMode::Block] {
            let Some(last) = self.last_use_of_held(held)? else { return Ok(()) };
            match self.poll_use(last, wait) {
                // Nothing was found out: the device decides below.
                Err(error) if error.kind() == ErrorKind::Busy => {}
                polled => polled?,
            }
        }
        // Some timelines cannot be waited for now, or only another thread may mark them.
        match self.last_use_of_held(held)? {
            None => Ok(()),
            Some(_) => self.shared.device.backend().wait_idle(),
        }
    }

    /// Returns the last use of a span that is held for a move, or `None` if nothing on the device uses it.
    fn last_use_of_held(&self, held: Key) -> Result<Option<LastUse>> {
        let state = self.state.lock();
        let Some(tlsf) = state.bytes.general() else { return Ok(None) };
        let last = tlsf.last_use(held)?;
        Ok((!state.order.may(User::HOST, last)).then_some(last))
    }

    /// Timelines with frees that may not have passed.
    pub(crate) fn busy_timelines(&self) -> Vec<TimelineId> {
        self.state.lock().order.busy().collect()
    }
}

impl<B: Backend> MoveGuard<'_, B> {
    /// Compares an allocation with an earlier look at it.
    pub(crate) fn look_at(&self, resident: &Resident) -> Presence {
        let (Ok(slot), Some(tlsf)) =
            (self.state.occupancy.get(resident.slot), self.state.bytes.general())
        else {
            return Presence::Gone;
        };
        match tlsf.granted(slot.key) {
            Ok((grant, _)) if grant.block == resident.block && grant.span == resident.span => {
                match slot.standing() {
                    Standing::Free => Presence::Free,
                    // The allocation already moves, because of another page that it touches.
                    Standing::OnItsWay => Presence::Gone,
                    Standing::Held => Presence::Held,
                }
            }
            _ => Presence::Gone,
        }
    }

    /// Takes a hole as a target.
    pub(crate) fn reserve(&mut self, layout: Layout, class: Class) -> Option<Grant> {
        self.state.bytes.general_mut()?.allocate(layout, class).ok()
    }

    /// Takes part of a hole that was seen before as a target.
    pub(crate) fn reserve_in(&mut self, hole: Key, span: Span, class: Class) -> Option<Grant> {
        self.state.bytes.general_mut()?.carve_in(hole, span, class).ok()
    }

    /// Takes the start of a span that is held for moves, and leaves the rest held.
    pub(crate) fn reserve_from(
        &mut self,
        held: &mut Option<Grant>,
        resident: &Resident,
    ) -> Option<Grant> {
        let (whole, size) = ((*held)?, resident.span.size);
        let start = resident.align.up(whole.span.offset)?;
        let end = start.checked_add(size).filter(|end| *end <= whole.span.end())?;
        let mut place = whole;
        if start > whole.span.offset {
            let gap = Span { size: start - whole.span.offset, ..whole.span };
            place = self.state.bytes.general_mut()?.split(whole.key, gap.size).ok()?;
            *held = Some(place);
            self.state.bytes.release_held(Grant { span: gap, ..whole });
        }
        let tlsf = self.state.bytes.general_mut()?;
        *held = if end < whole.span.end() { Some(tlsf.split(place.key, size).ok()?) } else { None };
        place.span.size = size;
        self.state.bytes.count_let_go(size);
        Some(place)
    }

    /// Grows a target over the holes beside it, so that no search finds them.
    pub(crate) fn keep_out(&mut self, target: Key) -> Option<Key> {
        Some(self.state.bytes.general_mut()?.widen(target).ok()?.key)
    }

    /// Frees a target that nothing moves to.
    pub(crate) fn unreserve(&mut self, target: Key) {
        let freed = self.state.bytes.release_unused(target);
        debug_assert!(freed.is_ok(), "reserved until now");
    }

    /// The native block of a span.
    pub(crate) fn block(&self, id: BlockId) -> Arc<Block<B>> {
        Arc::clone(self.state.bytes.block(id))
    }

    /// Marks an allocation as being copied; `held` are the bytes of its target that this lane holds.
    pub(crate) fn start(&mut self, resident: &Resident, held: u64) -> Started {
        self.state.bytes.count_held(held);
        let marked = self.state.occupancy.set_copying(resident.slot);
        debug_assert!(marked.is_some(), "looked at under the same lock");
        let (size, has_extra) = marked.unwrap_or((0, false));
        let extra = if has_extra { self.state.occupancy.extra(resident.slot) } else { None };
        let needed = resident.class == Class::Tiled
            || extra.is_some_and(|extra| extra.consent == Consent::Needed);
        let consent = if needed { Consent::Needed } else { Consent::Given };
        Started { size, name: extra.and_then(|extra| extra.name.clone()), consent }
    }

    /// Returns whether an allocation is still being copied: its place was not asked for, and it was not freed.
    pub(crate) fn is_copying(&self, slot: SlotId) -> bool {
        self.state.occupancy.is_copying(slot)
    }

    /// Adds the timelines that may still use the bytes of an allocation or of its target.
    pub(crate) fn timelines_of(&self, slot: SlotId, timelines: &mut Vec<TimelineId>) {
        let mut add = |timeline: TimelineId| {
            if !timelines.contains(&timeline) {
                timelines.push(timeline);
            }
        };
        // Transfers of allocations without a timeline run on the main one.
        add(self.state.home_of(slot).unwrap_or(TimelineId::MAIN));
        if let Some(extra) = self.state.occupancy.extra(slot) {
            extra.used_on.iter().copied().for_each(&mut add);
        }
        self.state.order.may_use().for_each(add);
    }

    /// Ends a move: at the new place if the bytes were copied and the old place was not asked for, else at the old one.
    pub(crate) fn finish(
        &mut self,
        slot: SlotId,
        to: Grant,
        copied: bool,
        by_owner: bool,
    ) -> MoveOutcome {
        let state = &mut *self.state;
        let old = state.occupancy.moving_key(slot).expect("a pass keeps the slots that it moves");
        let arrives = copied && state.occupancy.is_copying(slot);
        if arrives {
            if by_owner {
                state.give_up_sanitized(self.lane, slot);
            }
            state.occupancy.set_key(slot, to.key);
            self.lane.tell_move(state, slot);
        }
        let left = if arrives { old } else { to.key };
        state.bytes.count_let_go(to.span.size);
        let freed = state.bytes.release_unused(left);
        debug_assert!(freed.is_ok(), "both ends of a move are held");
        MoveOutcome::of(state.let_go(self.lane, slot), arrives)
    }

    /// Ends a move whose copy may still run: its target of `held` bytes stays held forever, and the timeline of a copy of the pass
    /// counts as a user of its source. Of the owner's own copy the owner has said that.
    pub(crate) fn abandon(&mut self, slot: SlotId, held: u64, by_pass: Option<TimelineId>) {
        let state = &mut *self.state;
        let freed = by_pass.map_or(0, |on| state.note_copy(slot, on));
        self.lane.shared.device.quarantine(held + freed, "copies of a pass could not be followed");
        state.let_go(self.lane, slot);
    }
}

impl<B: Backend> State<B> {
    /// Notes that a copy on a timeline may still use the bytes of an allocation that moves. Returns how many bytes are lost with that:
    /// all of them where its owner has freed it meanwhile, when nobody knew of the copy.
    pub(super) fn note_copy(&mut self, slot: SlotId, on: TimelineId) -> u64 {
        let is_freed = !self.occupancy.is_in_pass(slot);
        let was_lost = self.occupancy.change(slot, |extra| {
            extra.add_use(on);
            extra.unfollowed = extra.unfollowed.wrapping_add(1);
            is_freed && extra.ending.replace(Ending::Never) == Some(Ending::Never)
        });
        let span = self.occupancy.moving_key(slot).and_then(|key| self.bytes.spot(key).ok());
        // What was lost when its owner freed it was counted then.
        let is_new = is_freed && was_lost == Ok(false);
        span.filter(|_| is_new).map_or(0, |(_, span)| span.size)
    }

    /// Releases an allocation from a pass, and frees it if its owner did so meanwhile; whether it did.
    /// This is the locked state of `lane`.
    pub(super) fn let_go(&mut self, lane: &Lane<B>, slot: SlotId) -> bool {
        let is_freed = self.occupancy.end_move(slot);
        if is_freed {
            match self.occupancy.take_ending(slot) {
                // Its guard is looked at first, without the lock.
                None if self.occupancy.is_sanitized(slot) => self.defer(slot, Ending::NOW),
                None => {
                    // An allocation that moves has no dedicated block to return.
                    // One that was freed before anybody was told of it is nobody's to hear of.
                    if self.occupancy.is_observed(slot) {
                        lane.tell_free(self, slot);
                    }
                    let _ = self.free(slot);
                }
                Some(ending) => self.defer(slot, ending),
            }
        }
        is_freed
    }

    /// Frees an allocation once its points have passed, or never.
    pub(super) fn defer(&mut self, slot: SlotId, ending: Ending) {
        match (self.occupancy.defer(slot), ending) {
            (Ok(bytes), Ending::After(points, origin)) => {
                self.order.defer(slot, bytes, points, origin);
            }
            (Ok(_), Ending::Never) if self.occupancy.privacy(slot) == Privacy::Secret => {
                self.keep_freed(slot);
            }
            _ => {}
        }
    }

    /// Ends exclusive moves; the first `made` allocations are at a new place. This is the locked state of `lane`.
    pub(super) fn end_moves(
        &mut self,
        lane: &Lane<B>,
        slots: impl Iterator<Item = SlotId>,
        made: usize,
    ) {
        for (number, slot) in slots.enumerate() {
            if number < made {
                lane.tell_move(self, slot);
            }
            self.let_go(lane, slot);
        }
        lane.moved.raise();
    }
}
