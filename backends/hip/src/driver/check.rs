//! The one place where HIP's codes become error kinds.

use omniheap_seam::{Error, ErrorKind, Result};

use crate::sys::hipError_t;

/// Separates success from every other code.
pub(super) const fn success(code: hipError_t) -> core::result::Result<(), hipError_t> {
    if code.0 == 0 { Ok(()) } else { Err(code) }
}

/// Turns a code into a result.
pub(super) fn check(code: hipError_t) -> Result<()> {
    success(code).map_err(|code| Error::new(kind(code.0)).with_native(i64::from(code.0)))
}

/// As [`check`], for calls that give something back: a runtime that is gone took it along.
pub(super) fn check_release(code: hipError_t) -> Result<()> {
    match code {
        hipError_t::hipErrorNotInitialized
        | hipError_t::hipErrorDeinitialized
        | hipError_t::hipErrorContextIsDestroyed => Ok(()),
        _ => check(code),
    }
}

/// Maps a code to an error kind.
const fn kind(code: u32) -> ErrorKind {
    match code {
        2 => ErrorKind::OutOfDeviceMemory,
        // Driver older than the runtime, no device, code or feature not for this device.
        35 | 100 | 209 | 217 | 801 => ErrorKind::Unsupported,
        101 => ErrorKind::InvalidConfig,
        // Work unfinished, a capture under way.
        600 | 900 | 906 => ErrorKind::Busy,
        // A launch asks for more threads, shared memory or groups than the device has.
        9 | 701 | 720 => ErrorKind::ExceedsLimit,
        // Shut down; context gone; memory errors that cannot be corrected; a kernel failed.
        3 | 4 | 201 | 709 | 214 | 700 | 702 | 710 | 719 => ErrorKind::DeviceLost,
        _ => ErrorKind::Driver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_to_what_a_caller_can_do() {
        let table = [
            (1, ErrorKind::Driver),
            (2, ErrorKind::OutOfDeviceMemory),
            (4, ErrorKind::DeviceLost),
            (9, ErrorKind::ExceedsLimit),
            (35, ErrorKind::Unsupported),
            (100, ErrorKind::Unsupported),
            (101, ErrorKind::InvalidConfig),
            (209, ErrorKind::Unsupported),
            (400, ErrorKind::Driver),
            (600, ErrorKind::Busy),
            (700, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (801, ErrorKind::Unsupported),
            (911, ErrorKind::Driver),
            (999, ErrorKind::Driver),
            (123_456, ErrorKind::Driver),
        ];
        for (code, expected) in table {
            let error = check(hipError_t(code)).expect_err("not a success");
            assert_eq!((error.kind(), error.native()), (expected, i64::from(code)));
        }
        assert_eq!(check(hipError_t::hipSuccess), Ok(()));
    }

    #[test]
    fn a_runtime_that_is_gone_has_nothing_to_give_back() {
        for (code, fine) in [(0, true), (3, true), (4, true), (709, true), (1, false), (700, false)]
        {
            assert_eq!(check_release(hipError_t(code)).is_ok(), fine, "code {code}");
        }
    }
}
