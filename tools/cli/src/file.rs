//! Traces that commands read, and files that they write: under their own name only once they are whole.
use crate::Failure;
use omniheap::trace::{Limits, Trace};
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};

/// A file under way, whose name is part of every failure.
#[derive(Debug)]
pub struct NewFile {
    /// As the caller named it.
    path: PathBuf,
    file: omniheap::trace::NewFile,
}

impl NewFile {
    /// Begins a file, so that a wrong name is known before any work.
    ///
    /// `-` is refused: commands that can write to standard output look for it themselves.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if is_standard(path) {
            let why = "standard output is for what the command says; name a file";
            return Err(Failure::input(format!("-: {why}")));
        }
        let file = omniheap::trace::NewFile::create(path);
        let file = file.map_err(|error| Failure::unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the content, puts the file in its place and says how long it is.
    pub fn write(
        self,
        content: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> Result<u64, Failure> {
        self.file.write(content).map_err(|error| Failure::unwritable(&self.path, &error))
    }
}

/// Returns whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file to read, or standard input for `-`.
pub fn source(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if is_standard(path) {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(|error| Failure::unreadable(path, &error))?;
    Ok(Box::new(file))
}

/// Reads a trace, or says in one line why not.
pub fn open_trace(path: &Path) -> Result<Trace, Failure> {
    Trace::read(source(path)?, &Limits::default())
        .map_err(|error| Failure::input(format!("{}: {error}", path.display())))
}

/// Returns a trace's name: its file's, without what only says how it is stored.
pub fn name_of(path: &Path) -> String {
    if is_standard(path) {
        return "standard input".into();
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".csv").unwrap_or(name).to_owned()
}
