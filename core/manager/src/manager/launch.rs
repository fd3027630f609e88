//! Kernels that run over allocations.
#![expect(unsafe_code, reason = "passes on what the caller promises of a kernel")]
use super::{Allocation, Manager};
use crate::device::Device;
use crate::{Argument, Backend, ErrorKind, Kernel, Launch, ProgramId, Result, Slot, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;

/// A kernel that is ready to run. Dropping it waits for its launches and lets it go.
pub struct Program<B: Backend> {
    device: Arc<Device<B>>,
    kernel: Kernel,
    id: ProgramId,
    manager: u32,
}

impl<B: Backend> fmt::Debug for Program<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.kernel).finish()
    }
}

impl<B: Backend> Manager<B> {
    /// Makes a kernel ready to run, each group with `shared` bytes of shared memory.
    ///
    /// # Errors
    ///
    /// As for [`Launch::load`]; `Unsupported` when the backend runs no kernels.
    pub fn load(&self, kernel: &Kernel, shared: u64) -> Result<Program<B>> {
        let id = self.backend().as_launch().ok_or(ErrorKind::Unsupported)?.load(kernel, shared)?;
        let (device, manager) = (Arc::clone(&self.inner.device), self.number());
        Ok(Program { device, kernel: *kernel, id, manager })
    }
}

impl<B: Backend> Program<B> {
    fn launcher(&self) -> &dyn Launch<Block = B::Block> {
        self.device.backend().as_launch().expect("it loaded this program")
    }

    /// The kernel.
    #[must_use]
    pub const fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Runs `groups` groups over whole allocations, in timeline order. Their bytes are not used again before it has run.
    ///
    /// # Errors
    ///
    /// As for [`Launch::launch`]; `Foreign` for an allocation of another manager; `Published` where the kernel would write
    /// bytes that are final.
    ///
    /// # Safety
    ///
    /// - With these parameters the kernel stays inside its arguments.
    /// - No two arguments that it writes are the same allocation, and timelines order it with whatever else uses them.
    /// - Until it has run, no [mapped](Allocation::map) view writes its arguments or reads what it writes.
    pub unsafe fn launch(
        &self,
        on: TimelineId,
        groups: [u32; 3],
        arguments: &[&Allocation<B>],
        parameters: &[u8],
    ) -> Result<()> {
        if arguments.iter().any(|argument| argument.lane().manager != self.manager) {
            return Err(ErrorKind::Foreign.into());
        }
        for (slot, argument) in self.kernel.slots.iter().zip(arguments) {
            if *slot == Slot::Write {
                argument.check_writable()?;
            }
        }
        let bound: Vec<_> = arguments.iter().map(|argument| argument.binding()).collect();
        let mut places = Vec::with_capacity(bound.len());
        for (binding, allocation) in bound.iter().zip(arguments) {
            let size = allocation.size();
            places.push(Argument { place: binding.place(0, size)?, size });
        }
        for argument in arguments {
            argument.use_on(on)?;
        }
        // SAFETY: the allocations are live and bound here, and `use_on` keeps their bytes until the timeline has passed;
        // the caller promises the rest.
        unsafe { self.launcher().launch(on, self.id, groups, &places, parameters) }
    }
}

impl<B: Backend> Drop for Program<B> {
    fn drop(&mut self) {
        // A lost device has nothing left to unload.
        let _ = self.launcher().unload(self.id);
    }
}
