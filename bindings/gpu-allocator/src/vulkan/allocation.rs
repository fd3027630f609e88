//! Allocations as callers hold them: numbers and an address, no ownership.
#![expect(unsafe_code, reason = "shows mapped memory as slices")]
use ash::vk;
use core::{ffi::c_void, marker::PhantomData, num::NonZeroU64, ptr::NonNull};

/// Host address of a mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer(pub(super) NonNull<c_void>);

// SAFETY: an address; whoever dereferences it answers for races.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

impl Pointer {
    /// Returns the address `offset` bytes further on in the same mapping.
    #[inline]
    pub(super) fn add(self, offset: u64) -> Self {
        let offset = usize::try_from(offset).expect("a mapping fits the address space");
        // A mapping never wraps around, so this is the sum, and an address needs no more: `wrapping_add` keeps the provenance.
        let sum = self.0.as_ptr().wrapping_byte_add(offset);
        Self(NonNull::new(sum).expect("a mapping does not end at zero"))
    }
}

/// A piece of memory. Give it back with [`Allocator::free`](super::Allocator::free).
///
/// Dropped instead, it stays allocated until the allocator is dropped, and is reported as a leak.
///
/// Mapped memory implements [`presser::Slab`]; [`try_as_mapped_slab`](Self::try_as_mapped_slab) is the way that does
/// not panic. The device must not use the bytes while they are borrowed.
#[derive(Debug)]
pub struct Allocation {
    /// Its number in its allocator; `None` for the null allocation.
    pub(super) chunk_id: Option<NonZeroU64>,
    /// The number of its allocator, and its place in the allocator's table.
    pub(super) allocator: u64,
    pub(super) slot: usize,
    pub(super) memory: vk::DeviceMemory,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) mapped: Option<Pointer>,
    pub(super) properties: vk::MemoryPropertyFlags,
    pub(super) dedicated: bool,
}

impl Default for Allocation {
    /// The null allocation.
    fn default() -> Self {
        Self {
            chunk_id: None,
            allocator: 0,
            slot: 0,
            memory: vk::DeviceMemory::null(),
            offset: 0,
            size: 0,
            mapped: None,
            properties: vk::MemoryPropertyFlags::empty(),
            dedicated: false,
        }
    }
}

impl Allocation {
    /// Borrows the mapped bytes as a [`presser::Slab`]; `None` where the memory is not mapped.
    pub fn try_as_mapped_slab(&mut self) -> Option<MappedAllocationSlab<'_>> {
        let size = usize::try_from(self.size).ok().filter(|size| isize::try_from(*size).is_ok())?;
        let start = self.mapped?.0.cast().as_ptr();
        Some(MappedAllocationSlab { start, size, borrowed: PhantomData })
    }

    /// Returns the number that its allocator knows it by; `None` for the null allocation.
    #[must_use]
    pub const fn chunk_id(&self) -> Option<NonZeroU64> {
        self.chunk_id
    }

    /// Returns the properties of its memory type.
    #[must_use]
    pub const fn memory_properties(&self) -> vk::MemoryPropertyFlags {
        self.properties
    }

    /// Returns the memory object that it lies in, which it may share with others.
    ///
    /// # Safety
    ///
    /// Resources are bound to it at [`offset`](Self::offset) and destroyed before the allocation is freed. Nobody else frees it.
    #[must_use]
    pub const unsafe fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    /// Returns whether it is alone in its memory object.
    #[must_use]
    pub const fn is_dedicated(&self) -> bool {
        self.dedicated
    }

    /// Returns its offset in [`memory`](Self::memory).
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns its bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns where the host sees its first byte, where the memory is host-visible.
    #[must_use]
    pub fn mapped_ptr(&self) -> Option<NonNull<c_void>> {
        self.mapped.map(|Pointer(start)| start)
    }

    /// Returns the bytes, where the memory is host-visible.
    #[must_use]
    pub fn mapped_slice(&self) -> Option<&[u8]> {
        let start = self.mapped?.0.cast().as_ptr();
        let size = usize::try_from(self.size).ok()?;
        // SAFETY: mapped for `size` bytes until the allocation is freed, which takes it by value. That the device leaves the
        // bytes alone meanwhile is the caller's part, as in the crate whose interface this is.
        Some(unsafe { core::slice::from_raw_parts(start, size) })
    }

    /// Returns the bytes to write, where the memory is host-visible.
    #[must_use]
    pub fn mapped_slice_mut(&mut self) -> Option<&mut [u8]> {
        let start = self.mapped?.0.cast().as_ptr();
        let size = usize::try_from(self.size).ok()?;
        // SAFETY: as for `mapped_slice`; `&mut self` keeps other borrows of these bytes away.
        Some(unsafe { core::slice::from_raw_parts_mut(start, size) })
    }

    /// Returns whether it is the null allocation.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        self.chunk_id.is_none()
    }
}

/// The mapped bytes of an [`Allocation`], borrowed.
#[derive(Debug)]
pub struct MappedAllocationSlab<'a> {
    start: *mut u8,
    size: usize,
    borrowed: PhantomData<&'a mut Allocation>,
}

// SAFETY: one mapping of `size` bytes, which is at most `isize::MAX`; the allocation is borrowed as long as `self` lives.
unsafe impl presser::Slab for MappedAllocationSlab<'_> {
    fn base_ptr(&self) -> *const u8 {
        self.start
    }
    fn base_ptr_mut(&mut self) -> *mut u8 {
        self.start
    }
    fn size(&self) -> usize {
        self.size
    }
}

const NOT_MAPPED: &str = "only an allocation in host-visible memory is a slab";

// SAFETY: one mapping of `size` bytes; what is not mapped, or is larger than `isize::MAX`, panics.
unsafe impl presser::Slab for Allocation {
    fn base_ptr(&self) -> *const u8 {
        self.mapped.expect(NOT_MAPPED).0.as_ptr().cast()
    }
    fn base_ptr_mut(&mut self) -> *mut u8 {
        self.mapped.expect(NOT_MAPPED).0.as_ptr().cast()
    }
    fn size(&self) -> usize {
        let size = isize::try_from(self.size).expect("a slab has at most `isize::MAX` bytes");
        size.unsigned_abs()
    }
}
