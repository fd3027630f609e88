//! Properties of one allocation that a lane knows, and those that its owner may change.
#![forbid(unsafe_code)]
use super::extra::{Consent, Residence, SlotId};
use super::occupancy::Cause;
use super::order::User;
use super::shared::Shared;
use super::state::{Lane, RemoteSpan, State};
use crate::device::Block;
use crate::event::Event;
use crate::{
    Access, Backend, ErrorKind, HeapId, Mobility, Privacy, Request, Result, Sharing, Span,
    TimelineId,
};
use alloc::{boxed::Box, sync::Arc};

/// A request, its name, and the heap where its allocation should be.
pub(crate) type LikeRequest = (Request<'static>, Option<Box<str>>, Option<HeapId>);

/// Returns true if a request says that its bytes may not move. A move would leave a copy of a secret behind.
fn is_pinned(request: &Request<'_>) -> bool {
    request.mobility == Mobility::Pinned || request.privacy == Privacy::Secret
}

/// Returns true if a request says nothing that outlives it beyond its bytes, and whether they are pinned.
const fn is_plain(request: &Request<'_>) -> bool {
    matches!(request.sharing, Sharing::Shared)
        && !matches!(request.mobility, Mobility::OnConsent)
        && !request.is_labelled()
        && matches!(request.privacy, Privacy::Open)
}

impl<B: Backend> State<B> {
    /// Remembers what the request of a live allocation says beyond its bytes, which no pass copies.
    pub(super) fn set_properties(&mut self, id: SlotId, request: &Request<'_>) {
        if is_pinned(request) {
            // The pin is never taken back: it ends with the allocation.
            let _ = self.occupancy.pin(id);
        }
        if is_plain(request) {
            return;
        }
        let _ = self.occupancy.change(id, |extra| {
            extra.set_label(request);
            (extra.sharing, extra.privacy) = (request.sharing, request.privacy);
            if request.mobility == Mobility::OnConsent {
                extra.consent = Consent::Needed;
            }
        });
    }
}

impl<B: Backend> Lane<B> {
    /// Remembers what a request says beyond its bytes. `Busy` where that is secret and a pass has begun to copy the bytes since they
    /// were taken: the copy may come after what the owner writes, so the owner gets others.
    pub(crate) fn set_properties(
        &self,
        id: SlotId,
        request: &Request<'_>,
    ) -> Result<(), ErrorKind> {
        if is_plain(request) && !is_pinned(request) {
            return Ok(());
        }
        let mut state = self.state.lock();
        if request.privacy == Privacy::Secret && state.occupancy.is_copying(id) {
            drop(state);
            self.free_unowned(id);
            return Err(ErrorKind::Busy);
        }
        state.set_properties(id, request);
        Ok(())
    }

    /// The request of a live allocation, as far as it outlives the request, for another size.
    pub(crate) fn request_like(&self, id: SlotId, size: u64) -> Result<LikeRequest, ErrorKind> {
        let state = self.state.lock();
        // The caller owns the allocation and has no binding of it, so a pin lasts for life.
        let slot = state.occupancy.get(id)?;
        let extra = state.occupancy.extra(id).cloned().unwrap_or_default();
        let mut request = Request::new(size);
        request.mobility = match extra.consent {
            _ if slot.is_pinned() => Mobility::Pinned,
            Consent::Needed => Mobility::OnConsent,
            Consent::Given => Mobility::Movable,
        };
        (request.sharing, request.privacy, request.tag) = (extra.sharing, extra.privacy, extra.tag);
        request.timeline = state.home_of(id);
        if let Some(tlsf) = state.bytes.general() {
            request.class = tlsf.granted(slot.key).map_or(request.class, |(_, class)| class);
        }
        let align = state.occupancy.align(id);
        if align > self.shared.unit {
            request.layout.align = align;
        }
        if extra.host_access {
            request.access = Access::Both;
        }
        let wish = if let Residence::Wishes(heap) = extra.residence { Some(heap) } else { None };
        Ok((request, extra.name, wish))
    }

    /// Bytes that a live allocation was asked for with.
    pub(crate) fn size_of(&self, id: SlotId) -> Result<u64, ErrorKind> {
        self.state.lock().occupancy.get(id).map(|slot| slot.size)
    }

    /// Returns the timeline that orders the uses of an allocation, if it has one.
    pub(crate) fn timeline_of(&self, id: SlotId) -> Option<TimelineId> {
        self.state.lock().home_of(id)
    }

    /// Makes a later free wait for a timeline.
    pub(crate) fn add_use(&self, id: SlotId, timeline: TimelineId) -> Result<(), ErrorKind> {
        self.state.lock().occupancy.change(id, |extra| extra.add_use(timeline))
    }

    /// Records that another timeline uses an allocation, and tells the observer.
    pub(crate) fn use_on(&self, id: SlotId, timeline: TimelineId) -> Result<(), ErrorKind> {
        self.add_use(id, timeline)?;
        self.shared.device.tell(&Event::Use { id: self.id_of(id), timeline });
        Ok(())
    }

    /// Calls an allocation `name`.
    pub(crate) fn set_name(&self, id: SlotId, name: &str) {
        let mut state = self.state.lock();
        if state.occupancy.change(id, |extra| extra.set_name(name)).is_ok() {
            self.shared.device.tell(&Event::Name { id: self.id_of(id), name });
        }
        let remote = state.remote.get(&id.index);
        let Some((lane, slot)) = remote.map(|span| (Arc::clone(&span.lane), span.slot)) else {
            return;
        };
        drop(state);
        let _ = lane.state.lock().occupancy.change(slot, |extra| extra.set_name(name));
    }

    /// Makes an allocation's bytes final.
    pub(crate) fn publish(&self, id: SlotId) -> Result<(), ErrorKind> {
        self.state.lock().occupancy.change(id, |extra| extra.published = true)
    }

    /// Returns true if an allocation's bytes are final.
    pub(crate) fn is_published(&self, id: SlotId) -> bool {
        self.state.lock().occupancy.extra(id).is_some_and(|extra| extra.published)
    }

    /// The heap that an allocation's bytes lie in.
    pub(crate) fn heap_of(&self, id: SlotId) -> HeapId {
        self.state.lock().remote.get(&id.index).map_or(self.shared.heap, RemoteSpan::heap)
    }

    /// The heap that an allocation's bytes lie in, and why, where that was noted. What a recall brought back is no longer
    /// elsewhere.
    pub(crate) fn cause_of(&self, id: SlotId) -> (HeapId, Option<Cause>) {
        let state = self.state.lock();
        let cause = state.occupancy.cause(id);
        match state.remote.get(&id.index) {
            Some(remote) => (remote.heap(), cause.map(|cause| Cause { elsewhere: false, ..cause })),
            None => (self.shared.heap, cause),
        }
    }

    /// Notes why an allocation is where it is.
    pub(crate) fn set_cause(&self, id: SlotId, cause: Cause) {
        self.state.lock().occupancy.set_cause(id, cause);
    }

    /// The pool that an allocation's bytes lie in.
    pub(crate) fn shared_of(&self, id: SlotId) -> Arc<Shared<B>> {
        let state = self.state.lock();
        let remote = state.remote.get(&id.index);
        Arc::clone(remote.map_or(&self.shared, |span| &span.lane.shared))
    }

    /// Remembers in which other heap an allocation should be.
    pub(crate) fn set_wish(&self, id: SlotId, heap: HeapId) {
        let wish = Residence::Wishes(heap);
        let _ = self.state.lock().occupancy.change(id, |extra| extra.residence = wish);
    }

    /// Has an allocation stay where the host sees it: it no longer wishes for a heap that the host does not.
    pub(crate) fn keep_in_view(&self, id: SlotId) -> Result<()> {
        let mut state = self.state.lock();
        let residence = state.occupancy.extra(id).map(|extra| extra.residence);
        if let Some(Residence::Wishes(heap)) = residence
            && !self.shared.device.heap(heap)?.host.is_visible()
        {
            state.occupancy.change(id, |extra| extra.residence = Residence::Home)?;
        }
        Ok(())
    }

    /// Gives an allocation to the host, which accesses the bytes directly; its timeline does the rest.
    pub(crate) fn give_to_host(
        &self,
        id: SlotId,
        timeline: Option<TimelineId>,
    ) -> Result<(), ErrorKind> {
        let mut state = self.state.lock();
        // Not a request, so it may come while a sleep begins.
        let user = state.order.enter(timeline)?;
        state.order.admit(user); // Until now it is the host's, whose allocations are not counted.
        state.occupancy.set_user(id, user);
        state.occupancy.change(id, |extra| extra.host_access = true)
    }

    /// Returns true if the host was said to access an allocation's bytes directly.
    pub(crate) fn has_host_access(&self, id: SlotId) -> bool {
        self.state.lock().occupancy.has_host_access(id)
    }

    /// Counts work of the manager itself on an allocation as a use of its bytes before it had them.
    pub(crate) fn touch(&self, id: SlotId) {
        let state = &mut *self.state.lock_flushed();
        let Ok((key, user)) = state.occupancy.get(id).map(|slot| (slot.key, slot.user)) else {
            return;
        };
        let last = state.order.free(user);
        state.bytes.add_use(key, last);
    }

    /// Returns true if the device may still use the bytes of an allocation on behalf of earlier owners.
    pub(crate) fn may_be_in_use(&self, id: SlotId) -> bool {
        let state = self.state.lock();
        // Bytes that are in another lane were copied there, after everything that used their place.
        !state.occupancy.has_host_access(id) && !state.order.may(User::HOST, state.last_use(id))
    }

    /// Pins an allocation once its place can be shown, and returns the place and whether its bytes are away. What is pinned
    /// and not away stays so.
    pub(crate) fn pin(&self, id: SlotId) -> (Arc<Block<B>>, Span, bool) {
        // Free bytes do not matter to a live allocation.
        let mut state = self.state.lock();
        let slot = loop {
            let slot =
                state.occupancy.pin(id).expect("an owned allocation is live and has few pins");
            if slot.is_shown() {
                break slot;
            }
            state.occupancy.unpin(id);
            let moves = self.moved.count();
            drop(state);
            self.moved.wait_beyond(moves);
            state = self.state.lock();
        };
        let (block, span) = state.spot(id, &slot).expect("an owned allocation has a span");
        (Arc::clone(block), Span { size: slot.size, ..span }, slot.is_away())
    }

    /// Ends one pin.
    #[inline]
    pub(crate) fn unpin(&self, id: SlotId) {
        self.state.lock().occupancy.unpin(id);
    }
}
