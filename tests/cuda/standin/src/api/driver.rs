//! The driver itself: its start, its version, the words for its codes, and the door by which run-time libraries find
//! functions.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_char, c_int, c_uint};
use core::ptr;

use crate::code::Code;
use crate::doors;
use crate::entry::export_anytime;
use crate::ffi::{InText, Out, Word};
use crate::life;

/// CUDA 13.0.
pub(crate) const VERSION: c_int = 13_000;

export_anytime! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        life::start()
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.set(VERSION)
    }

    fn cuGetErrorName(code: c_uint, name: Out<*const c_char>) {
        let words = Code(code).words();
        name.set(words.map_or(ptr::null(), |words| words.0.as_ptr()))?;
        words.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(code: c_uint, says: Out<*const c_char>) {
        let words = Code(code).words();
        says.set(words.map_or(ptr::null(), |words| words.1.as_ptr()))?;
        words.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetProcAddress(name: InText, function: Out<Word>, version: c_int, flags: u64) {
        doors::find(name, function, version, flags).map_or(Err(Code::NOT_FOUND), |_| Ok(()))
    }

    fn cuGetProcAddress_v2(
        name: InText,
        function: Out<Word>,
        version: c_int,
        flags: u64,
        status: Out<c_uint>,
    ) {
        let found = doors::find(name, function, version, flags);
        status.set_if_wanted(match found {
            Ok(()) => 0,
            Err(doors::Missing::Name) => 1,
            Err(doors::Missing::Version) => 2,
            Err(doors::Missing::Arguments) => return Err(Code::INVALID_VALUE),
        });
        found.map_err(|_| Code::NOT_FOUND)
    }

    /// Tables that NVIDIA does not describe; there are none.
    fn cuGetExportTable(table: Out<Word>, _name: Word) {
        table.set(Word::new(0))?;
        Err(Code::INVALID_VALUE)
    }
}
