//! Bindings of an allocation, which show its present place, and the host's view of it.
#![expect(unsafe_code, reason = "copies between host slices and mapped device memory")]
use super::{Allocation, GiveBack};
use crate::device::Block;
use crate::lane::WaitMode;
use crate::{Backend, BlockOffset, ErrorKind, HostAccess, Map, Result, Span, bytes};
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

/// Place of an allocation. The bytes do not move while this is held.
pub struct Binding<'a, B: Backend> {
    allocation: &'a Allocation<B>,
    block: Arc<Block<B>>,
    span: Span,
    /// True if the bytes were away when it was made.
    was_away: bool,
}

impl<B: Backend> fmt::Debug for Binding<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("span", &self.span).finish_non_exhaustive()
    }
}

impl<B: Backend> Allocation<B> {
    /// Returns the place of the bytes, which are pinned there while the result is held.
    ///
    /// Cancels the move of a pass that has the allocation. While the allocation's pool is asleep, there is no memory at its
    /// address: [`place`](Binding::place) then fails, and kernels must not use the address.
    ///
    /// # Panics
    ///
    /// Panics when the same allocation has four billion bindings.
    #[must_use]
    pub fn binding(&self) -> Binding<'_, B> {
        let (block, span, was_away) = self.lane().pin(self.slot());
        Binding { allocation: self, block, span, was_away }
    }

    /// Keeps the bytes where they are while the result is held.
    ///
    /// # Panics
    ///
    /// As for [`binding`](Self::binding).
    #[must_use = "dropping it ends the pin"]
    pub fn pin(&self) -> Pinned<'_, B> {
        self.lane().pin(self.slot());
        Pinned { allocation: self }
    }

    /// Keeps the bytes where they are for the rest of their life; returns the address that kernels see, where the backend
    /// has addresses.
    ///
    /// For callers that hand the address on and cannot know when it is used last.
    ///
    /// # Panics
    ///
    /// As for [`binding`](Self::binding).
    pub fn pin_for_life(&self) -> Option<u64> {
        let (block, span, _) = self.lane().pin(self.slot());
        let backend = self.lane().shared.device.backend();
        Some(backend.as_address()?.address(block.raw()) + span.offset)
    }

    fn unpin(&self) {
        self.lane().unpin(self.slot());
    }

    /// Shows the bytes to the host, pinned while the result is held.
    ///
    /// The host's accesses are not in the order of any timeline. Earlier owners of the bytes have passed when the call returns:
    /// without a wait where the request named the host as writer or reader ([`Usage::Upload`](crate::Usage::Upload)) or had
    /// no timeline, else by waiting for the timeline. Wait yourself for your own device work on the allocation.
    ///
    /// # Errors
    ///
    /// `NotMappable` where the heap is not host-visible, `Published` for bytes that are final, `Asleep` while the pool sleeps, `Busy`
    /// where an earlier owner's work is under way and cannot be waited for now, or what the driver says.
    pub fn map(&self) -> Result<Mapped<'_, B>> {
        let (pin, view) = self.view()?;
        Ok(Mapped { view, _pin: pin })
    }

    /// Maps the allocation for the rest of its life: the result owns it, and keeps it mapped and where it is.
    ///
    /// For memory that the host writes or reads all the time. A write through it costs a bounds check and the copy;
    /// [`map`](Self::map) also takes a lock. The same rules hold as for `map`.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map); the allocation comes back as it was.
    pub fn into_mapping(self) -> Result<Mapping<B>, GiveBack<Allocation<B>>> {
        // The mapping ends with the allocation, so its pin does, too.
        let view = self.view().map(|(pin, view)| {
            core::mem::forget(pin);
            view
        });
        match view {
            Ok(view) => Ok(Mapping { view, allocation: self }),
            Err(error) => Err(GiveBack { given: self, error }),
        }
    }

    /// Maps the bytes, pinned, with every earlier owner of them passed.
    fn view(&self) -> Result<(Pinned<'_, B>, View<B>)> {
        self.check_writable()?;
        let (block, span, is_away) = self.lane().pin(self.slot());
        let pin = Pinned { allocation: self };
        if is_away {
            return Err(ErrorKind::Asleep.into());
        }
        let backend = self.lane().shared.device.backend();
        self.lane().keep_in_view(self.slot())?;
        let access = self.lane().shared.device.heap(self.heap())?.host;
        let map = backend.as_map().filter(|_| access.is_visible()).ok_or(ErrorKind::NotMappable)?;
        let base = map.map(block.raw())?;
        if self.lane().may_be_in_use(self.slot()) {
            self.lane().poll_users(WaitMode::Block)?;
            // Some timelines cannot be waited for now.
            let is_left = self.lane().may_be_in_use(self.slot());
            if is_left {
                return Err(ErrorKind::Busy.because("work of an earlier owner is under way"));
            }
        }
        Ok((pin, View { block, span, base, access }))
    }
}

