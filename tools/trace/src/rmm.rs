//! RMM's log of a `logging_resource_adaptor`: one allocation, free or failed allocation a line.
//!
//! `Thread,Time,Action,Pointer,Size,Stream`. A free is complete at once: RMM orders reuse by stream. Requests of no
//! bytes, and frees of what was allocated before the log began, are skipped and counted.

use crate::builder::Builder;
use crate::csv::each_line;
use crate::error::{Error, ErrorKind, Field};
use crate::event::{Alignment, Rung, StreamId};
use crate::input::Input;
use crate::limits::Limits;
use crate::trace::{Source, Trace};
use std::collections::HashMap;
use std::io::Read;

/// The first line of the format.
pub const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

const DAY_US: u64 = 24 * 3600 * 1_000_000;
/// Maximum delay of a line from before midnight.
const LATE_US: u64 = 3600 * 1_000_000;

/// Reads a trace from `source`, plain or gzip, within `limits`.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read(source: impl Read, limits: &Limits) -> Result<Trace, Error> {
    read_input(&mut Input::new(source, limits)?, limits)
}

pub(crate) fn read_input(input: &mut Input<'_>, limits: &Limits) -> Result<Trace, Error> {
    let mut log = Log {
        builder: Builder::new(Source::Rmm, limits),
        streams: HashMap::new(),
        clock: Clock::default(),
    };
    each_line(input, limits, |line, number| match number {
        1 if line == HEADER.as_bytes() => Ok(()),
        1 => Err(ErrorKind::Header(HEADER)),
        _ => log.record(line),
    })?;
    Ok(log.builder.finish())
}

struct Log {
    builder: Builder,
    streams: HashMap<Box<[u8]>, StreamId>,
    clock: Clock,
}

impl Log {
    fn record(&mut self, line: &[u8]) -> Result<(), ErrorKind> {
        let mut fields = line.split(|&byte| byte == b',');
        let mut next = |field| fields.next().ok_or(ErrorKind::MissingField(field));
        next(Field::Thread)?;
        let time = next(Field::Time)?;
        let action = next(Field::Op)?;
        let pointer = pointer(next(Field::Id)?)?;
        let size = decimal(next(Field::Size)?, Field::Size)?;
        let stream = next(Field::Stream)?;
        if fields.next().is_some() {
            return Err(ErrorKind::ExtraField);
        }
        let stream = self.stream(stream)?;
        let now_us = self.clock.at(time).ok_or(ErrorKind::NotANumber(Field::Time))?;
        self.builder.at(now_us)?;
        match action {
            b"allocate failure" => self.builder.out_of_memory(size, stream, Rung::Failed),
            b"allocate" if size > 0 => {
                self.builder.allocate(pointer, size, stream, Alignment::UNKNOWN).map(|_| ())
            }
            b"free" if size > 0 && self.builder.is_known(pointer) => {
                self.builder.free_requested(pointer, Some(size), stream)?;
                self.builder.free_completed(pointer, Some(size), stream)
            }
            b"allocate" | b"free" => {
                self.builder.meta().skipped += 1;
                Ok(())
            }
            _ => Err(ErrorKind::UnknownAction("allocate, free or allocate failure")),
        }
    }

    fn stream(&mut self, name: &[u8]) -> Result<StreamId, ErrorKind> {
        if let Some(&stream) = self.streams.get(name) {
            return Ok(stream);
        }
        if name.is_empty() {
            return Err(ErrorKind::MissingField(Field::Stream));
        }
        let next =
            u16::try_from(self.streams.len()).map_err(|_| ErrorKind::TooLarge(Field::Stream))?;
        self.streams.insert(name.into(), StreamId(next));
        Ok(StreamId(next))
    }
}

/// Turns times of day into time since the first one.
#[derive(Default)]
struct Clock {
    first_us: Option<u64>,
    days: u64,
    /// The latest time seen, midnights included.
    latest_us: u64,
}

impl Clock {
    /// Time since the first call. Threads may log a little out of order, also around midnight, which counts as no time; a
    /// step back of more than half a day is midnight.
    fn at(&mut self, text: &[u8]) -> Option<u64> {
        let of_day = time_of_day(text)?;
        let mut now_us = self.days.checked_mul(DAY_US)?.checked_add(of_day)?;
        if self.days > 0 && now_us.saturating_sub(self.latest_us) > DAY_US - LATE_US {
            now_us -= DAY_US;
        }
        if self.latest_us.saturating_sub(now_us) > DAY_US / 2 {
            self.days += 1;
            now_us = now_us.checked_add(DAY_US)?;
        }
        self.latest_us = self.latest_us.max(now_us);
        Some(self.latest_us - *self.first_us.get_or_insert(now_us))
    }
}

/// Microseconds of `H:M:S.f`, of `H:M:S:f`, or of plain seconds with a fraction.
fn time_of_day(text: &[u8]) -> Option<u64> {
    let mut parts = text.split(|&byte| byte == b':');
    let first = parts.next()?;
    let Some(minutes) = parts.next() else { return seconds(first) };
    let last = parts.next()?;
    let whole_us = seconds(last)?.checked_add(match parts.next() {
        Some(fraction) => fraction_us(fraction)?,
        None => 0,
    })?;
    if parts.next().is_some() {
        return None;
    }
    let minutes = number(first)?.checked_mul(60)?.checked_add(number(minutes)?)?;
    minutes.checked_mul(60_000_000)?.checked_add(whole_us)
}

fn seconds(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole_us = number(parts.next()?)?.checked_mul(1_000_000)?;
    match parts.next() {
        Some(fraction) => whole_us.checked_add(fraction_us(fraction)?),
        None => Some(whole_us),
    }
}

/// Digits after the point, as microseconds; finer ones are dropped.
fn fraction_us(digits: &[u8]) -> Option<u64> {
    number(digits)?;
    Some((0..6).fold(0, |value, at| {
        value * 10 + u64::from(digits.get(at).map_or(0, |digit| digit - b'0'))
    }))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn decimal(digits: &[u8], field: Field) -> Result<u64, ErrorKind> {
    number(digits).ok_or(ErrorKind::NotANumber(field))
}

/// `0x7f…`, or what the platform prints for no pointer.
fn pointer(text: &[u8]) -> Result<u64, ErrorKind> {
    let wrong = ErrorKind::NotANumber(Field::Id);
    match text {
        b"(nil)" | b"0" | b"nullptr" => Ok(0),
        [b'0', b'x' | b'X', digits @ ..] if !digits.is_empty() => {
            let text = core::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
            text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(wrong)
        }
        _ => Err(wrong),
    }
}
