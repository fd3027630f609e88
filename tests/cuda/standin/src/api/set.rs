//! Memory that is set to a value.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_uchar, c_uint, c_ushort};

use crate::code::{Answer, Code};
use crate::context;
use crate::entry::export;
use crate::ffi::Word;
use crate::op::{Op, Rows};
use crate::space;
use crate::stream::{self, admit_unsafe};

/// Returns the work that sets `height` rows of `count` values of `size` bytes.
fn set(to: u64, pitch: u64, value: u32, size: u64, count: u64, height: u64) -> Answer<Op> {
    if !to.is_multiple_of(size) || (count > 0 && height > 0 && space::find(to).is_none()) {
        return Err(Code::INVALID_VALUE);
    }
    let width = count.checked_mul(size).ok_or(Code::INVALID_VALUE)?;
    let rows = Rows { to, to_pitch: pitch, from: 0, from_pitch: 0, width, height };
    Ok(Op::Set { rows, value: value.to_ne_bytes(), size })
}

fn later(op: Op, stream: Word) -> Answer {
    let stream = stream::resolve(stream, context::current()?)?;
    stream::submit(stream, op).map(drop)
}

fn now(op: Op) -> Answer {
    let context = context::current()?;
    admit_unsafe()?;
    stream::submit(stream::resolve(Word::new(0), context)?, op)?.wait();
    context::current().map(drop)
}

export! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds(to: u64, value: c_uchar, count: u64) {
        now(set(to, 0, value.into(), 1, count, 1)?)
    }

    fn cuMemsetD8Async / cuMemsetD8Async_ptsz(to: u64, value: c_uchar, count: u64, stream: Word) {
        later(set(to, 0, value.into(), 1, count, 1)?, stream)
    }

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds(to: u64, value: c_ushort, count: u64) {
        now(set(to, 0, value.into(), 2, count, 1)?)
    }

    fn cuMemsetD16Async / cuMemsetD16Async_ptsz(to: u64, value: c_ushort, count: u64, stream: Word) {
        later(set(to, 0, value.into(), 2, count, 1)?, stream)
    }

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds(to: u64, value: c_uint, count: u64) {
        now(set(to, 0, value, 4, count, 1)?)
    }

    fn cuMemsetD32Async / cuMemsetD32Async_ptsz(to: u64, value: c_uint, count: u64, stream: Word) {
        later(set(to, 0, value, 4, count, 1)?, stream)
    }

    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(
        to: u64, pitch: u64, value: c_uchar, width: u64, height: u64,
    ) {
        now(set(to, pitch, value.into(), 1, width, height)?)
    }

    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        to: u64, pitch: u64, value: c_uchar, width: u64, height: u64, stream: Word,
    ) {
        later(set(to, pitch, value.into(), 1, width, height)?, stream)
    }

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(
        to: u64, pitch: u64, value: c_uint, width: u64, height: u64,
    ) {
        now(set(to, pitch, value, 4, width, height)?)
    }

    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        to: u64, pitch: u64, value: c_uint, width: u64, height: u64, stream: Word,
    ) {
        later(set(to, pitch, value, 4, width, height)?, stream)
    }
}
