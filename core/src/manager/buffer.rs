//! Typed arrays in device memory.
use super::{AllocateError, Allocation, Manager};
use crate::{Backend, ErrorKind, Layout, Request, Result};
use bytemuck::Pod;
use core::fmt;
use core::marker::PhantomData;

/// An array of `T` in device memory.
#[must_use = "dropping a buffer frees it"]
pub struct Buffer<T, B: Backend> {
    allocation: Allocation<B>,
    count: u64,
    of: PhantomData<fn() -> T>,
}

impl<T, B: Backend> fmt::Debug for Buffer<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("allocation", &self.allocation)
            .field("count", &self.count)
            .finish()
    }
}

impl<T: Pod, B: Backend> Buffer<T, B> {
    /// Values in the array.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The bytes behind it.
    pub const fn allocation(&self) -> &Allocation<B> {
        &self.allocation
    }

    /// Gives up the type and keeps the bytes.
    pub fn into_allocation(self) -> Allocation<B> {
        self.allocation
    }

    fn offset(first: u64) -> Result<u64> {
        first.checked_mul(size_of::<T>() as u64).ok_or(ErrorKind::SizeOverflow.into())
    }

    /// Writes values from the host, starting at index `first`.
    ///
    /// # Errors
    ///
    /// As for [`Allocation::write`].
    pub fn write(&self, first: u64, values: &[T]) -> Result<()> {
        self.allocation.write(Self::offset(first)?, bytemuck::cast_slice(values))
    }

    /// Reads values to the host, starting at index `first`.
    ///
    /// # Errors
    ///
    /// As for [`Allocation::read`].
    pub fn read(&self, first: u64, values: &mut [T]) -> Result<()> {
        self.allocation.read(Self::offset(first)?, bytemuck::cast_slice_mut(values))
    }
}

impl<B: Backend> Manager<B> {
    /// Allocates an array of `count` values; `request` says how it is used, its layout is replaced.
    ///
    /// # Errors
    ///
    /// `SizeOverflow` when the array does not fit in 64 bits, `ZeroSize` when it is empty, or as for
    /// [`allocate`](Self::allocate).
    pub fn buffer<T: Pod>(
        &self,
        count: u64,
        request: &Request<'_>,
    ) -> Result<Buffer<T, B>, AllocateError> {
        let layout = Layout::array::<T>(count).ok_or(ErrorKind::SizeOverflow)?;
        let layout = layout.align(layout.align.max(request.layout.align));
        let allocation = self.allocate(&Request { layout, ..*request })?;
        Ok(Buffer { allocation, count, of: PhantomData })
    }
}
