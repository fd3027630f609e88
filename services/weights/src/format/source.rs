//! Bytes of a header, from a file or from memory.

use crate::error::{ErrorKind, Fault};
use std::fs::File;
use std::io;

/// Bytes that can be read at any offset.
pub(crate) trait Source {
    fn size(&self) -> u64;

    /// Fills `bytes`; an end of file before is an error.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault>;
}

impl Source for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let needs = offset.saturating_add(bytes.len() as u64);
        let range = usize::try_from(offset).ok().zip(usize::try_from(needs).ok());
        let part = range.and_then(|(start, end)| self.get(start..end));
        let has = self.size();
        bytes.copy_from_slice(part.ok_or(Fault::at(has, ErrorKind::Truncated { needs, has }))?);
        Ok(())
    }
}

/// A file whose size was read when it was opened.
pub(crate) struct FileSource<'a> {
    pub(crate) file: &'a File,
    pub(crate) size: u64,
}

impl Source for FileSource<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        read_exact_at(self.file, offset, bytes).map_err(|error| match error.kind() {
            // The file was cut off after its size was read.
            io::ErrorKind::UnexpectedEof => Fault::at(offset, ErrorKind::Changed),
            _ => Fault::at(offset, ErrorKind::Io(error)),
        })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}

/// A reader that walks a source forwards, some kilobytes at a time.
pub(super) struct Walk<'a> {
    source: &'a dyn Source,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    start: u64,
    at: u64,
}

const STEP: u64 = 64 << 10;

impl<'a> Walk<'a> {
    pub(super) fn new(source: &'a dyn Source, at: u64) -> Self {
        Self { source, buffer: Vec::new(), start: at, at }
    }

    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    pub(super) fn left(&self) -> u64 {
        self.source.size().saturating_sub(self.at)
    }

    /// Refuses more bytes than the file has left.
    fn require(&self, count: u64) -> Result<(), Fault> {
        super::inside(self.source, self.at, count)
    }

    pub(super) fn skip(&mut self, count: u64) -> Result<(), Fault> {
        self.require(count)?;
        self.at += count;
        Ok(())
    }

    pub(super) fn bytes(&mut self, count: u64) -> Result<&[u8], Fault> {
        self.require(count)?;
        let end = self.at + count;
        if self.at < self.start || end > self.start + self.buffer.len() as u64 {
            let length = count.max(STEP.min(self.left()));
            let length =
                usize::try_from(length).map_err(|_| ErrorKind::Header("too long".into()))?;
            self.buffer.resize(length, 0);
            self.start = self.at;
            self.source.read(self.at, &mut self.buffer)?;
        }
        let first = usize::try_from(self.at - self.start).unwrap_or(usize::MAX);
        self.at = end;
        Ok(&self.buffer[first..first + usize::try_from(count).unwrap_or(0)])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        let bytes = self.bytes(4)?.try_into();
        Ok(u32::from_le_bytes(bytes.map_err(|_| ErrorKind::Header("number".into()))?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        let bytes = self.bytes(8)?.try_into();
        Ok(u64::from_le_bytes(bytes.map_err(|_| ErrorKind::Header("number".into()))?))
    }
}
