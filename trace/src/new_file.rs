//! A file that has its name only once it is whole.
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// A file under way. It is written beside its place, so that what was there stays until [`write`](Self::write) is through.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # use omniheap_trace::NewFile;
/// # use std::io::Write as _;
/// let path = std::env::temp_dir().join(format!("omniheap-new-file-{}", std::process::id()));
/// let bytes = NewFile::create(&path)?.write(|sink| sink.write_all(b"whole"))?;
/// assert_eq!((bytes, std::fs::read(&path)?), (5, b"whole".to_vec()));
/// # std::fs::remove_file(&path)
/// # }
/// ```
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// Temporary file and its destination; `None` for a pipe or a device, which is written in place.
    moved: Option<(PathBuf, PathBuf)>,
}

impl NewFile {
    /// Begins a file, so that a wrong name is known before any work.
    ///
    /// # Errors
    ///
    /// The folder or the file that is there cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        // A link stays one: the file that it names is replaced.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = fs::metadata(&place).ok();
        let name = match (place.file_name(), &there) {
            (Some(name), there) if there.as_ref().is_none_or(fs::Metadata::is_file) => name,
            _ => return Ok(Self { file: File::create(path)?, moved: None }),
        };
        // Hidden, so that commands that read the whole folder skip it.
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.part", std::process::id()));
        let beside = place.with_file_name(beside);
        if there.is_some() {
            // A file that may not be written may not be replaced either.
            File::options().append(true).open(&place)?;
        }
        let new = Self { file: File::create(&beside)?, moved: Some((beside, place)) };
        if let Some(there) = there {
            new.file.set_permissions(there.permissions())?;
        }
        Ok(new)
    }

    /// Writes the content, puts the file in its place and returns its length.
    ///
    /// # Errors
    ///
    /// What `content` says, and what the system says of the file. What was there stays then.
    pub fn write(
        mut self,
        content: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut sink = BufWriter::new(&self.file);
        content(&mut sink)?;
        sink.flush()?;
        drop(sink);
        let length = self.file.metadata()?.len();
        if let Some((beside, place)) = &self.moved {
            fs::rename(beside, place)?;
        }
        self.moved = None;
        Ok(length)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.moved {
            // Nobody is left to hear that a file that nobody wants could not be removed.
            let _ = fs::remove_file(beside);
        }
    }
}
