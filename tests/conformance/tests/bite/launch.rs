//! Kernels of a backend with one bug.
#![expect(unsafe_code, reason = "signs the contract of Launch, and breaks it on purpose")]
use crate::bug::Bug;
use crate::buggy::{Block, Buggy, place};
use omniheap_core::{Argument, Backend, Kernel, Launch, ProgramId, Result, TimelineId, Transfer};

/// Byte that a group of another owner left in shared memory.
const LEFT: u8 = 0xA5;

// SAFETY: as for `Backend`: nobody may rely on it, and the host checks what reaches it.
unsafe impl Launch for Buggy {
    type Block = Block;

    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId> {
        let host = self.host.as_launch().expect("the host has it");
        let most = self.caps().shared.map_or(u64::MAX, |caps| caps.per_group_opt_in);
        let shared = if self.has(Bug::SharedUnchecked) { shared.min(most) & !3 } else { shared };
        host.load(kernel, shared)
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        self.host.as_launch().expect("the host has it").unload(program)
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        if self.has(Bug::LaunchDoesNothing) {
            return Ok(());
        }
        let inner: Vec<_> = arguments
            .iter()
            .map(|argument| Argument { place: place(&argument.place), size: argument.size })
            .collect();
        let host = self.host.as_launch().expect("the host has it");
        // SAFETY: the caller's promise is about the same arguments.
        unsafe { host.launch(on, program, groups, &inner, parameters) }?;
        match (self.bug, arguments) {
            (Bug::SharedKeepsBytes, [only]) => self.fill(on, only.place, only.size, LEFT),
            (Bug::ConstantsNotSeen, [_, _, out]) => self.fill(on, out.place, out.size, 0),
            _ => Ok(()),
        }
    }
}
