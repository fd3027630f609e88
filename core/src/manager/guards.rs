//! Guards behind allocations: laid at hand-out, looked at in the end, and on request.
use super::{Allocation, Manager};
use crate::guard::{FRESH, Facts, Sentry, Suspect};
use crate::pool::{Guest, Lane, LaneState, Patience, SlotId, Stay};
use crate::{Backend, Contents, ErrorKind, Overwrite, Place, Result, Sharing, TimelineId};
use alloc::{sync::Arc, vec, vec::Vec};

impl<B: Backend> Allocation<B> {
    /// Fills what nobody has written yet, and lays a guard behind the end, where the manager lays guards.
    pub(super) fn lay_guard(&self, contents: Contents) -> Result<()> {
        let lane = self.lane();
        let Some(sentry) = &lane.shared.sentry else { return Ok(()) };
        let binding = self.binding();
        let (block, granted) = {
            let state = lane.state.lock();
            let (block, _) = state.locate(self.slot())?;
            (block, state.granted(self.slot())?)
        };
        // The host may use the bytes as soon as the call returns, unless only work of a timeline does.
        let order = self.timeline().filter(|_| !self.has_host_access());
        let on = order.map_or_else(|| sentry.line(), Ok)?;
        let guard = sentry.lay(on, &block, granted, self.size(), contents)?;
        if order.is_some() {
            self.touch();
        } else {
            sentry.settle(on).inspect_err(|_| {
                let mut state = lane.state.lock();
                if state.slots.set_noted(self.slot()).is_ok() {
                    state.notes.add_use(self.slot().index, on);
                }
            })?;
        }
        drop(binding);
        if guard > 0 {
            let mut state = lane.state.lock();
            state.slots.set_noted(self.slot())?;
            state.notes.of(self.slot().index).guard = guard;
        }
        Ok(())
    }

    /// Lays the first bytes of the guard once more, where a copy of whole words came over them.
    pub(super) fn mend_guard(&self) -> Result<()> {
        let lane = self.lane();
        let align = lane.shared.device.backend().caps().copy.align;
        if align.divides(self.size()) || !lane.state.lock().is_guarded(self.slot()) {
            return Ok(());
        }
        let binding = self.binding();
        let start = align.down(self.size());
        let place = Place { block: binding.block(), offset: binding.span().offset + start };
        let mut word = vec![FRESH; usize::try_from(align.get()).unwrap_or(0)];
        self.in_order(|transfer, on| {
            transfer.read(on, place, &mut word)?;
            let behind = word.iter_mut().zip(start..).filter(|(_, at)| *at >= self.size());
            behind.for_each(|(byte, _)| *byte = FRESH);
            transfer.write(on, place, &word)
        })?;
        self.settle_own_work()
    }
}

impl<B: Backend> LaneState<B> {
    /// What is known of an allocation with a guard, live or freed, and whether the lane's order protects it: not what has a
    /// block of its own or lies in another lane. This is the locked state of `lane`.
    fn suspect(&self, lane: &Lane<B>, id: SlotId) -> Option<(Suspect<B>, Sharing)> {
        let (found, slot) = self.slots.at(id.index)?;
        let note = self.notes.get(id.index).filter(|note| note.guard > 0 && found == id)?;
        let (block, granted) = self.spot(id, slot).ok()?;
        let (name, guard) = (note.name.clone(), note.guard);
        let heap = self.guests.get(&id.index).map_or(lane.shared.heap, Guest::heap);
        let facts = Facts { id: lane.id_of(id), name, size: slot.size, heap, guard };
        let sharing = if note.stay == Stay::Away { Sharing::Dedicated } else { note.sharing };
        Some((Suspect { block: Arc::clone(block), granted, facts }, sharing))
    }

    /// As [`suspect`](Self::suspect); the guard is looked at once, by the caller.
    fn take_suspect(&mut self, lane: &Lane<B>, id: SlotId) -> Option<(Suspect<B>, Sharing)> {
        let taken = self.suspect(lane, id)?;
        self.notes.of(id.index).guard = 0;
        Some(taken)
    }

    /// Whether somebody is looking at an allocation's guard now.
    pub(crate) fn is_looked_at(&self, id: SlotId) -> bool {
        self.notes.get(id.index).is_some_and(|note| note.looked_at)
    }

    /// Whether an allocation has a guard.
    pub(crate) fn is_guarded(&self, id: SlotId) -> bool {
        self.notes.get(id.index).is_some_and(|note| note.guard > 0)
    }

