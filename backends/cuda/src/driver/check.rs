//! The one place where driver codes become error kinds.
use crate::sys::Code;
use omniheap_seam::{Error, ErrorKind, Result};

/// The code for "the event or stream has not finished yet".
pub(crate) const NOT_READY: Code = 600;

/// The code for "this thread has no context".
pub(crate) const NO_CONTEXT: Code = 201;

/// Separates success from every other code.
pub(super) const fn success(code: Code) -> core::result::Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Turns a driver code into a result.
pub(crate) fn check(code: Code) -> Result<()> {
    success(code).map_err(|code| Error::new(kind(code)).with_native(i64::from(code)))
}

/// As [`check`], for calls that give something back: a driver or context that is gone took it along.
pub(super) fn check_release(code: Code) -> Result<()> {
    match code {
        // Not initialised, shut down (process exit), context destroyed.
        3 | 4 | 709 => Ok(()),
        _ => check(code),
    }
}

/// Maps a driver code to an error kind.
const fn kind(code: Code) -> ErrorKind {
    match code {
        2 => ErrorKind::OutOfDeviceMemory,
        // Stub library, no device, driver older than the libraries, image or feature not for this device.
        34 | 100 | 209 | 217 | 221 | 222 | 223 | 224 | 800 | 801 | 803 | 804 => {
            ErrorKind::Unsupported
        }
        101 => ErrorKind::InvalidConfig,
        // Device taken by another process, work unfinished, services still starting, a capture under way.
        46 | 600 | 802 | 807 | 900 | 906 => ErrorKind::Busy,
        // Launch asks for more registers, groups, peers or clusters than the device has.
        701 | 711 | 720 | 912 => ErrorKind::ExceedsLimit,
        // Shut down; context invalid or destroyed; memory or link errors that cannot be corrected.
        3 | 4 | 201 | 709 | 214 | 220 | 226 => ErrorKind::DeviceLost,
        // A kernel failed. The error stays with the context until the process ends.
        700 | 702 | 710 | 714..=719 | 721 | 810 | 911 => ErrorKind::DeviceLost,
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
            (34, ErrorKind::Unsupported),
            (46, ErrorKind::Busy),
            (100, ErrorKind::Unsupported),
            (101, ErrorKind::InvalidConfig),
            (201, ErrorKind::DeviceLost),
            (214, ErrorKind::DeviceLost),
            (222, ErrorKind::Unsupported),
            (400, ErrorKind::Driver),
            (700, ErrorKind::DeviceLost),
            (701, ErrorKind::ExceedsLimit),
            (704, ErrorKind::Driver),
            (712, ErrorKind::Driver),
            (714, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (720, ErrorKind::ExceedsLimit),
            (801, ErrorKind::Unsupported),
            (900, ErrorKind::Busy),
            (906, ErrorKind::Busy),
            (907, ErrorKind::Driver),
            (999, ErrorKind::Driver),
            (123_456, ErrorKind::Driver),
        ];
        for (code, expected) in table {
            let error = check(code).expect_err("not a success");
            assert_eq!(error.kind(), expected, "code {code}");
            assert_eq!(error.native(), i64::from(code));
        }
        assert_eq!(check(0), Ok(()));
    }

    #[test]
    fn a_driver_that_is_gone_has_nothing_to_give_back() {
        for code in [0, 3, 4, 709] {
            assert_eq!(check_release(code), Ok(()), "code {code}");
        }
        for code in [1, 2, 700, 719] {
            assert!(check_release(code).is_err(), "code {code}");
        }
    }
}
