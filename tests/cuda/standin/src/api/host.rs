//! Pinned and registered memory of the program.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_uint;

use crate::code::{Answer, Code};
use crate::entry::export;
use crate::ffi::{Out, Word};
use crate::space::{self, Kind, Range};
use crate::stream::{self, admit_unsafe};
use crate::{context, count};

fn allocate(out: Out<Word>, size: u64, flags: c_uint) -> Answer {
    let context = context::current()?;
    out.set(Word::new(0))?;
    if flags > 7 {
        return Err(Code::INVALID_VALUE);
    }
    if size == 0 {
        return Ok(());
    }
    admit_unsafe()?;
    let range = Range::new(size, Kind::Pinned, context, context::device_of(context)?);
    out.set(Word::new(space::allocate(Range { flags, ..range })?))
}

/// Checks that memory of this kind begins at an address of the program, and waits for the context's work. Returns the address.
fn at(pointer: Word, kind: Kind, call: &str, code: Code) -> Answer<u64> {
    let address = pointer.number();
    if space::at(address, |found| found == kind).is_none() {
        count::broken(&format!("{call} of {address:#x}, which is none of its memory"));
        return Err(code);
    }
    stream::drain(context::current()?);
    Ok(address)
}

export! {
    fn cuMemHostAlloc(out: Out<Word>, size: u64, flags: c_uint) {
        allocate(out, size, flags)
    }

    fn cuMemAllocHost_v2(out: Out<Word>, size: u64) {
        allocate(out, size, 0)
    }

    fn cuMemFreeHost(pointer: Word) {
        context::current()?;
        if pointer.number() == 0 {
            return Ok(());
        }
        admit_unsafe()?;
        space::free(at(pointer, Kind::Pinned, "cuMemFreeHost", Code::INVALID_VALUE)?);
        Ok(())
    }

    fn cuMemHostRegister_v2(pointer: Word, size: u64, flags: c_uint) {
        let context = context::current()?;
        if pointer.number() == 0 || size == 0 || flags > 15 {
            return Err(Code::INVALID_VALUE);
        }
        admit_unsafe()?;
        let range = Range::new(size, Kind::Registered, context, context::device_of(context)?);
        space::register(pointer.number(), Range { flags, ..range })
    }

    fn cuMemHostUnregister(pointer: Word) {
        context::current()?;
        admit_unsafe()?;
        let code = Code::NOT_REGISTERED;
        space::free(at(pointer, Kind::Registered, "cuMemHostUnregister", code)?);
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, pointer: Word, flags: c_uint) {
        context::current()?;
        let found = space::find(pointer.number()).filter(|(_, range)| range.is_host());
        if flags != 0 || found.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        out.set(pointer.number())
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, pointer: Word) {
        context::current()?;
        let (_, range) = space::find(pointer.number()).ok_or(Code::INVALID_VALUE)?;
        if range.kind != Kind::Pinned {
            return Err(Code::INVALID_VALUE);
        }
        // Every allocation can be reached by the device.
        flags.set(range.flags | 2)
    }
}
