//! Modules, functions and launches.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ffi::{CStr, c_void};
use core::ptr;
use std::sync::Arc;

use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{BuildError, CodeDriver, Module, Shape, StreamDriver};

use super::{Driver, address, check};
use crate::{
    module,
    sys::{Kernels, hipFuncAttribute, hipFunction_attribute, hipFunction_t, hipModule_t},
};

impl Driver {
    fn kernels(&self) -> Result<Kernels> {
        self.api.kernels.ok_or_else(|| ErrorKind::Unsupported.into())
    }

    /// Loads a code object.
    ///
    /// # Errors
    /// `Unsupported` when it is for another architecture; otherwise the runtime's error.
    pub fn load_module(&self, image: &[u8]) -> Result<hipModule_t> {
        let table = self.kernels()?;
        let _current = self.enter()?;
        let mut module = hipModule_t::NULL;
        // SAFETY: `module` is a valid out-pointer, and `image` is a whole code object as the caller's slice.
        check(unsafe { (table.hipModuleLoadData)(&raw mut module, image.as_ptr().cast()) })?;
        Ok(module)
    }

    /// # Safety
    /// `function` belongs to a loaded module.
    unsafe fn function_attribute(
        &self,
        function: hipFunction_t,
        attribute: hipFunction_attribute,
    ) -> Result<u32> {
        let table = self.kernels()?;
        let _current = self.enter()?;
        let mut value = 0;
        // SAFETY: `value` is a valid out-pointer; the caller promises the function.
        check(unsafe { (table.hipFuncGetAttribute)(&raw mut value, attribute, function) })?;
        u32::try_from(value).map_err(|_| ErrorKind::Driver.into())
    }
}

// SAFETY: each function is one call of the runtime, which keeps functions and variables where they are until the module goes.
unsafe impl CodeDriver for Driver {
    type Module = hipModule_t;
    type Function = hipFunction_t;

    fn runs_code_of(&self, other: &Self) -> bool {
        self.device == other.device
    }

    fn compile(driver: &Arc<Self>, source: &str) -> Result<Module<Self>, BuildError> {
        module::compile(driver, &module::arch(driver)?, source)
    }

    fn compaction(driver: &Arc<Self>) -> Result<Module<Self>, BuildError> {
        Self::compile(driver, omniheap_stream::COMPACTION)
    }

    unsafe fn unload_module(&self, module: Self::Module) -> Result<()> {
        let table = self.kernels()?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipModuleUnload)(module) })
    }

    unsafe fn function(&self, module: Self::Module, name: &CStr) -> Result<Self::Function> {
        let table = self.kernels()?;
        let _current = self.enter()?;
        let mut function = hipFunction_t::NULL;
        // SAFETY: `function` is a valid out-pointer, `name` ends with zero, the caller promises the module.
        check(unsafe { (table.hipModuleGetFunction)(&raw mut function, module, name.as_ptr()) })?;
        Ok(function)
    }

    unsafe fn global(&self, module: Self::Module, name: &CStr) -> Result<(u64, u64)> {
        let table = self.kernels()?;
        let _current = self.enter()?;
        let (mut start, mut size) = (ptr::null_mut(), 0);
        // SAFETY: both are valid out-pointers, `name` ends with zero, the caller promises the module.
        check(unsafe {
            (table.hipModuleGetGlobal)(&raw mut start, &raw mut size, module, name.as_ptr())
        })?;
        Ok((address(start), size as u64))
    }

    unsafe fn max_threads(&self, function: Self::Function) -> Result<u32> {
        // SAFETY: the caller's promise.
        unsafe {
            self.function_attribute(
                function,
                hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            )
        }
    }

    unsafe fn static_shared(&self, function: Self::Function) -> Result<u32> {
        // SAFETY: the caller's promise.
        unsafe {
            self.function_attribute(
                function,
                hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            )
        }
    }

    unsafe fn allow_shared(&self, function: Self::Function, size: u32) -> Result<()> {
        let table = self.kernels()?;
        let size = i32::try_from(size).map_err(|_| ErrorKind::ExceedsLimit)?;
        let attribute = hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize;
        let _current = self.enter()?;
        // SAFETY: the caller promises the function; the runtime checks the size.
        check(unsafe { (table.hipFuncSetAttribute)(function.0.cast_const(), attribute, size) })
    }

    unsafe fn launch(
        &self,
        function: Self::Function,
        shape: Shape,
        stream: Self::Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let call = self.kernels()?.hipModuleLaunchKernel;
        let ([gx, gy, gz], [tx, ty, tz]) = (shape.grid, shape.group);
        let (list, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { call(function, gx, gy, gz, tx, ty, tz, shape.shared, stream, list, none) })
    }
}