impl<'a, B: Backend> Binding<'a, B> {
    /// The native block.
    #[must_use]
    pub fn block(&self) -> &B::Block {
        self.block.raw()
    }

    /// The bytes inside it.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.span
    }

    /// The address that kernels see, where the backend has addresses.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        let backend = self.allocation.lane().shared.device.backend();
        Some(backend.as_address()?.address(self.block()) + self.span.offset)
    }

    /// A position inside the allocation, for the backend's own calls.
    ///
    /// # Errors
    ///
    /// `OutOfRange` when `offset..offset + size` leaves the allocation; `Asleep` while its pool sleeps.
    pub fn place(&self, offset: u64, size: u64) -> Result<BlockOffset<'_, B::Block>> {
        self.check_awake()?;
        let part = self.span.part(offset, size).ok_or(ErrorKind::OutOfRange)?;
        Ok(BlockOffset { block: self.block(), offset: part.offset })
    }

    /// Refuses bytes that have no memory. The pin keeps them awake once they are.
    pub(super) fn check_awake(&self) -> Result<()> {
        let is_away = self.was_away && self.allocation.lane().is_away(self.allocation.slot());
        if is_away { Err(ErrorKind::Asleep.into()) } else { Ok(()) }
    }

    /// The allocation.
    pub const fn allocation(&self) -> &'a Allocation<B> {
        self.allocation
    }
}

impl<B: Backend> Drop for Binding<'_, B> {
    fn drop(&mut self) {
        self.allocation.unpin();
    }
}

/// Keeps an allocation where it is until it is dropped.
pub struct Pinned<'a, B: Backend> {
    allocation: &'a Allocation<B>,
}

impl<B: Backend> fmt::Debug for Pinned<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("allocation", &self.allocation.id()).finish()
    }
}

impl<B: Backend> Drop for Pinned<'_, B> {
    fn drop(&mut self) {
        self.allocation.unpin();
    }
}

/// Mapped bytes of a block. The view keeps the allocation alive and where it is.
struct View<B: Backend> {
    block: Arc<Block<B>>,
    span: Span,
    base: NonNull<u8>,
    access: HostAccess,
}

// SAFETY: the pointer is to memory that stays mapped until the block is freed, and `block` keeps it; the memory may be
// used from any thread.
unsafe impl<B: Backend> Send for View<B> {}
// SAFETY: as above. Shared views copy bytes in and out without making references to them.
unsafe impl<B: Backend> Sync for View<B> {}

impl<B: Backend> fmt::Debug for View<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("span", &self.span)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> View<B> {
    fn as_ptr(&self) -> NonNull<u8> {
        let offset =
            usize::try_from(self.span.offset).expect("a mapped block fits the address space");
        // SAFETY: the span lies inside the block, whose whole length the backend mapped at `base`.
        unsafe { self.base.add(offset) }
    }

