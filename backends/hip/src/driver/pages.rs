//! Virtual memory: address ranges, physical pages, mappings, and memory that other processes share.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ffi::c_int;
use core::ptr;

use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{CopyDriver, StreamDriver};

use super::{Driver, address, check, pointer};
use crate::sys::{
    Virtual, hipError_t, hipMemAccessDesc, hipMemAccessFlags, hipMemAllocationGranularity_flags,
    hipMemAllocationHandleType, hipMemAllocationProp, hipMemAllocationPropFlags,
    hipMemAllocationType, hipMemGenericAllocationHandle_t, hipMemLocation, hipMemLocationType,
};

const DESCRIPTOR: hipMemAllocationHandleType =
    hipMemAllocationHandleType::hipMemHandleTypePosixFileDescriptor;

/// Sharing of physical memory with another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Not shared.
    Private,
    /// As a file descriptor.
    Exportable,
}

/// A reserved range. HIP 6.4 ignores the alignment it is asked for, so more is reserved and the aligned part used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The aligned start of the part to use.
    pub base: u64,
    origin: u64,
    whole: usize,
}

impl Reserved {
    /// Returns the bytes from its start on, where that is aligned so.
    pub(crate) fn room(&self, align: usize) -> Option<usize> {
        let before = usize::try_from(self.base - self.origin).ok()?;
        let is_aligned = self.base.is_multiple_of(align.max(1) as u64);
        is_aligned.then_some(self.whole.checked_sub(before)?)
    }

    /// Creates a range that nobody reserved.
    #[cfg(test)]
    pub(crate) const fn at(base: u64, whole: usize) -> Self {
        Self { base, origin: base, whole }
    }
}

impl Driver {
    pub(super) const fn location(&self) -> hipMemLocation {
        hipMemLocation { r#type: hipMemLocationType::hipMemLocationTypeDevice, id: self.device }
    }

    fn pages(&self) -> Result<Virtual> {
        self.api.virtual_memory.ok_or_else(|| ErrorKind::Unsupported.into())
    }

    fn page_properties(&self, sharing: Sharing) -> hipMemAllocationProp {
        hipMemAllocationProp {
            r#type: hipMemAllocationType::hipMemAllocationTypePinned,
            requestedHandleType: match sharing {
                Sharing::Private => hipMemAllocationHandleType::hipMemHandleTypeNone,
                Sharing::Exportable => DESCRIPTOR,
            },
            location: self.location(),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: hipMemAllocationPropFlags {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
            },
        }
    }

    /// Returns the size that physical memory and mappings are multiples of; 4 KiB on AMD, where larger pages are faster.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without virtual memory; otherwise the runtime's error.
    pub fn granularity(&self, sharing: Sharing) -> Result<u64> {
        let (table, properties) = (self.pages()?, self.page_properties(sharing));
        let option = hipMemAllocationGranularity_flags::hipMemAllocationGranularityRecommended;
        let _current = self.enter()?;
        let mut bytes = 0;
        // SAFETY: `bytes` is a valid out-pointer and `properties` is filled in.
        check(unsafe {
            (table.hipMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, option)
        })?;
        Ok(bytes as u64)
    }

    /// Reserves addresses, aligned to `align`, a power of two.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without virtual memory, `SizeOverflow`; otherwise the runtime's error.
    pub fn reserve(&self, size: usize, align: usize) -> Result<Reserved> {
        let table = self.pages()?;
        let whole = size.checked_add(align).ok_or(ErrorKind::SizeOverflow)?;
        let _current = self.enter()?;
        let mut start = ptr::null_mut();
        // SAFETY: `start` is a valid out-pointer; no hint lets the runtime choose the place.
        check(unsafe {
            (table.hipMemAddressReserve)(&raw mut start, whole, align, ptr::null_mut(), 0)
        })?;
        let origin = address(start);
        Ok(Reserved { base: origin.next_multiple_of(align.max(1) as u64), origin, whole })
    }

    /// Releases reserved addresses.
    ///
    /// # Errors
    /// The runtime's error.
    ///
    /// # Safety
    /// The range came from [`reserve`](Self::reserve), is freed once (HIP crashes on one that it does not know) and has
    /// nothing mapped (HIP answers an error and forgets the range all the same).
    pub unsafe fn unreserve(&self, reserved: Reserved) -> Result<()> {
        let table = self.pages()?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe {
            (table.hipMemAddressFree)(pointer(reserved.origin), reserved.whole)
        })
    }

    /// Creates physical memory; `size` is a multiple of [`granularity`](Self::granularity).
    ///
    /// # Errors
    /// The runtime's error.
    pub fn create_page(
        &self,
        size: usize,
        sharing: Sharing,
    ) -> Result<hipMemGenericAllocationHandle_t> {
        let (table, properties) = (self.pages()?, self.page_properties(sharing));
        let _current = self.enter()?;
        let mut page = hipMemGenericAllocationHandle_t::NULL;
        // SAFETY: `page` is a valid out-pointer and `properties` is filled in.
        check(unsafe { (table.hipMemCreate)(&raw mut page, size, &raw const properties, 0) })?;
        Ok(page)
    }

