//! Device code that is loaded, and why it is not.
#![expect(unsafe_code, reason = "unloads device code")]
use crate::{CodeDriver, Kernel};
use core::fmt;
use omniheap_seam::{Error, ErrorKind, Result};
use std::{ffi::CString, sync::Arc};

/// Reason why source or an image did not become a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    error: Error,
    log: String,
}

impl BuildError {
    /// Creates an error with what there is to say about it.
    #[must_use]
    pub fn new(error: Error, log: impl Into<String>) -> Self {
        Self { error, log: log.into() }
    }

    /// Returns the error without its log: `InvalidConfig` for source that does not compile, `Unsupported` without a compiler
    /// or for an image that is not for this device, otherwise the driver's error.
    #[must_use]
    pub const fn error(&self) -> Error {
        self.error
    }

    /// Returns the kind to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Returns the compiler's log; may be empty.
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

/// Returns a source or an image as text that ends with zero.
///
/// # Errors
///
/// `InvalidConfig` when there is a zero inside.
pub fn text_of(text: &str) -> Result<CString, BuildError> {
    let log = "the source holds a zero byte: pass text";
    CString::new(text).map_err(|_| BuildError::new(ErrorKind::InvalidConfig.into(), log))
}

struct Loaded<D: CodeDriver> {
    driver: Arc<D>,
    raw: D::Module,
}

impl<D: CodeDriver> Drop for Loaded<D> {
    fn drop(&mut self) {
        // A launch may still run the code that goes.
        let _ = self.driver.synchronize();
        // SAFETY: `Module::new` was promised that it is loaded and nobody else's; unloaded once here.
        let _ = unsafe { self.driver.unload_module(self.raw) };
    }
}

/// Device code, loaded. Unloaded with the last clone and the last kernel from it.
pub struct Module<D: CodeDriver>(Arc<Loaded<D>>);

impl<D: CodeDriver> Clone for Module<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: CodeDriver> fmt::Debug for Module<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(&self.0.raw).finish()
    }
}

impl<D: CodeDriver> Module<D> {
    /// Takes over a module that was loaded.
    ///
    /// # Safety
    ///
    /// `driver` loaded `raw`, and nothing else unloads it.
    pub unsafe fn new(driver: &Arc<D>, raw: D::Module) -> Self {
        Self(Arc::new(Loaded { driver: driver.clone(), raw }))
    }

    pub(crate) fn driver(&self) -> &D {
        &self.0.driver
    }

    /// Returns the kernel with this name (as declared `extern "C"`).
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the module has none, otherwise the driver's error.
    pub fn kernel(&self, name: &str) -> Result<Kernel<D>> {
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
    /// `InvalidConfig` when the module has none, otherwise the driver's error.
    pub fn global(&self, name: &str) -> Result<(u64, u64)> {
        let name = CString::new(name).map_err(|_| ErrorKind::InvalidConfig)?;
        // SAFETY: the module is loaded as long as `self` lives.
        unsafe { self.0.driver.global(self.0.raw, &name) }.map_err(not_found)
    }
}

/// Turns the driver's "not found" into a caller's mistake: the module lacks the name.
fn not_found(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Driver => Error::new(ErrorKind::InvalidConfig).with_native(error.native()),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_error_shows_its_log() {
        let error = BuildError::new(ErrorKind::InvalidConfig.into(), "line 3: no");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().ends_with("line 3: no"));
        assert_eq!(Error::from(error), ErrorKind::InvalidConfig.into());
    }

    #[test]
    fn a_source_with_a_zero_is_refused() {
        assert_eq!(text_of("a\0b").map_err(|error| error.kind()), Err(ErrorKind::InvalidConfig));
        assert_eq!(text_of("ab").as_deref(), Ok(c"ab"));
    }

    #[test]
    fn a_missing_name_is_the_callers_mistake() {
        let missing = not_found(Error::new(ErrorKind::Driver).with_native(500));
        assert_eq!((missing.kind(), missing.native()), (ErrorKind::InvalidConfig, 500));
        let lost = Error::new(ErrorKind::DeviceLost);
        assert_eq!(not_found(lost), lost);
    }
}