    fn at(&self, offset: u64, size: usize) -> Result<NonNull<u8>> {
        self.span.part(offset, size as u64).ok_or(ErrorKind::OutOfRange)?;
        let offset = usize::try_from(offset).map_err(|_| ErrorKind::OutOfRange)?;
        // SAFETY: `part` above checked that `offset..offset + size` lies inside the allocation.
        Ok(unsafe { self.as_ptr().add(offset) })
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len())?;
        // The flush covers whole atoms: what the device wrote in their other bytes must not be undone by it.
        self.invalidate(offset, bytes.len() as u64)?;
        // SAFETY: `at` checked the range; `Map` promises that no reference to mapped bytes is in use.
        unsafe { bytes::write(to, bytes) };
        self.flush(offset, bytes.len() as u64)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let from = self.at(offset, bytes.len())?;
        self.invalidate(offset, bytes.len() as u64)?;
        // SAFETY: `at` checked the range; `Map` promises that no reference to mapped bytes is in use.
        unsafe { bytes::read(from, bytes) };
        Ok(())
    }

    fn flush(&self, offset: u64, size: u64) -> Result<()> {
        let Some((start, size)) = self.atoms(offset, size)? else { return Ok(()) };
        self.map()?.flush(self.block.raw(), start, size)
    }

    fn invalidate(&self, offset: u64, size: u64) -> Result<()> {
        let Some((start, size)) = self.atoms(offset, size)? else { return Ok(()) };
        self.map()?.invalidate(self.block.raw(), start, size)
    }

    fn map(&self) -> Result<&dyn Map<Block = B::Block>> {
        self.block.backend().as_map().ok_or(ErrorKind::NotMappable.into())
    }

    /// Returns the range widened to whole atoms of the block, or nothing where no call is needed.
    fn atoms(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        let part = self.span.part(offset, size).ok_or(ErrorKind::OutOfRange)?;
        if size == 0 || self.access != HostAccess::Incoherent {
            return Ok(None);
        }
        let atom = self.block.backend().caps().atom;
        let end = atom.up(part.end()).ok_or(ErrorKind::SizeOverflow)?.min(self.block.size());
        let start = atom.down(part.offset);
        Ok(Some((start, end - start)))
    }
}

/// The methods of a host view.
macro_rules! host_view {
    () => {
        /// Returns a pointer to the first byte, valid while `self` is held. The device, and other views, may change the bytes
        /// at any time: [`bytes`](crate::bytes) has copies for such memory.
        ///
        /// # Panics
        ///
        /// Never: a mapped block fits the address space.
        #[must_use]
        pub fn as_ptr(&self) -> NonNull<u8> {
            self.view.as_ptr()
        }

        /// Copies bytes in, and flushes them where the memory is not coherent.
        ///
        /// # Errors
        ///
        /// `OutOfRange`, or what the driver says of the flush.
        pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            self.view.write(offset, bytes)
        }

        /// Copies bytes out, after invalidating them where the memory is not coherent.
        ///
        /// # Errors
        ///
        /// `OutOfRange`, or what the driver says of the invalidation.
        pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
            self.view.read(offset, bytes)
        }

        /// Makes the host's writes visible to the device. Nothing to do where the memory is coherent.
        ///
        /// # Errors
        ///
        /// `OutOfRange`, or what the driver says.
        pub fn flush(&self, offset: u64, size: u64) -> Result<()> {
            self.view.flush(offset, size)
        }

        /// Makes the device's writes visible to the host. Nothing to do where the memory is coherent.
        ///
        /// # Errors
        ///
        /// `OutOfRange`, or what the driver says.
        pub fn invalidate(&self, offset: u64, size: u64) -> Result<()> {
            self.view.invalidate(offset, size)
        }
    };
}

/// The host's view of an allocation.
///
/// Bytes are copied in and out, never borrowed: the device may write them at any time, so a Rust reference to them would be
/// unsound. Several threads may write the same bytes, also while the device uses them. That is no undefined behaviour, but
/// readers may see a mixture: wait for the timelines that use the bytes first.
#[derive(Debug)]
pub struct Mapped<'a, B: Backend> {
    view: View<B>,
    _pin: Pinned<'a, B>,
}

impl<B: Backend> Mapped<'_, B> {
    host_view!();
}

/// An allocation that stays mapped: [`Allocation::into_mapping`]. Owns the allocation, and frees it when it is dropped.
///
/// As for [`Mapped`], bytes are copied in and out, never borrowed.
#[must_use = "dropping a mapping frees its allocation"]
#[derive(Debug)]
pub struct Mapping<B: Backend> {
    view: View<B>,
    allocation: Allocation<B>,
}

impl<B: Backend> Mapping<B> {
    host_view!();

    /// Returns the allocation.
    pub const fn allocation(&self) -> &Allocation<B> {
        &self.allocation
    }

    /// Ends the mapping and returns the allocation, which may move again.
    pub fn into_allocation(self) -> Allocation<B> {
        self.allocation.unpin();
        self.allocation
    }
}
