//! Bytes between a file and a device, in pieces: the disk has one while the device has another.
#![forbid(unsafe_code)]
use crate::arena::{Arena, ArenaReport, Stretch};
use crate::disk::open_direct;
use crate::lock;
use core::fmt::Debug;
use core::mem;
use core::ops::Range;
use omniheap_core::{Align, Error, ErrorKind, HostPinner, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Direct reads and writes start at, and are multiples of, this, in the file and in memory.
pub(crate) const UNIT: Align = Align::of(4096);
/// Most bytes that are read or written at a time.
pub(crate) const PIECE: u64 = 8 << 20;
/// Fewer bytes go through the page cache, in one piece: the disk would be waited for each time.
pub(crate) const SMALL: u64 = 1 << 20;
/// Pieces in memory: the disk has one, the device another, and one is ready for the faster of them.
const MEMORIES: usize = 3;

/// An open file, and memory for pieces.
#[derive(Debug)]
pub(crate) struct Pipe {
    cached: File,
    /// The same file past the page cache, which copies every byte; `None` where there is no way past it.
    direct: Option<File>,
    /// Kept, so that a wake finds it pinned.
    spare: Mutex<Vec<Stretch>>,
}

/// A span of the file, read as a whole. Its number is unique.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSpan {
    pub(crate) number: u64,
    pub(crate) at: u64,
    pub(crate) size: u64,
}

/// One piece of a span, or why it could not be read.
#[derive(Debug)]
struct Piece {
    number: u64,
    range: Range<u64>,
    read: Result<Stretch>,
    /// True if another span follows.
    goes_on: bool,
}

/// A thread that reads spans before they are asked for. Without it the disk would idle at the end of each span.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    came: Receiver<Piece>,
    taken: Sender<Stretch>,
    /// A piece that arrived and was not taken yet.
    next: Option<Piece>,
    reader: JoinHandle<()>,
}

impl ReadAhead {
    /// Waits for the next piece, and returns whether it belongs to this span.
    pub(crate) fn is_at(&mut self, number: u64) -> bool {
        self.next = self.next.take().or_else(|| self.came.recv().ok());
        self.next.as_ref().is_some_and(|piece| piece.number == number)
    }

    /// Hands the bytes of the next span to `take`, in order. Returns whether another span follows.
    pub(crate) fn read(
        &mut self,
        size: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        loop {
            let piece = self.next.take().or_else(|| self.came.recv().ok());
            let Piece { range, read, goes_on, .. } = piece.ok_or(NO_READER)?;
            let mut memory = read?;
            take(range.start, first(&mut memory, range.end - range.start))?;
            hand(&self.taken, memory);
            if range.end == size {
                return Ok(goes_on);
            }
        }
    }

    /// Ends the thread, and waits until its memory is free for others.
    pub(crate) fn end(self) {
        let Self { came, taken, next, reader } = self;
        drop((came, taken, next));
        let _ = reader.join(); // If it panicked, the last read has failed already.
    }
}

/// A piece to be written, and what must live until it is.
#[derive(Debug)]
struct Filled {
    at: u64,
    piece: Range<u64>,
    memory: Stretch,
    keeps: Arc<dyn Debug + Send + Sync>,
}

/// A thread that writes what it was handed, while the next span is filled. Without it the disk would idle at the start of each span.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    pipe: Arc<Pipe>,
    full: Sender<Filled>,
    empty: Receiver<Stretch>,
    /// Least length of the next piece: short ones come first, so that the disk has something to do soon.
    shortest: u64,
    writer: JoinHandle<Result<()>>,
}

