//! Blocks from an engine's own allocator instead of the driver.
#![expect(unsafe_code, reason = "declares the contract that such an allocator signs")]
use ash::vk;
use core::{ffi::c_void, fmt, ptr::NonNull};
use omniheap_seam::Result;

/// Memory from an engine's allocator.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The memory it lies in.
    pub memory: vk::DeviceMemory,
    /// Bytes from the start of that memory.
    pub offset: u64,
    /// Host pointer, if it is mapped.
    pub mapped: Option<NonNull<c_void>>,
    /// The allocator's own number for it.
    pub token: u64,
}

// SAFETY: a handle, numbers and an address; who dereferences the address answers for races, as `Map::map` says.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

/// An allocator that an engine already has.
///
/// # Safety
///
/// - A piece has the asked size, alignment and memory type, and shares no byte with another live piece.
/// - Its memory was allocated for device addresses where the device has them enabled.
/// - Pieces of host-visible memory are mapped, and stay where they are.
pub unsafe trait MemorySource: fmt::Debug + Send + Sync {
    /// Allocates a piece.
    ///
    /// # Errors
    ///
    /// `OutOfDeviceMemory` and the other kinds of [`Backend::allocate`](omniheap_seam::Backend::allocate).
    fn allocate(&self, asked: vk::MemoryRequirements) -> Result<Piece>;

    /// Takes a piece back.
    ///
    /// # Safety
    ///
    /// `piece` came from `self`, once, and no device work uses it.
    unsafe fn free(&self, piece: Piece);
}
