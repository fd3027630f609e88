//! Weights files that were opened together: their tensors, checked, and the files as they were.

use crate::Tensor;
use crate::error::{Error, ErrorKind, Fault};
use crate::format::{self, FileSource, Format, Index};
use crate::list::List;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A file, as it was when its header was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Path.
    pub path: PathBuf,
    /// Format.
    pub format: Format,
    /// Bytes.
    pub size: u64,
    pub(crate) state: State,
}

/// Properties that differ once a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    size: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64),
}

impl State {
    /// Reads the state of an open file; refuses what is no regular file.
    pub(crate) fn of(file: &File) -> Result<Self, Fault> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(ErrorKind::NotAFile.into());
        }
        #[cfg(unix)]
        let inode = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        Ok(Self {
            size: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode,
        })
    }
}

/// Weights in one or more files. Headers are read and checked; tensor data is not touched.
#[derive(Debug, Clone)]
pub struct WeightsFile {
    files: Vec<Part>,
    /// Shared with what is loaded.
    pub(crate) list: Arc<List>,
}

impl WeightsFile {
    /// Opens files: safetensors, `index.json`, GGUF or PyTorch zip, in any mixture.
    ///
    /// # Examples
    ///
    /// ```
    /// use omniheap_weights::WeightsFile;
    ///
    /// let error = WeightsFile::open(&["missing.safetensors"]).unwrap_err();
    /// assert!(error.to_string().starts_with("missing.safetensors: cannot read"));
    /// ```
    ///
    /// # Errors
    ///
    /// The first file that is missing, damaged or of no known format, with the byte where it is wrong.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        if paths.is_empty() {
            return Err(Error::new(Path::new(""), ErrorKind::NoFiles));
        }
        let mut opened = Opened::default();
        for path in paths {
            let path = path.as_ref();
            if Index::is_named(path) {
                opened.add_index(path)?;
            } else {
                opened.add(path, None)?;
            }
        }
        Ok(Self { files: opened.files, list: Arc::new(opened.list) })
    }

    /// Reads the header of a file that is in memory.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn tensors_in(bytes: &[u8]) -> Result<Vec<Tensor>, Error> {
        let no_file = |fault: Fault| Error::new(Path::new(""), fault);
        let (_, tensors) = format::read(&bytes).map_err(no_file)?;
        let list = List::of(tensors).map_err(|kind| no_file(kind.into()))?;
        Ok(list.into_tensors())
    }

    /// Returns the files.
    #[must_use]
    pub fn files(&self) -> &[Part] {
        &self.files
    }

    /// Returns the tensors, file by file, in the order of their bytes.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        self.list.tensors()
    }

    /// Finds a tensor.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.number(name).map(|number| &self.tensors()[number])
    }

    /// Finds the place of a tensor among [`tensors`](Self::tensors).
    #[must_use]
    pub fn number(&self, name: &str) -> Option<usize> {
        self.list.find(name)
    }
}

/// Files that were opened so far.
#[derive(Default)]
struct Opened {
    files: Vec<Part>,
    list: List,
}

impl Opened {
    /// Adds the tensors of one file; of those, the `wanted` ones where an index says so.
    fn add(&mut self, path: &Path, wanted: Option<&[&str]>) -> Result<(), Error> {
        let at_file = |fault: Fault| Error::new(path, fault);
        let file = open_file(path).map_err(|error| at_file(error.into()))?;
        let state = State::of(&file).map_err(at_file)?;
        let source = FileSource { file: &file, size: state.size };
        let (format, mut tensors) = format::read(&source).map_err(at_file)?;
        let at_kind = |kind: ErrorKind| at_file(kind.into());
        if let Some(wanted) = wanted {
            tensors = List::of(tensors).and_then(|list| list.pick(wanted)).map_err(at_kind)?;
        }
        tensors.sort_by_key(|tensor| tensor.offset);
        let number = self.files.len();
        tensors.iter_mut().for_each(|tensor| tensor.file = number);
        self.files.push(Part { path: path.into(), format, size: state.size, state });
        self.list.extend(tensors).map_err(at_kind)
    }

    fn add_index(&mut self, path: &Path) -> Result<(), Error> {
        let at_file = |fault: Fault| Error::new(path, fault);
        let file = open_file(path).map_err(|error| at_file(error.into()))?;
        let size = State::of(&file).map_err(at_file)?.size;
        let index = Index::read(&FileSource { file: &file, size }).map_err(at_file)?;
        for (shard, wanted) in index.shards() {
            let found = path.with_file_name(shard);
            self.add(&found, Some(&wanted)).map_err(|error| match error.kind() {
                ErrorKind::Io(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    at_file(ErrorKind::MissingShard(shard.into()).into())
                }
                _ => error,
            })?;
        }
        Ok(())
    }
}

/// Opens a file for reading. A FIFO without a writer is not waited for.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK);
    }
    options.open(path)
}