    /// Gives a guard up: somebody else than the manager moved the bytes. This is the locked state of `lane`.
    pub(crate) fn give_up_guard(&mut self, lane: &Lane<B>, id: SlotId) {
        if let (true, Some(sentry)) = (self.is_guarded(id), &lane.shared.sentry) {
            self.notes.of(id.index).guard = 0;
            sentry.lose();
        }
    }
}

impl<B: Backend> Lane<B> {
    /// Looks at the guard of an allocation whose bytes are about to be the lane's again, in the lane's order; call it without
    /// the lock. Nothing moves it: it is freed and waits, or `pins` says that it stays.
    ///
    /// # Errors
    ///
    /// What the device says when something may still touch the bytes: they must not be used again.
    pub(crate) fn look_at_guard(&self, id: SlotId) -> Result<()> {
        let Some(sentry) = &self.shared.sentry else { return Ok(()) };
        let mut state = self.state.lock();
        let home = state.home_of(id).filter(|_| !state.has_host_access(id));
        let taken = state.take_suspect(self, id);
        drop(state);
        let Some((suspect, sharing)) = taken else { return Ok(()) };
        match home {
            // A block of its own goes back to the driver, which knows no order: its uses have passed.
            Some(timeline) if sharing == Sharing::Shared => sentry.send(suspect, timeline),
            _ => sentry.look_now(suspect),
        }
    }

    /// Has the guard of a secret copied before zeros come over it, in the order of its own timeline.
    pub(super) fn save_guard(&self, id: SlotId, on: TimelineId) -> Result<()> {
        let Some(sentry) = &self.shared.sentry else { return Ok(()) };
        let suspect = self.state.lock().take_suspect(self, id);
        suspect.map_or(Ok(()), |(suspect, _)| sentry.send(suspect, on))
    }

    /// Looks at the guards of everything live, after what uses it now.
    fn look_at_live(&self, sentry: &Sentry<B>) -> Result<()> {
        let ids: Vec<SlotId> = {
            let state = self.state.lock();
            let guarded = |id: &SlotId| state.is_guarded(*id) && state.slots.get(*id).is_ok();
            state.slots.iter().map(|(id, _)| id).filter(guarded).collect()
        };
        ids.into_iter().try_for_each(|id| self.look_at_one(sentry, id))
    }

    /// Looks at one live guard. What a pass has is looked at another time.
    fn look_at_one(&self, sentry: &Sentry<B>, id: SlotId) -> Result<()> {
        let (suspect, home, others) = {
            let mut state = self.state.lock();
            if state.slots.is_in_pass(id) || state.is_looked_at(id) || state.slots.pin(id).is_err()
            {
                return Ok(());
            }
            let Some((suspect, _)) = state.suspect(self, id) else {
                state.slots.unpin(id);
                return Ok(());
            };
            let home = state.home_of(id);
            let note = state.notes.of(id.index);
            note.looked_at = true;
            (suspect, home, note.used_on.clone())
        };
        let waited = others.into_iter().try_for_each(|timeline| self.shared.device.drain(timeline));
        let read = waited.and_then(|()| sentry.read_live(home, &suspect));
        let mut state = self.state.lock();
        state.slots.unpin(id);
        let note = state.notes.of(id.index);
        note.looked_at = false;
        let bytes = read?;
        if note.guard == 0 {
            return Ok(()); // It ended meanwhile, and whoever ended it has looked.
        }
        let found = sentry.judge(suspect.facts, &bytes);
        if found.is_some() {
            note.guard = 0; // An allocation is named once.
        }
        drop(state);
        sentry.find(found);
        Ok(())
    }
}

impl<B: Backend> Manager<B> {
    /// Says behind the end of which allocations somebody wrote, as far as that is known: of those that ended and of those that
    /// live. Waits for what uses them.
    ///
    /// Each allocation is named once. What a pass is moving is looked at when it is asked for again, or ends.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when [`ManagerConfig::guards`](crate::ManagerConfig::guards) is off; what the device says.
    pub fn overwrites(&self) -> Result<Vec<Overwrite>> {
        let sentry = self.inner.sentry.as_ref().ok_or(ErrorKind::InvalidConfig)?;
        for lane in self.all_pools().into_iter().flat_map(|pool| pool.lanes()) {
            lane.retire(Patience::Look)?;
            lane.look_at_live(sentry)?;
        }
        sentry.look(Patience::Wait);
        Ok(sentry.found())
    }

    /// Looks at guards of freed bytes whose timelines have passed.
    pub(super) fn look_at_guards(&self, patience: Patience) {
        if let Some(sentry) = &self.inner.sentry {
            sentry.look(patience);
        }
    }

    /// Gives back the memory that copies of guards took.
    pub(super) fn forget_guards(&self) {
        if let Some(sentry) = &self.inner.sentry {
            sentry.trim();
        }
    }
}
