//! Handles: numbers that no two things ever share, and that are no addresses.

use core::sync::atomic::{AtomicU64, Ordering};

/// Returns a new handle.
pub(crate) fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x5A00_0000_0000);
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}
