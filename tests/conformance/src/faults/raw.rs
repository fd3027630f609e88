//! The raw calls that scenarios need.
#![expect(unsafe_code, reason = "frees blocks and launches kernels")]
use omniheap_core::{Allocation, Backend, Program, Result, TimelineId};

/// Frees a block that nothing uses.
pub(super) fn free<B: Backend>(backend: &B, block: B::Block) -> Result<()> {
    // SAFETY: the scenario made the block from this backend and gave no work to it.
    unsafe { backend.free(block) }
}

/// Runs `SCALE` over 64 numbers.
pub(super) fn scale<B: Backend>(
    program: &Program<B>,
    arguments: [&Allocation<B>; 2],
    parameters: &[u8],
) -> Result<()> {
    // SAFETY: the scenario passes two different allocations of 64 numbers, and parameters that say so.
    unsafe { program.launch(TimelineId::MAIN, [1, 1, 1], &arguments, parameters) }
}
