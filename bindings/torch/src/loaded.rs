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
}

/// C++'s `operator new`.
pub(crate) type New = unsafe extern "C" fn(usize) -> *mut c_void;

/// C++'s `operator new`, for memory that C++ frees.
pub(crate) fn operator_new() -> Option<New> {
    let new = Loaded::find(c"libstdc++.so.6")?.symbol(c"_Znwm")?;
    // SAFETY: the C++ ABI fixes the signature of this symbol.
    Some(unsafe { core::mem::transmute::<*mut c_void, New>(new) })
}
