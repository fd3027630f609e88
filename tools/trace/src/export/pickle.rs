//! Writes plain data as a pickle of protocol 4, with the few opcodes that every reader of snapshots knows.

use std::collections::HashMap;
use std::io::{self, Write};

/// Containers are filled this many items at a time: readers keep a batch on their stack.
const BATCH: usize = 500;

/// A pickle under way. Calls must nest as the data does; strings and shared lists are written once.
#[derive(Debug)]
pub(super) struct Pickler<W: Write> {
    out: W,
    memo: u32,
    strings: HashMap<&'static str, u32>,
}

impl<W: Write> Pickler<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0x80, 4])?;
        Ok(Self { out, memo: 0, strings: HashMap::new() })
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b".")?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes a number in the shortest form that readers know.
    pub(super) fn int(&mut self, value: u64) -> io::Result<()> {
        match (u8::try_from(value), u16::try_from(value), i32::try_from(value)) {
            (Ok(value), ..) => self.out.write_all(&[b'K', value]),
            (_, Ok(value), _) => {
                self.out.write_all(b"M")?;
                self.out.write_all(&value.to_le_bytes())
            }
            (.., Ok(value)) => {
                self.out.write_all(b"J")?;
                self.out.write_all(&value.to_le_bytes())
            }
            _ => self.long(value),
        }
    }

    /// Writes a number of any size: two's complement, low byte first, a zero byte where the top bit is set.
    fn long(&mut self, value: u64) -> io::Result<()> {
        let bytes = u128::from(value).to_le_bytes();
        let bits = 64 - value.leading_zeros() as usize;
        let length = bits / 8 + 1;
        self.out.write_all(&[0x8a, if length == 9 { 9 } else { length.to_le_bytes()[0] }])?;
        self.out.write_all(&bytes[..length])
    }

    /// Writes a frequent string: once in full, then by reference.
    pub(super) fn word(&mut self, text: &'static str) -> io::Result<()> {
        if let Some(&memo) = self.strings.get(text) {
            return self.recall(memo);
        }
        self.text(text)?;
        let memo = self.memoize()?;
        self.strings.insert(text, memo);
        Ok(())
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[0x8c, length])?,
            Err(_) => {
                let length = u32::try_from(text.len()).map_err(io::Error::other)?;
                self.out.write_all(b"X")?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())
    }

    /// Remembers the value just written; returns the number by which [`Self::recall`] writes it again.
    pub(super) fn memoize(&mut self) -> io::Result<u32> {
        self.out.write_all(&[0x94])?;
        self.memo += 1;
        Ok(self.memo - 1)
    }

    pub(super) fn recall(&mut self, memo: u32) -> io::Result<()> {
        if let Ok(memo) = u8::try_from(memo) {
            return self.out.write_all(&[b'h', memo]);
        }
        self.out.write_all(b"j")?;
        self.out.write_all(&memo.to_le_bytes())
    }

    /// Writes a list with one item for each of `items`.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(b"]")?;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.out.write_all(b"(")?;
            for each in items.by_ref().take(BATCH) {
                item(self, each)?;
            }
            self.out.write_all(b"e")?;
        }
        Ok(())
    }

    /// Writes a dictionary; `fill` writes keys with [`Self::word`], each followed by its value.
    pub(super) fn dict(
        &mut self,
        fill: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(b"}(")?;
        fill(self)?;
        self.out.write_all(b"u")
    }

    pub(super) fn int_field(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.word(key)?;
        self.int(value)
    }

    pub(super) fn word_field(&mut self, key: &'static str, value: &'static str) -> io::Result<()> {
        self.word(key)?;
        self.word(value)
    }
}
