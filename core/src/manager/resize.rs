//! More or fewer bytes, with what fits of the old ones.
use super::{Allocation, FreeError, Manager};
use crate::{
    Access, Backend, Error, ErrorKind, InsideBlock, Move, Place, Request, Result, TimelineId,
};
use alloc::sync::Arc;
use alloc::vec;

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
    ) -> Result<Allocation<B>, FreeError<Allocation<B>>> {
        match self.resized(&allocation, size) {
            Ok(resized) => Ok(resized),
            Err(error) => Err(FreeError { allocation, error }),
        }
    }

    fn resized(&self, old: &Allocation<B>, size: u64) -> Result<Allocation<B>> {
        let shared = old.lane().shared_of(old.slot());
        let pools = self.all_pools();
        let pool = pools.iter().find(|pool| Arc::ptr_eq(&pool.shared, &shared));
        let pool = pool.ok_or(Error::new(ErrorKind::Foreign))?;
        let like = old.lane().properties(old.slot())?;
        let mut request = Request::new(size);
        (request.sharing, request.mobility) = (like.sharing, like.mobility);
        (request.tag, request.privacy, request.timeline) = (like.tag, like.privacy, old.timeline());
        request.name = like.name.as_deref();
        if like.host_access {
            request.access = Access::Both;
        }
        // What ran on a timeline that was closed has passed, and nothing comes after it there.
        if let Some(timeline) = request.timeline
            && self.inner.device.is_closed(timeline)?
        {
            request.timeline = Some(TimelineId::MAIN);
        }
        request.layout.align = like.align.unwrap_or(request.layout.align);
        let new = self
            .allocate_in(pool, &request, None, None)
            .map_err(|error| Error::new(error.kind()))?;
        if let Some(heap) = like.wish {
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
    let from = Place { block: source.block(), offset: source.span().offset };
    let to = Place { block: target.block(), offset: target.span().offset };
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
            transfer.read(on, Place { offset: from.offset + at, ..from }, &mut bytes[..part])?;
            transfer.write(on, Place { offset: to.offset + at, ..to }, &bytes[..part])?;
        }
        Ok(())
    })?;
    new.order_own_work()
}
