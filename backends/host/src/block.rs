//! Blocks: memory, or addresses that wait for pages.
#![expect(unsafe_code, reason = "computes addresses inside a block's own memory")]
use crate::driver::Memory;
#[cfg(target_os = "linux")]
use crate::{driver::File, slots::Slots};
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, HeapId, Result, Span};
use std::sync::{Arc, OnceLock};

/// One allocation of host memory, or one reservation of addresses.
///
/// Give it back with [`Backend::free`](omniheap_seam::Backend::free). One that is merely dropped returns its memory to
/// the system but stays counted against its heap, as a leak would.
pub struct Block {
    pub(crate) body: Arc<Body>,
}

impl Block {
    /// Returns the heap it counts against.
    #[must_use]
    pub fn heap(&self) -> HeapId {
        self.body.heap
    }

    /// Returns the bytes it spans: what was asked for, rounded up to the heap's granule.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.body.size
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Body { heap, size, memory, .. } = &*self.body;
        f.debug_struct("Block")
            .field("heap", heap)
            .field("size", size)
            .field("memory", memory)
            .finish()
    }
}

/// Memory behind a block.
pub(crate) enum Backing {
    /// Memory of its own.
    Plain,
    /// Memory of its own that others can map too.
    #[cfg(target_os = "linux")]
    Shared(File),
    /// Pages, position by position.
    #[cfg(target_os = "linux")]
    Pages(Slots),
}

/// The block itself, kept alive by work that still uses it.
pub(crate) struct Body {
    /// Dropped before `memory`, so that no page counts as mapped where no address is.
    pub(crate) backing: Backing,
    /// The device's bytes.
    pub(crate) memory: Memory,
    /// The host's own copy, in an incoherent heap once mapped.
    pub(crate) view: OnceLock<Memory>,
    /// Claims that live.
    claims: AtomicU64,
    pub(crate) owner: u64,
    pub(crate) heap: HeapId,
    pub(crate) size: u64,
}

impl Body {
    pub(crate) fn new(
        owner: u64,
        heap: HeapId,
        size: u64,
        memory: Memory,
        backing: Backing,
    ) -> Self {
        let (view, claims) = (OnceLock::new(), AtomicU64::new(0));
        Self { backing, memory, view, claims, owner, heap, size }
    }

    /// Refuses a span that leaves the block.
    pub(crate) fn check(&self, offset: u64, size: u64) -> Result<Span> {
        let whole = Span { offset: 0, size: self.size };
        whole.part(offset, size).ok_or(ErrorKind::OutOfRange.into())
    }

    /// Marks bytes as used by device work until the claim is dropped.
    pub(crate) fn claim(self: &Arc<Self>, offset: u64, size: u64) -> Result<Claim> {
        let span = self.check(offset, size)?;
        #[cfg(target_os = "linux")]
        if let Backing::Pages(slots) = &self.backing {
            slots.enter(span)?;
        }
        self.claims.fetch_add(1, Ordering::Relaxed);
        Ok(Claim { body: Arc::clone(self), span })
    }

    /// Returns whether it has addresses only, so that none of its bytes count against its heap.
    pub(crate) const fn is_reserved(&self) -> bool {
        match self.backing {
            Backing::Plain => false,
            #[cfg(target_os = "linux")]
            Backing::Shared(_) => false,
            #[cfg(target_os = "linux")]
            Backing::Pages(_) => true,
        }
    }

    /// Returns whether device work still uses the block.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0
    }
}

/// Bytes that device work uses: they stay mapped while this lives.
pub(crate) struct Claim {
    pub(crate) body: Arc<Body>,
    pub(crate) span: Span,
}

impl Claim {
    /// Returns the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        let offset = usize::try_from(self.span.offset).expect("inside a block that has addresses");
        // SAFETY: `Body::claim` checked that the span lies inside the block.
        unsafe { self.body.memory.base().add(offset) }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.span.size).expect("inside a block that has addresses")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Backing::Pages(slots) = &self.body.backing {
            slots.leave(self.span);
        }
        self.body.claims.fetch_sub(1, Ordering::Release);
    }
}
