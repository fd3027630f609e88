//! The calls to the operating system, one function each.
#[cfg(target_os = "linux")]
mod file;
#[cfg(not(unix))]
mod portable;
#[cfg(unix)]
mod unix;

#[cfg(target_os = "linux")]
pub(crate) use file::File;
#[cfg(not(unix))]
pub(crate) use portable::{Memory, forks, os_page, ram};
#[cfg(unix)]
pub(crate) use unix::{Memory, forks, os_page, ram};

use core::fmt;
use omniheap_seam::{ErrorKind, Result};

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{}", self.base(), self.len())
    }
}

/// Narrows a size to what the address space can hold.
pub(crate) fn narrow(size: u64) -> Result<usize> {
    usize::try_from(size)
        .ok()
        .filter(|n| *n <= isize::MAX.unsigned_abs())
        .ok_or(ErrorKind::ExceedsLimit.into())
}
