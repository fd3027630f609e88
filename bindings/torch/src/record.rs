//! The trace that is being recorded, if one is.
use crate::lock;
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap::trace::{
    Alignment, LabelId, StreamId,
    binary::{Record, Writer},
    ranks::{Place, place_from_environment},
};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

static ON: AtomicBool = AtomicBool::new(false);
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

struct Recording {
    writer: Writer<File>,
    begin: Instant,
    live: HashSet<u64>,
    streams: HashMap<usize, u16>,
}

impl Recording {
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The number of a stream in the trace; the last one stands for all that do not fit.
    fn stream(&mut self, stream: usize) -> StreamId {
        let next = u16::try_from(self.streams.len()).unwrap_or(u16::MAX);
        StreamId(*self.streams.entry(stream).or_insert(next))
    }
}

/// The rank that the program said, for the names of what it writes and for its errors.
static TOLD: Mutex<Option<Place>> = Mutex::new(None);

/// Sets the rank that errors name, and reports and traces instead of the launcher's; none ends that.
pub(crate) fn tell_place(place: Option<Place>) {
    *lock(&TOLD) = place;
}

/// End of this rank's error messages; empty where the program told no rank.
pub(crate) fn of_rank() -> String {
    let told = lock(&TOLD).map(|place| (place.rank, place.world));
    match told {
        Some((rank, Some(world))) => format!(" (rank {rank} of {world})"),
        Some((rank, None)) => format!(" (rank {rank})"),
        None => String::new(),
    }
}

/// The rank that the program said or that the launcher gave this process, if one started it.
pub(crate) fn place() -> Option<Place> {
    let told = *lock(&TOLD);
    told.or_else(|| place_from_environment(|name| std::env::var(name).ok()))
}

fn title() -> String {
    let rank = place().map_or_else(String::new, |place| format!(", rank {}", place.rank));
    format!("PyTorch on omniheap{rank}")
}

/// Starts a trace in a new file; an earlier one is finished, and goes on where the new one cannot be written.
pub(crate) fn start(path: &Path) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    stop()?;
    // Only now: the earlier trace may be in the same file.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    let mut writer = Writer::new(file);
    writer.title(&title());
    let recording =
        Recording { writer, begin: Instant::now(), live: HashSet::new(), streams: HashMap::new() };
    *lock(&RECORDING) = Some(recording);
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Finishes the trace, if one is being recorded.
pub(crate) fn stop() -> io::Result<()> {
    ON.store(false, Ordering::Relaxed);
    match lock(&RECORDING).take() {
        Some(recording) => recording.writer.finish().map(|_| ()),
        None => Ok(()),
    }
}

/// Records an allocation.
#[inline]
pub(crate) fn allocated(address: u64, size: u64, stream: usize) {
    if ON.load(Ordering::Relaxed) {
        with(|recording| {
            let (time, stream) = (recording.now(), recording.stream(stream));
            recording.live.insert(address);
            let (align, label) = (Alignment::UNKNOWN, LabelId::NONE);
            let record = Record::Allocate { id: address, size, stream, align, label };
            recording.writer.record(time, &record);
        });
    }
}

/// Records a free of something that was recorded.
#[inline]
pub(crate) fn freed(address: u64) {
    if ON.load(Ordering::Relaxed) {
        with(|recording| {
            if recording.live.remove(&address) {
                let (time, stream) = (recording.now(), StreamId(0));
                recording.writer.record(time, &Record::FreeCompleted { id: address, stream });
            }
        });
    }
}

#[cold]
fn with(write: impl FnOnce(&mut Recording)) {
    if let Some(recording) = lock(&RECORDING).as_mut() {
        write(recording);
    }
}
