//! Pointers from C, each with the few operations that are allowed on it.
//!
//! Values of these types exist only as arguments of exported functions: nothing in this crate makes one. C's contract
//! for such a function is that the pointer is null or good for the call, and that is the proof of every block here.

#![expect(unsafe_code, reason = "reads and writes through pointers that C hands in")]

use core::ffi::{CStr, c_char, c_void};

use crate::code::{Answer, Code};

/// Address where C wants values written.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value; a null pointer is an invalid argument.
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passed a pointer for this call (module documentation), and it is not null. Unaligned, since some
        // callers point into packed buffers.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value where C gave somewhere to write it.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.is_null() {
            let written = self.set(value);
            debug_assert_eq!(written, Ok(()), "checked above");
        }
    }

    /// Refuses a null pointer before anything is done.
    pub(crate) fn wanted(&self) -> Answer {
        if self.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    pub(crate) const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the place `index` values further on.
    pub(crate) const fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

impl<T: Copy> Out<T> {
    /// Reads the value that C left there.
    pub(crate) fn get(self) -> Answer<T> {
        In(self.0.cast_const()).get()
    }
}

/// Writes text, its end, and nothing beyond `size` bytes.
pub(crate) fn set_text(to: Out<u8>, text: &str, size: usize) -> Answer {
    for index in 0..size.min(text.len() + 1) {
        let is_last = index + 1 == size;
        let byte = text.as_bytes().get(index).copied().unwrap_or(0);
        to.at(index).set(if is_last { 0 } else { byte })?;
    }
    Ok(())
}

/// One value, or an array, that C lets us read.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Reads one value; a null pointer is an invalid argument.
    pub(crate) fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passed a pointer for this call (module documentation), and it is not null.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Copies `count` values.
    pub(crate) fn list(self, count: usize) -> Answer<Vec<T>> {
        (0..count).map(|index| In(self.0.wrapping_add(index)).get()).collect()
    }
}

/// A C string, or text of another kind that ends with zero.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct InText(*const c_char);

impl InText {
    pub(crate) fn get(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passed a terminated string for this call (module documentation).
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// A pointer that is only a number here: a handle, or memory that the device reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Word(*mut c_void);

impl Word {
    pub(crate) fn new(number: u64) -> Self {
        let number = usize::try_from(number).unwrap_or_default(); // Always fits: a 64-bit machine.
        Self(core::ptr::with_exposed_provenance_mut(number))
    }

    pub(crate) fn number(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Returns the pointer, for functions of the program that get it back.
    pub(crate) const fn pointer(self) -> *mut c_void {
        self.0
    }

    /// Returns the place that the pointer names, for values of a type that an argument decides.
    pub(crate) const fn out<T>(self) -> Out<T> {
        Out(self.0.cast())
    }

    /// Returns the values that the pointer names, of a type that an argument decides.
    pub(crate) const fn read<T>(self) -> In<T> {
        In(self.0.cast_const().cast())
    }
}
