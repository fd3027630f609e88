//! Kernels and launches.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{backend::Cuda, driver::Raw, module::Module};
use core::{
    ffi::c_void,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};
use cudarc::driver::sys::CUfunc_st;
use omniheap_core::{ErrorKind, Result, TimelineId};
use omniheap_stream::{Argument, Launch, Limits, Shape};
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
        let shape = self.check_shape(kernel, launch)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        self.opt_in(kernel, shape.shared)?;
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Argument::pointer).collect();
        // SAFETY: the module is loaded as long as `kernel` lives, the stream as long as the timeline; the caller
        // promises the rest.
        unsafe { self.driver().launch(kernel.raw, shape, stream, &mut pointers) }
    }

    /// Checks a launch against the limits of the kernel and the device.
    pub(crate) fn check_shape(&self, kernel: &Kernel, launch: Launch) -> Result<Shape> {
        let attributes = self.attributes();
        launch.check(Limits {
            threads: kernel.max_threads,
            fixed_shared: kernel.fixed_shared,
            shared: attributes.shared_opt_in.max(attributes.shared_per_group),
        })
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
