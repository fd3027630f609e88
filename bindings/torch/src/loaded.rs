//! Symbols of libraries that the process has loaded: PyTorch's, and the C++ library that it uses.
#![expect(unsafe_code, reason = "looks up symbols")]
use core::ffi::{CStr, c_void};

/// A library that the process has loaded.
pub(crate) struct Loaded(*mut c_void);

impl Loaded {
    pub(crate) fn find(name: &CStr) -> Option<Self> {
        // SAFETY: a C string; the flag forbids loading anything.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a handle from `dlopen` and a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    /// Looks up a function.
    ///
    /// # Safety
    ///
    /// `F` is a function pointer, with the signature of the function that has this name.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let symbol = self.symbol(name)?;
        // SAFETY: both are addresses of one size, and the caller promises the signature.
        Some(unsafe { core::mem::transmute_copy(&symbol) })
    }
}

/// C++'s `operator new`.
pub(crate) type New = unsafe extern "C" fn(usize) -> *mut c_void;

/// C++'s `operator new`, for memory that C++ frees.
pub(crate) fn operator_new() -> Option<New> {
    // SAFETY: the C++ ABI fixes the signature of this symbol.
    unsafe { Loaded::find(c"libstdc++.so.6")?.function(c"_Znwm") }
}
