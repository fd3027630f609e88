//! The calls around device code.
#![expect(unsafe_code, reason = "declares what a driver owes")]
use super::StreamDriver;
use crate::{BuildError, Module, Shape};
use core::{
    ffi::{CStr, c_void},
    fmt,
};
use omniheap_seam::Result;
use std::sync::Arc;

/// Modules, functions and launches. Errors are what the driver says, if not said otherwise.
///
/// # Safety
///
/// A function and a variable stay where they are until their module is unloaded, and not longer.
#[expect(clippy::missing_errors_doc, reason = "said once above, for all")]
pub unsafe trait CodeDriver: StreamDriver + Sized {
    /// A loaded module's handle.
    type Module: Copy + Send + Sync + fmt::Debug;
    /// A function's handle.
    type Function: Copy + Send + Sync;

    /// Returns whether code that was loaded by one of two drivers runs on the other.
    fn runs_code_of(&self, other: &Self) -> bool;

    /// Compiles source for this device, and loads it. The error has the compiler's log.
    fn compile(driver: &Arc<Self>, source: &str) -> Result<Module<Self>, BuildError>;

    /// Loads [`COMPACTION`](crate::COMPACTION), compiled before where there is such an image. The error has the compiler's log.
    fn compaction(driver: &Arc<Self>) -> Result<Module<Self>, BuildError>;

    /// Unloads a module.
    ///
    /// # Safety
    ///
    /// This driver loaded `module`, no launch of it still runs, and it is unloaded once.
    unsafe fn unload_module(&self, module: Self::Module) -> Result<()>;

    /// Finds a function.
    ///
    /// # Safety
    ///
    /// `module` is loaded.
    unsafe fn function(&self, module: Self::Module, name: &CStr) -> Result<Self::Function>;

    /// Finds address and size of a variable.
    ///
    /// # Safety
    ///
    /// `module` is loaded.
    unsafe fn global(&self, module: Self::Module, name: &CStr) -> Result<(u64, u64)>;

    /// Returns the most threads that a group of a function can have.
    ///
    /// # Safety
    ///
    /// `function` belongs to a loaded module.
    unsafe fn max_threads(&self, function: Self::Function) -> Result<u32>;

    /// Returns the bytes of shared memory that a function always uses.
    ///
    /// # Safety
    ///
    /// `function` belongs to a loaded module.
    unsafe fn static_shared(&self, function: Self::Function) -> Result<u32>;

    /// Opts a function in to more shared memory per group; `ExceedsLimit` for a size that no device has.
    ///
    /// # Safety
    ///
    /// `function` belongs to a loaded module.
    unsafe fn allow_shared(&self, function: Self::Function, size: u32) -> Result<()>;

    /// Launches a function, in stream order.
    ///
    /// # Safety
    ///
    /// `function` belongs to a loaded module, `stream` is live, `arguments` point to values of the types that the function
    /// declares, and what the function does with them is sound.
    unsafe fn launch(
        &self,
        function: Self::Function,
        shape: Shape,
        stream: Self::Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()>;
}
