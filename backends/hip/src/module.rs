//! Device code: compilation, and loaded modules.
#![expect(unsafe_code, reason = "loads device code")]
use crate::{
    backend::Hip,
    driver::Driver,
    kernel::Kernel,
    rtc::{self, Arch, Failure},
    sys::{Rtc, hipModule_t},
};
use core::fmt;
use omniheap_core::{Error, ErrorKind, Result};
use std::{ffi::CString, sync::Arc};

/// The first runtime whose compiler survives the name of an architecture that it does not know.
const CAREFUL_COMPILER: i32 = 60_000_000;

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
    /// or for a code object that is not for this device, otherwise what the runtime says.
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
fn require(found: Option<&Rtc>) -> Result<&Rtc, BuildError> {
    found.ok_or_else(|| {
        let log = "the run-time compiler (libhiprtc) was not found: install it, put its folder on the library search \
                   path or in ROCM_PATH, or load a code object that was compiled before";
        BuildError::new(ErrorKind::Unsupported, log)
    })
}

struct Loaded {
    driver: Arc<Driver>,
    raw: hipModule_t,
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
        arch: &Arch,
        source: &str,
    ) -> Result<Self, BuildError> {
        let compiler = require(driver.api().rtc.as_ref())?;
        let source = CString::new(source).map_err(|_| {
            BuildError::new(ErrorKind::InvalidConfig, "the source holds a zero byte")
        })?;
        // The compiler builds for the thread's device where it is forwarded to another vendor.
        let _current = driver.enter()?;
        let image = rtc::compile(compiler, &source, arch, &[c"--std=c++17"]);
        let image = image.map_err(|Failure { code, log }| {
            let error = Error::new(ErrorKind::InvalidConfig).with_native(i64::from(code.0));
            BuildError { error, log }
        })?;
        Self::load(driver, &image)
    }

    fn load(driver: &Arc<Driver>, image: &[u8]) -> Result<Self, BuildError> {
        let raw = driver.load_module(image)?;
        Ok(Self(Arc::new(Loaded { driver: driver.clone(), raw })))
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The kernel with this name (as declared `extern "C"`).
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the module has none, otherwise what the runtime says.
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
    /// `InvalidConfig` when the module has none, otherwise what the runtime says.
    pub fn global(&self, name: &str) -> Result<(u64, u64)> {
        let name = CString::new(name).map_err(|_| ErrorKind::InvalidConfig)?;
        // SAFETY: the module is loaded as long as `self` lives.
        unsafe { self.0.driver.global(self.0.raw, &name) }.map_err(not_found)
    }
}

/// A name that a module lacks is the caller's mistake, not the runtime's.
fn not_found(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Driver => Error::new(ErrorKind::InvalidConfig).with_native(error.native()),
        _ => error,
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(&self.0.raw).finish()
    }
}

impl Hip {
    /// Compiles HIP C++ source for this device, and loads it.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with the compiler's log.
    pub fn compile(&self, source: &str) -> Result<Module, BuildError> {
        Module::compile(self.driver(), &self.arch()?, source)
    }

    /// As [`compile`](Self::compile), for an architecture that the caller names.
    ///
    /// # Errors
    ///
    /// As for [`compile`](Self::compile); `Unsupported` when the device does not run it, and for every architecture but
    /// the device's own before HIP 6, whose compiler ends the process on a name that it does not know.
    pub fn compile_for(&self, arch: &Arch, source: &str) -> Result<Module, BuildError> {
        if self.attributes().version < CAREFUL_COMPILER && *arch != self.arch()? {
            let log = "compilers before HIP 6 are only asked for the device's own architecture";
            return Err(BuildError::new(ErrorKind::Unsupported, log));
        }
        Module::compile(self.driver(), arch, source)
    }

    /// Loads a code object that was compiled before.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for what is no code object or is cut off, `Unsupported` for another architecture's.
    ///
    /// # Safety
    ///
    /// The image is what a compiler made: HIP follows the offsets inside it without a look at where it ends.
    pub unsafe fn load_code(&self, image: &[u8]) -> Result<Module, BuildError> {
        require_whole(image)?;
        Module::load(self.driver(), image)
    }

    /// The device's architecture.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a name that is not of the usual form.
    pub fn arch(&self) -> Result<Arch> {
        Arch::new(&self.attributes().arch).ok_or_else(|| ErrorKind::Unsupported.into())
    }
}

/// Refuses an image that is no ELF file, or ends before its section table does.
fn require_whole(image: &[u8]) -> Result<(), BuildError> {
    let field = |at: usize, size: usize| {
        let mut value = [0; 8];
        value[..size].copy_from_slice(image.get(at..at + size)?);
        Some(u64::from_le_bytes(value))
    };
    // Where the section table starts, the size of an entry, and how many there are: fields of a 64-bit header.
    let end = match (field(0x28, 8), field(0x3A, 2), field(0x3C, 2)) {
        (Some(start), Some(entry), Some(count)) => start.checked_add(entry * count),
        _ => None,
    };
    let is_whole = end.is_some_and(|end| end <= image.len() as u64);
    if image.starts_with(b"\x7FELF\x02") && is_whole {
        return Ok(());
    }
    let log = "the image is not a whole code object: pass the compiler's output as it is";
    Err(BuildError::new(ErrorKind::InvalidConfig, log))
}

#[cfg(test)]
mod tests;
