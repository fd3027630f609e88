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
#[cfg(unix)]
use omniheap_seam::Error;
use omniheap_seam::{ErrorKind, Result};

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{}", self.base(), self.len())
    }
}

/// Returns the operating system's last error, as the given kind.
#[cfg(unix)]
fn last_error(kind: ErrorKind) -> Error {
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Error::new(kind).with_native(code.into())
}

/// Narrows a size to what the address space can hold.
pub(crate) fn narrow(size: u64) -> Result<usize> {
    usize::try_from(size)
        .ok()
        .filter(|n| *n <= isize::MAX.unsigned_abs())
        .ok_or(ErrorKind::ExceedsLimit.into())
}
