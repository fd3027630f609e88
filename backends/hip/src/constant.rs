//! The constant heap: device memory that kernels only read.
//!
//! HIP has no bank of its own for constants. A `__constant__` symbol lies in device memory, and any address that all
//! threads of a wave read alike goes through the scalar cache. So a constant block is a plain block, given to kernels by
//! its address, and what the runtime calls total constant memory is the heap's size.
use crate::backend::Hip;
use omniheap_seam::{ErrorKind, HeapId, Result};
use omniheap_stream::MemoryDriver;

impl Hip {
    /// Returns the address of `size` bytes, unless the heap would then hold more than the device has for constants.
    pub(crate) fn allocate_constant(&self, heap: HeapId, size: usize) -> Result<u64> {
        let (_, described) = self.device.source(heap)?;
        let after =
            self.device.used(heap).checked_add(size as u64).ok_or(ErrorKind::ExceedsLimit)?;
        // Two threads at the limit may both get in; it is the runtime's figure, and no wall behind it.
        if after > described.size {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        self.driver().allocate(size)
    }
}
