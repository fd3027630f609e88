//! Kernels, emulated by name.
//!
//! Code is loaded, checked and launched as on a device; what a launch *does* is written here in Rust, found by the kernel's
//! name. AMD's own kernels for copies and fills are in `blit`, the ones this project's tests launch in `own`. A test
//! adds another with [`omniheap_hsa_register_kernel`]. A kernel without an emulation is reported on standard error and
//! ends the process: a test must not pass on work that was not done.

#![expect(unsafe_code, reason = "exports C symbols and calls back into C")]

use core::ffi::{c_char, c_void};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::abi::Status;
use crate::ffi::InText;
use crate::knobs::log;
use crate::packet::Launch;
use crate::{blit, own, pages, symbol};

/// One launch, as an emulation sees it.
#[derive(Debug)]
pub(crate) struct Dispatch {
    arguments: u64,
    /// Threads in each dimension.
    pub(crate) grid: [u32; 3],
}

impl Dispatch {
    /// Reads the 64-bit argument at a byte offset.
    pub(crate) fn wide(&self, offset: u64) -> u64 {
        let bytes = pages::read(self.arguments + offset, 8);
        u64::from_ne_bytes(bytes.try_into().expect("eight were read"))
    }

    /// Reads the 32-bit argument at a byte offset.
    pub(crate) fn word(&self, offset: u64) -> u32 {
        let bytes = pages::read(self.arguments + offset, 4);
        u32::from_ne_bytes(bytes.try_into().expect("four were read"))
    }
}

/// A launch as an emulation in another library gets it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Grid {
    /// Threads in each dimension.
    pub grid: [u32; 3],
    /// Threads of a group in each dimension.
    pub group: [u32; 3],
    /// Bytes of memory that a group shares.
    pub group_memory: u32,
}

/// An emulation in another library: the arguments as the kernel would find them, and the launch.
pub type Emulation = unsafe extern "C" fn(*const c_void, *const Grid);

static REGISTERED: RwLock<Option<HashMap<String, Emulation>>> = RwLock::new(None);

/// Makes launches of the kernel `name` call `emulation`, in place of any built-in one.
///
/// # Safety
/// `name` is a terminated string; `emulation` may be called from any thread until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_hsa_register_kernel(
    name: *const c_char,
    emulation: Emulation,
) -> Status {
    // SAFETY: both are one pointer; `InText` asks for a terminated string, which the caller promises.
    let name = unsafe { core::mem::transmute::<*const c_char, InText>(name) };
    let Ok(name) = name.get() else { return Status::INVALID_ARGUMENT };
    REGISTERED
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(name, emulation);
    Status::SUCCESS
}

/// Does what a launched kernel would do.
pub(crate) fn run(launch: &Launch) {
    let symbol = symbol::find(launch.kernel).filter(|symbol| symbol.needs.is_some());
    let Some(symbol) = symbol else {
        panic!("a packet launches {:#x}, which is no kernel", launch.kernel)
    };
    let name = symbol.name.trim_end_matches(".kd");
    log(|| format!("launch of {name}: {launch:?}"));
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let registered = registered.as_ref().and_then(|all| all.get(name).copied());
    if let Some(emulation) = registered {
        let grid =
            Grid { grid: launch.grid, group: launch.group, group_memory: launch.group_memory };
        let start: usize = launch.arguments.try_into().expect("a 64-bit machine");
        let arguments = core::ptr::with_exposed_provenance(start);
        // SAFETY: whoever registered it promised that it may be called; HIP gave the arguments for this launch.
        unsafe { emulation(arguments, &raw const grid) };
        return;
    }
    let dispatch = Dispatch { arguments: launch.arguments, grid: launch.grid };
    match blit::find(name).or_else(|| own::find(name)) {
        Some(emulation) => emulation(&dispatch),
        None => {
            panic!("no emulation of the kernel {name}; add one to the stand-in or register one")
        }
    }
}