impl WriteBehind {
    /// Takes `size` bytes for the file from `at` on, with zeros up to the next unit. `fill` is asked for the bytes in order. `keeps` lives until
    /// they are written. Returns early, and without an error, where the thread has failed: [`end`](Self::end) says why.
    pub(crate) fn write(
        &mut self,
        at: u64,
        size: u64,
        keeps: &Arc<impl Debug + Send + Sync + 'static>,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        for piece in growing(size, mem::replace(&mut self.shortest, PIECE)) {
            let Ok(mut memory) = self.empty.recv() else { return Ok(()) };
            fill(piece.start, first(&mut memory, piece.end - piece.start))?;
            hand(&self.full, Filled { at, piece, memory, keeps: Arc::clone(keeps) as _ });
        }
        Ok(())
    }

    /// Waits until everything is written.
    pub(crate) fn end(self) -> Result<()> {
        let Self { pipe, full, empty, writer, .. } = self;
        drop(full);
        let written = writer.join().unwrap_or_else(|panic| resume_unwind(panic));
        pipe.keep(empty);
        written
    }
}

const NO_READER: Error = ErrorKind::Driver.because("the thread that reads the backing file ended");

impl Pipe {
    pub(crate) fn cached(file: File) -> Self {
        Self { cached: file, direct: None, spare: Mutex::default() }
    }

    /// Goes past the page cache where the file system can.
    pub(crate) fn direct(file: File) -> Self {
        Self { direct: open_direct(&file).ok(), ..Self::cached(file) }
    }

    pub(crate) const fn file(&self) -> &File {
        &self.cached
    }

    /// Writes a few bytes, and zeros up to the next unit, from `at` on. `fill` is asked for them.
    pub(crate) fn write_small(
        &self,
        at: u64,
        size: u64,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut memory = self.memory()?;
        fill(0, first(&mut memory, size))?;
        self.write_piece(at, 0..size, &mut memory)?;
        self.keep([memory]);
        Ok(())
    }

    /// Starts a thread that writes pieces of one span after the other.
    pub(crate) fn write_behind(self: &Arc<Self>) -> Result<WriteBehind> {
        let (full, filled) = mpsc::channel::<Filled>();
        let (written, empty) = self.memories()?;
        let pipe = Arc::clone(self);
        let write = move || {
            filled.into_iter().try_for_each(|Filled { at, piece, mut memory, keeps: _keeps }| {
                pipe.write_piece(at, piece, &mut memory)?;
                hand(&written, memory);
                Ok(())
            })
        };
        let writer = named().spawn(write).map_err(no_thread)?;
        Ok(WriteBehind { pipe: Arc::clone(self), full, empty, shortest: SMALL, writer })
    }

    /// Reads a few bytes from `at` on, and hands them to `take`.
    pub(crate) fn read_small(
        &self,
        at: u64,
        size: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut memory = self.memory()?;
        self.read_piece(at, 0..size, &mut memory)?;
        take(0, first(&mut memory, size))?;
        self.keep([memory]);
        Ok(())
    }

    /// Starts a thread that reads spans of the file one after the other, as far as there is memory for pieces.
    pub(crate) fn read_ahead(
        self: &Arc<Self>,
        spans: impl Iterator<Item = FileSpan> + Send + 'static,
    ) -> Result<ReadAhead> {
        let (full, came) = mpsc::channel();
        let (taken, empty) = self.memories()?;
        let pipe = Arc::clone(self);
        let read = move || {
            pipe.read_spans(spans, &full, &empty);
            drop(full);
            pipe.keep(empty);
        };
        let reader = named().spawn(read).map_err(no_thread)?;
        Ok(ReadAhead { came, taken, next: None, reader })
    }

    fn read_spans(
        &self,
        spans: impl Iterator<Item = FileSpan>,
        full: &Sender<Piece>,
        empty: &Receiver<Stretch>,
    ) {
        let mut spans = spans.peekable();
        while let Some(FileSpan { number, at, size }) = spans.next() {
            let goes_on = spans.peek().is_some();
            for range in shrinking(size, if goes_on { PIECE } else { SMALL }) {
                // No memory comes back once nobody takes pieces any more.
                let Ok(mut memory) = empty.recv() else { return };
                let read = self.read_piece(at, range.clone(), &mut memory).map(|()| memory);
                let is_read = read.is_ok();
                let sent = full.send(Piece { number, range, read, goes_on });
                if sent.is_err() || !is_read {
                    return;
                }
            }
        }
    }

