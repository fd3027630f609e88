//! Bytes of freed secrets that no fill has reached: nobody gets them before one has, the driver neither.
#![forbid(unsafe_code)]
use super::extra::{Kept, SlotId};
use super::state::{Lane, State};
use crate::device::{Block, insist};
use crate::{Backend, Class, ErrorKind, Point, Result, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::Grant;

impl<B: Backend> State<B> {
    /// Takes free bytes of a secret out of use until they are zeroed.
    pub(super) fn keep_from_all(&mut self, span: Span) {
        let Some((pager, tlsf)) = self.bytes.pages_mut() else { return };
        match tlsf.carve(pager.block(), span, Class::Linear) {
            Ok(grant) => {
                self.bytes.count_held(grant.span.size);
                self.bytes.keep(Kept { grant, slot: None, after: None });
            }
            Err(error) => tracing::error!(?error, "bytes of a secret could not be kept"),
        }
    }

    /// Notes that a freed allocation is a secret, and was not zeroed.
    pub(super) fn keep_freed(&mut self, id: SlotId) {
        let key = self.occupancy.deferred_key(id);
        if let Some(Ok(grant)) = key.map(|key| self.bytes.strategy().grant(key)) {
            self.bytes.keep(Kept { grant, slot: Some(id), after: None });
        }
    }

    /// The block of some bytes, and the parts of them that have memory.
    fn memory_of(&self, Grant { block, span, .. }: Grant) -> (Arc<Block<B>>, Vec<Span>) {
        let pages = self.bytes.pages();
        let parts = pages.map_or_else(|| Vec::from([span]), |(pager, _)| pager.mapped_in(span));
        (Arc::clone(self.bytes.block(block)), parts)
    }
}

impl<B: Backend> Lane<B> {
    /// Zeroes what can be zeroed now of what is kept: its bytes are free again. This may wait for the device, but only where
    /// something is kept.
    pub(crate) fn zero_kept(&self) {
        let mut state = self.state.lock();
        // Memory of a lane that sleeps may be on its way; its wake opens the lane first.
        let kept = if state.away.is_none() { state.bytes.take_kept() } else { Vec::new() };
        drop(state);
        if kept.is_empty() {
            return;
        }
        let idle = self.shared.device.settle();
        for mut one in kept {
            // Bytes whose guard is being looked at stay until that is done.
            let is_seen = one.slot.is_some_and(|id| self.state.lock().occupancy.is_looked_at(id));
            let zeroed = if is_seen { Err(ErrorKind::Busy.into()) } else { idle };
            let ended = zeroed.and_then(|()| self.wait_for_uses(&mut one));
            match ended.and_then(|()| self.zero_one(&one)) {
                Ok(()) => self.release_kept(&one),
                Err(error) => {
                    tracing::warn!(?error, "a secret still could not be zeroed");
                    self.state.lock().bytes.keep(one);
                }
            }
        }
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
        while let (Some(part), Some(block)) = (state.take_residue(), state.bytes.reservation()) {
            secrets.push((block, part));
        }
        for Kept { grant, .. } in state.bytes.take_kept() {
            let (block, parts) = state.memory_of(grant);
            secrets.extend(parts.into_iter().map(|part| (Arc::clone(&block), part)));
            // What stays is counted with its block or its pages.
            self.shared.device.recover(grant.span.size);
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
