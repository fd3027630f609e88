//! Kernels that are loaded, and a launch of one.
#![expect(unsafe_code, reason = "shows kernels the bytes of blocks")]
use crate::block::Claim;
use crate::hold::Status;
use core::panic::AssertUnwindSafe;
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, HostLaunch, Kernel, ProgramId, Result, Slot};
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::{PoisonError, RwLock};

/// Kernels that are loaded, each with the shared bytes of its groups.
#[derive(Default)]
pub(crate) struct Programs {
    loaded: RwLock<BTreeMap<u64, (Kernel, u64)>>,
    next: AtomicU64,
}

impl Programs {
    pub(crate) fn load(&self, kernel: Kernel, shared: u64) -> ProgramId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.loaded.write().unwrap_or_else(PoisonError::into_inner).insert(id, (kernel, shared));
        ProgramId(id)
    }

    /// Forgets a kernel. What runs still has its own copy of it.
    pub(crate) fn unload(&self, program: ProgramId) -> Result<()> {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        loaded.remove(&program.0).map(drop).ok_or(ErrorKind::Stale.into())
    }

    /// Returns a kernel, and the shared bytes of its groups.
    pub(crate) fn get(&self, program: ProgramId) -> Result<(Kernel, u64)> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.get(&program.0).copied().ok_or(ErrorKind::Stale.into())
    }
}

/// One launch, with everything that it keeps alive.
pub(crate) struct Run {
    pub(crate) kernel: Kernel,
    pub(crate) shared: u64,
    pub(crate) groups: [u32; 3],
    pub(crate) claims: Vec<Claim>,
    pub(crate) parameters: Box<[u8]>,
}

impl Run {
    /// Runs the kernel. One that panics left its arguments, so the device is lost, as any other would be.
    pub(crate) fn run(&self, status: &Status) {
        if catch_unwind(AssertUnwindSafe(|| self.call())).is_err() {
            status.lose();
        }
    }

    fn call(&self) {
        // The blocks are not locked: a kernel may hold two arguments in one block, and the launch promises order.
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (slot, claim) in self.kernel.slots.iter().zip(&self.claims) {
            let (start, len) = (claim.start().as_ptr(), claim.len());
            match slot {
                Slot::Constant | Slot::Read => {
                    // SAFETY: the claim covers `len` mapped bytes; the launch promised that nobody writes them now.
                    reads.push(unsafe { slice::from_raw_parts(start, len) });
                }
                Slot::Write => {
                    // SAFETY: as above; the launch promised that what is written overlaps no other argument.
                    writes.push(unsafe { slice::from_raw_parts_mut(start, len) });
                }
            }
        }
        (self.kernel.host)(&mut HostLaunch {
            groups: self.groups,
            shared: self.shared,
            reads: &reads,
            writes: &mut writes,
            parameters: &self.parameters,
        });
    }
}