    /// Releases physical memory.
    ///
    /// # Errors
    /// The runtime's error.
    ///
    /// # Safety
    /// `page` came from this driver, and is released once.
    pub unsafe fn release_page(&self, page: hipMemGenericAllocationHandle_t) -> Result<()> {
        let table = self.pages()?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipMemRelease)(page) })
    }

    /// Maps a page. Waits for the device's default stream.
    ///
    /// HIP answers success even when nothing was mapped: only [`allow`](Self::allow) tells.
    ///
    /// # Errors
    /// The runtime's error.
    ///
    /// # Safety
    /// The range is reserved and unmapped, and `page` is a live page of this driver with `size` bytes.
    pub unsafe fn map(
        &self,
        at: u64,
        size: usize,
        page: hipMemGenericAllocationHandle_t,
    ) -> Result<()> {
        let table = self.pages()?;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition. An offset other than zero is refused.
        check(unsafe { (table.hipMemMap)(pointer(at), size, 0, page, 0) })
    }

    /// Allows this device to read and write a mapped range.
    ///
    /// HIP 7.2 refuses some ranges that were mapped behind others: asking again from the start of the reservation's
    /// mapped part succeeds.
    ///
    /// # Errors
    /// The runtime's error; also when [`map`](Self::map) had failed silently.
    ///
    /// # Safety
    /// The whole range lies in one reservation of this driver.
    pub unsafe fn allow(&self, at: u64, size: usize) -> Result<()> {
        let table = self.pages()?;
        let flags = hipMemAccessFlags::hipMemAccessFlagsProtReadWrite;
        let grant = hipMemAccessDesc { location: self.location(), flags };
        let _current = self.enter()?;
        // SAFETY: one description is passed; the caller promises the range.
        check(unsafe { (table.hipMemSetAccess)(pointer(at), size, &raw const grant, 1) })
    }

    /// Unmaps one mapping.
    ///
    /// # Errors
    /// The runtime's error.
    ///
    /// # Safety
    /// The range is exactly that of one [`map`](Self::map) (several at once leave HIP 6 with addresses it cannot free, and
    /// it crashes on a range that it does not know), and no device work uses it.
    pub unsafe fn unmap(&self, at: u64, size: usize) -> Result<()> {
        let table = self.pages()?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipMemUnmap)(pointer(at), size) })
    }

    /// Unmaps one mapping that may not be there, because [`map`](Self::map) cannot tell: HIP 6 crashes on a range that it
    /// does not know, so it is asked first.
    ///
    /// # Errors
    /// The runtime's error.
    ///
    /// # Safety
    /// The range is exactly that of one [`map`](Self::map), and no device work uses it.
    pub unsafe fn undo_map(&self, at: u64, size: usize) -> Result<()> {
        if !self.holds(at, size as u64) {
            return Ok(());
        }
        // SAFETY: the runtime knows the range; the caller promises the rest.
        unsafe { self.unmap(at, size) }
    }

    /// Returns a file descriptor for physical memory; the caller closes it.
    ///
    /// # Errors
    /// The runtime's error.
    ///
    /// # Safety
    /// `page` is live and was created [`Sharing::Exportable`].
    pub unsafe fn export_page(&self, page: hipMemGenericAllocationHandle_t) -> Result<i32> {
        let table = self.pages()?;
        let _current = self.enter()?;
        let mut fd: c_int = -1;
        // SAFETY: for this kind of handle the runtime writes one `int`; the caller promises the page.
        check(unsafe {
            (table.hipMemExportToShareableHandle)((&raw mut fd).cast(), page, DESCRIPTOR, 0)
        })?;
        Ok(fd)
    }

    /// Opens physical memory that a descriptor stands for. The descriptor stays the caller's.
    ///
    /// # Errors
    /// `OutOfRange` for a number that is no descriptor; otherwise the runtime's error.
    pub fn import_page(&self, fd: i32) -> Result<hipMemGenericAllocationHandle_t> {
        let table = self.pages()?;
        let value = usize::try_from(fd).map_err(|_| ErrorKind::OutOfRange)?;
        let _current = self.enter()?;
        let (mut page, mut fd) = (hipMemGenericAllocationHandle_t::NULL, fd);
        let import = table.hipMemImportFromShareableHandle;
        // HIP 6 wants a pointer to the descriptor and follows whatever it is given; HIP 7 wants the descriptor as the
        // pointer, and finds no open file behind the number that an address is. So this order is safe on both.
        // SAFETY: `page` is a valid out-pointer, `fd` a descriptor in memory.
        let code = unsafe { import(&raw mut page, (&raw mut fd).cast(), DESCRIPTOR) };
        if code == hipError_t::hipSuccess || self.version()? / 10_000_000 < 7 {
            return check(code).map(|()| page);
        }
        // SAFETY: `page` is a valid out-pointer; a runtime of version 7 or later takes the number.
        check(unsafe { import(&raw mut page, ptr::without_provenance_mut(value), DESCRIPTOR) })?;
        Ok(page)
    }
}
