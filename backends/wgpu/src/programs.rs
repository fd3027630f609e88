//! Kernels that are loaded: a compute pipeline each.
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, Kernel, ProgramId, Result, lock};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use wgpu::{BindGroupLayout, ComputePipeline};

/// Kernels that are loaded.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    loaded: Mutex<BTreeMap<u64, Arc<Program>>>,
    next: AtomicU64,
}

impl Programs {
    pub(crate) fn load(&self, program: Program) -> ProgramId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.loaded).insert(id, Arc::new(program));
        ProgramId(id)
    }

    pub(crate) fn unload(&self, program: ProgramId) -> Result<()> {
        lock(&self.loaded).remove(&program.0).map(drop).ok_or(ErrorKind::Stale.into())
    }

    pub(crate) fn get(&self, program: ProgramId) -> Result<Arc<Program>> {
        lock(&self.loaded).get(&program.0).cloned().ok_or(ErrorKind::Stale.into())
    }
}

/// A kernel's pipeline.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) kernel: Kernel,
    pub(crate) pipeline: ComputePipeline,
    pub(crate) layout: BindGroupLayout,
}
