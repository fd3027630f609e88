//! Kernels by hand: found in a module, launched with arguments by value.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{Argument, CodeDriver, Device, Driver, Launch, Limits, Module, Shape};
use core::{
    ffi::c_void,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};
use omniheap_seam::{ErrorKind, Result, TimelineId};
use std::sync::Arc;

/// A kernel, ready to launch.
pub struct Kernel<D: CodeDriver> {
    module: Module<D>,
    raw: D::Function,
    max_threads: u32,
    fixed_shared: u32,
    /// True if launches may use more shared memory than the default.
    is_opted_in: Arc<AtomicBool>,
}

impl<D: CodeDriver> Kernel<D> {
    pub(crate) fn new(
        module: Module<D>,
        raw: D::Function,
        max_threads: u32,
        fixed_shared: u32,
    ) -> Self {
        Self { module, raw, max_threads, fixed_shared, is_opted_in: Arc::default() }
    }
}

impl<D: CodeDriver> Clone for Kernel<D> {
    fn clone(&self) -> Self {
        Self { module: self.module.clone(), is_opted_in: self.is_opted_in.clone(), ..*self }
    }
}

impl<D: CodeDriver> fmt::Debug for Kernel<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("max_threads", &self.max_threads)
            .field("fixed_shared", &self.fixed_shared)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Device<D> {
    /// Runs a kernel, in timeline order.
    ///
    /// # Errors
    ///
    /// `ZeroSize` for an empty grid or group, `ExceedsLimit` for more threads or shared memory than the device has,
    /// `Foreign` for another device's kernel, `NoSuchTimeline`, `DeviceLost`.
    ///
    /// # Safety
    ///
    /// - `arguments` are as many, and of the types, as the kernel declares.
    /// - The kernel touches through them only memory that is live until it has run, in an order that the timelines
    ///   give.
    pub unsafe fn launch(
        &self,
        on: TimelineId,
        kernel: &Kernel<D>,
        launch: Launch,
        arguments: &[Argument],
    ) -> Result<()> {
        if !self.driver().runs_code_of(kernel.module.driver()) {
            return Err(ErrorKind::Foreign.into());
        }
        let shape = self.check(kernel, launch)?;
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Argument::pointer).collect();
        // SAFETY: one pointer for each argument; the caller promises the rest.
        unsafe { self.start(on, kernel, shape, &mut pointers) }
    }

    /// Checks a launch against the limits of the kernel and the device.
    pub(crate) fn check(&self, kernel: &Kernel<D>, launch: Launch) -> Result<Shape> {
        let shared = self.caps().shared.as_ref().map_or(0, |shared| shared.per_group_opt_in);
        let (threads, fixed_shared) = (kernel.max_threads, kernel.fixed_shared);
        launch.check(Limits { threads, fixed_shared, shared })
    }

    /// Launches, in timeline order.
    ///
    /// # Safety
    ///
    /// `pointers` are as many as the kernel takes, each to a value of its type; what the kernel does with them touches
    /// only memory that is live until it has run.
    pub(crate) unsafe fn start(
        &self,
        on: TimelineId,
        kernel: &Kernel<D>,
        shape: Shape,
        pointers: &mut [*mut c_void],
    ) -> Result<()> {
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?;
        self.opt_in(kernel, shape.shared)?;
        // SAFETY: the module is loaded as long as `kernel` lives, the stream as long as the timeline; the caller
        // promises the rest.
        unsafe { self.driver().launch(kernel.raw, shape, stream, pointers) }
    }

    /// Opts the kernel in to all the shared memory that the device gives, when a launch first needs more than the
    /// default. All at once, so that kernels of one function cannot lower each other's limit.
    fn opt_in(&self, kernel: &Kernel<D>, shared: u32) -> Result<()> {
        let total = u64::from(shared) + u64::from(kernel.fixed_shared);
        let Some(caps) = &self.caps().shared else { return Ok(()) };
        if total <= caps.per_group || kernel.is_opted_in.load(Ordering::Relaxed) {
            return Ok(());
        }
        let most = caps.per_group_opt_in.saturating_sub(u64::from(kernel.fixed_shared));
        let most = u32::try_from(most).map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: the module is loaded as long as `kernel` lives.
        unsafe { self.driver().allow_shared(kernel.raw, most) }?;
        kernel.is_opted_in.store(true, Ordering::Relaxed);
        Ok(())
    }
}