    fn write_piece(&self, at: u64, piece: Range<u64>, memory: &mut Stretch) -> Result<()> {
        let (at, size) = (at + piece.start, piece.end - piece.start);
        let bytes = first(memory, whole(size));
        bytes[length(size)..].fill(0);
        let written = match self.direct_for(size).map(|file| file.write_all_at(bytes, at)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            Some(Ok(())) => Ok(()),
            // Small, or no such write past the page cache here.
            _ => self.cached.write_all_at(bytes, at),
        };
        written.map_err(|error| failed(&error))
    }

    fn read_piece(&self, at: u64, piece: Range<u64>, memory: &mut Stretch) -> Result<()> {
        let (at, size) = (at + piece.start, piece.end - piece.start);
        let bytes = first(memory, whole(size));
        match self.direct_for(size).map(|file| file.read_exact_at(bytes, at)) {
            Some(Ok(())) => Ok(()),
            // The way through the page cache takes every read, and names the error if it is one.
            _ => self.cached.read_exact_at(bytes, at).map_err(|error| failed(&error)),
        }
    }

    fn direct_for(&self, size: u64) -> Option<&File> {
        self.direct.as_ref().filter(|_| size >= SMALL)
    }

    /// Has a device pin the memory of a transfer, so that copies take little of the processor's time.
    pub(crate) fn prepare(&self, pinner: &HostPinner<'_>) -> Result<()> {
        let missing = MEMORIES.saturating_sub(lock(&self.spare).len()) as u64 * PIECE;
        let free = |now: &ArenaReport| now.held - now.used;
        Arena::of_process().grow_pinned(pinner, |now| missing.saturating_sub(free(now)))
    }

    fn memory(&self) -> Result<Stretch> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(|| Arena::of_process().take(PIECE), Ok)
    }

    /// Returns where memory goes that may be used again, and where it comes from: all that a transfer uses is there.
    fn memories(&self) -> Result<(Sender<Stretch>, Receiver<Stretch>)> {
        let (used, empty) = mpsc::channel();
        (0..MEMORIES).try_for_each(|_| self.memory().map(|memory| hand(&used, memory)))?;
        Ok((used, empty))
    }

    fn keep(&self, memories: impl IntoIterator<Item = Stretch>) {
        // Collected first, as they may be waited for: other transfers take the lock meanwhile.
        let memories: Vec<_> = memories.into_iter().collect();
        let mut spare = lock(&self.spare);
        spare.extend(memories);
        spare.truncate(MEMORIES);
    }
}

/// The first bytes of memory for a piece.
fn first(memory: &mut Stretch, size: u64) -> &mut [u8] {
    &mut memory.bytes_mut()[..length(size)]
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a piece has a few MiB")
}

/// Returns the whole units of a piece.
fn whole(size: u64) -> u64 {
    UNIT.up(size).expect("a piece has a few MiB")
}

/// Divides bytes that are written: the first pieces are short, but for the last one none is shorter than `shortest`.
fn growing(size: u64, shortest: u64) -> impl Iterator<Item = Range<u64>> {
    pieces(size, move |from| from.max(shortest))
}

/// Divides bytes that are read: the last pieces are short, so that little is left to do when the disk is done. None is shorter than
/// `shortest`, but for the last one.
fn shrinking(size: u64, shortest: u64) -> impl Iterator<Item = Range<u64>> {
    pieces(size, move |from| ((size - from) / 2).next_multiple_of(SMALL).max(shortest))
}

