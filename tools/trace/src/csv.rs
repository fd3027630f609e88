//! The trace as text: `op,id,size,stream,time_us`, one event a line, plain or gzip.
//!
//! `a` allocates `size` bytes, `r` asks to free (`size` empty or the same), `f` completes a free: the bytes may be
//! reused. An id is unique among live allocations. Every line ends with a newline, also the last: a file without
//! it was cut off. A free without an `r` before it is both at once.

use crate::builder::Builder;
use crate::error::{Error, ErrorKind, Field, Position};
use crate::event::{Alignment, Op, StreamId};
use crate::input::Input;
use crate::limits::Limits;
use crate::trace::{Source, Trace};
use std::io::{self, Read, Write};

/// The first line of the format.
pub const HEADER: &str = "op,id,size,stream,time_us";

/// Bytes read at a time.
const BUFFER: usize = 256 << 10;

/// Reads a trace from `source`, plain or gzip, within `limits`.
///
/// # Errors
/// The first thing that is wrong, with its line; nothing is returned of a file that is not right to its end.
pub fn read(source: impl Read, limits: &Limits) -> Result<Trace, Error> {
    read_input(&mut Input::new(source, limits)?, limits)
}

pub(crate) fn read_input(input: &mut Input<'_>, limits: &Limits) -> Result<Trace, Error> {
    let mut builder = Builder::new(Source::Csv, limits);
    each_line(
        input,
        limits,
        |line, number| if number == 1 { header(line) } else { record(line, &mut builder) },
    )?;
    Ok(builder.finish())
}

/// Calls `take` with every line (without its end) and its number from 1.
pub(crate) fn each_line(
    input: &mut Input<'_>,
    limits: &Limits,
    mut take: impl FnMut(&[u8], u64) -> Result<(), ErrorKind>,
) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER.max(limits.line + 2)];
    let mut kept = 0;
    let mut number = 0;
    loop {
        let at = |kind, number| Error::new(Position::Line(number + 1), kind);
        let got = input.fill(&mut buffer[kept..]).map_err(|kind| at(kind, number))?;
        let full = kept + got;
        let mut rest = &buffer[..full];
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = &rest[..end];
            number += 1;
            let outcome = if end > limits.line + 1 {
                Err(too_long(limits))
            } else {
                take(strip_return(line), number)
            };
            outcome.map_err(|kind| Error::new(Position::Line(number), kind))?;
            rest = &rest[end + 1..];
        }
        let left = rest.len();
        if left > limits.line + 1 {
            return Err(at(too_long(limits), number));
        }
        if full < buffer.len() {
            return if left == 0 && number > 0 {
                Ok(())
            } else {
                Err(at(ErrorKind::Truncated, number))
            };
        }
        buffer.copy_within(full - left..full, 0);
        kept = left;
    }
}

fn too_long(limits: &Limits) -> ErrorKind {
    ErrorKind::OverLimit { what: "bytes in one line", limit: limits.line as u64 }
}

fn strip_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn header(line: &[u8]) -> Result<(), ErrorKind> {
    if line == HEADER.as_bytes() { Ok(()) } else { Err(ErrorKind::Header(HEADER)) }
}

/// Reads one record and hands it to `builder`.
fn record(line: &[u8], builder: &mut Builder) -> Result<(), ErrorKind> {
    let mut fields = Fields { rest: line };
    let op = fields.op()?;
    let id = fields.number(Field::Id)?;
    let size = fields.optional_number(Field::Size)?;
    let stream = u16::try_from(fields.number(Field::Stream)?)
        .map_err(|_| ErrorKind::TooLarge(Field::Stream))?;
    let time_us = fields.last_number(Field::Time)?;
    builder.at(time_us)?;
    let stream = StreamId(stream);
    match op {
        b'a' => {
            let size = size.ok_or(ErrorKind::MissingField(Field::Size))?;
            builder.allocate(id, size, stream, Alignment::UNKNOWN).map(|_| ())
        }
        b'r' => builder.free_requested(id, size, stream),
        b'f' => builder.free_completed(id, size, stream),
        _ => Err(ErrorKind::UnknownOp),
    }
}

