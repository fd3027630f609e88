//! The wire format of protocol buffers: fields of a message, one after the other.

use super::error::Error;

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    /// A number of variable length.
    Number(u64),
    /// Four or eight bytes, of which nothing here needs the value.
    Fixed,
    /// A text, a message or a packed list, and where it begins.
    Bytes(Wire<'a>),
}

/// The rest of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire<'a> {
    bytes: &'a [u8],
    /// Position of the rest in the file.
    at: usize,
}

impl<'a> Wire<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the next field and its value; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Error> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let key = self.number()?;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(self.wrong()),
        };
        Ok(Some((key >> 3, value)))
    }

    /// Returns the next number of a packed list; `None` at the end.
    pub(super) fn next_number(&mut self) -> Result<Option<u64>, Error> {
        if self.bytes.is_empty() { Ok(None) } else { self.number().map(Some) }
    }

    /// Returns the whole as a text.
    pub(super) fn text(self) -> Result<&'a str, Error> {
        core::str::from_utf8(self.bytes).map_err(|_| self.wrong())
    }

    /// Says that the file makes no sense here.
    pub(super) const fn wrong(&self) -> Error {
        Error::Malformed { byte: self.at as u64 }
    }

    fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for (index, &byte) in self.bytes.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.skip(index + 1);
                return Ok(number);
            }
        }
        Err(self.wrong())
    }

    fn take(&mut self, length: u64) -> Result<Self, Error> {
        let length = usize::try_from(length).ok().filter(|&length| length <= self.bytes.len());
        let length = length.ok_or_else(|| self.wrong())?;
        let taken = Self { bytes: &self.bytes[..length], at: self.at };
        self.skip(length);
        Ok(taken)
    }

    fn skip(&mut self, length: usize) {
        self.bytes = &self.bytes[length..];
        self.at += length;
    }
}
