//! Work of jobs on bytes. They were validated when submitted.
//!
//! A block's bytes are shared as [`bytes`] means it: the host may have them mapped, and other timelines use them too. No
//! reference to them exists, except in a kernel, whose launch promised exclusive use of its arguments.
#![expect(unsafe_code, reason = "moves bytes inside and between blocks")]
use crate::block::Claim;
use omniheap_seam::bytes;

pub(crate) fn write(to: &Claim, bytes: &[u8]) {
    debug_assert_eq!(to.len(), bytes.len(), "claimed for these bytes");
    // SAFETY: the claim covers `bytes.len()` mapped bytes, which are shared.
    unsafe { bytes::write(to.start(), bytes) };
}

pub(crate) fn fill(to: &Claim, value: u8) {
    // SAFETY: the claim covers `len` mapped bytes, which are shared.
    unsafe { bytes::fill(to.start(), to.len(), value) };
}

/// Copies the claimed bytes to the host.
pub(crate) fn read(from: &Claim, bytes: &mut [u8]) {
    debug_assert_eq!(from.len(), bytes.len(), "claimed for these bytes");
    // SAFETY: the claim covers `bytes.len()` mapped bytes, which are shared.
    unsafe { bytes::read(from.start(), bytes) };
}

/// Bytes that are looked at together: a page of the operating system on most machines.
const ZERO_STEP: usize = 4096;

/// Copies step by step. Where both sides are zero it writes nothing: memory that was never touched then stays uncommitted, so
/// moving a block of it costs no RAM.
pub(crate) fn copy(from: &Claim, to: &Claim) {
    for start in (0..to.len()).step_by(ZERO_STEP) {
        let size = ZERO_STEP.min(to.len() - start);
        if is_zero(from, start, size) && is_zero(to, start, size) {
            continue;
        }
        // SAFETY: inside the claim, which is as long as the other.
        let source = unsafe { from.start().add(start) };
        // SAFETY: inside the claim.
        let target = unsafe { to.start().add(start) };
        // SAFETY: both claims cover `size` more bytes, which are mapped and shared; the batch was checked for overlaps.
        unsafe { bytes::copy(source, target, size) };
    }
}

/// Returns whether `size` bytes of a claim are zero. Looks at a little first: most bytes that are not show it soon.
fn is_zero(claim: &Claim, start: usize, size: usize) -> bool {
    let mut buffer = [0; 256];
    (start..start + size).step_by(buffer.len()).all(|at| {
        let piece = &mut buffer[..256.min(start + size - at)];
        // SAFETY: the callers stay inside the claim.
        let from = unsafe { claim.start().add(at) };
        // SAFETY: as above; its bytes are mapped and shared.
        unsafe { bytes::read(from, piece) };
        piece.iter().fold(0, |any, byte| any | byte) == 0
    })
}
