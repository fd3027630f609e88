//! The host's view. On an incoherent heap it is a second copy, so that a forgotten flush shows.
#![expect(unsafe_code, reason = "moves bytes between the host's and the device's copy")]
use crate::block::{Block, Body};
use crate::device::Host;
use crate::driver::{Memory, narrow};
use core::ptr::NonNull;
use omniheap_seam::{ErrorKind, HostAccess, Map, Result, Span, bytes};

impl Host {
    fn access(&self, body: &Body) -> Result<HostAccess> {
        let heap = self.heap(body.heap)?;
        let host = match heap.host {
            // Pages are shared memory, which is coherent wherever it appears.
            HostAccess::Incoherent if body.is_reserved() => HostAccess::Cached,
            host => host,
        };
        if host.is_visible() { Ok(host) } else { Err(ErrorKind::NotMappable.into()) }
    }

    /// Returns the span to synchronise and the host's copy, or `None` when both sides see the same bytes.
    fn stale<'a>(
        &self,
        body: &'a Body,
        offset: u64,
        size: u64,
    ) -> Result<Option<(Span, &'a Memory)>> {
        let access = self.access(body)?;
        let span = body.check(offset, size)?;
        if !self.caps.atom.divides(offset) || !self.caps.atom.divides(size) {
            return Err(ErrorKind::Misaligned.into());
        }
        let view = if access == HostAccess::Incoherent { body.view.get() } else { None };
        Ok(view.map(|view| (span, view)))
    }
}

// SAFETY: the pointer is to the block's memory, or to its host copy of the same length, which both stay until the block is
// freed. All copies go through `bytes`, so that only kernels have references; `transcribe` stays inside a span that was checked.
unsafe impl Map for Host {
    type Block = Block;

    fn map(&self, block: &Block) -> Result<NonNull<u8>> {
        let body = self.own(block)?;
        if self.access(body)? != HostAccess::Incoherent {
            return Ok(body.memory.base());
        }
        if let Some(view) = body.view.get() {
            return Ok(view.base());
        }
        let align = self.heap(body.heap)?.align.get();
        let fresh = Memory::anonymous(body.size, align)?;
        Ok(body.view.get_or_init(|| fresh).base())
    }

    fn flush(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        let body = self.own(block)?;
        match self.stale(body, offset, size)? {
            Some((span, view)) => transcribe(view, &body.memory, span),
            None => Ok(()),
        }
    }

    fn invalidate(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        let body = self.own(block)?;
        match self.stale(body, offset, size)? {
            Some((span, view)) => transcribe(&body.memory, view, span),
            None => Ok(()),
        }
    }
}

/// Copies the same span from one copy of a block to the other.
fn transcribe(from: &Memory, to: &Memory, span: Span) -> Result<()> {
    let (offset, len) = (narrow(span.offset)?, narrow(span.size)?);
    assert!(offset + len <= from.len().min(to.len()), "`stale` checked the span");
    // SAFETY: inside `from`, see above.
    let from = unsafe { from.base().add(offset) };
    // SAFETY: inside `to`, see above.
    let to = unsafe { to.base().add(offset) };
    // SAFETY: two mappings never overlap, and a block's bytes are shared: nobody has a reference to them.
    unsafe { bytes::copy(from, to, len) };
    Ok(())
}
