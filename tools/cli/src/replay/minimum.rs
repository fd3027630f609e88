//! The least capacity at which a trace completes.
use super::device::{Device, Paging};
use super::program::Program;
use omniheap::{ErrorKind, seam::Result};

/// A trace that does not complete in this many times what is live, or in a gibibyte, is stopped by another limit.
const FARTHEST: u64 = 64;

/// Finds, to a thousandth, the least capacity in bytes at which every allocation of the trace is served.
///
/// Runs on a null device with the limits of `device`. `tried` is called before each capacity.
///
/// # Errors
///
/// `ExceedsLimit` when no capacity helps, because the device's largest block or its number of blocks is in the way.
pub fn minimum(
    device: &Device,
    program: &Program,
    paging: Paging,
    mut tried: impl FnMut(),
) -> Result<u64> {
    let mut completes = |capacity: u64| {
        tried();
        device.completes(program, capacity, paging)
    };
    // Nothing below what is live can suffice.
    let mut low = program.peak_live(&[]).max(1);
    if completes(low)?.is_some() {
        return Ok(low);
    }
    // Most traces need little more than what is live: look there first, then farther and farther.
    let (mut high, mut step, mut reserved) = (low, (low / 32).max(1), None);
    let farthest = low.saturating_mul(FARTHEST).max(1 << 30);
    while reserved.is_none() {
        if high > farthest {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        low = high;
        high = high.saturating_add(step);
        step = step.saturating_mul(2);
        reserved = completes(high)?;
    }
    while high - low > (low / 1000).max(1) {
        let middle = low + (high - low) / 2;
        match completes(middle)? {
            Some(used) => (high, reserved) = (middle, Some(used)),
            None => low = middle,
        }
    }
    // The last run may have held less than it was allowed: whole pages, for one.
    match reserved.filter(|used| *used < high) {
        Some(used) if completes(used)?.is_some() => Ok(used),
        _ => Ok(high),
    }
}
