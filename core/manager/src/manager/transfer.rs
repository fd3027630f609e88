//! Bytes in, out and across, with every range checked before the driver sees it.
use super::{Allocation, GiveBack, Manager};
use crate::{
    Backend, BlockOffset, Error, ErrorKind, InsideBlock, Move, Result, TimelineId, Transfer,
};
use alloc::{sync::Arc, vec, vec::Vec};

impl<B: Backend> Allocation<B> {
    pub(super) fn transfer(&self) -> Result<&dyn Transfer<Block = B::Block>> {
        self.lane().shared.device.backend().as_transfer().ok_or(ErrorKind::Unsupported.into())
    }

    fn aligned(&self, offset: u64, size: u64) -> Result<()> {
        let align = self.lane().shared.device.backend().caps().copy.align;
        let fits = align.divides(offset) && align.divides(size);
        if fits { Ok(()) } else { Err(ErrorKind::Misaligned.into()) }
    }

    /// Runs a transfer in the order of the allocation's timeline. Without one, or where it was closed, the transfer runs on the
    /// main timeline and is over when the call returns: the allocation may be freed at once.
    pub(super) fn in_order(
        &self,
        mut run: impl FnMut(&dyn Transfer<Block = B::Block>, TimelineId) -> Result<()>,
    ) -> Result<()> {
        let transfer = self.transfer()?;
        if let Some(timeline) = self.timeline() {
            let done = run(transfer, timeline);
            if self.lane().shared.device.unless_closed(timeline, done)?.is_some() {
                return Ok(());
            }
        }
        run(transfer, TimelineId::MAIN)?;
        let waited = self.lane().shared.device.drain(TimelineId::MAIN);
        // If the wait fails, the transfer may still run; a free then waits for it once more.
        waited.inspect_err(|_| self.outlast(TimelineId::MAIN))
    }

    /// Has the host, which may write the bytes next, come after what the manager itself did to them [in
    /// order](Self::in_order).
    pub(super) fn order_own_work(&self) -> Result<()> {
        match self.timeline() {
            Some(timeline) if self.has_host_access() => self.lane().shared.device.drain(timeline),
            _ => {
                self.touch();
                Ok(())
            }
        }
    }

    /// Has a map wait for what the manager itself did to the bytes in the order of their timeline.
    pub(super) fn touch(&self) {
        let shared = &self.lane().shared;
        if shared.device.heap(shared.heap).is_ok_and(|heap| heap.host.is_visible()) {
            self.lane().touch(self.slot());
        }
    }

    /// Returns true if the host was said to access the bytes directly.
    pub(super) fn has_host_access(&self) -> bool {
        self.lane().has_host_access(self.slot())
    }

    /// Makes a later free wait for a timeline that may still use the bytes. Unlike [`use_on`](Self::use_on) it asks the device
    /// nothing, so it serves where the device has just failed.
    pub fn outlast(&self, timeline: TimelineId) {
        // An owned allocation is live.
        let _ = self.lane().add_use(self.slot(), timeline);
    }

    /// Writes bytes from the host, in the order of the allocation's timeline; without one, or where it was closed, before it
    /// returns.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Misaligned`, `Unsupported`, or what the driver says; `Published` for bytes that are final; `Asleep` while
    /// the pool sleeps. Zero bytes succeed without a call.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let binding = self.binding();
        let to = binding.place(offset, bytes.len() as u64)?;
        self.aligned(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.in_order(|transfer, on| transfer.write(on, to, bytes))
    }

    /// Reads bytes to the host, after everything earlier on the allocation's timeline.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let binding = self.binding();
        let from = binding.place(offset, bytes.len() as u64)?;
        self.aligned(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (transfer, home) = (self.transfer()?, self.timeline().unwrap_or(TimelineId::MAIN));
        let read = transfer.read(home, from, bytes);
        match self.lane().shared.device.unless_closed(home, read)? {
            Some(()) => Ok(()),
            None => transfer.read(TimelineId::MAIN, from, bytes),
        }
    }

    /// Sets bytes, in the order of the allocation's timeline.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn fill(&self, offset: u64, size: u64, value: u8) -> Result<()> {
        self.check_writable()?;
        let binding = self.binding();
        let to = binding.place(offset, size)?;
        self.aligned(offset, size)?;
        if size == 0 {
            return Ok(());
        }
        self.in_order(|transfer, on| transfer.fill(on, to, size, value))
    }
}

/// One copy between allocations.
#[derive(Debug)]
pub struct CopyRegion<'a, B: Backend> {
    /// Source of the bytes.
    pub from: &'a Allocation<B>,
    /// Bytes from its start.
    pub from_offset: u64,
    /// Destination of the bytes.
    pub to: &'a Allocation<B>,
    /// Bytes from its start.
    pub to_offset: u64,
    /// Number of bytes.
    pub size: u64,
}

