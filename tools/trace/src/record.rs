//! Records what managers do, while they do it.

mod on_panic;
mod translate;

use crate::binary::Writer;
use core::fmt;
use omniheap_core::{Event, Observer};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use translate::Translator;

/// Output of a recorder.
type Sink = Box<dyn Write + Send>;

/// Pending events are written when the last write is longer ago than this, so that a slow program loses little.
const PATIENCE_US: u64 = 1_000_000;

/// Records what every manager does that has it as its observer, into one file.
///
/// Recording never disturbs the program: when a write fails, later events are counted as [`lost`](Self::lost) and
/// the error waits for [`finish`](Self::finish). What is pending is written by `finish`, when the last owner lets go
/// of the recorder, and when a thread panics. A process that is killed leaves a file that is read up to its last
/// whole chunk: at most 64 KiB of events are missing.
///
/// Times are in microseconds; while events come faster than one a microsecond, up to eight share a reading.
///
/// # Cost
/// About 50 ns for an event without a name (`examples/record_cost.rs` measures it), and 64 KiB of memory and the names,
/// which are bounded too. A manager without an observer pays nothing.
///
/// # Examples
/// ```
/// use omniheap_core::{Manager, ManagerConfig, Request};
/// use omniheap_host::Host;
/// use omniheap_trace::{Recorder, Trace};
/// let path = std::env::temp_dir().join("omniheap-recorder-example.trace");
/// let recorder = Recorder::create(&path)?;
/// let manager = Manager::with_config(Host::new(), ManagerConfig::default().observed(recorder.clone()));
/// let weights = manager.allocate(&Request::new(4096).name("weights"))?;
/// drop((weights, manager));
/// recorder.finish()?;
/// let trace = Trace::open(&path)?;
/// assert_eq!(trace.summary().peak_live_bytes, 4096);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder {
    state: Mutex<State>,
}

struct State {
    /// `None` once finished.
    file: Option<(Writer<Sink>, Translator)>,
    clock: Clock,
    lost: u64,
    written_us: u64,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts a trace in the binary format at `path`; a file that is there is replaced.
    ///
    /// # Errors
    /// Fails when the file cannot be made. [`io::ErrorKind::ResourceBusy`] while another recorder, of this process or
    /// another, writes it; the file stays as it is then.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Arc<Self>> {
        Ok(Self::new(create(path.as_ref())?))
    }

    /// Starts a trace in the binary format in `sink`, which needs no buffering of its own.
    pub fn new(sink: impl Write + Send + 'static) -> Arc<Self> {
        let sink: Sink = Box::new(sink);
        let file = Some((Writer::new(sink), Translator::default()));
        let state = State { file, clock: Clock::new(), lost: 0, written_us: 0 };
        let recorder = Arc::new(Self { state: Mutex::new(state) });
        on_panic::flush_on_panic(&recorder);
        recorder
    }

    /// Sets the trace's title, such as the program's name.
    pub fn title(&self, text: &str) {
        if let Some((writer, _)) = &mut self.state().file {
            writer.title(text);
        }
    }

    /// Writes what is pending, so that it survives the process.
    pub fn flush(&self) {
        flush(&mut self.state());
    }

    /// Events that were not written, because a write failed or because the trace was finished.
    pub fn lost(&self) -> u64 {
        let state = self.state();
        let unwritten = state.file.as_ref().map_or(0, |(writer, _)| writer.lost());
        state.lost + unwritten
    }

    /// Writes what is pending and ends the trace; later events are lost.
    ///
    /// # Errors
    /// The first write that failed. A second call does nothing.
    pub fn finish(&self) -> io::Result<()> {
        let file = self.state().file.take();
        let Some((writer, _)) = file else { return Ok(()) };
        let lost = writer.lost();
        let finished = writer.finish().map(drop);
        self.state().lost += lost;
        finished
    }

    /// Locks the state. A panic while recording leaves whole records, so a poisoned lock is fine.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file for one recorder alone, and empties it once that is sure. The lock goes with the file.
fn create(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    // A pipe or a device keeps nothing that two recorders could spoil.
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let why = "another recorder writes this file; finish it, or name another file";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        // Some file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    file.set_len(0)?;
    Ok(file)
}

/// Microseconds since the recording began.
///
/// Reading the time costs as much as all the rest of an event. The processor's cycle counter is cheap, and it says whether
/// the last reading is still good: events less than a microsecond after it share it. A pause is always seen.
struct Clock {
    began: Instant,
    now_us: u64,
    /// The cycle counter at the last reading.
    read_at: Option<u64>,
}

impl Clock {
    /// Cycles that pass within a microsecond on every processor that counts them.
    const FRESH: u64 = 1_000;

    fn new() -> Self {
        Self { began: Instant::now(), now_us: 0, read_at: None }
    }

    fn now_us(&mut self) -> u64 {
        let cycles = cycles();
        if let (Some(now), Some(read_at)) = (cycles, self.read_at)
            && now.wrapping_sub(read_at) < Self::FRESH
        {
            return self.now_us;
        }
        let passed = self.began.elapsed();
        self.now_us = passed.as_secs() * 1_000_000 + u64::from(passed.subsec_micros());
        self.read_at = cycles;
        self.now_us
    }
}

/// Returns the processor's cycle counter, where it has one that is cheap to read. Another core's counter may differ; then the time is
/// read.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the counter is read by an instruction of its own")]
fn cycles() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction; it changes nothing.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
const fn cycles() -> Option<u64> {
    None
}

fn flush(state: &mut State) {
    if let Some((writer, _)) = &mut state.file {
        writer.flush();
    }
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        let mut state = self.state();
        let now_us = state.clock.now_us();
        match &mut state.file {
            Some((writer, translator)) => translator.record(writer, now_us, event),
            None => state.lost += 1,
        }
        if now_us.saturating_sub(state.written_us) > PATIENCE_US {
            state.written_us = now_us;
            flush(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn the_first_event_after_a_burst_and_a_pause_has_its_own_time() {
        let mut clock = Clock::new();
        let burst = (0..100).map(|_| clock.now_us()).last();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now_us() >= burst.unwrap_or(0) + 1_000);
    }
}
