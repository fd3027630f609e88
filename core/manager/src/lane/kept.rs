//! Bytes of freed secrets that no fill has reached: nobody gets them before one has, the driver neither.
#![forbid(unsafe_code)]
use super::extra::{Kept, SlotId};
use super::state::{Lane, State};
use crate::device::{Block, insist};
use crate::{Backend, ErrorKind, Point, Result, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::Grant;

/// One that was taken out. It is kept again when this is dropped, also by a panic of the backend.
struct Taken<'a, B: Backend> {
    lane: &'a Lane<B>,
    one: Option<Kept>,
}

impl<B: Backend> Drop for Taken<'_, B> {
    fn drop(&mut self) {
        if let Some(one) = self.one.take() {
            self.lane.state.lock().bytes.keep(one);
        }
    }
}

impl<B: Backend> State<B> {
    /// Returns the number of those that are kept and may be zeroed now. Memory of a lane that sleeps may be on its way; its wake
    /// opens the lane first.
    fn kept_now(&self) -> usize {
        if self.away.is_none() { self.bytes.kept_count() } else { 0 }
    }

    /// Notes that a freed allocation is a secret, and was not zeroed.
    pub(super) fn keep_freed(&mut self, id: SlotId) {
        let key = self.occupancy.deferred_key(id);
        if let Some(Ok(grant)) = key.map(|key| self.bytes.strategy().grant(key)) {
            self.bytes.keep(Kept { grant, slot: Some(id), after: None });
        }
    }

    /// The block of some bytes, and the parts of them that have memory.
    pub(super) fn memory_of(&self, Grant { block, span, .. }: Grant) -> (Arc<Block<B>>, Vec<Span>) {
        // A block of one allocation's own lies beside the pages of its lane, and has none.
        let pages = self.bytes.pages().filter(|(pager, _)| pager.block() == block);
        let parts = pages.map_or_else(|| Vec::from([span]), |(pager, _)| pager.mapped_in(span));
        (Arc::clone(self.bytes.block(block)), parts)
    }
}

impl<B: Backend> Lane<B> {
    /// Zeroes what can be zeroed now of what is kept: its bytes are free again. This may wait for the device, but only where
    /// something is kept.
    pub(crate) fn zero_kept(&self) {
        let count = self.state.lock().kept_now();
        if count == 0 {
            return;
        }
        let idle = self.shared.device.settle();
        for _ in 0..count {
            let Some(mut taken) = self.take_kept() else { return };
            match taken.one.as_mut().map_or(Ok(()), |one| idle.and_then(|()| self.end_kept(one))) {
                Ok(()) => taken.one.take().iter().for_each(|one| self.release_kept(one)),
                Err(error) => tracing::warn!(?error, "a secret still could not be zeroed"),
            }
        }
    }

    /// Takes the first out that may be zeroed now.
    fn take_kept(&self) -> Option<Taken<'_, B>> {
        let mut state = self.state.lock();
        let one = (state.kept_now() > 0).then(|| state.bytes.take_first_kept());
        Some(Taken { lane: self, one: Some(one?) })
    }

    /// Waits for the uses of what is kept, and zeroes it.
    fn end_kept(&self, one: &mut Kept) -> Result<()> {
        // Bytes whose guard is being looked at stay until that is done.
        if one.slot.is_some_and(|id| self.state.lock().occupancy.is_looked_at(id)) {
            return Err(ErrorKind::Busy.into());
        }
        self.wait_for_uses(one)?;
        self.zero_one(one)
    }

    /// Waits for all work so far. An idle device is not proof, because a backend may know some work only by its frames.
    fn wait_for_uses(&self, one: &mut Kept) -> Result<()> {
        let Some(timelines) = self.shared.device.backend().as_timelines() else { return Ok(()) };
        let timeline = TimelineId::ALL;
        let point = match one.after {
            Some(point) => point,
            None => match timelines.mark(timeline) {
                // The device cannot mark all its work, and was found idle.
                Err(error) if error.kind() == ErrorKind::NoSuchTimeline => return Ok(()),
                marked => *one.after.insert(Point { timeline, epoch: marked? }),
            },
        };
        timelines.wait(point)
    }

    /// Zeroes bytes that nothing uses.
    fn zero_one(&self, one: &Kept) -> Result<()> {
        one.slot.map_or(Ok(()), |id| self.look_at_end(id))?;
        let (block, parts) = self.state.lock().memory_of(one.grant);
        let mut parts = parts.into_iter();
        parts.try_for_each(|part| self.shared.device.clear(block.raw(), part, TimelineId::MAIN))
    }

    /// Gives back what was zeroed.
    fn release_kept(&self, one: &Kept) {
        let in_flight = self.shared.device.in_flight.begin();
        let mut state = self.state.lock_flushed();
        let left = match one.slot {
            Some(id) => {
                self.tell_free(&state, id);
                state.free(id).ok().flatten()
            }
            None => {
                state.bytes.release_held(one.grant);
                None
            }
        };
        drop(state);
        self.shared.device.recover(one.grant.span.size);
        if self.give_back_freed(left) > 0 {
            in_flight.publish();
        }
    }

    /// Zeroes every secret that no fill has reached, for the end of the lane. Returns where one stays; the device is idle.
    pub(super) fn zero_last(&self) -> Vec<(Arc<Block<B>>, Span)> {
        let mut state = self.state.lock();
        let mut secrets = Vec::new();
        let kept = state.bytes.take_kept().into_iter().map(|one| one.grant).collect::<Vec<_>>();
        // What stays is counted with its block or its pages.
        kept.iter().for_each(|grant| self.shared.device.recover(grant.span.size));
        let residue = state.away.as_mut().map(|away| core::mem::take(&mut away.residue));
        for grant in residue.into_iter().flatten().chain(kept) {
            let (block, parts) = state.memory_of(grant);
            secrets.extend(parts.into_iter().map(|part| (Arc::clone(&block), part)));
        }
        drop(state);
        secrets.retain(|(block, part)| {
            let clear = || self.shared.device.clear(block.raw(), *part, TimelineId::MAIN);
            // Nobody reads a lost device.
            insist(clear).is_err_and(|error| error.kind() != ErrorKind::DeviceLost)
        });
        secrets
    }
}
