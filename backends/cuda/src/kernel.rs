//! Kernels and launches.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    backend::Cuda,
    driver::{Raw, Shape},
    module::Module,
};
use core::{
    ffi::c_void,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};
use cudarc::driver::sys::CUfunc_st;
use omniheap_core::{ErrorKind, Result, TimelineId};
use std::sync::Arc;

/// A kernel, ready to launch.
#[derive(Clone)]
pub struct Kernel {
    module: Module,
    raw: Raw<CUfunc_st>,
    max_threads: u32,
    fixed_shared: u32,
    /// Whether launches may use more shared memory than the default.
    is_opted_in: Arc<AtomicBool>,
}

impl Kernel {
    pub(crate) fn new(
        module: Module,
        raw: Raw<CUfunc_st>,
        max_threads: u32,
        fixed_shared: u32,
    ) -> Self {
        Self { module, raw, max_threads, fixed_shared, is_opted_in: Arc::default() }
    }

    pub(crate) const fn raw(&self) -> Raw<CUfunc_st> {
        self.raw
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("max_threads", &self.max_threads)
            .field("fixed_shared", &self.fixed_shared)
            .finish_non_exhaustive()
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Groups in each direction; none may be zero.
    pub grid: [u32; 3],
    /// Threads of a group in each direction; none may be zero.
    pub group: [u32; 3],
    /// Bytes of dynamic shared memory per group. Above the default limit the launch opts in by itself.
    pub shared: u64,
}

impl Launch {
    /// `groups` groups of `threads` threads, without dynamic shared memory.
    #[must_use]
    pub const fn linear(groups: u32, threads: u32) -> Self {
        Self { grid: [groups, 1, 1], group: [threads, 1, 1], shared: 0 }
    }

    /// The same with `bytes` of dynamic shared memory per group.
    #[must_use]
    pub const fn shared(self, bytes: u64) -> Self {
        Self { shared: bytes, ..self }
    }
}

/// One kernel argument, by value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Argument {
    /// A device address, or any 64-bit number.
    U64(u64),
    /// A 64-bit number.
    I64(i64),
    /// A 64-bit number.
    F64(f64),
    /// A 32-bit number.
    U32(u32),
    /// A 32-bit number.
    I32(i32),
    /// A 32-bit number.
    F32(f32),
}

impl Argument {
    /// The value's own bytes.
    fn pointer(&self) -> *mut c_void {
        let value = match self {
            Self::U64(value) => core::ptr::from_ref(value).cast::<c_void>(),
            Self::I64(value) => core::ptr::from_ref(value).cast(),
            Self::F64(value) => core::ptr::from_ref(value).cast(),
            Self::U32(value) => core::ptr::from_ref(value).cast(),
            Self::I32(value) => core::ptr::from_ref(value).cast(),
            Self::F32(value) => core::ptr::from_ref(value).cast(),
        };
        // The driver's signature is not `const`, but it only reads.
        value.cast_mut()
    }
}

impl Cuda {
    /// Runs a kernel, in timeline order.
    ///
    /// # Errors
    ///
    /// `ZeroSize` for an empty grid or group, `ExceedsLimit` for more threads or shared memory than the device has,
    /// `Foreign` for another context's kernel, `NoSuchTimeline`, `DeviceLost`.
    ///
    /// # Safety
    ///
    /// - `arguments` are as many, and of the types, as the kernel declares.
    /// - What the kernel does with them touches only memory that is live until it has run, in an order that the
    ///   timelines give.
    pub unsafe fn launch(
        &self,
        on: TimelineId,
        kernel: &Kernel,
        launch: Launch,
        arguments: &[Argument],
    ) -> Result<()> {
        if kernel.module.driver().context() != self.context() {
            return Err(ErrorKind::Foreign.into());
        }
        let shared = self.check_shape(kernel, launch)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        self.opt_in(kernel, shared)?;
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Argument::pointer).collect();
        let shape = Shape { grid: launch.grid, group: launch.group, shared };
        // SAFETY: the module is loaded as long as `kernel` lives, the stream as long as the timeline; the caller
        // promises the rest.
        unsafe { self.driver().launch(kernel.raw, shape, stream, &mut pointers) }
    }

    /// Refuses what the device can never run; returns the dynamic shared bytes.
    pub(crate) fn check_shape(&self, kernel: &Kernel, launch: Launch) -> Result<u32> {
        if launch.grid.contains(&0) || launch.group.contains(&0) {
            return Err(ErrorKind::ZeroSize.into());
        }
        let threads = launch.group.iter().try_fold(1u32, |product, &n| product.checked_mul(n));
        let total = launch.shared.checked_add(u64::from(kernel.fixed_shared));
        let most = self.attributes().shared_opt_in.max(self.attributes().shared_per_group);
        match (threads, total) {
            (Some(threads), Some(total)) if threads <= kernel.max_threads && total <= most => {
                u32::try_from(launch.shared).map_err(|_| ErrorKind::ExceedsLimit.into())
            }
            _ => Err(ErrorKind::ExceedsLimit.into()),
        }
    }

    /// Opts the kernel in to all the shared memory that the device gives, when a launch first needs more than the
    /// default. All at once, so that kernels of one function cannot lower each other's limit.
    pub(crate) fn opt_in(&self, kernel: &Kernel, shared: u32) -> Result<()> {
        let total = u64::from(shared) + u64::from(kernel.fixed_shared);
        let attributes = self.attributes();
        if total <= attributes.shared_per_group || kernel.is_opted_in.load(Ordering::Relaxed) {
            return Ok(());
        }
        let most = attributes.shared_opt_in.saturating_sub(u64::from(kernel.fixed_shared));
        let most = u32::try_from(most).map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: the module is loaded as long as `kernel` lives.
        unsafe { self.driver().allow_shared(kernel.raw, most) }?;
        kernel.is_opted_in.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_point_to_their_own_bytes() {
        let arguments = [Argument::U64(7), Argument::U32(9), Argument::F32(1.5)];
        let base = arguments.as_ptr().addr();
        for (index, argument) in arguments.iter().enumerate() {
            let offset = argument.pointer().addr() - base;
            assert_eq!(offset / size_of::<Argument>(), index);
            assert_ne!(offset % size_of::<Argument>(), 0, "the tag is not the value");
        }
    }
}