/// The fields of one line that are not yet read.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    #[inline]
    fn op(&mut self) -> Result<u8, ErrorKind> {
        match self.rest {
            [op, b',', rest @ ..] => {
                self.rest = rest;
                Ok(*op)
            }
            [] => Err(ErrorKind::MissingField(Field::Op)),
            [_] => Err(ErrorKind::MissingField(Field::Id)),
            _ => Err(ErrorKind::UnknownOp),
        }
    }

    #[inline]
    fn number(&mut self, field: Field) -> Result<u64, ErrorKind> {
        self.optional_number(field)?.ok_or(ErrorKind::MissingField(field))
    }

    /// Reads digits up to a comma; an empty field is `None`.
    #[inline]
    fn optional_number(&mut self, field: Field) -> Result<Option<u64>, ErrorKind> {
        let (value, digits) = self.digits(field)?;
        match self.rest {
            [b',', rest @ ..] => self.rest = rest,
            [] => return Err(ErrorKind::MissingField(following(field))),
            _ => return Err(ErrorKind::NotANumber(field)),
        }
        Ok((digits > 0).then_some(value))
    }

    /// Reads digits up to the end of the line.
    #[inline]
    fn last_number(&mut self, field: Field) -> Result<u64, ErrorKind> {
        let (value, digits) = self.digits(field)?;
        match (self.rest, digits) {
            ([], 0) => Err(ErrorKind::MissingField(field)),
            ([], _) => Ok(value),
            ([b',', ..], _) => Err(ErrorKind::ExtraField),
            _ => Err(ErrorKind::NotANumber(field)),
        }
    }

    /// Reads leading digits: their value and how many there were.
    #[inline]
    fn digits(&mut self, field: Field) -> Result<(u64, usize), ErrorKind> {
        let mut value = 0_u64;
        let mut digits = 0;
        for &byte in self.rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            // Nineteen digits cannot overflow; checking only past them keeps the common case short.
            value = if digits < 19 {
                value * 10 + u64::from(digit)
            } else {
                let tens = value.checked_mul(10).ok_or(ErrorKind::TooLarge(field))?;
                tens.checked_add(u64::from(digit)).ok_or(ErrorKind::TooLarge(field))?
            };
            digits += 1;
        }
        self.rest = &self.rest[digits..];
        Ok((value, digits))
    }
}

fn following(field: Field) -> Field {
    match field {
        Field::Id => Field::Size,
        Field::Size => Field::Stream,
        _ => Field::Time,
    }
}

/// Writes the allocations and frees of `trace` to `sink` and returns how many events it left out: the format has no
/// word for bindings, moves, placements, blocks and out-of-memory rungs, nor for names.
///
/// # Errors
/// Those of `sink`.
pub fn write(trace: &Trace, mut sink: impl Write) -> io::Result<u64> {
    let mut text = Vec::with_capacity(BUFFER + 128);
    text.extend_from_slice(HEADER.as_bytes());
    text.push(b'\n');
    let mut left_out = 0;
    for event in trace.events() {
        let (op, id, size, stream) = match event.op {
            Op::Allocate { id, size, stream, .. } => (b'a', id, Some(size), stream),
            Op::FreeRequested { id, stream, .. } => (b'r', id, None, stream),
            Op::FreeCompleted { id, stream, .. } => (b'f', id, None, stream),
            _ => {
                left_out += 1;
                continue;
            }
        };
        text.extend_from_slice(&[op, b',']);
        push_number(&mut text, u64::from(id.0), b',');
        match size {
            Some(size) => push_number(&mut text, size, b','),
            None => text.push(b','),
        }
        push_number(&mut text, u64::from(stream.0), b',');
        push_number(&mut text, event.time_us, b'\n');
        if text.len() >= BUFFER {
            sink.write_all(&text)?;
            text.clear();
        }
    }
    sink.write_all(&text)?;
    sink.flush()?;
    Ok(left_out)
}

/// Appends `value` in decimal, then `end`.
fn push_number(text: &mut Vec<u8>, mut value: u64, end: u8) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + u8::try_from(value % 10).expect("a digit is below ten");
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
    text.push(end);
}
