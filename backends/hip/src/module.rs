//! Device code: compilation, and loaded modules.
#![expect(unsafe_code, reason = "loads device code")]
use crate::{
    driver::Driver,
    rtc::{self, Arch, Failure},
    sys::Rtc,
};
use omniheap_seam::{Error, ErrorKind, Result};
use omniheap_stream::{BuildError, StreamDriver, text_of};
use std::sync::Arc;

/// Device code, loaded. Unloaded with the last clone and the last kernel from it.
pub type Module = omniheap_stream::Module<Driver>;
/// A kernel, ready to launch.
pub type Kernel = omniheap_stream::Kernel<Driver>;

/// The first runtime whose compiler survives the name of an architecture that it does not know.
const CAREFUL_COMPILER: i32 = 60_000_000;

/// Refuses to compile without a compiler.
fn require(found: Option<&Rtc>) -> Result<&Rtc, BuildError> {
    found.ok_or_else(|| {
        let log = "the run-time compiler (libhiprtc) was not found: install it, put its folder on the library search \
                   path or in ROCM_PATH, or load a code object that was compiled before";
        BuildError::new(ErrorKind::Unsupported.into(), log)
    })
}

/// Compiles for `arch` and loads.
pub(crate) fn compile(
    driver: &Arc<Driver>,
    arch: &Arch,
    source: &str,
) -> Result<Module, BuildError> {
    let compiler = require(driver.api().rtc.as_ref())?;
    let source = text_of(source)?;
    // The compiler builds for the thread's device where it is forwarded to another vendor.
    let _current = driver.enter()?;
    let image = rtc::compile(compiler, &source, arch, &[c"--std=c++17"]);
    let image = image.map_err(|Failure { code, log }| {
        let error = Error::new(ErrorKind::InvalidConfig).with_native(i64::from(code.0));
        BuildError::new(error, log)
    })?;
    load(driver, &image)
}

fn load(driver: &Arc<Driver>, image: &[u8]) -> Result<Module, BuildError> {
    let raw = driver.load_module(image)?;
    // SAFETY: loaded just above.
    Ok(unsafe { Module::new(driver, raw) })
}

/// As [`compile`], for an architecture that the caller names.
pub(crate) fn compile_for(
    driver: &Arc<Driver>,
    wanted: &Arch,
    source: &str,
) -> Result<Module, BuildError> {
    if driver.version()? < CAREFUL_COMPILER && *wanted != arch(driver)? {
        let log = "compilers before HIP 6 are only asked for the device's own architecture";
        return Err(BuildError::new(ErrorKind::Unsupported.into(), log));
    }
    compile(driver, wanted, source)
}

/// Loads a code object that was compiled before.
///
/// # Safety
///
/// The image is what a compiler made.
pub(crate) unsafe fn load_code(driver: &Arc<Driver>, image: &[u8]) -> Result<Module, BuildError> {
    require_whole(image)?;
    load(driver, image)
}

/// Returns a device's architecture.
pub(crate) fn arch(driver: &Driver) -> Result<Arch> {
    let (_, arch) = driver.names()?;
    Arch::new(&arch).ok_or_else(|| ErrorKind::Unsupported.into())
}

/// Refuses an image that is no ELF file, or ends before its section table does.
fn require_whole(image: &[u8]) -> Result<(), BuildError> {
    let field = |at: usize, size: usize| {
        let mut value = [0; 8];
        value[..size].copy_from_slice(image.get(at..at + size)?);
        Some(u64::from_le_bytes(value))
    };
    // Fields of a 64-bit header: the start of the section table, the size of an entry, and the number of entries.
    let end = match (field(0x28, 8), field(0x3A, 2), field(0x3C, 2)) {
        (Some(start), Some(entry), Some(count)) => start.checked_add(entry * count),
        _ => None,
    };
    let is_whole = end.is_some_and(|end| end <= image.len() as u64);
    if image.starts_with(b"\x7FELF\x02") && is_whole {
        return Ok(());
    }
    let log = "the image is not a whole code object: pass the compiler's output as it is";
    Err(BuildError::new(ErrorKind::InvalidConfig.into(), log))
}

#[cfg(test)]
mod tests;