/// Divides bytes in pieces of about a wished length, which depends on where they start.
fn pieces(size: u64, wish: impl Fn(u64) -> u64) -> impl Iterator<Item = Range<u64>> {
    let piece = move |from: u64| from..size.min(from + wish(from).clamp(SMALL, PIECE));
    let first = piece(0);
    let next = move |last: &Range<u64>| (last.end < size).then(|| piece(last.end));
    core::iter::successors(Some(first), next)
}

/// A thread for a backing file.
pub(crate) fn named() -> thread::Builder {
    thread::Builder::new().name("omniheap backing file".into())
}

/// Hands something to another thread, which has ended only if it failed, and then says so itself.
fn hand<T>(to: &Sender<T>, what: T) {
    let _ = to.send(what);
}

/// Returns the error for a thread that was not started.
fn no_thread(error: io::Error) -> Error {
    let why = "the system starts no thread for the backing file; raise the limit of processes";
    let native = i64::from(error.raw_os_error().unwrap_or(0));
    ErrorKind::OutOfHostMemory.because(why).with_native(native)
}

/// Returns the error for a failed read or write.
pub(crate) fn failed(error: &io::Error) -> Error {
    tracing::error!(%error, "a backing file failed");
    let native = i64::from(error.raw_os_error().unwrap_or(0));
    let is_full = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
    let error = match error.kind() {
        _ if is_full => ErrorKind::OutOfHostMemory.because("the backing file's disk is full"),
        io::ErrorKind::UnexpectedEof => ErrorKind::Driver.because("the backing file was cut short"),
        _ => ErrorKind::Driver.because("the backing file could not be read or written"),
    };
    error.with_native(native)
}

#[cfg(test)]
mod tests {
    use super::{FileSpan, MEMORIES, PIECE, Pipe, SMALL, WriteBehind, growing, length, shrinking};
    use crate::lock;
    use omniheap_core::{ErrorKind, Result};
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::sync::{Arc, mpsc};
    use std::thread;

    const SIZES: [u64; 7] = [1, 4095, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL + 5, 2 * PIECE + 5000];
    const LARGE: u64 = 5 * PIECE;

