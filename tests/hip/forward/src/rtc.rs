//! The run-time compiler: AMD's interface, NVIDIA's compiler.

#![expect(unsafe_code, reason = "exports C symbols and calls NVRTC")]

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::sync::OnceLock;

use crate::cuda::{self, Nvrtc, Pointer, Texts};
use crate::properties::architecture;
use crate::state;

/// `HIPRTC_ERROR_INVALID_INPUT`; NVRTC gives it, and all numbers below 12, the same meaning.
const INVALID_INPUT: u32 = 3;
/// `HIPRTC_ERROR_INTERNAL_ERROR`
const INTERNAL: u32 = 11;
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// Header that `#include <hip/hip_runtime.h>` finds: the compiler has everything built in.
const HEADER: (&CStr, &CStr) = (c"hip/hip_runtime.h", c"#pragma once\n");

fn compiler() -> Result<&'static Nvrtc, u32> {
    static COMPILER: OnceLock<Option<Nvrtc>> = OnceLock::new();
    let load = || {
        let library = cuda::open(&NAMES)?;
        Nvrtc::load(library).map_err(|name| format!("NVRTC has no {name}"))
    };
    COMPILER
        .get_or_init(|| load().inspect_err(|why| state::complain(why)).ok())
        .as_ref()
        .ok_or(INTERNAL)
}

/// Calls a function of the compiler; its answers are HIP's.
macro_rules! rtc {
    ($table:expr, $name:ident($($argument:expr),*)) => {{
        let function = $table.$name;
        // SAFETY: pointers are those the caller of the HIP function gave for this use, or variables of ours. NVRTC asks
        // of them what hipRTC does, and the caller promised that.
        unsafe { function($($argument),*) }
    }};
}

/// Exports functions that NVRTC has with the same arguments.
macro_rules! forward {
    ($($name:ident => $target:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> u32 {
            compiler().map_or_else(|code| code, |compiler| rtc!(compiler, $target($($argument),*)))
        }
    )*};
}

forward! {
    hiprtcVersion => nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    hiprtcDestroyProgram => nvrtcDestroyProgram(program: *mut Pointer);
    hiprtcGetCodeSize => nvrtcGetCUBINSize(program: Pointer, size: *mut usize);
    hiprtcGetCode => nvrtcGetCUBIN(program: Pointer, code: *mut c_char);
    hiprtcGetProgramLogSize => nvrtcGetProgramLogSize(program: Pointer, size: *mut usize);
    hiprtcGetProgramLog => nvrtcGetProgramLog(program: Pointer, log: *mut c_char);
    hiprtcAddNameExpression => nvrtcAddNameExpression(program: Pointer, name: *const c_char);
    hiprtcGetLoweredName => nvrtcGetLoweredName(
        program: Pointer, name: *const c_char, lowered: *mut *const c_char);
}

/// Copies a list of pointers that the caller gave.
fn list(count: c_int, start: Texts) -> Result<Vec<*const c_char>, u32> {
    let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
    if count > 0 && start.is_null() {
        return Err(INVALID_INPUT);
    }
    // SAFETY: the caller of the HIP function gave a list of this many pointers.
    let read = |index: usize| unsafe { start.wrapping_add(index).read() };
    Ok((0..count).map(read).collect())
}

/// Answers a result as a number.
fn answer(run: impl FnOnce() -> Result<u32, u32>) -> u32 {
    run().unwrap_or_else(|code| code)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcCreateProgram(
    out: *mut Pointer,
    source: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: Texts,
    names: Texts,
) -> u32 {
    answer(|| {
        let compiler = compiler()?;
        let (mut headers, mut names) = (list(count, headers)?, list(count, names)?);
        names.push(HEADER.0.as_ptr());
        headers.push(HEADER.1.as_ptr());
        let (headers, names) = (headers.as_ptr(), names.as_ptr());
        Ok(rtc!(compiler, nvrtcCreateProgram(out, source, name, count + 1, headers, names)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcCompileProgram(program: Pointer, count: c_int, options: Texts) -> u32 {
    answer(|| {
        let compiler = compiler()?;
        let target = architecture(state::current()).map_err(|_| INTERNAL)?;
        let mut kept =
            vec![CString::new(format!("--gpu-architecture={target}")).map_err(|_| INTERNAL)?];
        for option in list(count, options)? {
            // SAFETY: the caller of the HIP function gave a list of terminated strings.
            let option = unsafe { CStr::from_ptr(option) };
            if is_understood(option) {
                kept.push(option.to_owned());
            }
        }
        let pointers: Vec<_> = kept.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).map_err(|_| INVALID_INPUT)?;
        Ok(rtc!(compiler, nvrtcCompileProgram(program, count, pointers.as_ptr())))
    })
}

/// Keeps options that both compilers take. The architecture is this device's, whichever was asked for.
fn is_understood(option: &CStr) -> bool {
    let text = option.to_bytes();
    [&b"-D"[..], b"-I", b"-U", b"--std=", b"-std=", b"--define-macro", b"--include-path"]
        .iter()
        .any(|start| text.starts_with(start))
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: u32) -> *const c_char {
    compiler().map_or(c"no NVRTC library found".as_ptr(), |compiler| {
        rtc!(compiler, nvrtcGetErrorString(code))
    })
}

#[cfg(test)]
mod tests {
    use super::is_understood;

    #[test]
    fn options_for_amd_only_are_dropped() {
        assert!(is_understood(c"-DN=4") && is_understood(c"--std=c++17"));
        assert!(!is_understood(c"--offload-arch=gfx90a") && !is_understood(c"-mwavefrontsize64"));
    }
}