impl<B: Backend> Manager<B> {
    /// Copies between allocations of this manager, all as one batch, in a timeline's order.
    ///
    /// # Errors
    ///
    /// `Foreign`, `OutOfRange`, `Misaligned`, `Published`, `Asleep`; `Overlap` when two copies, or source and destination, overlap;
    /// `Unsupported` for a copy inside one block where the device forbids it. Nothing is copied then.
    pub fn copy(&self, on: TimelineId, copies: &[CopyRegion<'_, B>]) -> Result<()> {
        let transfer = self.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        // Copies of many pieces are mostly between the same two: each allocation is looked at once for all of them.
        let same = |one: &CopyRegion<'_, B>, next: &CopyRegion<'_, B>| {
            core::ptr::eq(one.from, next.from) && core::ptr::eq(one.to, next.to)
        };
        let runs = || copies.chunk_by(same).map(|run| (run, run[0].from, run[0].to));
        for (run, from, to) in runs() {
            if from.lane().manager != self.number() || to.lane().manager != self.number() {
                return Err(ErrorKind::Foreign.into());
            }
            to.check_writable()?;
            for copy in run {
                from.aligned(copy.from_offset, copy.size)?;
                to.aligned(copy.to_offset, copy.size)?;
            }
        }
        let bound: Vec<_> =
            runs().map(|(run, from, to)| (run, from.binding(), to.binding())).collect();
        let mut moves = Vec::with_capacity(copies.len());
        for (run, from, to) in &bound {
            for copy in run.iter().filter(|copy| copy.size > 0) {
                let (at, size) = (from.place(copy.from_offset, copy.size)?, copy.size);
                moves.push(Move { from: at, to: to.place(copy.to_offset, size)?, size });
            }
        }
        // Bindings have checked the ranges.
        self.caps().copy.check_batch(&moves, |_| Ok(u64::MAX))?;
        if moves.is_empty() {
            return Ok(());
        }
        for (_, from, to) in runs() {
            from.use_on(on).and_then(|()| to.use_on(on))?;
        }
        transfer.copy(on, &moves)
    }
}

impl<B: Backend> Allocation<B> {
    /// Zeroes all of it, padding included, before anyone else has it.
    pub(super) fn wipe(&self) -> Result<()> {
        let stays = self.binding();
        stays.check_awake()?;
        self.in_order(|_, on| self.lane().wipe(self.slot(), on))?;
        self.order_own_work()
    }

    /// Makes the bytes final: waits for the writes on the allocation's timeline, so that kernels of every timeline see them,
    /// and refuses all later ones.
    ///
    /// The caller waits for the writes of other timelines.
    ///
    /// # Errors
    ///
    /// Those of the device; nothing is published then.
    pub fn publish(&self) -> Result<()> {
        let lane = self.lane();
        lane.shared.device.drain(self.timeline().unwrap_or(TimelineId::MAIN))?;
        Ok(lane.publish(self.slot())?)
    }

    /// Returns true if the bytes are final.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.lane().is_published(self.slot())
    }

    /// Refuses to write what is final.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_published() { Err(ErrorKind::Published.into()) } else { Ok(()) }
    }
}

/// Bytes that go through the host at a time where the device cannot copy inside a block.
const BOUNCE: u64 = 1 << 20;

impl<B: Backend> Manager<B> {
    /// Makes an allocation larger or smaller, in the pool that it lies in and on its own timeline; the bytes that both sizes have stay, and so does
    /// whether it may move, has a block of its own, or is secret.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Self::allocate); `Foreign` for another manager's. The allocation comes back as it was.
    pub fn resize(
        &self,
        allocation: Allocation<B>,
        size: u64,
    ) -> Result<Allocation<B>, GiveBack<Allocation<B>>> {
        match self.resized(&allocation, size) {
            Ok(resized) => Ok(resized),
            Err(error) => Err(GiveBack { given: allocation, error }),
        }
    }

    fn resized(&self, old: &Allocation<B>, size: u64) -> Result<Allocation<B>> {
        let shared = old.lane().shared_of(old.slot());
        let pools = self.all_pools();
        let pool = pools.iter().find(|pool| Arc::ptr_eq(&pool.shared, &shared));
        let pool = pool.ok_or(Error::new(ErrorKind::Foreign))?;
        let (mut request, name, wish) = old.lane().request_like(old.slot(), size)?;
        request.name = name.as_deref();
        // Work on a timeline that was closed has passed, and nothing comes after it there.
        if let Some(timeline) = request.timeline
            && self.inner.device.is_closed(timeline)?
        {
            request.timeline = Some(TimelineId::MAIN);
        }
        let new = self
            .allocate_in(pool, &request, None, None)
            .inspect_err(|error| self.failed(&request, error))
            .map_err(|error| Error::new(error.kind()))?;
        new.keep_reason(old);
        if let Some(heap) = wish {
            new.lane().set_wish(new.slot(), heap);
        }
        if let Some(timeline) = new.timeline() {
            old.use_on(timeline)?; // Another one than its own, which was closed, copies the bytes away.
        }
        carry(old, &new, old.size().min(size))?;
        new.restore_sanitized()?;
        Ok(new)
    }
}

/// Copies the first `size` bytes, rounded to what the device copies: the rest of that is the allocations' own padding.
fn carry<B: Backend>(old: &Allocation<B>, new: &Allocation<B>, size: u64) -> Result<()> {
    let copy = &old.lane().shared.device.backend().caps().copy;
    let size = copy.align.up(size).ok_or(ErrorKind::SizeOverflow)?;
    let (source, target) = (old.binding(), new.binding());
    source.check_awake().and(target.check_awake())?;
    let from = BlockOffset { block: source.block(), offset: source.span().offset };
    let to = BlockOffset { block: target.block(), offset: target.span().offset };
    let needs_bounce =
        core::ptr::eq(from.block, to.block) && copy.inside_block == InsideBlock::Forbidden;
    let longest = usize::try_from(size.min(BOUNCE)).map_err(|_| ErrorKind::SizeOverflow)?;
    let mut bytes = vec![0; if needs_bounce { longest } else { 0 }];
    new.in_order(|transfer, on| {
        if !needs_bounce {
            return transfer.copy(on, &[Move { from, to, size }]);
        }
        for at in (0..size).step_by(bytes.len()) {
            let part = bytes.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
            let [from, to] = [from, to].map(|it| BlockOffset { offset: it.offset + at, ..it });
            transfer.read(on, from, &mut bytes[..part])?;
            transfer.write(on, to, &bytes[..part])?;
        }
        Ok(())
    })?;
    new.order_own_work()
}
