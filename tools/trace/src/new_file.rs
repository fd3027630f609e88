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
    /// Temporary file and its destination; `None` for a pipe, a device or a link to nothing, which is written in place.
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
        let place = match path.canonicalize() {
            Ok(place) => place,
            // Nothing has the name that the link leads to: no file yet, or one that was removed, such as a standard output.
            Err(_) if path.is_symlink() => return Self::in_place(path),
            Err(_) => path.to_owned(),
        };
        let there = fs::metadata(&place).ok();
        if !there.as_ref().is_none_or(fs::Metadata::is_file) {
            return Self::in_place(path);
        }
        if there.is_some() {
            // A file that may not be written may not be replaced either.
            File::options().append(true).open(&place)?;
        }
        let new = Self::beside(place)?;
        if let Some(there) = there {
            new.file.set_permissions(there.permissions())?;
        }
        Ok(new)
    }

    fn in_place(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, moved: None })
    }

    /// Takes an unused name: other threads, and processes with the same number elsewhere, may write the same file.
    fn beside(place: PathBuf) -> io::Result<Self> {
        let Some(name) = place.file_name() else { return Self::in_place(&place) };
        let mut number = 0_u64;
        loop {
            // Hidden, so that commands that read the whole folder skip it.
            let mut beside = OsString::from(".");
            beside.push(name);
            beside.push(format!(".{}-{number}.part", std::process::id()));
            let beside = place.with_file_name(beside);
            match File::create_new(&beside) {
                Ok(file) => return Ok(Self { file, moved: Some((beside, place)) }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the content, puts the file in its place and returns its length.
    ///
    /// # Errors
    ///
    /// Those of `content`, and the system's errors about the file. The earlier file stays then.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A new folder of a test.
    fn folder(name: &str) -> PathBuf {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("omniheap-new-file-{name}-{id}"));
        fs::create_dir(&folder).expect("a new folder");
        folder
    }

    #[test]
    fn several_may_write_one_file_at_a_time() {
        let folder = folder("several");
        let path = folder.join("page");
        let [one, other, failing] = [(); 3].map(|()| NewFile::create(&path).expect("a file"));
        let full = failing.write(|_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(full.expect_err("no room").kind(), io::ErrorKind::StorageFull);
        assert_eq!(other.write(|sink| sink.write_all(b"other")).expect("room"), 5);
        assert_eq!(fs::read(&path).expect("a file"), b"other");
        assert_eq!(one.write(|sink| sink.write_all(b"one")).expect("room"), 3);
        assert_eq!(fs::read(&path).expect("a file"), b"one");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "nothing else is left");
        fs::remove_dir_all(folder).expect("made above");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_nothing_stays_one() {
        let folder = folder("link");
        let (link, there) = (folder.join("link"), folder.join("there"));
        std::os::unix::fs::symlink("there", &link).expect("a link");
        for text in ["first", "second"] {
            let new = NewFile::create(&link).expect("a file");
            new.write(|sink| sink.write_all(text.as_bytes())).expect("room");
            assert!(link.is_symlink() && !there.is_symlink());
            assert_eq!(fs::read_to_string(&there).expect("a file"), text);
        }
        fs::remove_dir_all(folder).expect("made above");
    }
}
