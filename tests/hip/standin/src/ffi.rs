//! Pointers that C hands in, each with the little that may be done to it.
//!
//! Values of these types exist only as arguments of exported functions: nothing in this crate makes one. C's contract
//! for such a function is that the pointer is null or good for the call, and that is the proof of every block here.

#![expect(unsafe_code, reason = "reads and writes through pointers that C hands in")]

use core::ffi::{CStr, c_char, c_void};

use crate::abi::{Answer, Status};

/// Address where C wants one value written.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value; a null pointer is an invalid argument.
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: C passed a pointer for this call (module documentation), and it is not null. Unaligned, since some
        // callers point into packed buffers.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value where C gave somewhere to write it.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            let written = self.set(value);
            debug_assert_eq!(written, Ok(()), "checked above");
        }
    }

    pub(crate) const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The address, for lists that are written in place.
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }
}

impl<T: Copy> Out<T> {
    /// Reads what C left there.
    pub(crate) fn get(self) -> Result<T, Status> {
        In(self.0.cast_const()).get()
    }
}

/// Address where C wants an attribute's value written, of a type that the attribute decides.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct OutValue(*mut c_void);

impl OutValue {
    /// Writes a value of the attribute's type.
    pub(crate) fn set<T>(self, value: T) -> Answer {
        Out(self.0.cast::<T>()).set(value)
    }

    /// Writes text and zeros up to `size` bytes.
    pub(crate) fn text(self, text: &str, size: usize) -> Answer {
        for index in 0..size {
            let byte = text.as_bytes().get(index).copied().unwrap_or(0);
            // Wrapping: the caller gave `size` bytes, so no address wraps.
            Out(self.0.cast::<u8>().wrapping_add(index)).set(byte)?;
        }
        Ok(())
    }
}

/// One value, or an array, that C lets us read.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Reads one value; a null pointer is an invalid argument.
    pub(crate) fn get(self) -> Result<T, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: C passed a pointer for this call (module documentation), and it is not null.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Copies `count` values.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>, Status> {
        (0..count).map(|index| In(self.0.wrapping_add(index)).get()).collect()
    }
}

impl In<u8> {
    /// Copies `size` bytes at once.
    pub(crate) fn bytes(self, size: usize) -> Result<Vec<u8>, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: C passed a pointer to `size` bytes for this call (module documentation).
        Ok(unsafe { core::slice::from_raw_parts(self.0, size) }.to_vec())
    }
}

/// A C string.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct InText(*const c_char);

impl InText {
    pub(crate) fn get(self) -> Result<String, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: C passed a terminated string for this call (module documentation).
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Exports functions under their HSA names; the body's error becomes the status that C sees.
///
/// Every such function can be made to fail from outside (see [`crate::fault`]).
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $crate::abi::Status {
            if let Some(status) = $crate::fault::strike(stringify!($name)) {
                return status;
            }
            let run = || -> $crate::abi::Answer { $body };
            let status = run().err().unwrap_or($crate::abi::Status::SUCCESS);
            $crate::knobs::log(|| format!("{} -> {:#x}", stringify!($name), status.0));
            status
        }
    )*};
}

pub(crate) use export;
