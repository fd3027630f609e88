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
use omniheap_stream::pieces::{GROUP, LARGE, Table, Tables};
use omniheap_stream::{Argument, Launch, Timeline};
use std::sync::{Arc, OnceLock};

const SOURCE: &str = include_str!("../../../shaders/compact/compact.cu");
/// The same, compiled before: the driver loads it in a fraction of the time that the run-time compiler takes.
const PREPARED: &str = include_str!("../../../shaders/compact/compact.ptx");
const KERNEL: &str = "omniheap_compact";

/// The kernel, and the tables that tell it what to copy.
pub(crate) struct Compactor {
    pub(crate) tables: Tables,
    driver: Arc<Driver>,
    compute: (u32, u32),
    kernel: OnceLock<Result<Kernel, BuildError>>,
}

impl Compactor {
    pub(crate) fn new(driver: &Arc<Driver>, compute: (u32, u32)) -> Self {
        let tables = Tables::default();
        Self { tables, driver: driver.clone(), compute, kernel: OnceLock::new() }
    }

    fn build(&self) -> Result<Kernel, BuildError> {
        let module = Module::load_ptx(&self.driver, PREPARED).or_else(|error| {
            tracing::info!(%error, "the compaction kernel is compiled here");
            Module::compile(&self.driver, Arch::new(self.compute.0, self.compute.1)?, SOURCE)
        });
        Ok(module?.kernel(KERNEL)?)
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
    /// Whether the kernel that carries batches of copies is loaded, which opening the device has tried.
    ///
    /// # Errors
    ///
    /// Why it cannot be; batches are then copied one by one.
    pub fn prepare_batches(&self) -> Result<(), BuildError> {
        self.compactor.kernel().map(|_| ()).map_err(Clone::clone)
    }

    /// Copies what a table says, in as few launches as it takes; says whether it did.
    ///
    /// # Errors
    ///
    /// What the driver says; part of the moves may then have been submitted.
    ///
    /// # Safety
    ///
    /// Every move of the table lies inside live blocks of this backend.
    pub(crate) unsafe fn compact(
        &self,
        on: TimelineId,
        timeline: &Timeline<Driver>,
        table: &Table,
    ) -> Result<bool> {
        let Ok(kernel) = self.compactor.kernel() else { return Ok(false) };
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
