//! Device code: architectures, compilation, and loaded modules.
#![expect(unsafe_code, reason = "loads device code")]
use crate::{
    driver::Driver,
    rtc::{Compiler, Failure, Output},
};
use core::str::FromStr;
use omniheap_seam::{Error, ErrorKind, Result};
use omniheap_stream::{BuildError, COMPACTION, text_of};
use std::{ffi::CString, sync::Arc};

/// The kernel that carries batches of copies, compiled before: the driver loads it in a fraction of the time that the run-time compiler takes.
const COMPACTION_PTX: &str = include_str!("../kernels/compact.ptx");

/// Device code, loaded. Unloaded with the last clone and the last kernel from it.
pub type Module = omniheap_stream::Module<Driver>;
/// A kernel, ready to launch.
pub type Kernel = omniheap_stream::Kernel<Driver>;

/// A device architecture: `sm_90`, `compute_120a`.
///
/// Only numbers and a known suffix get in, so that it can stand in a compiler option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    number: u32,
    suffix: Option<char>,
}

impl Arch {
    /// Returns the architecture of a compute capability.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when no device has such a capability.
    pub fn new(major: u32, minor: u32) -> Result<Self> {
        if !(3..=99).contains(&major) || minor > 9 {
            return Err(ErrorKind::InvalidConfig.into());
        }
        Ok(Self { number: major * 10 + minor, suffix: None })
    }

    /// Returns the architecture of a device.
    pub(crate) fn of(driver: &Driver) -> Result<Self> {
        let (major, minor) = driver.compute();
        Self::new(major, minor)
    }

    /// Returns the number that the compiler lists, such as 90.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    fn option(self, output: Output) -> String {
        let prefix = if output == Output::Cubin { "sm" } else { "compute" };
        let suffix = self.suffix.map(String::from).unwrap_or_default();
        format!("--gpu-architecture={prefix}_{}{suffix}", self.number)
    }

    /// Chooses the compiler's output for the device: its machine code, or PTX of an older architecture.
    fn choose(self, known: &[i32]) -> (Self, Output) {
        let known = known.iter().filter_map(|&number| u32::try_from(number).ok());
        match known.filter(|&number| number <= self.number).max() {
            Some(number) if number < self.number => (Self { number, suffix: None }, Output::Ptx),
            _ => (self, Output::Cubin),
        }
    }
}

impl FromStr for Arch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = ErrorKind::InvalidConfig;
        let rest = text.strip_prefix("sm_").or_else(|| text.strip_prefix("compute_"));
        let rest = rest.ok_or(invalid)?;
        let (digits, suffix) = match rest.strip_suffix(['a', 'f']) {
            Some(digits) => (digits, rest.chars().last()),
            None => (rest, None),
        };
        let plain = (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        if !plain {
            return Err(invalid.into());
        }
        let number: u32 = digits.parse().map_err(|_| invalid)?;
        Ok(Self { suffix, ..Self::new(number / 10, number % 10)? })
    }
}

/// Refuses to compile without a compiler.
fn require(found: Option<&Compiler>) -> Result<&Compiler, BuildError> {
    found.ok_or_else(|| {
        let log = "the run-time compiler (libnvrtc) was not found: install it, put its folder on the library search \
                   path or in CUDA_HOME, or load PTX that was compiled before";
        BuildError::new(ErrorKind::Unsupported.into(), log)
    })
}

/// Compiles for `arch` and loads.
pub(crate) fn compile(
    driver: &Arc<Driver>,
    arch: Arch,
    source: &str,
) -> Result<Module, BuildError> {
    let compiler = require(Compiler::get())?;
    let (arch, output) = arch.choose(&compiler.architectures());
    let source = text_of(source)?;
    let option = CString::new(arch.option(output)).expect("digits and letters only");
    let image = compiler.compile(&source, &[option.as_c_str(), c"--std=c++17"], output);
    let image = image.map_err(|Failure { code, log }| {
        let error = Error::new(ErrorKind::InvalidConfig).with_native(i64::from(code));
        BuildError::new(error, log)
    })?;
    load(driver, &image)
}

pub(crate) fn load_ptx(driver: &Arc<Driver>, ptx: &str) -> Result<Module, BuildError> {
    load(driver, text_of(ptx)?.as_bytes_with_nul())
}

fn load(driver: &Arc<Driver>, image: &[u8]) -> Result<Module, BuildError> {
    let raw = driver.load_module(image)?;
    // SAFETY: loaded just above.
    Ok(unsafe { Module::new(driver, raw) })
}

/// Loads the compaction kernel's module.
pub(crate) fn compaction(driver: &Arc<Driver>) -> Result<Module, BuildError> {
    load_ptx(driver, COMPACTION_PTX).or_else(|error| {
        tracing::info!(%error, "the compaction kernel's PTX did not load; compiling it");
        compile(driver, Arch::of(driver)?, COMPACTION)
    })
}

#[cfg(test)]
mod tests;