    fn file() -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        options.open(std::env::temp_dir()).expect("a file without a name")
    }

    /// Bytes that differ from place to place.
    fn pattern(from: u64, bytes: &mut [u8]) {
        for (at, byte) in (from..).zip(bytes) {
            *byte = (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0];
        }
    }

    /// Reads one span.
    fn read(
        pipe: &Arc<Pipe>,
        at: u64,
        size: u64,
        take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if size < SMALL {
            return pipe.read_small(at, size, take);
        }
        let mut ahead = pipe.read_ahead([FileSpan { number: 7, at, size }].into_iter())?;
        assert!(ahead.is_at(7) && !ahead.is_at(8));
        let goes_on = ahead.read(size, take)?;
        assert!(!goes_on, "one is all");
        ahead.end();
        assert_eq!(lock(&pipe.spare).len(), MEMORIES, "a write finds it pinned");
        Ok(())
    }

    /// Writes one span.
    fn write(
        pipe: &Arc<Pipe>,
        at: u64,
        size: u64,
        fill: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if size < SMALL {
            return pipe.write_small(at, size, fill);
        }
        let mut behind = pipe.write_behind()?;
        let filled = behind.write(at, size, &Arc::new(()), fill);
        filled.and(behind.end())
    }

    fn fill(from: u64, bytes: &mut [u8]) -> Result<()> {
        pattern(from, bytes);
        Ok(())
    }

    #[test]
    fn every_byte_comes_back_past_the_page_cache_and_through_it() {
        for pipe in [Pipe::cached(file()), Pipe::direct(file())].map(Arc::new) {
            for (at, size) in [0, 1 << 40].into_iter().flat_map(|at| SIZES.map(|size| (at, size))) {
                write(&pipe, at, size, fill).expect("room");
                let (mut next, mut wanted) = (0, vec![0; length(size)]);
                pattern(0, &mut wanted);
                let compare = |from: u64, bytes: &[u8]| {
                    assert_eq!(from, next, "in order");
                    next += bytes.len() as u64;
                    assert!(bytes == &wanted[length(from)..length(next)], "{size} from {from}");
                    Ok(())
                };
                read(&pipe, at, size, compare).expect("written");
                assert_eq!(next, size);
                let mut seen = vec![0; length(size)];
                pipe.file().read_exact_at(&mut seen, at).expect("written");
                assert!(seen == wanted, "both ways lead to one file");
            }
        }
    }

    #[test]
    fn transfers_run_inside_of_others() {
        let pipe = Arc::new(Pipe::direct(file()));
        write(&pipe, 0, SMALL, fill).expect("room");
        for _ in 0..100 {
            let inner = |_: u64, _: &[u8]| read(&pipe, 0, 5, |_, _| Ok(()));
            read(&pipe, 0, SMALL, inner).expect("nobody waits for the other");
        }
    }

    #[test]
    fn the_disk_begins_soon_and_little_is_left_when_it_ends() {
        for size in SIZES.into_iter().chain([LARGE, 100 * PIECE + 1]) {
            let (written, read): (Vec<_>, Vec<_>) =
                (growing(size, SMALL).collect(), shrinking(size, SMALL).collect());
            for pieces in [&written, &read] {
                let ends = pieces.iter().map(|piece| piece.end);
                assert!(
                    pieces
                        .iter()
                        .map(|piece| piece.start)
                        .eq([0].into_iter().chain(ends.take(pieces.len() - 1)))
                );
                assert_eq!(pieces[pieces.len() - 1].end, size);
                assert!(pieces.iter().all(|piece| piece.start % SMALL == 0
                    && (1..=PIECE).contains(&(piece.end - piece.start))));
            }
            assert!(written[0].end <= SMALL && size - read[read.len() - 1].start <= SMALL);
            assert!(
                written.len() as u64 <= size / PIECE + 5 && read.len() as u64 <= size / PIECE + 5,
                "{size}"
            );
        }
    }

    #[test]
    fn what_a_piece_is_written_to_lives_until_then() {
        let pipe = Arc::new(Pipe::direct(file()));
        let (place, (full, filled)) = (Arc::new(()), mpsc::channel());
        let (written, empty) = pipe.memories().expect("room");
        // A thread that writes nothing: the test has the pieces.
        let writer = thread::spawn(|| Ok(()));
        let mut behind = WriteBehind { pipe, full, empty, shortest: SMALL, writer };
        behind.write(0, 2 * SMALL, &place, fill).expect("memory");
        assert_eq!(Arc::strong_count(&place), 3, "two pieces are to be written");
        drop((filled, written));
        assert_eq!(Arc::strong_count(&place), 1);
        behind.end().expect("nothing failed");
    }

    #[test]
    fn what_fails_half_way_ends_it() {
        let pipe = Arc::new(Pipe::direct(file()));
        let busy = |from: u64| if from < LARGE / 2 { Ok(()) } else { Err(ErrorKind::Busy.into()) };
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(write(&pipe, 0, LARGE, |from, _| busy(from))), Err(ErrorKind::Busy));
        write(&pipe, 0, LARGE, fill).expect("room");
        assert_eq!(kind(read(&pipe, 0, LARGE, |from, _| busy(from))), Err(ErrorKind::Busy));
        let mut seen = 0;
        pipe.file().set_len(LARGE / 2).expect("open");
        let count = |_: u64, bytes: &[u8]| {
            seen += bytes.len() as u64;
            Ok(())
        };
        assert_eq!(kind(read(&pipe, 0, LARGE, count)), Err(ErrorKind::Driver), "cut short");
        assert_eq!(seen, LARGE / 2 - LARGE / 2 % PIECE, "what was whole arrived");
        let reader = Arc::new(Pipe::cached(File::open("/dev/null").expect("a device")));
        assert_eq!(kind(write(&reader, 0, LARGE, fill)), Err(ErrorKind::Driver), "not writable");
    }
}
