//! Many copies in one launch.
//!
//! A driver copy costs microseconds whatever its size, so a batch of small ones is cut into pieces that one kernel copies
//! together. The table of pieces goes through pinned memory in the order of the timeline.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    Argument, Block, BlockKind, BuildError, CodeDriver, Device, Driver, Kernel, Launch, Timeline,
    pieces::{GROUP, LARGE, Table, Tables},
};
use core::ptr::NonNull;
use omniheap_seam::{Move, Result, TimelineId};
use std::sync::OnceLock;

/// The kernel's source, which CUDA and HIP both compile.
pub const COMPACTION: &str = include_str!("../kernels/compact.cu");
const KERNEL: &str = "omniheap_compact";

/// The kernel, built when it is first needed, and the tables that tell it what to copy.
pub(crate) struct Compactor<D: CodeDriver> {
    pub(crate) tables: Tables,
    kernel: OnceLock<Result<Kernel<D>, BuildError>>,
}

impl<D: CodeDriver> Default for Compactor<D> {
    fn default() -> Self {
        Self { tables: Tables::default(), kernel: OnceLock::new() }
    }
}

/// Returns whether a move is one that the kernel carries.
pub(crate) fn is_packable<K: BlockKind>(step: &Move<'_, Block<K>>) -> bool {
    let reaches = |block: &Block<K>| block.is_on_device() && block.kind.is_writable();
    (1..LARGE).contains(&step.size) && reaches(step.from.block) && reaches(step.to.block)
}

impl<D: Driver> Device<D> {
    /// Builds the kernel that carries batches of copies now, not with the first batch.
    ///
    /// Loading device code may wait for kernels that run: call it before one that waits for the host.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be built; batches are then copied one by one.
    pub fn prepare_batches(&self) -> Result<(), BuildError> {
        self.batch_kernel().map(|_| ()).map_err(Clone::clone)
    }

    /// Returns the kernel. Why it cannot be built is logged once.
    fn batch_kernel(&self) -> Result<&Kernel<D>, &BuildError> {
        let build = || {
            let built = D::compaction(self.driver()).and_then(|module| Ok(module.kernel(KERNEL)?));
            built.inspect_err(|error| tracing::warn!(%error, "the compaction kernel did not load; moves are copied one by one"))
        };
        self.compactor.kernel.get_or_init(build).as_ref()
    }

    /// Copies what a table says, in as few launches as it takes; says whether it did.
    ///
    /// # Errors
    ///
    /// The driver's error; part of the moves may then have been submitted.
    ///
    /// # Safety
    ///
    /// Every move of the table lies inside live blocks of this backend.
    pub(crate) unsafe fn compact(
        &self,
        on: TimelineId,
        timeline: &Timeline<D>,
        table: &Table,
    ) -> Result<bool> {
        let Ok(kernel) = self.batch_kernel() else { return Ok(false) };
        let mut cut = table.cut();
        for part in table.parts() {
            let launch = |host: NonNull<u8>, device| {
                // SAFETY: the room has this part's length, starts at a cache line, and is nobody else's.
                unsafe { part.write(host, &mut cut) };
                let arguments = [Argument::U64(device), Argument::U32(part.entries)];
                let shape = Launch::linear(part.groups, GROUP);
                // SAFETY: the kernel takes the address of a table and its length, and copies what the table says; the
                // caller promises that.
                unsafe { self.launch(on, kernel, shape, &arguments) }
            };
            // SAFETY: a part fits a bounce.
            unsafe { self.staging().stage(timeline, part.length, launch) }?;
        }
        Ok(true)
    }
}
