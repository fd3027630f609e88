//! Texts that commands read whole, and those that they write: to a file, or to standard output.
use omniheap_cli::Failure;
use omniheap_cli::file::{NewFile, is_standard};
use omniheap_cli::output::print_raw;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Destination of a text.
#[derive(Debug)]
pub(crate) enum Output {
    /// Standard output, named `-`.
    Standard,
    /// A file.
    File(NewFile),
}

impl Output {
    /// Begins a file, so that a wrong name is known before any work.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        match is_standard(path) {
            true => Ok(Self::Standard),
            false => NewFile::create(path).map(Self::File),
        }
    }

    /// Writes the whole text.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Standard => print_raw(text.trim_end()),
            Self::File(file) => file.write(|sink| sink.write_all(text.as_bytes())).map(drop),
        }
    }
}

/// Reads a file of at most `longest` bytes; `advice` is for one that is longer.
pub(crate) fn read_bytes(path: &Path, longest: u64, advice: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(longest + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::unreadable(path, &error))?;
    if bytes.len() as u64 > longest {
        let (shown, gib) = (path.display(), longest >> 30);
        return Err(Failure::input(format!("{shown}: longer than {gib} GiB; {advice}")));
    }
    Ok(bytes)
}

/// As [`read_bytes`], for text.
pub(crate) fn read_text(path: &Path, longest: u64, advice: &str) -> Result<String, Failure> {
    let text = String::from_utf8(read_bytes(path, longest, advice)?);
    let expected = "neither a table nor a trace; `omniheap-lab plan --help` says what it may be";
    text.map_err(|_| Failure::input(format!("{}: {expected}", path.display())))
}
