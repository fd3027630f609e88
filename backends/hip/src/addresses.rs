//! Reserved addresses, which later blocks get again.
//!
//! HIP 6.4 still follows its record of a range when every wait for what used the range has returned, and crashes when the
//! record is gone by then. So no range that was used is given back: the next block that fits into it gets it.
#![expect(unsafe_code, reason = "says who may use a range again")]
use crate::driver::{Driver, Reserved};
use omniheap_seam::Result;
use omniheap_stream::lock;
use std::sync::Mutex;

/// Ranges that no block has, each with the number of its device: records outlive the backend that made them.
static KEPT: Mutex<Vec<(i32, Reserved)>> = Mutex::new(Vec::new());

/// Takes a range that was kept, or reserves one.
///
/// # Errors
///
/// As for [`Driver::reserve`].
pub(crate) fn take(driver: &Driver, size: usize, align: usize) -> Result<Reserved> {
    let found = {
        let mut kept = lock(&KEPT);
        choose(&kept, driver.ordinal(), size, align).map(|at| kept.swap_remove(at).1)
    };
    found.map_or_else(|| driver.reserve(size, align), Ok)
}

/// Keeps a range for later.
///
/// # Safety
///
/// The range came from [`take`] for this driver's device and is kept once; nothing is mapped there, and no map ever failed
/// there.
pub(crate) unsafe fn keep(driver: &Driver, reserved: Reserved) {
    lock(&KEPT).push((driver.ordinal(), reserved));
}

/// Returns the smallest range of a device that is large enough.
fn choose(kept: &[(i32, Reserved)], device: i32, size: usize, align: usize) -> Option<usize> {
    let fits = |(of, range): &(i32, Reserved)| *of == device && range.room(align) >= Some(size);
    let found = kept.iter().enumerate().filter(|(_, each)| fits(each));
    found.min_by_key(|(_, (_, range))| range.room(align)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_range_of_the_device_that_fits_is_chosen() {
        let range = |device, base, size| (device, Reserved::at(base, size));
        let kept = [
            range(0, 0x40_0000, 0x8000),
            range(1, 0x80_0000, 0x2000),
            range(0, 0xC0_1000, 0x3000),
            range(0, 0x100_0000, 0x4000),
        ];
        assert_eq!(choose(&kept, 0, 0x3000, 0x1000), Some(2));
        assert_eq!(choose(&kept, 0, 0x3000, 0x1_0000), Some(3), "the third is not aligned");
        assert_eq!(choose(&kept, 0, 0x5000, 0x1000), Some(0));
        assert_eq!(choose(&kept, 1, 0x2000, 0x1000), Some(1));
        assert_eq!(choose(&kept, 1, 0x2001, 0x1000), None);
        assert_eq!(choose(&kept, 2, 1, 1), None);
    }
}
