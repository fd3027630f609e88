//! The demo's recording: the page is made from it, and `--record` keeps it.
use super::super::{Failure, file::NewFile};
use omniheap::seam::lock;
use omniheap::trace::{Limits, Recorder, Trace, csv};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Bytes that a recorder writes and that are read when it is done.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    pub(super) fn recorder(&self) -> Arc<Recorder> {
        let recorder = Recorder::new(self.clone());
        recorder.title("omniheap demo");
        recorder
    }

    /// Ends the recording, and reads it.
    pub(super) fn finish(&self, recorder: &Recorder) -> Result<Trace, Failure> {
        recorder.finish()?;
        let read = Trace::read(&lock(&self.0)[..], &Limits::default());
        read.map_err(|error| Failure::failed(error.to_string()))
    }

    /// Writes the recording to the file of this name, in the format that the name asks for.
    pub(super) fn keep(&self, path: &Path, file: NewFile, trace: &Trace) -> Result<(), Failure> {
        let is_csv = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        file.write(|sink| {
            if is_csv { csv::write(trace, sink).map(drop) } else { sink.write_all(&lock(&self.0)) }
        })?;
        Ok(())
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
