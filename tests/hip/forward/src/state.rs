//! The loaded driver, a context for each device, and what each thread has chosen and last failed with.

#![expect(unsafe_code, reason = "calls the CUDA driver")]

use core::cell::Cell;
use core::ffi::CStr;
use core::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::code::Code;
use crate::cuda::{self, Cuda, Pointer};
use crate::export::cu;

/// Devices that a context is kept for.
const DEVICES: usize = 64;
/// Each device's primary context, as an address.
static CONTEXTS: [OnceLock<usize>; DEVICES] = [const { OnceLock::new() }; DEVICES];

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
    static LAST: Cell<Code> = const { Cell::new(Code::SUCCESS) };
}

/// Returns the driver once it is loaded and has started.
pub(crate) fn driver() -> Result<&'static Cuda, Code> {
    static DRIVER: OnceLock<Option<Cuda>> = OnceLock::new();
    DRIVER
        .get_or_init(|| start().inspect_err(|why| complain(why)).ok())
        .as_ref()
        .ok_or(Code::NO_DEVICE)
}

fn start() -> Result<Cuda, String> {
    let cuda = cuda::open(&["libcuda.so.1"]).and_then(|library| {
        Cuda::load(library).map_err(|name| format!("libcuda.so.1 has no {name}"))
    })?;
    cu!(cuda, cuInit(0)).map_err(|code| format!("cuInit answered {}", code.0))?;
    Ok(cuda)
}

/// Returns a function of this library.
pub(crate) fn own_function(name: &CStr) -> Option<Pointer> {
    // SAFETY: this library, which is loaded already, by the name that it carries.
    let own = unsafe { Library::new("libamdhip64.so") }.ok()?;
    // SAFETY: the address alone is looked at.
    let found = unsafe { own.get::<Pointer>(name.to_bytes_with_nul()) }.ok()?;
    // SAFETY: the library stays loaded: the program uses it.
    unsafe { found.try_as_raw_ptr() }
}

/// Returns true if somebody asked to be told what goes wrong.
fn is_logging() -> bool {
    static LOGGING: OnceLock<bool> = OnceLock::new();
    *LOGGING.get_or_init(|| std::env::var_os("OMNIHEAP_HIP_FORWARD_LOG").is_some())
}

/// Says why there is no device, for those who ask.
pub(crate) fn complain(why: &str) {
    if is_logging() {
        eprintln!("[hip forward] {why}");
    }
}

/// Says which call of the CUDA driver failed, for those who ask. Unfinished work is no failure.
pub(crate) fn note(function: &str, result: u32) {
    if result != 0 && result != 600 && is_logging() {
        eprintln!("[hip forward] {function} answered {result}");
    }
}

/// Returns how many devices there are.
pub(crate) fn count() -> Result<i32, Code> {
    let mut count = 0;
    cu!(driver()?, cuDeviceGetCount(&raw mut count))?;
    if count == 0 { Err(Code::NO_DEVICE) } else { Ok(count) }
}

/// Checks that a device is there.
pub(crate) fn known(device: i32) -> Result<i32, Code> {
    if (0..count()?).contains(&device) { Ok(device) } else { Err(Code::INVALID_DEVICE) }
}

/// Returns the context of a device.
pub(crate) fn context(device: i32) -> Result<Pointer, Code> {
    let slot = usize::try_from(device)
        .ok()
        .and_then(|index| CONTEXTS.get(index))
        .ok_or(Code::INVALID_DEVICE)?;
    if slot.get().is_none() {
        let mut context = ptr::null_mut();
        cu!(driver()?, cuDevicePrimaryCtxRetain(&raw mut context, known(device)?))?;
        // Another thread may have been first; both retained the same context.
        let _ = slot.set(context.expose_provenance());
    }
    let address = slot.get().copied().unwrap_or_default();
    Ok(ptr::with_exposed_provenance_mut(address))
}

/// Returns the driver, with the context of this thread's device current.
pub(crate) fn enter() -> Result<&'static Cuda, Code> {
    let cuda = driver()?;
    cu!(cuda, cuCtxSetCurrent(context(CURRENT.get())?))?;
    Ok(cuda)
}

/// Runs a call and keeps its error for `hipGetLastError`, where a later success does not replace it.
pub(crate) fn answer(run: impl FnOnce() -> Result<(), Code>) -> Code {
    let code = run().err().unwrap_or(Code::SUCCESS);
    // As in HIP, an unfinished stream or event is an answer and no error.
    if code != Code::SUCCESS && code != Code(600) {
        LAST.set(code);
    }
    code
}

/// Returns this thread's device.
pub(crate) fn current() -> i32 {
    CURRENT.get()
}

/// Changes this thread's device.
pub(crate) fn choose(device: i32) -> Result<(), Code> {
    CURRENT.set(known(device)?);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> Code {
    LAST.replace(Code::SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn hipPeekAtLastError() -> Code {
    LAST.get()
}
