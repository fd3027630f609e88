//! Many copies in one launch.
//!
//! A driver copy costs microseconds whatever its size, so a batch of small ones is cut into pieces that one kernel copies
//! together. The table of pieces goes through pinned memory in the order of the timeline.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    backend::{Block, Cuda},
    driver::Driver,
    kernel::Kernel,
    module::{Arch, BuildError, Module},
};
use core::ptr::NonNull;
use omniheap_core::{Move, Result, TimelineId};
use omniheap_stream::pieces::{self, GROUP, LARGE, Part};
use omniheap_stream::{Argument, Launch, Timeline};
use std::sync::{Arc, OnceLock};

const SOURCE: &str = include_str!("../../../shaders/compact/compact.cu");
const FALLBACK: &str = include_str!("../../../shaders/compact/compact.ptx");
const KERNEL: &str = "omniheap_compact";
/// The kernel, built when it is first needed.
pub(crate) struct Compactor {
    driver: Arc<Driver>,
    compute: (u32, u32),
    kernel: OnceLock<Result<Kernel, BuildError>>,
}

impl Compactor {
    pub(crate) fn new(driver: &Arc<Driver>, compute: (u32, u32)) -> Self {
        Self { driver: driver.clone(), compute, kernel: OnceLock::new() }
    }

    fn build(&self) -> Result<Kernel, BuildError> {
        let arch = Arch::new(self.compute.0, self.compute.1)?;
        let compiled = Module::compile(&self.driver, arch, SOURCE).or_else(|error| {
            tracing::info!(%error, "the compaction kernel uses its prepared image");
            Module::load_ptx(&self.driver, FALLBACK)
        });
        Ok(compiled?.kernel(KERNEL)?)
    }

    /// The kernel. Why it cannot be built is logged once.
    fn kernel(&self) -> Result<&Kernel, &BuildError> {
        let build = || {
            self.build().inspect_err(|error| tracing::warn!(%error, "moves are copied one by one"))
        };
        self.kernel.get_or_init(build).as_ref()
    }
}

/// Whether a move is one that the kernel carries.
pub(crate) fn is_packable(step: &Move<'_, Block>) -> bool {
    let reaches = |block: &Block| block.is_on_device() && !block.is_constant();
    (1..LARGE).contains(&step.size) && reaches(step.from.block) && reaches(step.to.block)
}

impl Cuda {
    /// Builds the kernel that carries batches of copies now, not with the first batch.
    ///
    /// Loading device code may wait for kernels that run: call it before one that waits for the host.
    ///
    /// # Errors
    ///
    /// Why it cannot be built; batches are then copied one by one.
    pub fn prepare_batches(&self) -> Result<(), BuildError> {
        self.compactor.kernel().map(|_| ()).map_err(Clone::clone)
    }

    /// Copies the moves that [`is_packable`] holds for, `count` pieces in all, in as few launches as their table takes; says
    /// whether it did.
    ///
    /// # Errors
    ///
    /// What the driver says; part of the moves may then have been submitted.
    ///
    /// # Safety
    ///
    /// Every move lies inside live blocks of this backend.
    pub(crate) unsafe fn compact(
        &self,
        on: TimelineId,
        timeline: &Timeline<Driver>,
        moves: &[Move<'_, Block>],
        count: u64,
    ) -> Result<bool> {
        let Ok(kernel) = self.compactor.kernel() else { return Ok(false) };
        let mut table = moves.iter().filter(|step| is_packable(step)).flat_map(|step| {
            let (to, from) =
                (step.to.block.at(step.to.offset), step.from.block.at(step.from.offset));
            pieces::pieces(to, from, step.size)
        });
        for part in pieces::parts(count) {
            // SAFETY: the caller's promise.
            unsafe { self.submit(on, timeline, kernel, &mut table, part) }?;
        }
        Ok(true)
    }

    /// Copies the next part of a table.
    ///
    /// # Safety
    ///
    /// The table has as many pieces, and every one lies inside live blocks of this backend.
    unsafe fn submit(
        &self,
        on: TimelineId,
        timeline: &Timeline<Driver>,
        kernel: &Kernel,
        table: &mut impl Iterator<Item = pieces::Piece>,
        part: Part,
    ) -> Result<()> {
        let launch = |host: NonNull<u8>, device| {
            // SAFETY: the room has this part's length and starts at a cache line.
            unsafe { part.write(host, table) };
            let arguments = [Argument::U64(device), Argument::U32(part.entries)];
            // SAFETY: the kernel takes the address of a table and its length, and copies what the table says; the caller
            // promises that.
            unsafe { self.launch(on, kernel, Launch::linear(part.groups, GROUP), &arguments) }
        };
        // SAFETY: a part fits a bounce.
        unsafe { self.staging().stage(timeline, part.length, launch) }
    }
}
