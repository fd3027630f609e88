//! Stream-ordered memory, and its pools.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::entry::export;
use crate::ffi::{In, Out, Word};
use crate::op::Op;
use crate::pool::{self, Value};
use crate::space::{self, Kind};
use crate::{context, count, graph, stream};

/// A place of memory, as the driver's structures have it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: c_uint,
    pub(crate) id: c_int,
}

/// `CUmemAccessDesc`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessOf {
    pub(crate) location: Location,
    pub(crate) rights: c_uint,
}

/// `CUmemPoolProps`, as far as it is read; the rest is reserved.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: c_uint,
    pub(crate) handles: c_uint,
    pub(crate) location: Location,
}

impl Location {
    const DEVICE: c_uint = 1;

    /// Returns the device that it is.
    pub(crate) fn device(self) -> Answer<u32> {
        if self.kind != Self::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        context::device(self.id)
    }
}

fn allocate(out: Out<u64>, size: u64, pool: Option<Word>, stream: Word) -> Answer {
    let context = context::current()?;
    out.wanted()?;
    let stream = stream::resolve(stream, context)?;
    out.set(0)?;
    if size == 0 {
        return Ok(());
    }
    let pool = match pool {
        Some(pool) => pool.number(),
        None => pool::current(context::device_of(context)?),
    };
    let base = pool::allocate(pool, size, context)?;
    stream::submit(stream, Op::Claim(base)).inspect_err(|_| pool::release(base))?;
    out.set(base)
}

fn free(address: u64, stream: Word) -> Answer {
    let context = context::current()?;
    let stream = stream::resolve(stream, context)?;
    if address == 0 {
        return Ok(());
    }
    let is_right = |kind| matches!(kind, Kind::Plain | Kind::Pooled(_));
    let found = space::at(address, is_right).filter(|range| !range.is_going);
    if found.is_none() {
        count::broken(&format!("cuMemFreeAsync of {address:#x}, which is no allocation"));
        return Err(Code::INVALID_VALUE);
    }
    if let Some((graph, _)) = stream::standing(stream)? {
        let op = if graph::owns(graph, address) { Op::Rest(address) } else { Op::Release(address) };
        return stream::submit(stream, op).map(drop);
    }
    // Marked before it is queued: the stream may be faster than this thread.
    space::set_going(address);
    stream::submit(stream, Op::Release(address)).map(drop)
}

export! {
    fn cuMemAllocAsync / cuMemAllocAsync_ptsz(out: Out<u64>, size: u64, stream: Word) {
        allocate(out, size, None, stream)
    }

    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        out: Out<u64>,
        size: u64,
        pool: Word,
        stream: Word,
    ) {
        allocate(out, size, Some(pool), stream)
    }

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz(address: u64, stream: Word) {
        free(address, stream)
    }

    fn cuDeviceGetDefaultMemPool(out: Out<Word>, device: c_int) {
        out.wanted()?;
        out.set(Word::new(pool::default(context::device(device)?)))
    }

    fn cuDeviceGetMemPool(out: Out<Word>, device: c_int) {
        out.wanted()?;
        out.set(Word::new(pool::current(context::device(device)?)))
    }

    fn cuDeviceSetMemPool(device: c_int, pool: Word) {
        pool::set_current(context::device(device)?, pool.number())
    }

    fn cuMemSetMemPool(location: In<Location>, kind: c_uint, pool: Word) {
        if kind != 1 {
            return Err(Code::INVALID_VALUE);
        }
        pool::set_current(location.get()?.device()?, pool.number())
    }

    fn cuMemPoolCreate(out: Out<Word>, properties: In<PoolProperties>) {
        out.wanted()?;
        let properties = properties.get()?;
        if properties.kind != 1 || properties.handles > 1 {
            return Err(Code::INVALID_VALUE);
        }
        out.set(Word::new(pool::create(properties.location.device()?)))
    }

    fn cuMemPoolDestroy(pool: Word) {
        pool::destroy(pool.number())
    }

    fn cuMemPoolTrimTo(pool: Word, keep: u64) {
        pool::trim_to(pool.number(), keep)
    }

    fn cuMemPoolGetAttribute(pool: Word, attribute: c_uint, value: Word) {
        match pool::attribute(pool.number(), attribute)? {
            Value::Switch(switch) => value.out().set(switch),
            Value::Bytes(bytes) => value.out().set(bytes),
        }
    }

    fn cuMemPoolSetAttribute(pool: Word, attribute: c_uint, value: Word) {
        let value = match attribute {
            1..=3 => Value::Switch(value.read().get()?),
            _ => Value::Bytes(value.read().get()?),
        };
        pool::set_attribute(pool.number(), attribute, value)
    }

    fn cuMemPoolGetAccess(rights: Out<c_uint>, pool: Word, location: In<Location>) {
        rights.set(pool::access(pool.number(), location.get()?.device()?)?)
    }

    fn cuMemPoolSetAccess(pool: Word, list: In<AccessOf>, count: usize) {
        for one in list.list(count)? {
            pool::set_access(pool.number(), one.location.device()?, one.rights)?;
        }
        Ok(())
    }
}
