//! Questions about addresses.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::context;
use crate::entry::export;
use crate::ffi::{In, Word};
use crate::space::{self, Kind, Range};

const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// Answers one attribute of an address.
fn answer(value: Word, attribute: c_uint, address: u64) -> Answer {
    let (base, range) = space::find(address).ok_or(Code::INVALID_VALUE)?;
    match attribute {
        1 => value.out().set(range.context),
        2 => value.out().set(if is_of_host(&range) { HOST } else { DEVICE }),
        3 => value.out().set(address),
        4 if range.is_host() => value.out().set(address),
        4 => Err(Code::INVALID_VALUE),
        6 => value.out().set(0 as c_int),
        7 => value.out().set(range.id),
        8 => value.out().set(u8::from(range.kind == Kind::Managed)),
        9 => value.out().set(c_int::try_from(range.device).unwrap_or(0)),
        10 => value.out().set(u8::from(range.kind == Kind::Plain)),
        11 => value.out().set(base),
        12 => value.out().set(range.size),
        13 => value.out().set(1u8),
        14 => value.out().set(0u64),
        15 => value.out().set(0u8),
        16 => value.out().set(3 as c_uint),
        17 => value.out().set(match range.kind {
            Kind::Pooled(pool) => pool,
            _ => 0,
        }),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn is_of_host(range: &Range) -> bool {
    matches!(range.kind, Kind::Pinned | Kind::Registered)
}

/// Writes the answer about an unknown address: zeros, as wide as the attribute. It has no size.
fn clear(value: Word, attribute: c_uint) -> Answer {
    match attribute {
        1 | 3 | 4 | 7 | 11 | 14 | 17 => value.out().set(0u64),
        12 => Ok(()),
        8 | 10 | 13 | 15 => value.out().set(0u8),
        9 => value.out().set(-2 as c_int),
        2 | 6 | 16 => value.out().set(0 as c_uint),
        _ => Err(Code::INVALID_VALUE),
    }
}

export! {
    fn cuPointerGetAttribute(value: Word, attribute: c_uint, address: u64) {
        value.out::<u8>().wanted()?;
        context::current()?;
        answer(value, attribute, address)
    }

    fn cuPointerGetAttributes(
        count: c_uint,
        attributes: In<c_uint>,
        values: In<Word>,
        address: u64,
    ) {
        context::current()?;
        let count = usize::try_from(count).map_err(|_| Code::INVALID_VALUE)?;
        for (attribute, value) in attributes.list(count)?.into_iter().zip(values.list(count)?) {
            if answer(value, attribute, address).is_err() {
                clear(value, attribute)?;
            }
        }
        Ok(())
    }

    fn cuMemRangeGetAttribute(value: Word, size: usize, attribute: c_uint, address: u64, length: usize) {
        context::current()?;
        let _ = (value, size, attribute, address, length);
        Err(Code::NOT_SUPPORTED)
    }

    fn cuPointerSetAttribute(value: In<c_uint>, attribute: c_uint, address: u64) {
        context::current()?;
        value.get()?;
        let found = space::find(address).filter(|_| attribute == 6);
        found.map(drop).ok_or(Code::INVALID_VALUE)
    }
}
