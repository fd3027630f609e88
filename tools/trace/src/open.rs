//! Opens traces of any known format.

use crate::error::{Error, ErrorKind, Position};
use crate::limits::Limits;
use crate::trace::Trace;
use crate::{binary, csv, input, pytorch, rmm, vma};
use std::io::Read;
use std::path::Path;

impl Trace {
    /// Reads the trace in the file at `path`, of any known format, with the default [`Limits`].
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file cannot be read, [`ErrorKind::UnknownFormat`] when it is no trace, and the
    /// kinds of the format's reader.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file =
            std::fs::File::open(path).map_err(|error| Error::new(Position::Input, error.into()))?;
        Self::read(file, &Limits::default())
    }

    /// Reads a trace of any known format from `source`; detects the format from the content, never from the name.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn read(source: impl Read, limits: &Limits) -> Result<Self, Error> {
        let mut input = input::Input::new(source, limits)?;
        match input.head() {
            head if head.starts_with(b"op,") => csv::read_input(&mut input, limits),
            head if head.starts_with(binary::MAGIC) => binary::read_input(&mut input, limits),
            head if head.starts_with(rmm::HEADER.as_bytes()) => rmm::read_input(&mut input, limits),
            [0x80, 2..=5, ..] => pytorch::read_input(&mut input, pytorch::Device::Busiest, limits),
            head if head.trim_ascii_start().starts_with(b"{") => {
                vma::read_input(&mut input, limits)
            }
            [] => Err(Error::new(Position::Input, ErrorKind::Truncated)),
            _ => Err(Error::new(Position::Input, ErrorKind::UnknownFormat)),
        }
    }
}
