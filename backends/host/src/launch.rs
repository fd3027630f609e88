//! Kernels: the Rust text of each, run by its timeline's thread.
#![expect(unsafe_code, reason = "shows kernels the bytes of blocks")]
use crate::block::{Block, Claim};
use crate::device::{Host, Status};
use crate::work::Task;
use core::panic::AssertUnwindSafe;
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{
    Argument, ErrorKind, HostLaunch, Kernel, Launch, ProgramId, Result, Slot, TimelineId,
};
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::{PoisonError, RwLock};

/// Kernels that are loaded, each with the shared bytes of its groups.
#[derive(Default)]
pub(crate) struct Programs {
    loaded: RwLock<BTreeMap<u64, (Kernel, u64)>>,
    next: AtomicU64,
}

/// One launch, with everything that it keeps alive.
pub(crate) struct Run {
    kernel: Kernel,
    shared: u64,
    groups: [u32; 3],
    claims: Vec<Claim>,
    parameters: Box<[u8]>,
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

impl Host {
    fn argument(&self, argument: &Argument<'_, Block>, slot: Slot) -> Result<Claim> {
        if argument.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if !argument.place.offset.is_multiple_of(4) || !argument.size.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        if let (Slot::Constant, Some(limits)) = (slot, self.caps.constant) {
            if argument.size > limits.max_bind {
                return Err(ErrorKind::ExceedsLimit.into());
            }
            if !limits.align.divides(argument.place.offset) {
                return Err(ErrorKind::Misaligned.into());
            }
        }
        self.own(argument.place.block)?.claim(argument.place.offset, argument.size)
    }
}

// SAFETY: `Run` holds the kernel, its claims in the order of the arguments and a copy of the parameters; claims are checked
// against their blocks, and a kernel in Rust reaches nothing else.
unsafe impl Launch for Host {
    type Block = Block;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        self.check_alive()?;
        if !shared.is_multiple_of(4) || !kernel.parameters.is_multiple_of(4) {
            return Err(ErrorKind::Misaligned.into());
        }
        if shared > self.caps.shared.map_or(0, |limits| limits.per_group_opt_in) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let id = self.programs.next.fetch_add(1, Ordering::Relaxed);
        let mut loaded = self.programs.loaded.write().unwrap_or_else(PoisonError::into_inner);
        loaded.insert(id, (*kernel, shared));
        Ok(ProgramId(id))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        self.check_process()?;
        let mut loaded = self.programs.loaded.write().unwrap_or_else(PoisonError::into_inner);
        // What runs still has its own copy of the kernel.
        loaded.remove(&program.0).map(drop).ok_or(ErrorKind::Stale.into())
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        self.check_alive()?;
        let loaded = self.programs.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let (kernel, shared) = *loaded.get(&program.0).ok_or(ErrorKind::Stale)?;
        drop(loaded);
        if groups.contains(&0) {
            return Err(ErrorKind::ZeroSize.into());
        }
        kernel.check_launch(arguments.len(), parameters.len())?;
        let pairs = arguments.iter().zip(kernel.slots);
        let claims = pairs.map(|(a, slot)| self.argument(a, *slot)).collect::<Result<Vec<_>>>()?;
        let parameters = parameters.into();
        self.submit(on, Task::Run(Box::new(Run { kernel, shared, groups, claims, parameters })))
    }
}
