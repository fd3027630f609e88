//! Records the demo in memory: the page is made from it, and `--record` writes it to a file.
use super::super::Failure;
use super::super::file::NewFile;
use omniheap::trace::{Limits, Recorder, Trace, csv};
use omniheap::{ManagerConfig, report::Observer};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A recording in progress.
#[derive(Debug)]
pub(super) struct Recording {
    recorder: Arc<Recorder>,
    bytes: Bytes,
    /// The file of `--record`: made before the first act, so that a wrong name costs no work.
    file: Option<(PathBuf, NewFile)>,
}

impl Recording {
    pub(super) fn start(path: Option<&Path>) -> Result<Self, Failure> {
        let create = |path: &Path| NewFile::create(path).map(|file| (path.to_owned(), file));
        let (file, bytes) = (path.map(create).transpose()?, Bytes::default());
        let recorder = Recorder::new(bytes.clone());
        recorder.title("omniheap demo");
        Ok(Self { recorder, bytes, file })
    }

    /// Returns the settings, with everything that a manager does recorded.
    pub(super) fn observe(&self, config: ManagerConfig) -> ManagerConfig {
        let observer: Arc<dyn Observer> = Arc::<Recorder>::clone(&self.recorder);
        config.observed(observer)
    }

    /// Ends the recording, writes the file, and returns what was recorded.
    pub(super) fn finish(self) -> Result<Trace, Failure> {
        self.recorder.finish()?;
        let bytes = self.bytes.lock();
        let trace = Trace::read(&bytes[..], &Limits::default())
            .map_err(|error| Failure::failed(error.to_string()))?;
        if let Some((path, file)) = self.file {
            let csv = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
            file.write(|sink| {
                if csv { csv::write(&trace, sink).map(drop) } else { sink.write_all(&bytes) }
            })?;
        }
        Ok(trace)
    }
}

/// Bytes that a recorder writes and that are read when it is done.
#[derive(Clone, Debug, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
