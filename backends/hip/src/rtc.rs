//! The run-time compiler, and the architectures it is asked for.

#![expect(unsafe_code, reason = "calls the compiler")]

use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use crate::sys::{Rtc, hiprtcProgram, hiprtcResult};

/// The name of an architecture, checked: compilers of HIP 5 end the process on one that they do not understand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arch(String);

impl Arch {
    /// Takes a name such as `gfx90a` or `gfx90a:sramecc+:xnack-`, or `sm_90` for a forwarded device; `None` when it is
    /// not of that form.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut parts = name.split(':');
        let processor = parts.next()?;
        let digits = processor.strip_prefix("gfx").or_else(|| processor.strip_prefix("sm_"))?;
        let number =
            digits.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
        let feature =
            |part: &str| matches!(part.strip_suffix(['+', '-']), Some("sramecc" | "xnack"));
        let right = (2..=5).contains(&digits.len()) && number && parts.all(feature);
        right.then(|| Self(name.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A failed compilation: the compiler's code and its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Result code of the compiler.
    pub code: hiprtcResult,
    /// Log of the compiler.
    pub log: String,
}

/// A program of the compiler, destroyed at the end.
struct Owned<'a> {
    table: &'a Rtc,
    program: hiprtcProgram,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `Owned::new`, destroyed once here.
        let _ = unsafe { (self.table.hiprtcDestroyProgram)(&raw mut self.program) };
    }
}

type Measure = unsafe extern "C" fn(hiprtcProgram, *mut usize) -> hiprtcResult;
type Fetch = unsafe extern "C" fn(hiprtcProgram, *mut c_char) -> hiprtcResult;

fn success(code: hiprtcResult) -> Result<(), hiprtcResult> {
    if code == hiprtcResult::HIPRTC_SUCCESS { Ok(()) } else { Err(code) }
}

impl<'a> Owned<'a> {
    fn new(table: &'a Rtc, source: &CStr) -> Result<Self, hiprtcResult> {
        let mut program = hiprtcProgram::NULL;
        let (text, name, none) = (source.as_ptr(), c"omniheap.hip".as_ptr(), ptr::null_mut());
        // SAFETY: `program` is a valid out-pointer, the texts end with zero, and there are no headers.
        success(unsafe {
            (table.hiprtcCreateProgram)(&raw mut program, text, name, 0, none, none)
        })?;
        Ok(Self { table, program })
    }

    /// Gets a text or image of the program.
    fn fetch(&self, measure: Measure, fetch: Fetch) -> Result<Vec<u8>, hiprtcResult> {
        let mut size = 0;
        // SAFETY: `size` is a valid out-pointer and the program is live.
        success(unsafe { measure(self.program, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: the buffer has the size that the compiler asked for.
        success(unsafe { fetch(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn log(&self) -> String {
        let bytes = self.fetch(self.table.hiprtcGetProgramLogSize, self.table.hiprtcGetProgramLog);
        String::from_utf8_lossy(&bytes.unwrap_or_default()).trim_end_matches('\0').into()
    }
}

/// Compiles a source to a code object of one architecture.
///
/// # Errors
/// The compiler's code and log.
pub fn compile(
    table: &Rtc,
    source: &CStr,
    arch: &Arch,
    options: &[&CStr],
) -> Result<Vec<u8>, Failure> {
    let silent = |code| Failure { code, log: String::new() };
    let program = Owned::new(table, source).map_err(silent)?;
    let target = format!("--offload-arch={}\0", arch.name());
    let mut all: Vec<*const c_char> = vec![target.as_ptr().cast()];
    all.extend(options.iter().map(|option| option.as_ptr()));
    let count =
        c_int::try_from(all.len()).map_err(|_| silent(hiprtcResult::HIPRTC_ERROR_COMPILATION))?;
    // SAFETY: the program is live, and there are `count` options that end with zero.
    let code = unsafe { (table.hiprtcCompileProgram)(program.program, count, all.as_mut_ptr()) };
    success(code).map_err(|code| Failure { code, log: program.log() })?;
    program.fetch(table.hiprtcGetCodeSize, table.hiprtcGetCode).map_err(silent)
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn only_names_of_architectures_pass() {
        for name in [
            "gfx906",
            "gfx90a",
            "gfx942:sramecc+:xnack-",
            "gfx1030",
            "gfx1100",
            "gfx90a:xnack+",
            "sm_90",
        ] {
            assert_eq!(Arch::new(name).as_ref().map(Arch::name), Some(name));
        }
        for name in [
            "",
            "gfx",
            "gfx9",
            "gfx90A",
            "gfx90a:",
            "gfx90a:xnack",
            "gfx90a:fast+",
            "gfx90a:xnack++",
            "gfx906:é",
            "gfx90é",
            "é",
            "gfx90a:xnack＋",
            "gfx90a -O3",
            "compute_90",
            "gfx1234567",
        ] {
            assert_eq!(Arch::new(name), None, "{name}");
        }
    }
}
