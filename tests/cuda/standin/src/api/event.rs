//! Events.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_uint;

use crate::code::Code;
use crate::context;
use crate::entry::export;
use crate::event;
use crate::ffi::{Out, Word};
use crate::pool;
use crate::stream::{self, admit_unsafe};

export! {
    fn cuEventCreate(out: Out<Word>, flags: c_uint) {
        out.wanted()?;
        if flags > 7 {
            return Err(Code::INVALID_VALUE);
        }
        out.set(Word::new(event::create(context::current()?, flags)))
    }

    fn cuEventDestroy_v2(event: Word) {
        event::destroy(event.number())
    }

    fn cuEventRecord / cuEventRecord_ptsz(event: Word, stream: Word) {
        event::record(event.number(), stream::resolve(stream, context::current()?)?)
    }

    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(
        event: Word, stream: Word, _flags: c_uint,
    ) {
        event::record(event.number(), stream::resolve(stream, context::current()?)?)
    }

    fn cuEventQuery(event: Word) {
        context::current()?;
        admit_unsafe()?;
        if event::is_over(event.number())? { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuEventSynchronize(event: Word) {
        context::current()?;
        admit_unsafe()?;
        event::wait(event.number())?;
        pool::settle();
        context::current().map(drop)
    }

    fn cuEventElapsedTime(time: Out<f32>, first: Word, second: Word) {
        time.set(event::elapsed(first.number(), second.number())?)
    }

    fn cuEventElapsedTime_v2(time: Out<f32>, first: Word, second: Word) {
        time.set(event::elapsed(first.number(), second.number())?)
    }
}
