//! Device code: architectures, compilation, and loaded modules.
#![expect(unsafe_code, reason = "loads device code")]
use crate::{
    backend::Cuda,
    driver::{Driver, JitLog, Raw},
    kernel::Kernel,
    rtc::{Compiler, Failure, Output},
};
use core::{fmt, str::FromStr};
use cudarc::driver::sys::CUmod_st;
use omniheap_core::{Error, ErrorKind, Result};
use std::{ffi::CString, sync::Arc};

/// A device architecture: `sm_90`, `compute_120a`.
///
/// Only numbers and a known suffix get in, so that it can stand in a compiler option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    number: u32,
    suffix: Option<char>,
}

impl Arch {
    /// The architecture of a compute capability.
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

    /// The number that the compiler lists, such as 90.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    fn option(self, output: Output) -> String {
        let prefix = if output == Output::Cubin { "sm" } else { "compute" };
        let suffix = self.suffix.map(String::from).unwrap_or_default();
        format!("--gpu-architecture={prefix}_{}{suffix}", self.number)
    }

    /// What this compiler makes for the device: its own machine code, or portable code of an older architecture.
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

/// Why source or an image did not become a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    error: Error,
    log: String,
}

impl BuildError {
    fn new(kind: ErrorKind, log: impl Into<String>) -> Self {
        Self { error: kind.into(), log: log.into() }
    }

    /// The error without its log: `InvalidConfig` for source that does not compile, `Unsupported` without a compiler
    /// or for an image that is not for this device, otherwise what the driver says.
    #[must_use]
    pub const fn error(&self) -> Error {
        self.error
    }

    /// The kind to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// What the compiler had to say; empty when nothing.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if self.log.is_empty() { Ok(()) } else { write!(f, ":\n{}", self.log) }
    }
}

impl core::error::Error for BuildError {}

impl From<Error> for BuildError {
    fn from(error: Error) -> Self {
        Self { error, log: String::new() }
    }
}

impl From<BuildError> for Error {
    fn from(build: BuildError) -> Self {
        build.error
    }
}

/// Refuses to compile without a compiler.
fn require(found: Option<&Compiler>) -> Result<&Compiler, BuildError> {
    found.ok_or_else(|| {
        let log = "the run-time compiler (libnvrtc) was not found: install it, put its folder on the library search \
                   path or in CUDA_HOME, or load PTX that was compiled before";
        BuildError::new(ErrorKind::Unsupported, log)
    })
}

struct Loaded {
    driver: Arc<Driver>,
    raw: Raw<CUmod_st>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A launch may still run the code that goes.
        let _ = self.driver.synchronize();
        // SAFETY: loaded once by `Module::load`, unloaded once here.
        let _ = unsafe { self.driver.unload_module(self.raw) };
    }
}

/// Device code, loaded. Unloaded with the last clone and the last kernel from it.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

impl Module {
    /// Compiles for `arch` and loads.
    pub(crate) fn compile(
        driver: &Arc<Driver>,
        arch: Arch,
        source: &str,
    ) -> Result<Self, BuildError> {
        let compiler = require(Compiler::get())?;
        let (arch, output) = arch.choose(&compiler.architectures());
        let source = CString::new(source).map_err(|_| {
            BuildError::new(ErrorKind::InvalidConfig, "the source holds a zero byte")
        })?;
        let option = CString::new(arch.option(output)).expect("digits and letters only");
        let image = compiler.compile(&source, &[option.as_c_str(), c"--std=c++17"], output);
        let image = image.map_err(|Failure { code, log }| {
            let error = Error::new(ErrorKind::InvalidConfig).with_native(i64::from(code));
            BuildError { error, log }
        })?;
        Self::load(driver, &image)
    }

    pub(crate) fn load_ptx(driver: &Arc<Driver>, ptx: &str) -> Result<Self, BuildError> {
        let text = CString::new(ptx)
            .map_err(|_| BuildError::new(ErrorKind::InvalidConfig, "the PTX holds a zero byte"))?;
        Self::load(driver, text.as_bytes_with_nul())
    }

    fn load(driver: &Arc<Driver>, image: &[u8]) -> Result<Self, BuildError> {
        let mut log = JitLog::default();
        match driver.load_module(image, &mut log) {
            Ok(raw) => Ok(Self(Arc::new(Loaded { driver: driver.clone(), raw }))),
            Err(error) => Err(BuildError { error, log: log.0 }),
        }
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The kernel with this name (as declared `extern "C"`).
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the module has none, otherwise what the driver says.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let name = CString::new(name).map_err(|_| ErrorKind::InvalidConfig)?;
        let driver = &self.0.driver;
        // SAFETY: the module is loaded as long as `self` lives.
        let raw = unsafe { driver.function(self.0.raw, &name) }.map_err(not_found)?;
        // SAFETY: the function belongs to this module.
        let max_threads = unsafe { driver.max_threads(raw) }?;
        // SAFETY: as above.
        let fixed_shared = unsafe { driver.static_shared(raw) }?;
        Ok(Kernel::new(self.clone(), raw, max_threads, fixed_shared))
    }

    /// Address and size of the variable with this name.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the module has none, otherwise what the driver says.
    pub fn global(&self, name: &str) -> Result<(u64, u64)> {
        let name = CString::new(name).map_err(|_| ErrorKind::InvalidConfig)?;
        // SAFETY: the module is loaded as long as `self` lives.
        unsafe { self.0.driver.global(self.0.raw, &name) }.map_err(not_found)
    }
}

/// A name that a module lacks is the caller's mistake, not the driver's.
fn not_found(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Driver => Error::new(ErrorKind::InvalidConfig).with_native(error.native()),
        _ => error,
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(&self.0.raw.0).finish()
    }
}

impl Cuda {
    /// Compiles CUDA C++ source for this device, and loads it.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with the compiler's log.
    pub fn compile(&self, source: &str) -> Result<Module, BuildError> {
        let (major, minor) = self.attributes().compute;
        self.compile_for(Arch::new(major, minor)?, source)
    }

    /// As [`compile`](Self::compile), for an architecture that the caller names.
    ///
    /// # Errors
    ///
    /// As for [`compile`](Self::compile); `Unsupported` when the device does not run it.
    pub fn compile_for(&self, arch: Arch, source: &str) -> Result<Module, BuildError> {
        Module::compile(self.driver(), arch, source)
    }

    /// Loads PTX that was compiled before.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with the driver's log.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module, BuildError> {
        Module::load_ptx(self.driver(), ptx)
    }
}

#[cfg(test)]
mod tests;
