//! GGUF, versions 2 and 3: counts, key-value pairs, tensor infos, and the tensors at an alignment.

use super::Source;
use super::source::Walk;
use crate::Dtype;
use crate::error::{ErrorKind, Fault};
use crate::tensor::{Tensor, bytes_of};

const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_DIMENSIONS: u32 = 8;
const MAX_NAME: u64 = 64 << 10;
const MAX_NESTING: u32 = 4;
/// A tensor info has at least a name's length, a count, a type and an offset.
const LEAST_INFO: u64 = 8 + 4 + 4 + 8;
/// A pair has at least a key's length, a type and one byte.
const LEAST_PAIR: u64 = 8 + 4 + 1;

const U32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

pub(super) fn read(source: &dyn Source) -> Result<Vec<Tensor>, Fault> {
    let mut walk = Walk::new(source, 4);
    match walk.u32()? {
        2 | 3 => {}
        // A small number whose bytes are turned around.
        version if version & 0xffff == 0 => return Err(Fault::at(4, ErrorKind::Endianness)),
        version => return Err(Fault::at(4, ErrorKind::Version(version))),
    }
    let (tensors, pairs) = (walk.u64()?, walk.u64()?);
    limit(&walk, tensors, LEAST_INFO, "tensors in a file of this size")?;
    limit(&walk, pairs, LEAST_PAIR, "key-value pairs in a file of this size")?;
    let mut alignment = DEFAULT_ALIGNMENT;
    for _ in 0..pairs {
        if let Some(found) = pair(&mut walk)? {
            alignment = found;
        }
    }
    let infos: Result<Vec<_>, _> = (0..tensors).map(|_| info(&mut walk)).collect();
    place(infos?, source, walk.position(), alignment)
}

/// Refuses a count of things that the rest of the file cannot hold.
fn limit(walk: &Walk<'_>, count: u64, least: u64, what: &'static str) -> Result<(), Fault> {
    let limit = walk.left() / least;
    let fault = || Fault::at(walk.position(), ErrorKind::OverLimit { what, limit });
    if count <= limit { Ok(()) } else { Err(fault()) }
}

fn name(walk: &mut Walk<'_>) -> Result<String, Fault> {
    let (at, length) = (walk.position(), walk.u64()?);
    if length > MAX_NAME {
        return Err(Fault::at(
            at,
            ErrorKind::OverLimit { what: "bytes in a name", limit: MAX_NAME },
        ));
    }
    let text = core::str::from_utf8(walk.bytes(length)?).map(String::from);
    text.map_err(|_| Fault::at(at, ErrorKind::NotUtf8))
}

/// Skips a pair; returns the alignment where it is that.
fn pair(walk: &mut Walk<'_>) -> Result<Option<u64>, Fault> {
    let (key, kind) = (name(walk)?, walk.u32()?);
    if key != "general.alignment" {
        return skip_value(walk, kind, 0).map(|()| None);
    }
    let at = walk.position();
    if kind != U32 {
        return Err(Fault::at(at, ErrorKind::Header("general.alignment is no u32".into())));
    }
    let alignment = u64::from(walk.u32()?);
    if alignment.is_power_of_two() {
        Ok(Some(alignment))
    } else {
        Err(Fault::at(at, ErrorKind::Alignment(alignment)))
    }
}

/// Returns the bytes of a value of fixed size.
const fn fixed(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

fn skip_value(walk: &mut Walk<'_>, kind: u32, depth: u32) -> Result<(), Fault> {
    let at = walk.position();
    match (kind, fixed(kind)) {
        (_, Some(bytes)) => walk.skip(bytes),
        (STRING, _) => {
            let length = walk.u64()?;
            walk.skip(length)
        }
        (ARRAY, _) if depth < MAX_NESTING => {
            let (kind, count) = (walk.u32()?, walk.u64()?);
            // A string or an array inside has at least its own length.
            limit(walk, count, fixed(kind).unwrap_or(8), "elements in an array of this file")?;
            if let Some(bytes) = fixed(kind) {
                return walk.skip(count * bytes);
            }
            (0..count).try_for_each(|_| skip_value(walk, kind, depth + 1))
        }
        _ => Err(Fault::at(at, ErrorKind::Header(format!("value of unknown type {kind}")))),
    }
}

/// A tensor whose offset counts from the start of the data.
fn info(walk: &mut Walk<'_>) -> Result<Tensor, Fault> {
    let at = walk.position();
    let (name, dimensions) = (name(walk)?, walk.u32()?);
    if dimensions > MAX_DIMENSIONS {
        let kind = ErrorKind::OverLimit { what: "dimensions", limit: MAX_DIMENSIONS.into() };
        return Err(Fault::at(at, kind));
    }
    let shape: Result<Vec<_>, _> = (0..dimensions).map(|_| walk.u64()).collect();
    // The file has the fastest dimension first.
    let shape: Vec<_> = shape?.into_iter().rev().collect();
    let number = walk.u32()?;
    let Some(dtype) = Dtype::from_gguf(number) else {
        return Err(Fault::at(at, ErrorKind::UnknownDtype { name, dtype: number.to_string() }));
    };
    // Blocks lie along the fastest dimension, so that each row is whole.
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block().0) {
        return Err(Fault::at(at, ErrorKind::Shape { name, dtype: dtype.name(), shape }));
    }
    let size = bytes_of(&name, dtype, &shape)?;
    let (name, shape) = (name.into(), shape.into());
    Ok(Tensor { name, dtype, shape, file: 0, offset: walk.u64()?, size })
}

/// Refuses offsets other than the next one; makes them count from the start of the file.
fn place(
    mut tensors: Vec<Tensor>,
    source: &dyn Source,
    header: u64,
    alignment: u64,
) -> Result<Vec<Tensor>, Fault> {
    let overflow = || Fault::from(ErrorKind::Header("an offset exceeds 64 bits".into()));
    let start = header.checked_next_multiple_of(alignment).ok_or_else(overflow)?;
    let (mut next, mut end) = (0_u64, 0);
    for tensor in &mut tensors {
        let name = || tensor.name.to_string();
        if tensor.offset < next {
            return Err(ErrorKind::Overlap(name()).into());
        }
        if tensor.offset > next {
            return Err(ErrorKind::Hole { name: name(), bytes: tensor.offset - next }.into());
        }
        end = next.checked_add(tensor.size).ok_or_else(overflow)?;
        next = end.checked_next_multiple_of(alignment).ok_or_else(overflow)?;
        tensor.offset = start.checked_add(tensor.offset).ok_or_else(overflow)?;
        super::inside(source, tensor.offset, tensor.size)?;
    }
    // The last tensor may be padded too.
    let behind = start.checked_add(next).ok_or_else(overflow)?;
    match source.size().checked_sub(behind) {
        Some(bytes) if bytes > 0 => Err(Fault::at(behind, ErrorKind::Trailing(bytes))),
        _ => {
            super::inside(source, if tensors.is_empty() { 0 } else { start }, end).map(|()| tensors)
        }
    }
}
