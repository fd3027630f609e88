//! A request that a held hole serves: the way that nearly all of them take.
use super::{AllocateError, Allocation, Manager};
use crate::pool::{Ask, Lane, Miss, Patience, Pending, SlotId};
use crate::{Backend, Placement, Request};
use alloc::{sync::Arc, vec::Vec};

impl<B: Backend> Manager<B> {
    /// Allocates.
    ///
    /// Costs no driver call and no host memory where a held block has a fitting hole; otherwise climbs the
    /// out-of-memory ladder, whose rungs the report counts.
    ///
    /// # Errors
    ///
    /// `ZeroSize`, `InvalidAlignment`, `SizeOverflow`, `ExceedsLimit`, `NoSuchHeap` and `NoSuchTimeline` for what can
    /// never be; out of memory with a [`Shortage`](crate::Shortage) that says what is missing; `DeviceLost` and `Driver` as they are.
    /// A failed call changes nothing.
    #[inline]
    pub fn allocate(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        if request.is_plain()
            && request.layout.align <= self.inner.config.unit
            && let Some(heap) = self.inner.unseen.as_slice().first()
            && let Some(pool) = self.inner.pools[usize::from(heap.0)].get()
            && let Ok(ask) = pool.ask(request)
            && let Some(lane) = pool.known_lane()
        {
            let mut state = lane.state.lock_warm();
            match state.allocate(ask) {
                Ok(id) => return Ok(Allocation::claim(lane, &mut state, id, ask.size)),
                Err(Miss::InUse(last)) => {
                    let users = state.users.whom_to_ask(last);
                    drop(state);
                    if let Some(allocation) = Self::allocate_after(lane, ask, &users) {
                        return Ok(allocation);
                    }
                }
                Err(_) => {}
            }
        }
        self.allocate_slowly(request)
    }

    /// The fast path once more, when it is known how far the timelines have come that may use a hole.
    #[inline(never)]
    fn allocate_after(lane: &Arc<Lane<B>>, ask: Ask, users: &[Pending]) -> Option<Allocation<B>> {
        let mut passed = Vec::with_capacity(users.len());
        for user in users {
            passed.push(lane.time_passed(*user, Patience::Look).ok()?);
        }
        let mut state = lane.state.lock_warm();
        let passed = users.iter().zip(passed);
        state.pass(passed.filter_map(|(user, time)| Some((user, time?))));
        let id = state.allocate(ask).ok()?;
        Some(Allocation::claim(lane, &mut state, id, ask.size))
    }

    /// Allocates everything or nothing.
    ///
    /// # Errors
    ///
    /// That of the first request that failed; what the earlier ones got is free again.
    pub fn allocate_all(
        &self,
        requests: &[Request<'_>],
    ) -> Result<Vec<Allocation<B>>, AllocateError> {
        requests.iter().map(|request| self.allocate(request)).collect()
    }

    /// The fast path of a request that has a name or a tag, and of a manager that is observed.
    pub(super) fn allocate_told(&self, request: &Request<'_>) -> Option<Allocation<B>> {
        let is_labelled = request.is_labelled();
        if !request.is_usual()
            || request.layout.align > self.inner.config.unit
            || self.inner.watch.is_some()
            || (!is_labelled && self.inner.device.observer().is_none())
        {
            return None;
        }
        let heap = self.inner.plain.as_slice().first()?;
        let pool = self.inner.pools[usize::from(heap.0)].get()?;
        let ask = pool.ask(request).ok()?;
        let lane = pool.known_lane()?;
        let mut state = lane.state.lock_warm();
        let slot = state.allocate(ask).ok()?;
        if is_labelled && state.slots.set_noted(slot).is_ok() {
            state.notes.set_label(slot.index, request);
        }
        lane.tell_allocate(&mut state, slot, request, None);
        Some(Allocation::claim(lane, &mut state, slot, request.layout.size))
    }

    /// Makes the owner of a slot that was just admitted, and tells the observer.
    pub(super) fn claim(
        &self,
        lane: &Arc<Lane<B>>,
        slot: SlotId,
        request: &Request<'_>,
        placement: Option<&Placement>,
    ) -> Allocation<B> {
        let mut state = lane.state.lock();
        lane.tell_allocate(&mut state, slot, request, placement);
        Allocation::claim(lane, &mut state, slot, request.layout.size)
    }
}
