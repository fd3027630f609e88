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
        life::go_on()?;
        let words = Code(code).words();
        name.set(words.map_or(ptr::null(), |words| words.0.as_ptr()))?;
        words.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(code: c_uint, says: Out<*const c_char>) {
        life::go_on()?;
        let words = Code(code).words();
        says.set(words.map_or(ptr::null(), |words| words.1.as_ptr()))?;
        words.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetProcAddress(name: InText, function: Out<Word>, version: c_int, flags: u64) {
        function.set(doors::find(name, version, flags).map_err(|_| Code::NOT_FOUND)?)
    }

    fn cuGetProcAddress_v2(
        name: InText,
        function: Out<Word>,
        version: c_int,
        flags: u64,
        status: Out<c_uint>,
    ) {
        // The status alone says that there is no such function.
        let (found, why) = match doors::find(name, version, flags) {
            Ok(found) => (found, 0),
            Err(doors::Missing::Name) => (Word::new(0), 1),
            Err(doors::Missing::Version) => (Word::new(0), 2),
            Err(doors::Missing::Arguments) => return Err(Code::INVALID_VALUE),
        };
        status.set_if_wanted(why);
        function.set(found)
    }

    /// Tables that NVIDIA does not describe; there are none.
    fn cuGetExportTable(table: Out<Word>, _name: Word) {
        table.set(Word::new(0))?;
        Err(Code::INVALID_VALUE)
    }
}
