//! What a timeline does: jobs that were checked when they were submitted.
#![expect(unsafe_code, reason = "moves bytes inside and between blocks")]
use crate::block::Claim;
use crate::device::Status;
use crate::hold::Gate;
use crate::launch::Run;
use crate::timeline::Line;
use core::ptr;
use omniheap_core::Epoch;
use std::sync::{Arc, PoisonError};

/// One piece of work, with everything that it keeps alive.
pub(crate) struct Job {
    pub(crate) status: Arc<Status>,
    pub(crate) task: Task,
}

pub(crate) enum Task {
    /// Bytes to a block.
    Write(Claim, Box<[u8]>),
    /// One value to every byte.
    Fill(Claim, u8),
    /// From the first to the second, one pair after the other.
    Copy(Vec<(Claim, Claim)>),
    /// Wait for another timeline.
    After(Arc<Line>, Epoch),
    /// Wait for a guard to be dropped.
    Hold(Arc<Gate>),
    /// Run a kernel.
    Run(Box<Run>),
}

impl Job {
    /// Does the work, or skips it when the device is lost.
    pub(crate) fn run(self) {
        if self.status.is_lost() {
            return;
        }
        match self.task {
            Task::Write(to, bytes) => write(&to, &bytes),
            Task::Fill(to, value) => fill(&to, value),
            Task::Copy(moves) => moves.iter().for_each(|(from, to)| copy(from, to)),
            Task::After(line, epoch) => line.wait(epoch),
            Task::Hold(gate) => gate.wait(),
            Task::Run(run) => run.run(&self.status),
        }
    }
}

fn write(to: &Claim, bytes: &[u8]) {
    let _alone = to.body.access.write().unwrap_or_else(PoisonError::into_inner);
    debug_assert_eq!(to.len(), bytes.len(), "claimed for these bytes");
    // SAFETY: the claim covers `bytes.len()` mapped bytes, which nobody else touches while `access` is held.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.start().as_ptr(), bytes.len()) };
}

fn fill(to: &Claim, value: u8) {
    let _alone = to.body.access.write().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the claim covers `len` mapped bytes, which nobody else touches while `access` is held.
    unsafe { ptr::write_bytes(to.start().as_ptr(), value, to.len()) };
}

/// Copies the claimed bytes to the host.
pub(crate) fn read(from: &Claim, bytes: &mut [u8]) {
    let _shared = from.body.access.read().unwrap_or_else(PoisonError::into_inner);
    debug_assert_eq!(from.len(), bytes.len(), "claimed for these bytes");
    // SAFETY: the claim covers `bytes.len()` mapped bytes, which nobody writes while `access` is held.
    unsafe { ptr::copy_nonoverlapping(from.start().as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
}

fn copy(from: &Claim, to: &Claim) {
    let (a, b) = (&from.body, &to.body);
    // In order of address, so that two copies in opposite directions cannot wait for each other.
    let (_read, _write);
    if Arc::ptr_eq(a, b) {
        _write = b.access.write().unwrap_or_else(PoisonError::into_inner);
    } else if Arc::as_ptr(a) < Arc::as_ptr(b) {
        _read = a.access.read().unwrap_or_else(PoisonError::into_inner);
        _write = b.access.write().unwrap_or_else(PoisonError::into_inner);
    } else {
        _write = b.access.write().unwrap_or_else(PoisonError::into_inner);
        _read = a.access.read().unwrap_or_else(PoisonError::into_inner);
    }
    for start in (0..to.len()).step_by(ZERO_STEP) {
        copy_step(from, to, start, ZERO_STEP.min(to.len() - start));
    }
}

/// Bytes that are looked at together: a page of the operating system on most machines.
const ZERO_STEP: usize = 4096;

/// Copies one step, or nothing when both sides are zero: memory that was never touched then stays uncommitted, so
/// moving a block of it costs no RAM.
fn copy_step(from: &Claim, to: &Claim, start: usize, size: usize) {
    // SAFETY: the claim covers `start + size` mapped bytes, which nobody writes while `copy` holds `access`.
    let source =
        unsafe { core::slice::from_raw_parts(from.start().as_ptr().wrapping_add(start), size) };
    // SAFETY: as above; `Host::copy` checked that the claims share no byte, so this is the only reference to them.
    let target =
        unsafe { core::slice::from_raw_parts_mut(to.start().as_ptr().wrapping_add(start), size) };
    let zero = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte) == 0;
    if !zero(source) || !zero(target) {
        target.copy_from_slice(source);
    }
}
