//! Kernels: the Rust text of each, run by its timeline's thread.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::block::{Block, Claim};
use crate::device::Host;
use crate::programs::Run;
use crate::timeline::Task;
use omniheap_seam::{Argument, ErrorKind, Kernel, Launch, ProgramId, Result, Slot, TimelineId};

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
        // The host runs only the Rust text, but authors try their kernels here first, so the whole kernel is checked.
        kernel.check()?;
        if shared > self.caps.shared.map_or(0, |limits| limits.per_group_opt_in) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        Ok(self.programs.load(*kernel, shared))
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        self.check_process()?;
        self.programs.unload(program)
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
        let (kernel, shared) = self.programs.get(program)?;
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
