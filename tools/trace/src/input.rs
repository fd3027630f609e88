//! Bytes of an untrusted file: gzip told by its magic, decompressed within limits.

use crate::error::{Error, ErrorKind, Position};
use crate::limits::Limits;
use core::cell::Cell;
use flate2::read::MultiGzDecoder;
use std::io::{self, Cursor, Read};
use std::rc::Rc;

/// Bytes looked at to tell a format.
const HEAD: usize = 64;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// Begins text that some Windows programs write; it says nothing about the content.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Counts what passes, so that expansion can be judged while decompressing.
struct Counted<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + got as u64);
        Ok(got)
    }
}

/// A bounded source of plain bytes whose first few can be looked at.
pub(crate) struct Input<'a> {
    body: Box<dyn Read + 'a>,
    head: Vec<u8>,
    head_taken: usize,
    given: u64,
    limits: Limits,
    /// Compressed bytes consumed, for gzip input.
    compressed: Option<Rc<Cell<u64>>>,
}

impl<'a> Input<'a> {
    /// Wraps `source` and reads its head.
    pub(crate) fn new(source: impl Read + 'a, limits: &Limits) -> Result<Self, Error> {
        Self::from_box(Box::new(source), limits)
    }

    /// Reads without generics, so that it is compiled once, and here.
    fn from_box(mut source: Box<dyn Read + 'a>, limits: &Limits) -> Result<Self, Error> {
        let raw_head = read_head(&mut source).map_err(|error| at_input(error.into()))?;
        let whole = Cursor::new(raw_head.clone()).chain(source);
        if !raw_head.starts_with(GZIP_MAGIC) {
            return Self::with_body(Box::new(whole), None, limits);
        }
        let compressed = Rc::new(Cell::new(0));
        let counted = Counted { inner: whole, bytes: Rc::clone(&compressed) };
        Self::with_body(Box::new(MultiGzDecoder::new(counted)), Some(compressed), limits)
    }

    fn with_body(
        mut body: Box<dyn Read + 'a>,
        compressed: Option<Rc<Cell<u64>>>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let head =
            read_head(&mut body).map_err(|error| at_input(refine(error, compressed.is_some())))?;
        let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head).to_vec();
        Ok(Self { body, head, head_taken: 0, given: 0, limits: *limits, compressed })
    }

    /// Returns the first bytes, without consuming them; shorter than asked for only when the input is.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Fills as much of `buffer` as the input still has; less than its length means the end.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, ErrorKind> {
        let from_head = buffer.len().min(self.head.len() - self.head_taken);
        buffer[..from_head]
            .copy_from_slice(&self.head[self.head_taken..self.head_taken + from_head]);
        self.head_taken += from_head;
        let mut filled = from_head;
        while filled < buffer.len() {
            match self.body.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refine(error, self.compressed.is_some())),
            }
        }
        self.given += filled as u64;
        self.check()?;
        Ok(filled)
    }

    /// Returns all bytes that are left.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, ErrorKind> {
        let mut bytes = Vec::new();
        loop {
            let start = bytes.len();
            // Growing by an eighth keeps what is reserved close to what is used.
            let step = (start / 8).max(64 << 10);
            bytes.reserve_exact(step);
            bytes.resize(start + step, 0);
            let got = self.fill(&mut bytes[start..])?;
            if got < step {
                bytes.truncate(start + got);
                return Ok(bytes);
            }
        }
    }

    fn check(&self) -> Result<(), ErrorKind> {
        if self.given > self.limits.bytes {
            return Err(ErrorKind::OverLimit { what: "bytes of input", limit: self.limits.bytes });
        }
        let Some(compressed) = &self.compressed else { return Ok(()) };
        let allowed =
            compressed.get().saturating_mul(self.limits.expansion).max(Limits::FREE_EXPANSION);
        if self.given > allowed {
            let limit = self.limits.expansion;
            return Err(ErrorKind::OverLimit {
                what: "decompressed bytes per compressed byte",
                limit,
            });
        }
        Ok(())
    }
}

/// Bytes in the manner of the standard library, for parsers that want them so.
impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fill(buffer).map_err(|kind| match kind {
            ErrorKind::Io(error) => error,
            other => io::Error::other(other),
        })
    }
}

fn at_input(kind: ErrorKind) -> Error {
    Error::new(Position::Input, kind)
}

fn read_head(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    source.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Distinguishes damage of the compressed stream from a failing disk.
fn refine(error: io::Error, gzip: bool) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::UnexpectedEof if gzip => ErrorKind::Truncated,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if gzip => ErrorKind::Gzip,
        _ => ErrorKind::Io(error),
    }
}
