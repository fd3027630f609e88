//! A lane whose memory leaves the device and comes back at the same addresses.
//!
//! From [`close`](Lane::close) to [`open`](Lane::open) no request is served and every allocation is away: its bytes are on their
//! way to the store, there, or on their way back. The strategy keeps its spans, so holes may be without memory meanwhile.
//! Owners free what they like at any time; a pass skips what is gone. Freed secrets leave a *residue*: bytes that a
//! wake brings back or that never left, and that are zeroed before anyone may have them.
#![forbid(unsafe_code)]
use super::extra::{Kept, Residence, SlotId, Stored};
use super::occupancy::{REMOTE, Slot};
use super::order::User;
use super::reuse::WaitMode;
use super::state::{Away, FreeOutcome, Lane, State};
use crate::device::{Block, insist};
use crate::event::{AllocationId, Event, StoreKind};
use crate::sleep::{AwakeReason, BackingStore, KeptAwake, Sleep, SleepError};
use crate::{Backend, ErrorKind, Page, Privacy, Result, Sharing, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::{Grant, Key};

/// Bytes that sleep and wake.
#[derive(Clone, Copy)]
struct Sleeper {
    slot: SlotId,
    /// Everything that it occupies, padding included.
    span: Span,
    privacy: Privacy,
}

impl<B: Backend> State<B> {
    /// Returns true if an allocation has no memory, or none that the device uses.
    pub(super) fn is_gone(&self, id: SlotId) -> bool {
        self.away.as_ref().is_some_and(|away| away.is_gone) && self.occupancy.is_away(id)
    }

    /// Returns true if an allocation that ends now is a secret whose bytes may be in memory of a lane that is away.
    pub(super) fn leaves_residue(&self, id: SlotId, key: Key) -> bool {
        let is_secret = self.away.is_some()
            && self.occupancy.is_away(id)
            && self.occupancy.privacy(id) == Privacy::Secret;
        let has_memory = |grant| !self.memory_of(grant).1.is_empty();
        is_secret && self.bytes.strategy().grant(key).is_ok_and(has_memory)
    }

    /// The bytes in the store of an allocation that was just freed; the bytes here may be `residue`.
    pub(super) fn stored(
        &mut self,
        SlotId { index, generation }: SlotId,
        grant: Grant,
        residue: bool,
    ) -> Option<FreeOutcome<B>> {
        let away = self.away.as_mut()?;
        away.residue.extend(residue.then_some(grant));
        let (manager, lane) = away.lane;
        let id = AllocationId { manager, lane, slot: index, generation };
        Some(FreeOutcome::Stored(Stored { store: Arc::clone(&away.store), id }))
    }

    /// Lets go of residue that has no memory any more.
    fn forget_residue(&mut self) {
        let residue = self.away.as_mut().map(|away| core::mem::take(&mut away.residue));
        let (gone, left): (Vec<_>, Vec<_>) =
            residue.into_iter().flatten().partition(|grant| self.memory_of(*grant).1.is_empty());
        gone.into_iter().for_each(|grant| self.bytes.release_held(grant));
        self.away.iter_mut().for_each(|away| away.residue.clone_from(&left));
    }

    /// Every allocation whose bytes are in this lane.
    fn here(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.occupancy.iter().filter(|(_, slot)| slot.key != REMOTE)
    }

    /// Returns the reason why an allocation keeps the lane awake, if it does, whatever becomes of its pins.
    fn keeps_awake(&self, id: SlotId, slot: &Slot, sleep: &Sleep) -> Option<AwakeReason> {
        let extra = self.occupancy.extra_of(id, slot);
        let serves_another = extra.is_some_and(|extra| extra.residence == Residence::ForRemote);
        let reasons = [
            (slot.is_moving(), AwakeReason::Moving),
            (
                extra.is_some_and(|extra| extra.sharing == Sharing::Dedicated),
                AwakeReason::Dedicated,
            ),
            (serves_another, AwakeReason::Pinned),
            (!sleep.store.accepts(self.occupancy.privacy(id)), AwakeReason::Secret),
        ];
        reasons.into_iter().find_map(|(applies, why)| applies.then_some(why))
    }

    /// Returns true if an allocation was freed, and work may use it, or zeroes it because it is secret.
    fn is_ending(&self, id: SlotId, slot: &Slot) -> bool {
        let extra = self.occupancy.extra_of(id, slot);
        slot.is_deferred() || extra.is_some_and(|extra| extra.ending.is_some())
    }

    /// Allocations that sleep or wake, in the order of addresses.
    fn sleepers(&self) -> Vec<Sleeper> {
        let sleeper = |(id, slot): (SlotId, &Slot)| {
            let span = self.bytes.strategy().grant(slot.key).ok()?.span;
            Some(Sleeper { slot: id, span, privacy: self.occupancy.privacy(id) })
        };
        let mut all: Vec<_> = self.here().filter_map(sleeper).collect();
        all.sort_unstable_by_key(|one| one.span.offset);
        all
    }

    /// The timelines that may use the lane's bytes, some of them more than once.
    fn all_timelines(&self) -> Vec<TimelineId> {
        let mut all: Vec<_> = self.order.may_use().collect();
        for (id, slot) in self.here() {
            // Transfers of allocations without a timeline run on the main one.
            all.push(self.order.timeline(slot.user).unwrap_or(TimelineId::MAIN));
            let extra = self.occupancy.extra_of(id, slot);
            all.extend(extra.into_iter().flat_map(|extra| &extra.used_on));
        }
        all
    }
}

impl<B: Backend> Lane<B> {
    /// Closes the lane: it serves no request any more, and counts every allocation as away. Only holders of pins access
    /// the bytes. The copies of its sleep and its wake run on a timeline.
    pub(crate) fn close(&self, sleep: &Sleep, on: TimelineId) -> Result<(), SleepError> {
        let mut state = self.state.lock_flushed();
        let refused = self.named(&state, |id, slot| state.keeps_awake(id, slot, sleep));
        if !refused.is_empty() {
            return Err(SleepError::refused_by(refused));
        }
        if state.bytes.held_bytes() > 0 || state.bytes.stranded_bytes() > 0 {
            let why = "defragmentation moves allocations, or memory was given up; try again";
            return Err(ErrorKind::Busy.because(why).into());
        }
        for timeline in [on, TimelineId::MAIN] {
            state.order.enter(Some(timeline))?; // Known from here on: see `note_work`.
        }
        let (store, lane) = (Arc::clone(&sleep.store), (self.manager, self.number));
        state.away =
            Some(Away { store, spans: Vec::new(), residue: Vec::new(), is_gone: false, lane });
        state.occupancy.set_away(true);
        Ok(())
    }

    /// The timelines that may use the lane's bytes.
    pub(crate) fn all_timelines(&self) -> Vec<TimelineId> {
        self.state.lock().all_timelines()
    }

    /// Names what is pinned.
    pub(crate) fn pinned(&self) -> Vec<KeptAwake> {
        let state = self.state.lock();
        self.named(&state, |id, slot| {
            // A secret is pinned once for life, so that no move leaves a copy of it behind.
            let own = u32::from(state.occupancy.privacy(id) == Privacy::Secret);
            // What is freed is waited for later, pinned or not: it may be a secret that is being zeroed.
            (slot.pins() > own && !state.is_ending(id, slot)).then_some(AwakeReason::Pinned)
        })
    }

    /// Returns true if an owner frees something now that is still to be handed over: another thread has a secret zeroed.
    pub(crate) fn is_freeing(&self) -> bool {
        let state = self.state.lock();
        state.here().any(|(id, slot)| state.is_ending(id, slot) && !slot.is_deferred())
    }

    /// Names the allocations for which there is a reason. `state` is the locked state of this lane.
    fn named(
        &self,
        state: &State<B>,
        why: impl Fn(SlotId, &Slot) -> Option<AwakeReason>,
    ) -> Vec<KeptAwake> {
        let each = state.here().filter_map(|(id, slot)| {
            let name = state.occupancy.extra_of(id, slot).and_then(|extra| extra.name.clone());
            Some(KeptAwake { id: self.id_of(id), name, size: slot.size, why: why(id, slot)? })
        });
        each.collect()
    }

    /// Serves requests again: every allocation has its memory.
    pub(crate) fn open(&self, on: TimelineId) {
        let mut state = self.state.lock_flushed();
        // It stays noted until its zeros are there: a panic of the backend forgets no secret.
        while let Some(grant) = state.away.as_ref().and_then(|away| away.residue.last().copied()) {
            let (block, parts) = state.memory_of(grant);
            drop(state);
            let clear = |part| insist(|| self.shared.device.clear(block.raw(), part, on));
            let cleared = parts.into_iter().try_for_each(clear);
            state = self.state.lock_flushed();
            let residue = state.away.as_mut().map(|away| &mut away.residue);
            residue.into_iter().for_each(|all| all.retain(|one| one.key != grant.key));
            if let Err(error) = cleared {
                let bytes = grant.span.size;
                tracing::error!(?error, bytes, "a secret could not be zeroed");
                self.shared.device.quarantine(bytes, "a secret could not be zeroed");
                state.bytes.keep(Kept { grant, slot: None, after: None });
            } else {
                state.bytes.release_held(grant);
            }
        }
        state.occupancy.set_away(false);
        let told = state.away.take().filter(|away| away.is_gone);
        if let Some(block) = told.and_then(|_| state.bytes.reservation()) {
            self.shared.device.tell(&Event::Wake { block: block.number() });
        }
    }

    /// Returns true if another thread maps or unmaps pages of the lane now.
    pub(crate) fn is_in_transit(&self) -> bool {
        self.state.lock().bytes.pages().is_some_and(|(pager, _)| pager.is_in_transit())
    }

    /// Names what was freed and may still be in use, after the timelines were waited for.
    pub(crate) fn deferred(&self) -> Vec<KeptAwake> {
        let state = self.state.lock();
        self.named(&state, |_, slot| slot.is_deferred().then_some(AwakeReason::Deferred))
    }

    /// Returns true if an allocation's bytes are not in memory.
    pub(crate) fn is_away(&self, id: SlotId) -> bool {
        self.state.lock().occupancy.is_away(id)
    }

    /// Requested and rounded bytes of allocations that are away. `None` while the lane is awake.
    pub(crate) fn away_bytes(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let counts = state.occupancy.counts();
        state.away.as_ref().map(|_| (counts.live_bytes, counts.granted_bytes))
    }

    /// The lane's reservation, its store, and what sleeps; `None` where the lane was never used.
    #[expect(clippy::type_complexity, reason = "taken apart where it is called")]
    fn sleeping(&self) -> Option<(Arc<Block<B>>, Arc<dyn BackingStore>, Vec<Sleeper>)> {
        let state = self.state.lock();
        let store = Arc::clone(&state.away.as_ref()?.store);
        Some((state.bytes.reservation()?, store, state.sleepers()))
    }

    /// Copies everything live to the store; nothing on the device uses it. Returns the number of bytes.
    pub(crate) fn store(&self, on: TimelineId) -> Result<u64> {
        let Some((block, store, sleepers)) = self.sleeping() else { return Ok(0) };
        if store.kind() == StoreKind::Nothing {
            return Ok(0);
        }
        let transfer = self.shared.device.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        let mut copied = 0;
        for Sleeper { slot, span, privacy } in &sleepers {
            store.put(self.id_of(*slot), span.size, *privacy, &mut |at, bytes| {
                copied += bytes.len() as u64;
                transfer.read(on, block.at(span.offset + at), bytes)
            })?;
            if !self.is_away(*slot) {
                store.forget(self.id_of(*slot)); // Freed meanwhile, perhaps before the bytes arrived.
            }
        }
        sleepers.iter().try_for_each(|one| store.flush(self.id_of(one.slot))).map(|()| copied)
    }

    /// Drops everything that a pass may have stored; for a sleep that failed, and for a wake that is done.
    pub(crate) fn unstore(&self) {
        let Some((_, store, sleepers)) = self.sleeping() else { return };
        if store.kind() != StoreKind::Nothing {
            sleepers.iter().for_each(|one| store.forget(self.id_of(one.slot)));
        }
    }

    /// Waits for what was freed since the lane was closed. From then on nothing on the device uses its memory.
    fn wait_for_frees(&self) -> Result<()> {
        self.retire(WaitMode::Block)?;
        self.poll_users(WaitMode::Block)?;
        let state = &mut *self.state.lock();
        let is_ending = state.here().any(|(id, slot)| state.is_ending(id, slot));
        if is_ending || !state.order.is_alone(User::HOST) {
            return Err(ErrorKind::Busy.into());
        }
        if let Some(away) = &mut state.away {
            away.is_gone = true;
        }
        Ok(())
    }

    /// Returns all memory of the lane to the driver; its bytes are stored. Returns the bytes that were returned, and those that
    /// stay held because the driver did not unmap them, or something still uses them.
    pub(crate) fn evict(&self, on: TimelineId) -> (u64, u64) {
        let (mut returned, mut kept) = (0, 0);
        let Some((block, _, sleepers)) = self.sleeping() else { return (0, 0) };
        let mapped = self.state.lock().bytes.mapped_spans();
        let leave = || {
            let mut secrets = sleepers.iter().filter(|one| one.privacy == Privacy::Secret);
            secrets.try_for_each(|one| self.shared.device.clear(block.raw(), one.span, on))?;
            self.wait_for_frees()
        };
        if let Err(error) = insist(leave) {
            tracing::warn!(?error, "a lane that sleeps keeps its memory");
            self.note_work(on);
            return (0, mapped.iter().map(|(span, _)| span.size).sum());
        }
        for (span, pages) in &mapped {
            match self.take_memory(&block, *span, pages) {
                Some(bytes) => returned += bytes,
                None => kept += span.size,
            }
        }
        if let Some(away) = &mut self.state.lock().away {
            away.spans = mapped.into_iter().map(|(span, _)| span).collect();
            let (block, store) = (block.number(), away.store.kind());
            self.shared.device.tell(&Event::Sleep { block, store });
        }
        (returned, kept)
    }

    /// Unmaps pages that nothing uses and returns them to the driver; the bytes of the device, if it did.
    fn take_memory(&self, block: &Block<B>, span: Span, pages: &[Page]) -> Option<u64> {
        let page = self.shared.page()?;
        if let Err(error) = insist(|| self.unmap(block, span)) {
            tracing::error!(?error, bytes = span.size, "pages stay held: they were not unmapped");
            return None;
        }
        let mut state = self.state.lock_flushed();
        if let Some((pager, _)) = state.bytes.pages_mut() {
            pager.clear_pages(span);
        }
        state.forget_residue();
        drop(state);
        Some(self.shared.return_pages(page, pages))
    }

    /// Notes that work which no allocation names may still use the memory: copies of a wake that failed, or zeros that a driver call
    /// was refused behind. Whoever asks the users of the lane's bytes asks these timelines too.
    pub(crate) fn note_work(&self, on: TimelineId) {
        let order = &mut self.state.lock().order;
        for timeline in [on, TimelineId::MAIN] {
            if let Some(user) = order.find(Some(timeline)) {
                order.free(user);
            }
        }
    }

    /// Finds the addresses that need memory before the lane can be opened. Pages in which nothing lives any more stay without, but for
    /// those of residue: where a wake has failed, pages may have stayed, with the bytes of what was freed since. A secret of which only a
    /// part stayed gets memory for all of its addresses: they are one span until it is zeroed.
    pub(crate) fn missing_memory(&self) -> Vec<Span> {
        let mut state = self.state.lock_flushed();
        let (sleepers, Some(away)) = (state.sleepers(), state.away.take()) else {
            return Vec::new();
        };
        let residue = away.residue.iter().map(|grant| grant.span);
        let mut stays: Vec<_> = sleepers.iter().map(|one| one.span).chain(residue).collect();
        stays.sort_unstable_by_key(|span| span.offset);
        let (mut spans, mut gaps) = (Vec::new(), Vec::new());
        if let Some((pager, tlsf)) = state.bytes.pages_mut() {
            tlsf.merge_touching(); // Nothing runs on a lane without memory, so who used which hole does not matter.
            spans = pager.keep_around(tlsf, &away.spans, stays.into_iter());
            gaps = spans.iter().flat_map(|span| pager.gaps(*span)).collect();
        }
        state.away = Some(Away { spans, ..away });
        gaps
    }

    /// Gives addresses memory of the device, or of the host while the pool has so many bytes of it at most; on failure they have
    /// none.
    pub(crate) fn give_memory(
        &self,
        span: Span,
        on_host: Option<u64>,
        on: TimelineId,
    ) -> Result<()> {
        let Some((block, ..)) = self.sleeping() else { return Err(ErrorKind::Stale.into()) };
        let page = self.shared.page().ok_or(ErrorKind::Unsupported)?;
        let (count, mut pages) = (span.size / page, Vec::new());
        match on_host {
            None => self.shared.take_pages(count, page, &mut pages),
            Some(most) => self.shared.take_host_pages(count, page, most, &mut pages),
        }?;
        if let Err(error) = self.map(&block, span, page, &pages) {
            self.shared.return_pages(page, &pages);
            return Err(error);
        }
        if let Some((pager, _)) = self.state.lock().bytes.pages_mut() {
            pager.set_pages(span, &pages);
        }
        self.clear(&block, span).inspect_err(|_| self.withdraw_memory(span, on))
    }

    /// Takes memory back that [`give_memory`](Self::give_memory) gave, zeroing what is secret on a timeline: the lane stays asleep.
    pub(crate) fn withdraw_memory(&self, span: Span, on: TimelineId) {
        let Some((block, ..)) = self.sleeping() else { return };
        let pages = self.state.lock().bytes.pages().map(|(pager, _)| pager.pages_at(span));
        // A page that is still written, or cannot be zeroed, stays mapped, and a later wake uses it.
        let idle = insist(|| self.shared.device.backend().wait_idle());
        let left = idle.and_then(|()| insist(|| self.clear_secrets(&block, span, on)));
        match (left, pages) {
            (Ok(()), Some(pages)) => drop(self.take_memory(&block, span, &pages)),
            (Ok(()), None) => {}
            (Err(_), _) => self.note_work(on),
        }
    }

    /// Zeroes the secrets of a part of a lane that is away, also of those that were freed meanwhile.
    fn clear_secrets(&self, block: &Block<B>, within: Span, on: TimelineId) -> Result<()> {
        let state = self.state.lock();
        let secrets = state.sleepers().into_iter().filter(|one| one.privacy == Privacy::Secret);
        let mut spans: Vec<_> = secrets.map(|one| one.span).collect();
        spans.extend(state.away.iter().flat_map(|away| &away.residue).map(|grant| grant.span));
        drop(state);
        spans.into_iter().try_for_each(|span| {
            let offset = span.offset.max(within.offset);
            let size = span.end().min(within.end()).saturating_sub(offset);
            let part = Span { offset, size };
            if size == 0 { Ok(()) } else { self.shared.device.clear(block.raw(), part, on) }
        })
    }

    /// Copies everything back from the store, in the order of a timeline.
    pub(crate) fn restore(&self, on: TimelineId) -> Result<()> {
        let Some((block, store, sleepers)) = self.sleeping() else { return Ok(()) };
        let transfer = self.shared.device.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        for Sleeper { slot, span, .. } in sleepers {
            let place = |at: u64| block.at(span.offset + at);
            if store.kind() == StoreKind::Nothing {
                transfer.fill(on, place(0), span.size, 0)?;
                continue;
            }
            let mut arrived = 0;
            let got = store.get(self.id_of(slot), &mut |at, bytes| {
                let size = bytes.len() as u64;
                span.part(at, size).ok_or(ErrorKind::OutOfRange)?;
                arrived += size;
                transfer.write(on, place(at), bytes)
            });
            match got {
                Ok(()) if arrived == span.size => {}
                _ if !self.is_away(slot) => {} // Freed meanwhile, and its bytes with it.
                Ok(()) => return Err(ErrorKind::Driver.because("a backing store lost bytes")),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Zeroes the secrets whose owners have freed them and that still wait: what was copied back may have come over their zeros.
    /// Those that are freed later are zeroed after that.
    pub(crate) fn zero_freed(&self, on: TimelineId) -> Result<()> {
        let state = self.state.lock();
        let Some(block) = state.bytes.reservation() else { return Ok(()) };
        let freed = state.sleepers().into_iter().filter(|one| {
            let extra = state.occupancy.extra(one.slot);
            one.privacy == Privacy::Secret && extra.is_some_and(|extra| extra.ending.is_some())
        });
        let spans: Vec<_> = freed.map(|one| one.span).collect();
        drop(state);
        let mut spans = spans.into_iter();
        spans.try_for_each(|span| insist(|| self.shared.device.clear(block.raw(), span, on)))
    }
}
