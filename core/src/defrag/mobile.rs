//! What may move, and what stands in the way.
#![forbid(unsafe_code)]
use crate::pool::{Consent, ELSEWHERE, LaneState, Slot, SlotId, Standing};
use crate::strategy::Key;
use crate::{Align, Backend, Class, ErrorKind};
use alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;

/// The slot of each key, by the key's index.
#[derive(Debug, Default)]
pub(super) struct SlotsByKey(Vec<(u32, u32)>);

impl SlotsByKey {
    #[inline]
    pub(super) fn note(&mut self, id: SlotId, key: Key) {
        if key == ELSEWHERE {
            return;
        }
        let at = key.index as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, (NONE, 0));
        }
        self.0[at] = (id.index, id.generation);
    }

    /// As [`note`](Self::note), where host memory may be short.
    pub(super) fn try_note(&mut self, id: SlotId, key: Key) -> Result<(), ErrorKind> {
        let missing = (key.index as usize + 1).saturating_sub(self.0.len());
        if key != ELSEWHERE {
            self.0.try_reserve(missing).map_err(|_| ErrorKind::OutOfHostMemory)?;
        }
        self.note(id, key);
        Ok(())
    }

    /// The slot of a key, or of an earlier key with the same index.
    #[inline]
    fn get(&self, key: Key) -> Option<SlotId> {
        let (index, generation) = *self.0.get(key.index as usize)?;
        (index != NONE).then_some(SlotId { index, generation })
    }
}

/// An allocation that may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mobile {
    pub(super) slot: SlotId,
    /// Its alignment, where that is above the pool's own.
    pub(super) align: Option<Align>,
    /// Whether its owner wants to be asked.
    pub(super) consent: Consent,
}

/// What is live under a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// An allocation that may move.
    Mobile(Mobile),
    /// One that may not, now.
    Held,
    /// A pager's run, a place that a pass holds or something leaves, or an allocation newer than the list of slots.
    Nothing,
}

impl<B: Backend> LaneState<B> {
    /// What is live under a key.
    #[inline]
    pub(super) fn mobile(&self, slots: &SlotsByKey, key: Key, class: Class) -> Found {
        let Some(id) = slots.get(key) else { return Found::Nothing };
        match self.slots.get(id) {
            Ok(slot) if slot.key == key => self.mobile_in(id, slot, class),
            _ => Found::Nothing,
        }
    }

    /// Whether what is in a slot may move.
    #[inline]
    pub(super) fn mobile_in(&self, id: SlotId, slot: &Slot, class: Class) -> Found {
        match slot.standing() {
            Standing::Free => {}
            Standing::OnItsWay => return Found::Nothing,
            Standing::Held => return Found::Held,
        }
        let note = if slot.is_noted() { self.notes.get(id.index) } else { None };
        let consent = match (class, note.map(|note| note.consent)) {
            // Only the device knows what the bytes of a tiled image mean elsewhere.
            (Class::Tiled, _) | (_, Some(Consent::Needed)) => Consent::Needed,
            _ => Consent::Given,
        };
        Found::Mobile(Mobile { slot: id, align: note.and_then(|note| note.align), consent })
    }
}
