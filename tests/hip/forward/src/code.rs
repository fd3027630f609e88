//! Answers of calls: HIP's error numbers, most of which are CUDA's.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{CStr, c_char};

/// A HIP error number; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const NOT_FOUND: Self = Self(500);
    const LAUNCH_FAILURE: Self = Self(719);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// Translates a CUDA driver result: the same number, unless only CUDA has it.
    pub(crate) fn from_cuda(result: u32) -> Self {
        match result {
            // CUDA: external device error, invalid cluster size. HIP: something about textures.
            911 | 912 => Self::UNKNOWN,
            // CUDA has one number for each way a kernel can go wrong.
            714..=718 => Self::LAUNCH_FAILURE,
            known if NAMES.iter().any(|(number, ..)| *number == known) => Self(known),
            _ => Self::UNKNOWN,
        }
    }

    /// Turns the number into a result.
    pub(crate) const fn check(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

/// Numbers, HIP's names for them, and what they mean.
const NAMES: &[(u32, &CStr, &CStr)] = &[
    (0, c"hipSuccess", c"no error"),
    (1, c"hipErrorInvalidValue", c"invalid argument"),
    (2, c"hipErrorOutOfMemory", c"out of memory"),
    (3, c"hipErrorNotInitialized", c"not initialized"),
    (4, c"hipErrorDeinitialized", c"already shut down"),
    (9, c"hipErrorInvalidConfiguration", c"invalid launch configuration"),
    (17, c"hipErrorInvalidDevicePointer", c"invalid device pointer"),
    (21, c"hipErrorInvalidMemcpyDirection", c"invalid copy direction"),
    (35, c"hipErrorInsufficientDriver", c"driver too old"),
    (98, c"hipErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"hipErrorNoDevice", c"no device"),
    (101, c"hipErrorInvalidDevice", c"invalid device"),
    (200, c"hipErrorInvalidImage", c"invalid code"),
    (201, c"hipErrorInvalidContext", c"invalid context"),
    (205, c"hipErrorMapFailed", c"mapping failed"),
    (206, c"hipErrorUnmapFailed", c"unmapping failed"),
    (208, c"hipErrorAlreadyMapped", c"already mapped"),
    (209, c"hipErrorNoBinaryForGpu", c"no code for this device"),
    (211, c"hipErrorNotMapped", c"not mapped"),
    (214, c"hipErrorECCNotCorrectable", c"uncorrectable memory error"),
    (215, c"hipErrorUnsupportedLimit", c"unsupported limit"),
    (216, c"hipErrorContextAlreadyInUse", c"context in use"),
    (217, c"hipErrorPeerAccessUnsupported", c"peer access not supported"),
    (218, c"hipErrorInvalidKernelFile", c"invalid kernel file"),
    (300, c"hipErrorInvalidSource", c"invalid source"),
    (301, c"hipErrorFileNotFound", c"file not found"),
    (302, c"hipErrorSharedObjectSymbolNotFound", c"symbol not found"),
    (303, c"hipErrorSharedObjectInitFailed", c"library initialization failed"),
    (304, c"hipErrorOperatingSystem", c"operating system error"),
    (400, c"hipErrorInvalidHandle", c"invalid handle"),
    (401, c"hipErrorIllegalState", c"illegal state"),
    (500, c"hipErrorNotFound", c"not found"),
    (600, c"hipErrorNotReady", c"not ready"),
    (700, c"hipErrorIllegalAddress", c"illegal address"),
    (701, c"hipErrorLaunchOutOfResources", c"launch needs too much"),
    (702, c"hipErrorLaunchTimeOut", c"launch timed out"),
    (704, c"hipErrorPeerAccessAlreadyEnabled", c"peer access already enabled"),
    (705, c"hipErrorPeerAccessNotEnabled", c"peer access not enabled"),
    (708, c"hipErrorSetOnActiveProcess", c"context already active"),
    (709, c"hipErrorContextIsDestroyed", c"context is destroyed"),
    (710, c"hipErrorAssert", c"assertion in a kernel"),
    (712, c"hipErrorHostMemoryAlreadyRegistered", c"host memory already registered"),
    (713, c"hipErrorHostMemoryNotRegistered", c"host memory not registered"),
    (719, c"hipErrorLaunchFailure", c"launch failed"),
    (720, c"hipErrorCooperativeLaunchTooLarge", c"cooperative launch too large"),
    (801, c"hipErrorNotSupported", c"not supported"),
    (900, c"hipErrorStreamCaptureUnsupported", c"not permitted while capturing"),
    (901, c"hipErrorStreamCaptureInvalidated", c"capture invalidated"),
    (906, c"hipErrorStreamCaptureImplicit", c"implicit dependency while capturing"),
    (999, c"hipErrorUnknown", c"unknown error"),
];

fn row(code: Code) -> &'static (u32, &'static CStr, &'static CStr) {
    NAMES.iter().find(|(number, ..)| *number == code.0).unwrap_or(&(
        999,
        c"hipErrorUnknown",
        c"unknown error",
    ))
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: Code) -> *const c_char {
    row(code).1.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: Code) -> *const c_char {
    row(code).2.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::{Code, NAMES};

    #[test]
    fn shared_numbers_stay_and_others_are_translated() {
        for (cuda, hip) in [
            (0, 0),
            (2, 2),
            (700, 700),
            (716, 719),
            (911, 999),
            (912, 999),
            (46, 999),
            (12_345, 999),
        ] {
            assert_eq!(Code::from_cuda(cuda), Code(hip), "{cuda}");
        }
    }

    #[test]
    fn names_are_in_order_and_unique() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
