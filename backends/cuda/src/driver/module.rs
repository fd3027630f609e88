//! Modules, functions and launches.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, check};
use crate::{module, sys::Attribute};
use core::{
    ffi::{CStr, c_void},
    ptr,
};
use cudarc::driver::sys::{CUfunc_st, CUmod_st};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{BuildError, CodeDriver, Module, Raw, Shape, StreamDriver};
use std::sync::Arc;

const JIT_ERROR_LOG: u32 = 5;
const JIT_ERROR_LOG_SIZE: u32 = 6;
const FUNCTION_MAX_THREADS: u32 = 0;
const FUNCTION_SHARED: u32 = 1;
const FUNCTION_MAX_DYNAMIC_SHARED: u32 = 8;

impl Driver {
    /// Compute capability, major and minor.
    pub(crate) fn compute(&self) -> (u32, u32) {
        let number = |attribute| u32::try_from(self.attribute(attribute)).unwrap_or(0);
        (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
    }

    /// Loads PTX (which ends with a zero byte) or machine code; the error has the driver's log.
    pub(crate) fn load_module(&self, image: &[u8]) -> Result<Raw<CUmod_st>, BuildError> {
        let _current = self.enter()?;
        let mut text = vec![0u8; 16 << 10];
        let mut options = [JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE];
        // The driver takes the size in the bits of a pointer.
        let size = ptr::without_provenance_mut::<c_void>(text.len());
        let mut values = [text.as_mut_ptr().cast::<c_void>(), size];
        let mut module = ptr::null_mut();
        let image = image.as_ptr().cast();
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: two options with two values, the buffer has the size that is passed, `module` is a valid
        // out-pointer, and `image` is a whole image as the caller's slice.
        let code = unsafe { (self.fns.module_load)(&raw mut module, image, 2, options, values) };
        check(code).map_err(|error| {
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            BuildError::new(error, String::from_utf8_lossy(&text[..end]))
        })?;
        Ok(Raw(module))
    }

    /// # Safety
    ///
    /// `function` belongs to a loaded module.
    unsafe fn function_attribute(&self, function: Raw<CUfunc_st>, attribute: u32) -> Result<u32> {
        let _current = self.enter()?;
        let mut value = 0;
        // SAFETY: `value` is a valid out-pointer; the caller promises the function.
        check(unsafe { (self.fns.function_get)(&raw mut value, attribute, function.0) })?;
        u32::try_from(value).map_err(|_| ErrorKind::Driver.into())
    }
}

// SAFETY: each function is one driver call; the driver keeps functions and variables where they are until the module goes.
unsafe impl CodeDriver for Driver {
    type Module = Raw<CUmod_st>;
    type Function = Raw<CUfunc_st>;

    fn runs_code_of(&self, other: &Self) -> bool {
        self.context() == other.context()
    }

    fn compile(driver: &Arc<Self>, source: &str) -> Result<Module<Self>, BuildError> {
        module::compile(driver, module::Arch::of(driver)?, source)
    }

    fn compaction(driver: &Arc<Self>) -> Result<Module<Self>, BuildError> {
        module::compaction(driver)
    }

    unsafe fn unload_module(&self, module: Self::Module) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.module_unload)(module.0) })
    }

    unsafe fn function(&self, module: Self::Module, name: &CStr) -> Result<Self::Function> {
        let _current = self.enter()?;
        let mut function = ptr::null_mut();
        let out = &raw mut function;
        // SAFETY: `out` is a valid out-pointer, `name` ends with zero, the caller promises the module.
        check(unsafe { (self.fns.module_function)(out, module.0, name.as_ptr()) })?;
        Ok(Raw(function))
    }

    unsafe fn global(&self, module: Self::Module, name: &CStr) -> Result<(u64, u64)> {
        let _current = self.enter()?;
        let (mut address, mut size) = (0, 0);
        let (at, bytes) = (&raw mut address, &raw mut size);
        // SAFETY: both are valid out-pointers, `name` ends with zero, the caller promises the module.
        check(unsafe { (self.fns.module_global)(at, bytes, module.0, name.as_ptr()) })?;
        Ok((address, size as u64))
    }

    unsafe fn max_threads(&self, function: Self::Function) -> Result<u32> {
        // SAFETY: the caller's promise.
        unsafe { self.function_attribute(function, FUNCTION_MAX_THREADS) }
    }

    unsafe fn static_shared(&self, function: Self::Function) -> Result<u32> {
        // SAFETY: the caller's promise.
        unsafe { self.function_attribute(function, FUNCTION_SHARED) }
    }

    unsafe fn allow_shared(&self, function: Self::Function, size: u32) -> Result<()> {
        let _current = self.enter()?;
        let size = i32::try_from(size).map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: the caller promises the function; the driver checks the size.
        check(unsafe { (self.fns.function_set)(function.0, FUNCTION_MAX_DYNAMIC_SHARED, size) })
    }

    unsafe fn launch(
        &self,
        function: Self::Function,
        shape: Shape,
        stream: Self::Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let _current = self.enter()?;
        let ([gx, gy, gz], [tx, ty, tz]) = (shape.grid, shape.group);
        let (shared, arguments) = (shape.shared, arguments.as_mut_ptr());
        let extra = ptr::null_mut();
        let launch = self.fns.launch;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            launch(function.0, gx, gy, gz, tx, ty, tz, shared, stream.0, arguments, extra)
        })
    }
}
