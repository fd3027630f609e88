//! Bytes of each device that are held, and the most there were.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::code::{Answer, Code};
use crate::knobs::knobs;

/// Devices that there can be.
pub(crate) const DEVICES: usize = 8;

static HELD: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
static PEAK: AtomicU64 = AtomicU64::new(0);

fn of(device: u32) -> &'static AtomicU64 {
    &HELD[device as usize % DEVICES]
}

/// Takes bytes of a device.
pub(crate) fn charge(device: u32, size: u64) -> Answer {
    let more = |held: u64| held.checked_add(size).filter(|&sum| sum <= knobs().memory);
    let before = of(device)
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
        .map_err(|_| Code::OUT_OF_MEMORY)?;
    PEAK.fetch_max(before + size, Ordering::SeqCst);
    Ok(())
}

/// Gives bytes of a device back.
pub(crate) fn refund(device: u32, size: u64) {
    of(device).fetch_sub(size, Ordering::SeqCst);
}

/// Returns the free bytes of a device.
pub(crate) fn free(device: u32) -> u64 {
    knobs().memory - of(device).load(Ordering::SeqCst)
}

/// Returns the bytes that are held of all devices.
pub(crate) fn held() -> u64 {
    HELD.iter().map(|held| held.load(Ordering::SeqCst)).sum()
}

/// Returns the most that was held of one device.
pub(crate) fn peak() -> u64 {
    PEAK.load(Ordering::SeqCst)
}
