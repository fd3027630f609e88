//! Growing by pages: addresses stay where they are, memory goes where it is needed.
#![expect(unsafe_code, reason = "maps and unmaps pages of reserved blocks")]
mod gather;

use super::bytes::Ask;
use super::extra::SlotId;
use super::order::{Order, User};
use super::reuse::WaitMode;
use super::state::{Lane, State};
use crate::device::{Block, InFlightGuard, insist};
use crate::sync::Guard;
use crate::{Align, Backend, Class, ErrorKind, Layout, Page, Result, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::{Grant, LastUse};
use std::time::Instant;

/// Addresses reserved for each byte of the heap: holes in addresses cost nothing, running out of them does. A few small
/// allocations that outlive large ones leave no room for another large one between them when there are only a few times
/// as many addresses as bytes.
const ADDRESSES_PER_BYTE: u64 = 16;

/// Spans carved out of holes of a lane's reserved block.
type Carved<B> = (Arc<Block<B>>, Vec<Grant>);

impl<B: Backend> Lane<B> {
    /// Makes a hole for the request out of pages from wherever they are free, and takes the request from it.
    ///
    /// `others` are the pool's other lanes: their free pages are used before new ones are created.
    pub(crate) fn grow_paged(&self, ask: Ask, others: &[Arc<Self>]) -> Result<SlotId> {
        let user = self.state.lock().enter(ask.timeline)?;
        let may = |order: &Order, last| order.may(user, last);
        self.grow_for(ask.layout, others, may, |state, piece| state.take_mapped(piece, ask, user))
    }

    /// Takes whole pages side by side that nothing lies in, for what moves there. They are the caller's to free, and count
    /// as held until then.
    pub(crate) fn take_fresh_pages(&self, bytes: u64) -> Result<Grant> {
        let page = self.shared.page().and_then(Align::new);
        let layout = Layout { size: bytes, align: page.ok_or(ErrorKind::Unsupported)? };
        self.grow_for(
            layout,
            &[],
            |_, _| true,
            |state, piece| {
                state.bytes.release_unused(piece.key)?;
                state.check_awake()?;
                state.bytes.hold(layout, Class::Linear)
            },
        )
    }

    /// Makes a hole for a layout, together with holes whose last use `may` accepts, and lets the caller take it: the span that
    /// got memory is its to free.
    fn grow_for<T>(
        &self,
        layout: Layout,
        others: &[Arc<Self>],
        may: impl Fn(&Order, LastUse) -> bool,
        take: impl Fn(&mut State<B>, Grant) -> Result<T, ErrorKind>,
    ) -> Result<T> {
        let page = self.shared.page().ok_or(ErrorKind::Unsupported)?;
        let slack = layout.align.get() - self.shared.unit.get().min(layout.align.get());
        let size = layout.size.checked_add(slack).ok_or(ErrorKind::SizeOverflow)?;
        let wide = self.shared.whole_groups(size, page);
        loop {
            let block = self.reservation(page, layout.size)?;
            let grown = match self.grow_by_pages(&block, wide, others, &may, &take) {
                Err(error) if wide > size && error.kind().is_out_of_memory() => {
                    self.grow_by_pages(&block, size, others, &may, &take)
                }
                grown => grown,
            };
            let is_stale = grown.as_ref().is_err_and(|error| error.kind() == ErrorKind::Stale);
            // Unless another thread gave the addresses up before they had memory, the driver said this. Else others are reserved.
            if !is_stale || self.state.lock().bytes.is_reserved(&block) {
                return grown;
            }
        }
    }

    /// As [`grow_for`](Self::grow_for), for a hole of `size` bytes.
    fn grow_by_pages<T>(
        &self,
        block: &Block<B>,
        size: u64,
        others: &[Arc<Self>],
        may: &impl Fn(&Order, LastUse) -> bool,
        take: &impl Fn(&mut State<B>, Grant) -> Result<T, ErrorKind>,
    ) -> Result<T> {
        let page = self.shared.page().ok_or(ErrorKind::Unsupported)?;
        // Another thread may take a hole beside it while the driver is called. The second time the pages are enough by themselves.
        for with_holes in [true, false] {
            let mut state = self.state.lock_flushed();
            state.check_awake()?;
            if !state.bytes.is_reserved(block) {
                return Err(ErrorKind::Stale.into());
            }
            let State { bytes, order, .. } = &mut *state;
            let (pager, tlsf) = bytes.pages_mut().ok_or(ErrorKind::Unsupported)?;
            let piece = pager.set_apart(tlsf, size, |last| with_holes && may(order, last))?;
            pager.reserve_table(piece.span).inspect_err(|_| pager.abandon(tlsf, piece))?;
            drop(state);
            let wait = match self.should_wait(piece.span.size, others) {
                true => WaitMode::Block,
                false => WaitMode::Poll,
            };
            let in_flight = self.shared.device.in_flight.begin();
            let mut state = self.back(block, piece, page, others, wait)?;
            let taken = take(&mut state, piece);
            drop(state);
            in_flight.publish();
            if let Ok(taken) = taken {
                return Ok(taken);
            }
        }
        Err(ErrorKind::OutOfDeviceMemory.into())
    }

    /// Nanoseconds that mapping free pages side by side for a request is expected to take; `None` where that is not
    /// known, where spare pages are enough, or where less is free than the request needs.
    pub(crate) fn cost_of_remapping(&self, ask: Ask) -> Option<f64> {
        let page = self.shared.page()?;
        let rates = self.shared.device.cost(self.shared.heap).rates();
        let spare = self.shared.spare.lock().len() as u64;
        let missing = ask.layout.size.div_ceil(page).checked_sub(spare).filter(|more| *more > 0)?;
        let state = self.state.lock_flushed();
        let (pager, tlsf) = state.bytes.pages()?;
        let holes = pager.choose_pages(tlsf, missing * page, None, |_| true).len() as u64;
        let nanos = rates.of_remapping(holes, missing)?;
        (tlsf.free_bytes() >= ask.layout.size).then_some(nanos)
    }

    /// The lane's reserved block; the first call makes it.
    fn reservation(&self, page: u64, request: u64) -> Result<Arc<Block<B>>> {
        if let Some(block) = self.state.lock().bytes.reservation() {
            return Ok(block);
        }
        let block = Arc::new(self.reserve_addresses(page, request)?);
        let mut state = self.state.lock_flushed();
        if let Some(block) = state.bytes.reservation() {
            return Ok(block); // Another thread was first; ours is returned when this function ends.
        }
        state.bytes.reserve(Arc::clone(&block), page)?;
        Ok(block)
    }

    /// As many addresses as the driver gives, a few times the heap if possible, the request at least.
    fn reserve_addresses(&self, page: u64, request: u64) -> Result<Block<B>> {
        let heap = self.shared.device.heap(self.shared.heap)?.size;
        let round = |size: u64| size.div_ceil(page).checked_mul(page);
        let least = round(request).ok_or(ErrorKind::SizeOverflow)?;
        if least > round(heap).ok_or(ErrorKind::SizeOverflow)? {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        // With few addresses to spare, a pool that stays small leaves them to others.
        let most = heap.min(self.shared.config.maximum).saturating_mul(ADDRESSES_PER_BYTE);
        let mut size = round(most.min(1 << 46)).unwrap_or(least).max(least);
        loop {
            match self.shared.device.reserve(self.shared.heap, size) {
                Err(error) if size / 2 >= least && error.kind() != ErrorKind::DeviceLost => {
                    size = round(size / 2).unwrap_or(least);
                }
                other => return other,
            }
        }
    }

    /// Gives the lane's addresses back, if none of them has memory; the next request reserves others.
    pub(crate) fn give_up_addresses(&self) {
        let mut state = self.state.lock_flushed();
        let ended = state.check_awake().ok().and_then(|()| state.bytes.end_reservation());
        // Dropping it calls the driver, which must not happen under the lock.
        drop(state);
        drop(ended);
    }

    /// Gives memory to a span that was set apart. The caller then owns it, under the lock; on failure it is unmapped again.
    fn back(
        &self,
        block: &Block<B>,
        piece: Grant,
        page: u64,
        others: &[Arc<Self>],
        wait: WaitMode,
    ) -> Result<Guard<'_, State<B>>> {
        let count = piece.span.size / page;
        let pages = self.gather(count, page, piece.span, others, wait).and_then(|pages| {
            self.map(block, piece.span, page, &pages).map(|()| pages.clone()).inspect_err(|_| {
                self.shared.spare.lock().extend(pages);
            })
        });
        match pages {
            Ok(pages) => {
                let cleared = self.clear(block, piece.span);
                let mut state = self.state.lock_flushed();
                let (pager, _) = state.bytes.pages_mut().ok_or(ErrorKind::Unsupported)?;
                match cleared {
                    Ok(()) => pager.hand_over(piece, &pages),
                    Err(_) => pager.strand(piece, &pages),
                }
                cleared.map(|()| state).inspect_err(|_| {
                    self.shared.device.quarantine(piece.span.size, "clearing failed");
                })
            }
            Err(error) => {
                if let Some((pager, tlsf)) = self.state.lock_flushed().bytes.pages_mut() {
                    pager.abandon(tlsf, piece);
                }
                Err(error)
            }
        }
    }

    pub(in crate::lane) fn map(
        &self,
        block: &Block<B>,
        span: Span,
        page: u64,
        pages: &[Page],
    ) -> Result<()> {
        let device = &self.shared.device;
        let remap = device.remap().ok_or(ErrorKind::Unsupported)?;
        device.count_call();
        let began = Instant::now();
        // SAFETY: `block` is this lane's reservation. The pages were created for its heap, and are mapped nowhere (fresh, or from
        // the spare list) or at one other place (`Lane::shift`).
        unsafe { remap.map_pages(block.raw(), span.offset / page, pages) }?;
        device.cost(self.shared.heap).learn_mapping(pages.len() as u64, began.elapsed());
        Ok(())
    }

    /// Clears pages that another domain may have used: nothing tells which of them are fresh.
    pub(in crate::lane) fn clear(&self, block: &Block<B>, span: Span) -> Result<()> {
        let device = &self.shared.device;
        let clear = || device.clear(block.raw(), span, TimelineId::MAIN);
        if device.has_neighbours() { clear() } else { Ok(()) }
    }

    /// Moves whole free pages of this lane to the pool's spare list. Returns the number of bytes.
    ///
    /// Only memory that the device no longer uses is unmapped; with [`WaitMode::Block`] that may mean waiting for it.
    pub(crate) fn surrender(&self, bytes: u64, keep: Option<Span>, wait: WaitMode) -> Result<u64> {
        self.poll_users(WaitMode::Poll)?;
        let mut taken = self.take_unused_pages(bytes, keep);
        if taken.is_none() && wait == WaitMode::Block {
            self.poll_users(WaitMode::Block)?;
            taken = self.take_unused_pages(bytes, keep);
        }
        let Some((in_flight, (block, pieces))) = taken else { return Ok(0) };
        let mut unmapped: Vec<Grant> = Vec::new();
        let mut failed = None;
        for piece in pieces {
            // A part of it may be unmapped when the driver refuses, so it is asked until it has done the rest.
            let done = failed.map_or_else(|| insist(|| self.unmap(&block, piece.span)), Err);
            match done {
                Ok(()) => unmapped.push(piece),
                Err(error) => {
                    failed.get_or_insert(error);
                    if let Some((pager, tlsf)) = self.state.lock_flushed().bytes.pages_mut() {
                        pager.restore(tlsf, piece)?;
                    }
                }
            }
        }
        let bytes = unmapped.iter().map(|piece| piece.span.size).sum();
        let mut pages = Vec::new();
        if let Some((pager, tlsf)) = self.state.lock_flushed().bytes.pages_mut() {
            unmapped.into_iter().for_each(|piece| pages.extend(pager.note_unmapped(tlsf, piece)));
        }
        self.shared.spare.lock().extend(pages);
        in_flight.publish();
        failed.map_or(Ok(bytes), Err)
    }

    /// Carves whole pages out of holes that the device no longer uses; `None` where there are none.
    fn take_unused_pages(
        &self,
        bytes: u64,
        keep: Option<Span>,
    ) -> Option<(InFlightGuard<'_>, Carved<B>)> {
        let in_flight = self.shared.device.in_flight.begin();
        let mut state = self.state.lock_flushed();
        state.check_awake().ok()?;
        let block = state.bytes.reservation()?;
        let State { bytes: own, order, .. } = &mut *state;
        let (pager, tlsf) = own.pages_mut()?;
        let pieces = pager.take_pages(tlsf, bytes, keep, |last| order.may(User::HOST, last));
        (!pieces.is_empty()).then_some((in_flight, (block, pieces)))
    }

    pub(in crate::lane) fn unmap(&self, block: &Block<B>, span: Span) -> Result<()> {
        let device = &self.shared.device;
        let remap = device.remap().ok_or(ErrorKind::Unsupported)?;
        let page = self.shared.page().ok_or(ErrorKind::Unsupported)?;
        device.count_call();
        let began = Instant::now();
        // SAFETY: the span was carved out of a hole whose last use the device has passed (`take_unused_pages`), and nobody
        // else can be granted it meanwhile; or its owner holds all of it and has waited for the device
        // (`Lane::shift`, `dismantle`); or the lane is asleep, so nobody is granted a span of it, and the pass has waited for
        // every timeline that uses its bytes (`take_memory`).
        unsafe { remap.unmap_pages(block.raw(), span.offset / page, span.size / page) }?;
        device.cost(self.shared.heap).learn_unmapping(span.size / page, began.elapsed());
        Ok(())
    }

    /// Returns free pages of at most `most` bytes to the driver; [`LARGEST_GROUP`](crate::device::LARGEST_GROUP) bytes are enough
    /// for any group. Returns the number of bytes. On failure what was unmapped has gone all the same.
    pub(crate) fn trim_some_pages(&self, most: u64) -> Result<u64> {
        let Some(page) = self.shared.page() else { return Ok(0) };
        let surrendered = self.surrender(most.max(page), None, WaitMode::Poll);
        let keep = self.shared.config.minimum.div_ceil(page);
        let held = (self.shared.reserved_for_all() + self.shared.host_mapped()) / page;
        let bytes = self.shared.return_spare(held.saturating_sub(keep).min((most / page).max(1)));
        match surrendered {
            // A lost device unmaps nothing: the end of the lane gives its pages back. One call may be wrong about that.
            Err(error) if error.kind() == ErrorKind::DeviceLost && self.is_lost() => Ok(bytes),
            surrendered => surrendered.map(|_| bytes),
        }
    }

    /// Unmaps and destroys everything but where a secret `stays`, for the end of the lane. The device is idle.
    pub(in crate::lane) fn dismantle(&self, stays: impl Fn(Span) -> bool) {
        let Some(page) = self.shared.page() else { return };
        let state = self.state.lock();
        let Some(block) = state.bytes.reservation() else { return };
        let (spans, mut is_unmapped) = (state.bytes.mapped_spans(), true);
        drop(state);
        for (span, pages) in spans {
            if stays(span) {
                self.shared.device.quarantine(span.size, "a secret could not be zeroed");
                is_unmapped = false;
                continue;
            }
            // A lost device unmaps nothing any more, but takes the pages back all the same.
            let refused = insist(|| self.unmap(&block, span)).err();
            if refused.is_none_or(|error| error.kind() == ErrorKind::DeviceLost) {
                self.shared.return_pages(page, &pages);
            } else {
                self.shared.device.quarantine(span.size, "unmapping failed");
                is_unmapped = false;
            }
        }
        if !is_unmapped {
            // Only a block without pages may be freed, so the driver keeps this one, and the device stays open for it.
            core::mem::forget(block);
        }
    }
}

impl<B: Backend> State<B> {
    /// Takes a request from a span that has just got memory, and the holes beside it; the rest of the span is free.
    fn take_mapped(&mut self, piece: Grant, ask: Ask, user: User) -> Result<SlotId, ErrorKind> {
        let reserved = self.check_awake().and_then(|()| self.occupancy.reserve());
        if reserved.is_err() || self.order.is_alone(user) {
            self.bytes.release(piece.key, LastUse::NONE)?;
            return reserved.and_then(|()| self.allocate_usable(ask));
        }
        // As a hole it would join others that the timeline may not have.
        let grant = self.bytes.take_around(piece.key, ask, |last| self.order.may(user, last))?;
        Ok(self.admit(grant, ask.bytes(), user))
    }
}
