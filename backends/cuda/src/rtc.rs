//! NVIDIA's run-time compiler, found at run time.
#![expect(unsafe_code, reason = "FFI")]
use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};
use std::{path::PathBuf, sync::OnceLock};

type Code = c_int;
type Program = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($arg:ty),* $(,)?);)*) => {
        /// The compiler's entry points, with the library that holds them.
        pub(crate) struct Compiler {
            $($field: unsafe extern "C" fn($($arg),*) -> Code,)*
            _library: libloading::Library,
        }

        impl Compiler {
            fn resolve(library: libloading::Library) -> Option<Self> {
                Some(Self {
                    $($field: {
                        // SAFETY: the signature is the documented one for this symbol.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> Code>($symbol) };
                        *symbol.ok()?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    create = b"nvrtcCreateProgram\0": fn(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
    );
    destroy = b"nvrtcDestroyProgram\0": fn(*mut Program);
    compile = b"nvrtcCompileProgram\0": fn(Program, c_int, *const *const c_char);
    ptx_size = b"nvrtcGetPTXSize\0": fn(Program, *mut usize);
    ptx = b"nvrtcGetPTX\0": fn(Program, *mut c_char);
    cubin_size = b"nvrtcGetCUBINSize\0": fn(Program, *mut usize);
    cubin = b"nvrtcGetCUBIN\0": fn(Program, *mut c_char);
    log_size = b"nvrtcGetProgramLogSize\0": fn(Program, *mut usize);
    log = b"nvrtcGetProgramLog\0": fn(Program, *mut c_char);
    arch_count = b"nvrtcGetNumSupportedArchs\0": fn(*mut c_int);
    archs = b"nvrtcGetSupportedArchs\0": fn(*mut c_int);
}

/// Kind of compiled image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Machine code of one architecture.
    Cubin,
    /// Portable code, which the driver finishes; ends with a zero byte.
    Ptx,
}

/// A failed compilation: the compiler's code and its log.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) log: String,
}

/// File names and places of the library, most specific last.
fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = if cfg!(windows) {
        vec!["nvrtc64_130_0.dll".into(), "nvrtc64_120_0.dll".into()]
    } else {
        vec!["libnvrtc.so.13".into(), "libnvrtc.so.12".into(), "libnvrtc.so".into()]
    };
    let names = found.clone();
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let default = cfg!(unix).then(|| "/usr/local/cuda".into());
    for home in homes.map(PathBuf::from).chain(default) {
        for folder in ["lib64", "lib", "bin"] {
            found.extend(names.iter().map(|name| home.join(folder).join(name)));
        }
    }
    found
}

/// A program of the compiler, destroyed at the end.
struct Owned<'a> {
    compiler: &'a Compiler,
    program: Program,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `Compiler::program`, destroyed once here.
        let _ = unsafe { (self.compiler.destroy)(&raw mut self.program) };
    }
}

type Measure = unsafe extern "C" fn(Program, *mut usize) -> Code;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> Code;

impl Owned<'_> {
    /// Gets a text or image of the program.
    fn fetch(&self, measure: Measure, fetch: Fetch) -> Result<Vec<u8>, Code> {
        let mut size = 0;
        // SAFETY: `size` is a valid out-pointer and the program is live.
        success(unsafe { measure(self.program, &raw mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that the compiler asked for.
        success(unsafe { fetch(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn log(&self) -> String {
        let bytes = self.fetch(self.compiler.log_size, self.compiler.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').into()
    }
}

fn success(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Compiler {
    /// Returns the compiler; `None` where this machine has none.
    pub(crate) fn get() -> Option<&'static Self> {
        static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
        COMPILER.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        candidates().into_iter().find_map(|name| {
            // SAFETY: the library's initialisers have no preconditions.
            let library = unsafe { libloading::Library::new(name) }.ok()?;
            Self::resolve(library)
        })
    }

    /// Returns the architectures it makes code for, as numbers such as 90.
    pub(crate) fn architectures(&self) -> Vec<i32> {
        let mut count = 0;
        // SAFETY: `count` is a valid out-pointer.
        if success(unsafe { (self.arch_count)(&raw mut count) }).is_err() {
            return Vec::new();
        }
        let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the buffer has as many numbers as the compiler said.
        match success(unsafe { (self.archs)(archs.as_mut_ptr()) }) {
            Ok(()) => archs,
            Err(_) => Vec::new(),
        }
    }

    fn program(&self, source: &CStr) -> Result<Owned<'_>, Code> {
        let (mut program, none) = (ptr::null_mut(), ptr::null());
        let (out, text, name) = (&raw mut program, source.as_ptr(), c"omniheap.cu".as_ptr());
        // SAFETY: `out` is a valid out-pointer, the texts end with zero, and there are no headers.
        success(unsafe { (self.create)(out, text, name, 0, none, ptr::null()) })?;
        Ok(Owned { compiler: self, program })
    }

    /// Compiles a source with the given options.
    pub(crate) fn compile(
        &self,
        source: &CStr,
        options: &[&CStr],
        output: Output,
    ) -> Result<Vec<u8>, Failure> {
        let silent = |code| Failure { code, log: String::new() };
        let program = self.program(source).map_err(silent)?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(options.len()).map_err(|_| silent(-1))?;
        // SAFETY: the program is live and there are `count` options that end with zero.
        let code = unsafe { (self.compile)(program.program, count, options.as_ptr()) };
        success(code).map_err(|code| Failure { code, log: program.log() })?;
        let (measure, fetch) = match output {
            Output::Cubin => (self.cubin_size, self.cubin),
            Output::Ptx => (self.ptx_size, self.ptx),
        };
        program.fetch(measure, fetch).map_err(silent)
    }
}
