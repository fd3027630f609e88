//! Allocations on their way: what a slide and a pass note about them.
use super::{Owner, Slot, SlotId, Slots, Standing, State};
use crate::strategy::Key;

impl Slots {
    /// Marks a live allocation as moving: its place is not shown until [`end_move`](Self::end_move).
    pub(crate) fn set_moving(&mut self, id: SlotId) {
        if let Ok(slot) = self.current_mut(id)
            && slot.state == State::Live
        {
            slot.state = State::Moving;
        }
    }

    /// Marks an allocation that may move as being copied; its size, and whether it is noted. `None` for another one.
    #[inline]
    pub(crate) fn set_copying(&mut self, id: SlotId) -> Option<(u64, bool)> {
        let slot = self.current_mut(id).ok()?;
        if slot.standing() != Standing::Free {
            return None;
        }
        slot.state = State::Copying;
        Some((slot.size, slot.is_noted()))
    }

    /// Whether an allocation is still being copied: nobody asked for its place, and nobody freed it.
    #[inline]
    pub(crate) fn is_copying(&self, id: SlotId) -> bool {
        self.current(id).is_ok_and(|slot| slot.state == State::Copying)
    }

    /// Whether an allocation's place cannot be shown now.
    pub(crate) fn is_moving(&self, id: SlotId) -> bool {
        self.current(id).is_ok_and(|slot| slot.state == State::Moving)
    }

    /// Whether a pass has the allocation, and it has an owner.
    pub(crate) fn is_in_pass(&self, id: SlotId) -> bool {
        let held =
            |slot: &Slot| matches!(slot.state, State::Moving | State::Copying | State::Staying);
        self.current(id).is_ok_and(held)
    }

    /// The key of an allocation that a pass has, freed or not.
    #[inline]
    pub(crate) fn moving_key(&self, id: SlotId) -> Option<Key> {
        let held = |slot: &&Slot| !matches!(slot.state, State::Live | State::Deferred);
        self.current(id).ok().filter(held).map(|slot| slot.key)
    }

    /// Puts an allocation that moves somewhere else.
    #[inline]
    pub(crate) fn set_key(&mut self, id: SlotId, key: Key) {
        if let Ok(slot) = self.current_mut(id) {
            slot.key = key;
        }
    }

    /// Ends a move; says whether the owner let go meanwhile.
    #[inline]
    pub(crate) fn end_move(&mut self, id: SlotId) -> Owner {
        let Ok(slot) = self.current_mut(id) else { return Owner::Present };
        let owner = if slot.state == State::MovingFreed { Owner::Gone } else { Owner::Present };
        slot.state = State::Live;
        owner
    }
}
