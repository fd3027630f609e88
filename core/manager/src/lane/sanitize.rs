//! Checks of the guards of a lane's allocations.
#![forbid(unsafe_code)]
use super::extra::{Residence, SlotId};
use super::state::{Lane, RemoteSpan, State};
use crate::guards::{Guarded, Seen, Watch};
use crate::{Backend, ErrorKind, Result, Sharing, TimelineId};
use alloc::{sync::Arc, vec::Vec};

impl<B: Backend> State<B> {
    /// An allocation, live or freed, and its bytes. This is the locked state of `lane`.
    fn seen(&self, lane: &Lane<B>, id: SlotId) -> Option<Seen<B>> {
        let (found, slot) = self.occupancy.at(id.index)?;
        let (block, span) = self.spot(id, slot).ok().filter(|_| found == id)?;
        let extra = self.occupancy.extra(id);
        let (name, guard) = extra.map_or((None, 0), |extra| (extra.name.clone(), extra.sanitized));
        let heap = self.remote.get(&id.index).map_or(lane.shared.heap, RemoteSpan::heap);
        let (id, size) = (lane.id_of(id), slot.size);
        let about = Guarded { id, name, size, span, heap, guard };
        Some(Seen { block: Arc::clone(block), about })
    }

    /// As [`seen`](Self::seen), for an allocation with a guard; and whether the lane's order protects it: not
    /// what has a block of its own or lies in another lane.
    fn sanitized(&self, lane: &Lane<B>, id: SlotId) -> Option<(Seen<B>, Sharing)> {
        let extra = self.occupancy.extra(id).filter(|extra| extra.sanitized > 0)?;
        let is_remote = extra.residence == Residence::Remote;
        let sharing = if is_remote { Sharing::Dedicated } else { extra.sharing };
        Some((self.seen(lane, id)?, sharing))
    }

    /// As [`sanitized`](Self::sanitized); its guard is looked at once more, and then no more.
    fn take_sanitized(&mut self, lane: &Lane<B>, id: SlotId) -> Option<(Seen<B>, Sharing)> {
        let taken = self.sanitized(lane, id)?;
        self.occupancy.change(id, |extra| extra.sanitized = 0).ok()?;
        Some(taken)
    }

    /// Stops checking an allocation whose bytes its owner moved. This is the locked state of `lane`.
    pub(super) fn give_up_sanitized(&mut self, lane: &Lane<B>, id: SlotId) {
        if let (true, Some(watch)) = (self.occupancy.is_sanitized(id), &lane.shared.watch) {
            let _ = self.occupancy.change(id, |extra| extra.sanitized = 0);
            watch.skip();
        }
    }
}

impl<B: Backend> Lane<B> {
    /// An allocation that is handed out, and its bytes.
    pub(crate) fn seen(&self, id: SlotId) -> Option<Seen<B>> {
        self.state.lock().seen(self, id)
    }

    /// An allocation with a guard, and its bytes.
    pub(crate) fn sanitized(&self, id: SlotId) -> Option<Seen<B>> {
        self.state.lock().sanitized(self, id).map(|(seen, _)| seen)
    }

    /// Keeps how many bytes of an allocation's guard are looked at.
    pub(crate) fn set_sanitized(&self, id: SlotId, note: u64) -> Result<(), ErrorKind> {
        self.state.lock().occupancy.change(id, |extra| extra.sanitized = note)
    }

    /// Looks at the guard of an allocation whose bytes are about to be the lane's again, in the lane's order; call it
    /// without the lock. Nothing moves it: it is freed and waits, or `pins` says that it stays.
    ///
    /// # Errors
    ///
    /// Those of the device when something may still touch the bytes: they must not be used again.
    pub(super) fn look_at_end(&self, id: SlotId) -> Result<()> {
        let Some(watch) = &self.shared.watch else { return Ok(()) };
        let mut state = self.state.lock();
        let home = state.home_of(id).filter(|_| !state.occupancy.has_host_access(id));
        let taken = state.take_sanitized(self, id);
        drop(state);
        let Some((seen, sharing)) = taken else { return Ok(()) };
        // A block of its own goes back to the driver, which knows no order: its uses have passed.
        let after = home.filter(|_| sharing == Sharing::Shared);
        watch.end(&seen, after)
    }

    /// Looks at the guard of a secret before zeros come over it, in the order of its own timeline.
    pub(super) fn look_at_secret(&self, id: SlotId, on: TimelineId) -> Result<()> {
        let Some(watch) = &self.shared.watch else { return Ok(()) };
        let taken = self.state.lock().take_sanitized(self, id);
        taken.map_or(Ok(()), |(seen, _)| watch.end(&seen, Some(on)))
    }

    /// Looks at the guards of everything live, after what uses it now.
    pub(crate) fn look_at_live(&self, watch: &Watch<B>) -> Result<()> {
        let ids: Vec<SlotId> = {
            let known = &self.state.lock().occupancy;
            let is_wanted = |id: &SlotId| known.is_sanitized(*id) && known.get(*id).is_ok();
            known.iter().map(|(id, _)| id).filter(is_wanted).collect()
        };
        ids.into_iter().try_for_each(|id| self.look_at_one(watch, id))
    }

    /// Looks at the guard of one live allocation. What a pass has is looked at another time.
    fn look_at_one(&self, watch: &Watch<B>, id: SlotId) -> Result<()> {
        let (seen, home, others) = {
            let mut state = self.state.lock();
            let known = &mut state.occupancy;
            if known.is_in_pass(id) || known.is_looked_at(id) || known.pin(id).is_err() {
                return Ok(());
            }
            let Some((seen, _)) = state.sanitized(self, id) else {
                state.occupancy.unpin(id);
                return Ok(());
            };
            let others = state.occupancy.change(id, |extra| {
                extra.looked_at = true;
                extra.used_on.clone()
            })?;
            (seen, state.home_of(id), others)
        };
        let waited = others.into_iter().try_for_each(|timeline| self.shared.device.drain(timeline));
        let looked = waited.and_then(|()| watch.look(&seen, home));
        let mut state = self.state.lock();
        state.occupancy.unpin(id);
        let _ = state.occupancy.change(id, |extra| extra.looked_at = false);
        let found = looked?;
        if found.is_none() {
            return Ok(());
        }
        // An allocation that ended meanwhile has nothing noted, and its guard was looked at then. An allocation is
        // reported once.
        let noted = state.occupancy.change(id, |extra| core::mem::take(&mut extra.sanitized));
        drop(state);
        if noted.is_ok_and(|noted| noted > 0) {
            watch.find(found);
        }
        Ok(())
    }
}
