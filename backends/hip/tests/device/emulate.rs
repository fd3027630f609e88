//! Our test kernels for the HSA stand-in, which runs no device code.
//!
//! On a real device these do nothing: the stand-in alone has the function that takes them.
#![expect(unsafe_code, reason = "reads kernel arguments, and hands functions to the stand-in")]
use core::ffi::{CStr, c_char, c_void};
use core::time::Duration;
use libloading::os::unix::Library;
use std::time::Instant;

/// A launch, as the stand-in describes it.
#[repr(C)]
struct Grid {
    grid: [u32; 3],
    group: [u32; 3],
    group_memory: u32,
}

type Emulation = unsafe extern "C" fn(*const c_void, *const Grid);
type Register = unsafe extern "C" fn(*const c_char, Emulation) -> u32;

/// Reads the argument at a byte offset.
///
/// # Safety
///
/// The kernel has an argument of this type there.
unsafe fn argument<T: Copy>(arguments: *const c_void, offset: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { arguments.wrapping_byte_add(offset).cast::<T>().read_unaligned() }
}

/// As `omniheap_hold` in `delay.cu`.
unsafe extern "C" fn hold(arguments: *const c_void, _: *const Grid) {
    // SAFETY: the kernel declares a pointer first.
    let gate: *const u32 = unsafe { argument(arguments, 0) };
    // SAFETY: and a 64-bit number second.
    let limit = Duration::from_nanos(unsafe { argument(arguments, 8) });
    let start = Instant::now();
    // SAFETY: whoever launched it keeps the gate alive until it has run.
    while unsafe { gate.read_volatile() } == 0 && start.elapsed() < limit {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// As `omniheap_sum_shared` in `delay.cu`; checks that the launch has the shared bytes.
unsafe extern "C" fn sum_shared(arguments: *const c_void, grid: *const Grid) {
    // SAFETY: the kernel declares a pointer first.
    let to: *mut u32 = unsafe { argument(arguments, 0) };
    // SAFETY: and a 32-bit number second.
    let words: u32 = unsafe { argument(arguments, 8) };
    // SAFETY: the stand-in describes the launch.
    let shared = unsafe { (*grid).group_memory };
    let sum = if shared >= 4 * words { (1..=words).fold(0, u32::wrapping_add) } else { 0 };
    // SAFETY: whoever launched it passed four bytes.
    unsafe { to.write(sum) };
}

/// Writes 42, as the kernel `set` of the case that compiles it.
unsafe extern "C" fn set(arguments: *const c_void, _: *const Grid) {
    // SAFETY: the kernel declares a pointer.
    let to: *mut i32 = unsafe { argument(arguments, 0) };
    // SAFETY: whoever launched it passed four bytes.
    unsafe { to.write(42) };
}

/// Hands the emulations to the stand-in, where it is what runs below the runtime.
pub(crate) fn register() {
    // SAFETY: nothing is loaded: the library is asked for only if it is there already.
    let loaded = unsafe { Library::open(Some("libhsa-runtime64.so.1"), NO_LOAD) };
    let Ok(library) = loaded else { return };
    // SAFETY: the stand-in declares the symbol so, and AMD's own library has none of this name.
    let found = unsafe { library.get::<Register>(b"omniheap_hsa_register_kernel\0") };
    let Ok(register) = found else { return };
    let kernels: [(&CStr, Emulation); 3] =
        [(c"omniheap_hold", hold), (c"omniheap_sum_shared", sum_shared), (c"set", set)];
    for (name, emulation) in kernels {
        // SAFETY: the name ends with zero, and the functions are there until the process ends.
        unsafe { register(name.as_ptr(), emulation) };
    }
}

/// `RTLD_NOW | RTLD_NOLOAD`, as Linux has them.
const NO_LOAD: i32 = 2 | 4;
