//! Modules and launches. Code is what the forwarded compiler made: CUDA's.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_char, c_int, c_uint};

use crate::cuda::{Pointer, Source};
use crate::export::forward;

forward! {
    hipModuleLoadData => cuModuleLoadData(out: *mut Pointer, image: Source);
    hipModuleUnload => cuModuleUnload(module: Pointer);
    hipModuleGetFunction => cuModuleGetFunction(out: *mut Pointer, module: Pointer, name: *const c_char);
    hipModuleGetGlobal => cuModuleGetGlobal_v2(
        out: *mut u64, size: *mut usize, module: Pointer, name: *const c_char);
    hipModuleLaunchKernel => cuLaunchKernel(
        function: Pointer, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Pointer, arguments: Pointer, extra: Pointer);
    hipFuncSetAttribute => cuFuncSetAttribute(function: Pointer, attribute: c_uint, value: c_int);
    hipFuncGetAttribute => cuFuncGetAttribute(out: *mut c_int, attribute: c_uint, function: Pointer);
}
