//! Reports suballocations to NVIDIA's tools, so that `compute-sanitizer --nvtx yes` finds overruns and uses after free.
//!
//! The tools' side is found at run time, where a variable names it; there is no library to link, and without a tool
//! nothing is done.
mod tool;

use crate::{backend::Cuda, driver::Driver};
use core::fmt;
use omniheap_core::{AllocationId, BlockNumber, Event, Observer};
use omniheap_stream::{StreamDriver, lock};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tool::{Heap, Tool};

/// Blocks and spans that were reported to the tool.
#[derive(Default)]
struct Told {
    blocks: HashMap<BlockNumber, (u64, Heap)>,
    /// Start address and size of each allocation.
    spans: HashMap<AllocationId, (u64, u64)>,
}

/// Reports suballocations to a tool: an observer for
/// [`ManagerConfig::observed`](omniheap_core::ManagerConfig::observed).
///
/// A kernel that then touches a block's bytes outside every allocation is reported as if it were outside all memory.
/// Copies that defragmentation makes are reported too, because they fill a place before an allocation is there: leave it
/// off under a tool.
pub struct Nvtx {
    tool: Tool,
    /// Tools look at the memory of the context that is current.
    driver: Arc<Driver>,
    told: Mutex<Told>,
}

impl Nvtx {
    /// Starts telling of a device's blocks, where a tool listens: one that this program was started under, and that was
    /// asked for NVTX.
    #[must_use]
    pub fn attach(cuda: &Cuda) -> Option<Self> {
        let (tool, driver) = (Tool::get()?, cuda.driver().clone());
        Some(Self { tool, driver, told: Mutex::default() })
    }

    /// Notes that an allocation lies at an offset of a block from now on.
    fn place(&self, told: &mut Told, id: AllocationId, bytes: u64, at: (BlockNumber, u64)) {
        let Some((address, heap)) = told.blocks.get(&at.0) else { return };
        let start = address + at.1;
        self.tool.span(heap, start, bytes);
        told.spans.insert(id, (start, bytes));
    }

    /// Notes that an allocation lies nowhere any more; returns its bytes.
    fn lift(&self, told: &mut Told, id: AllocationId) -> Option<u64> {
        let (start, bytes) = told.spans.remove(&id)?;
        self.tool.span_ends(start);
        Some(bytes)
    }
}

impl Observer for Nvtx {
    fn observe(&self, event: &Event<'_>) {
        let Ok(_current) = self.driver.enter() else { return };
        let mut told = lock(&self.told);
        match *event {
            Event::TakeBlock { block, size, address: Some(address), .. } => {
                told.blocks.insert(block, (address, self.tool.block(address, size)));
            }
            Event::ReturnBlock { block } => {
                if let Some((_, heap)) = told.blocks.remove(&block) {
                    self.tool.block_ends(heap);
                }
            }
            Event::Allocate { id, request, block, offset, .. } => {
                self.place(&mut told, id, request.layout.size, (block, offset));
            }
            Event::Move { id, block, offset } => {
                if let Some(bytes) = self.lift(&mut told, id) {
                    self.place(&mut told, id, bytes, (block, offset));
                }
            }
            Event::Free { id, .. } => {
                self.lift(&mut told, id);
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Nvtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = lock(&self.told);
        f.debug_struct("Nvtx")
            .field("blocks", &told.blocks.len())
            .field("spans", &told.spans.len())
            .finish_non_exhaustive()
    }
}
