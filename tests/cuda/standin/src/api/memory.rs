//! Plain and managed memory of the device.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::entry::export;
use crate::ffi::{Out, Word};
use crate::knobs::knobs;
use crate::space::{self, Kind, Range};
use crate::stream::{self, admit_unsafe};
use crate::{budget, context, count, pool};

/// Alignment of rows of pitched memory.
const PITCH: u64 = 512;
/// The most bytes of a row.
const WIDEST: u64 = 0x7FFF_FFFF;

/// Writes the address of new memory, or zero where there is none.
fn give(out: Out<u64>, size: u64, kind: Kind) -> Answer {
    let context = context::current()?;
    out.wanted()?;
    let made = allocate(size, kind, context);
    out.set(made.unwrap_or(0))?;
    made.map(drop)
}

fn allocate(size: u64, kind: Kind, context: u64) -> Answer<u64> {
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    admit_unsafe()?;
    space::allocate(Range::new(size, kind, context, context::device_of(context)?))
}

/// Frees memory once all work of the context has ended.
fn free(address: u64) -> Answer {
    if address == 0 {
        return context::current().map(drop);
    }
    admit_unsafe()?;
    let is_right = |kind| matches!(kind, Kind::Plain | Kind::Pooled(_) | Kind::Managed);
    let range = space::at(address, is_right).filter(|range| !range.is_going);
    let Some(range) = range else {
        count::broken(&format!("cuMemFree of {address:#x}, which is no allocation"));
        return Err(Code::INVALID_VALUE);
    };
    stream::drain(context::current()?);
    if let Kind::Pooled(pool) = range.kind {
        pool::give_back(pool, range.size);
    }
    space::free(address);
    Ok(())
}

export! {
    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) {
        let device = context::device_of(context::current()?)?;
        free.set(budget::free(device))?;
        total.set(knobs().memory)
    }

    fn cuMemAlloc_v2(out: Out<u64>, size: u64) {
        give(out, size, Kind::Plain)
    }

    fn cuMemAllocPitch_v2(
        out: Out<u64>,
        pitch: Out<u64>,
        width: u64,
        height: u64,
        element: c_uint,
    ) {
        out.wanted()?;
        pitch.wanted()?;
        if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).filter(|&row| row <= WIDEST);
        let row = row.ok_or(Code::INVALID_VALUE)?;
        let size = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
        give(out, size, Kind::Plain)?;
        pitch.set(row)
    }

    fn cuMemAllocManaged(out: Out<u64>, size: u64, flags: c_uint) {
        out.wanted()?;
        if !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        give(out, size, Kind::Managed)
    }

    fn cuMemFree_v2(address: u64) {
        free(address)
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<u64>, address: u64) {
        context::current()?;
        let (found, range) = space::find(address).ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(found);
        size.set_if_wanted(range.size);
        Ok(())
    }

    fn cuMemAdvise(address: u64, _size: u64, _advice: c_uint, _device: c_int) {
        managed(address)
    }

    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(
        address: u64,
        _size: u64,
        _device: c_int,
        stream: Word,
    ) {
        managed(address)?;
        stream::resolve(stream, context::current()?).map(drop)
    }
}

fn managed(address: u64) -> Answer {
    context::current()?;
    let found = space::find(address).filter(|(_, range)| range.kind == Kind::Managed);
    found.map(drop).ok_or(Code::INVALID_VALUE)
}
