//! The guard around every exported function: no panic crosses it, and refusals are logged.
#![forbid(unsafe_code)]
use ash::vk;
use core::panic::AssertUnwindSafe;
use omniheap_core::{AllocateError, ErrorKind};
use omniheap_seam::Error;
use std::borrow::Cow;
use std::io::Write as _;
use std::panic::catch_unwind;

/// Reason for a failed call: its code, and a sentence.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: vk::Result,
    why: Cow<'static, str>,
    level: Level,
}

/// Importance of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The program did something wrong.
    Wrong,
    /// An expected refusal: memory is full, or no type suits.
    Usual,
}

impl Refused {
    /// A call that the program should not have made.
    pub(crate) fn new(code: vk::Result, why: impl Into<Cow<'static, str>>) -> Self {
        Self { code, why: why.into(), level: Level::Wrong }
    }

    /// A call that fails as programs expect: the code says enough.
    pub(crate) fn quietly(code: vk::Result, why: impl Into<Cow<'static, str>>) -> Self {
        Self { code, why: why.into(), level: Level::Usual }
    }

    /// An invalid argument.
    pub(crate) fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(vk::Result::ERROR_INITIALIZATION_FAILED, why)
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Returns true if another memory type may serve the request.
    pub(crate) fn may_retry(&self) -> bool {
        self.code != vk::Result::ERROR_DEVICE_LOST
    }

    /// Returns the answer after every suitable memory type has failed.
    pub(crate) fn after_all(self) -> Self {
        Self { code: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, ..self }
    }

    fn log(&self, function: &str) {
        match self.level {
            Level::Wrong => complain(function, &self.why),
            Level::Usual => {
                let code = self.code;
                tracing::debug!(target: "omniheap", %code, "{function}: {}", self.why);
            }
        }
    }
}

/// Reports a mistake of the program: to the receiver of `tracing` events, or on standard error if the process has none.
pub(crate) fn complain(function: &str, why: &str) {
    tracing::error!(target: "omniheap", "{function}: {why}");
    if !tracing::dispatcher::has_been_set() {
        // Standard error may be closed or full; a program does not end of that.
        let _ = writeln!(std::io::stderr(), "omniheap-vma: {function}: {why}");
    }
}

impl From<vk::Result> for Refused {
    fn from(code: vk::Result) -> Self {
        Self::quietly(code, "the driver refused")
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        use vk::Result as R;
        let told = i32::try_from(error.native()).ok().filter(|code| *code < 0).map(R::from_raw);
        let code = match error.kind() {
            ErrorKind::OutOfHostMemory => R::ERROR_OUT_OF_HOST_MEMORY,
            kind if kind.is_out_of_memory() => R::ERROR_OUT_OF_DEVICE_MEMORY,
            ErrorKind::ExceedsLimit | ErrorKind::SizeOverflow => R::ERROR_OUT_OF_DEVICE_MEMORY,
            ErrorKind::DeviceLost => R::ERROR_DEVICE_LOST,
            ErrorKind::NotMappable => R::ERROR_MEMORY_MAP_FAILED,
            ErrorKind::Unsupported | ErrorKind::NoSuchHeap => {
                told.unwrap_or(R::ERROR_FEATURE_NOT_PRESENT)
            }
            ErrorKind::Driver | ErrorKind::Foreign => told.unwrap_or(R::ERROR_UNKNOWN),
            _ => R::ERROR_INITIALIZATION_FAILED,
        };
        Self::quietly(code, error.to_string())
    }
}

impl From<AllocateError> for Refused {
    fn from(error: AllocateError) -> Self {
        error.error().into()
    }
}

/// Runs an exported function.
#[inline]
pub(crate) fn call(function: &str, work: impl FnOnce() -> Result<(), Refused>) -> vk::Result {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => vk::Result::SUCCESS,
        Ok(Err(refused)) => refuse(function, &refused),
        Err(_) => refuse(
            function,
            &Refused::new(vk::Result::ERROR_UNKNOWN, "a bug in omniheap: please report it"),
        ),
    }
}

/// Runs an exported function that returns nothing.
#[inline]
pub(crate) fn run(function: &str, work: impl FnOnce() -> Result<(), Refused>) {
    let _ = call(function, work); // The log has it.
}

#[cold]
fn refuse(function: &str, refused: &Refused) -> vk::Result {
    refused.log(function);
    refused.code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(call("test", || panic!("inside")), vk::Result::ERROR_UNKNOWN);
    }

    #[test]
    fn errors_have_the_codes_that_programs_know() {
        use vk::Result as R;
        let code = |kind: ErrorKind| Refused::from(Error::from(kind)).code;
        assert_eq!(code(ErrorKind::OutOfDeviceMemory), R::ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(code(ErrorKind::OverBudget), R::ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(code(ErrorKind::ExceedsLimit), R::ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(code(ErrorKind::OutOfHostMemory), R::ERROR_OUT_OF_HOST_MEMORY);
        assert_eq!(code(ErrorKind::Unsupported), R::ERROR_FEATURE_NOT_PRESENT);
        let told = Error::new(ErrorKind::Driver).with_native(-12);
        assert_eq!(Refused::from(told).code, R::ERROR_FRAGMENTED_POOL);
    }
}
