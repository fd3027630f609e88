//! A backing store for sleeping pools: what came from a weights file and is final is read again from there.
#![forbid(unsafe_code)]

use crate::disk::{Access, Disk, System, size};
use crate::error::{ErrorKind as Kind, Fault};
use crate::file::Part;
use crate::{Loaded, WeightsFile};
use core::fmt;
use omniheap_core::{
    Allocation, AllocationId, Backend, BackingStore, Error as DeviceError, ErrorKind, GetPiece,
    HostPinner, Privacy, PutPiece, Result, StoreKind,
};
use omniheap_seam::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, Scope, ScopedJoinHandle};

/// Bytes that are read while as many are copied to the device: a multiple of what stores hand out.
const PIECE: u64 = 16 << 20;
/// Bytes that are worth a thread.
const SHARE: usize = 2 << 20;
/// Threads that read a piece.
const THREADS: usize = 8;

/// Bytes of a file that belong in an allocation.
#[derive(Debug, Clone, Copy)]
struct Range {
    /// First byte in the allocation.
    at: u64,
    size: u64,
    file: usize,
    /// First byte in the file.
    offset: u64,
}

/// Source of an allocation's bytes.
struct Known {
    /// The files, by number, as they were.
    parts: HashMap<usize, Part>,
    /// Sorted; none overlaps another.
    ranges: Vec<Range>,
    is_live: Box<dyn Fn() -> bool + Send + Sync>,
}

/// An origin of bytes that no file has: they are zeros.
impl Default for Known {
    fn default() -> Self {
        Self { parts: HashMap::new(), ranges: Vec::new(), is_live: Box::new(|| true) }
    }
}

/// Open files, by number.
type Files = HashMap<usize, Arc<File>>;

/// Bytes of an allocation that sleeps and that only its files have.
struct Away {
    known: Arc<Known>,
    size: u64,
    /// Held open, so that whoever takes their names takes no bytes.
    files: Files,
}

/// An allocation, and numbers of the tensors that it has from which byte on.
type Filled<'a, B> = (&'a Arc<Allocation<B>>, Vec<(usize, u64)>);

/// Keeps no bytes of allocations that were loaded and are final: they are read again from their weights files. All others go to
/// another store.
///
/// Files stay open while something sleeps in them: they may be renamed, replaced and deleted meanwhile, and the bytes are still there.
///
/// A file that changed since it was loaded is seen twice. When the pool falls asleep, the bytes go to the other store; where that keeps
/// nothing, the sleep fails with [`ErrorKind::Stale`], and the pool stays awake. When it wakes up, the wake fails
/// with [`ErrorKind::Stale`], and the pool sleeps on: put the bytes and the time of the file back and wake it again, or free what came from
/// it. Where the system does not open a file for the sleep, or does not read it for the wake, both say so in the same way with
/// [`ErrorKind::Driver`], or [`ErrorKind::OutOfHostMemory`] for too many open files.
pub struct Origin {
    rest: Arc<dyn BackingStore>,
    disk: Box<dyn Disk + Send>,
    known: Mutex<HashMap<AllocationId, Arc<Known>>>,
    away: Mutex<HashMap<AllocationId, Arc<Away>>>,
    /// Files that something sleeps in, by path: one descriptor for all that came from a file.
    held: Mutex<HashMap<PathBuf, Weak<File>>>,
    /// Memory to read to, kept because its first touch is slow.
    buffers: Mutex<[Vec<u8>; 2]>,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("rest", &self.rest).finish_non_exhaustive()
    }
}

impl Origin {
    /// Creates a store that keeps what no file has in `rest`.
    #[must_use]
    pub fn with(rest: Arc<dyn BackingStore>) -> Arc<Self> {
        Self::over(rest, Box::new(System))
    }

    pub(crate) fn over(rest: Arc<dyn BackingStore>, disk: Box<dyn Disk + Send>) -> Arc<Self> {
        let (known, away, held) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { rest, disk, known, away, held, buffers: Mutex::default() })
    }

    /// Remembers where loaded tensors came from, and makes their allocations final ([`Allocation::publish`]): later writes are refused,
    /// so that no sleep loses one.
    ///
    /// # Errors
    ///
    /// As for [`Allocation::publish`]; nothing is remembered of the allocation that failed and those behind it.
    pub fn remember<B: Backend + 'static>(
        &self,
        file: &WeightsFile,
        loaded: &Loaded<B>,
    ) -> Result<()> {
        let mut by_allocation: HashMap<AllocationId, Filled<'_, B>> = HashMap::new();
        for one in loaded {
            let Some(allocation) = one.allocation() else { continue };
            let number = file.list.find(&one.tensor().name).ok_or(ErrorKind::Foreign)?;
            let (_, tensors) = by_allocation.entry(allocation.id()).or_insert((allocation, vec![]));
            tensors.push((number, one.span().offset));
        }
        for (id, (allocation, tensors)) in by_allocation {
            allocation.publish()?;
            let is_live = Arc::downgrade(allocation);
            self.remember_final(id, file, &tensors, move || is_live.strong_count() > 0);
        }
        Ok(())
    }

    /// Remembers where the bytes of an allocation came from: numbers of tensors, and where they start in it. Bytes between them come
    /// back as zeros. The caller knows that nothing writes the allocation any more, and says whether it lives.
    ///
    /// An allocation with tensors that overlap goes to the other store: nobody knows whose bytes are there.
    pub fn remember_final(
        &self,
        id: AllocationId,
        file: &WeightsFile,
        tensors: &[(usize, u64)],
        is_live: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let range = |(number, at): &(usize, u64)| {
            let tensor = &file.tensors()[*number];
            Range { at: *at, size: tensor.size, file: tensor.file, offset: tensor.offset }
        };
        let mut ranges: Vec<_> = tensors.iter().map(range).filter(|range| range.size > 0).collect();
        ranges.sort_unstable_by_key(|range| range.at);
        if ranges.windows(2).any(|two| two[0].at + two[0].size > two[1].at) {
            self.forget_origin(id);
            return;
        }
        let part = |range: &Range| (range.file, file.files()[range.file].clone());
        let (parts, is_live) = (ranges.iter().map(part).collect(), Box::new(is_live));
        lock(&self.known).insert(id, Arc::new(Known { parts, ranges, is_live }));
    }

    /// Forgets where the bytes of an allocation came from: they go to the other store from now on. Says whether it was known.
    pub fn forget_origin(&self, id: AllocationId) -> bool {
        lock(&self.known).remove(&id).is_some()
    }

    /// Returns the bytes of sleeping allocations that only files have.
    #[must_use]
    pub fn away_bytes(&self) -> u64 {
        let away = lock(&self.away);
        away.values().filter(|away| !away.known.ranges.is_empty()).map(|away| away.size).sum()
    }

    /// Opens the files of an allocation; fails where one is not as it was when it was loaded.
    fn open(&self, known: &Known) -> Result<Files> {
        let mut files = Files::new();
        for range in &known.ranges {
            if let Entry::Vacant(vacant) = files.entry(range.file) {
                let file = self.open_file(&known.parts[&range.file]);
                vacant.insert(file.map_err(|error| unreadable(&error))?);
            }
        }
        Opened { disk: &*self.disk, known, files: &files }.check()?;
        Ok(files)
    }

    /// Finds a file open, or opens it.
    fn open_file(&self, part: &Part) -> io::Result<Arc<File>> {
        let mut held = lock(&self.held);
        let found = held.get(&part.path).and_then(Weak::upgrade);
        let is_same =
            |file: &Arc<File>| self.disk.state(file).is_ok_and(|state| state == part.state);
        if let Some(file) = found.filter(is_same) {
            return Ok(file);
        }
        held.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(self.disk.open(&part.path, Access::Cached)?);
        held.insert(part.path.clone(), Arc::downgrade(&file));
        Ok(file)
    }

    /// Hands the bytes of an allocation out, piece by piece: the next one is read while one is taken.
    fn get_away(&self, away: &Away, take: &mut GetPiece<'_>) -> Result<()> {
        let Away { known, size: whole, files } = away;
        let opened = Opened { disk: &*self.disk, known, files };
        opened.check()?;
        let mut buffers = lock(&self.buffers);
        let length = |from: u64| size(PIECE.min(whole.saturating_sub(from)));
        let [now, next] = &mut *buffers;
        for buffer in [&mut *now, &mut *next] {
            buffer.resize(buffer.len().max(length(0)), 0);
        }
        opened.read(0, &mut now[..length(0)])?;
        for from in (0..*whole).step_by(size(PIECE)) {
            let after = from + PIECE;
            let (bytes, ahead) = (&now[..length(from)], &mut next[..length(after)]);
            thread::scope(|scope| {
                let reads = start(scope, || opened.read(after, ahead))?;
                let taken = take(from, bytes);
                let read = reads.join().unwrap_or(Err(ErrorKind::Driver.into()));
                taken.and(read)
            })?;
            core::mem::swap(now, next);
        }
        drop(buffers);
        // Bytes that changed while they were read are not what was loaded.
        opened.check()
    }
}

/// Starts a thread that reads.
fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    read: impl FnOnce() -> Result<()> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<()>>> {
    let why = "the system starts no thread for a weights file; raise the limit of processes";
    thread::Builder::new()
        .spawn_scoped(scope, read)
        .map_err(|_| ErrorKind::OutOfHostMemory.because(why))
}

/// Files of an allocation that are open.
struct Opened<'a> {
    disk: &'a dyn Disk,
    known: &'a Known,
    files: &'a Files,
}

impl Opened<'_> {
    /// Fails where a file is not as it was when it was loaded.
    fn check(&self) -> Result<()> {
        let why = "a weights file changed since it was loaded: put it back as it was, or free what came from it";
        for (number, file) in self.files {
            match self.disk.state(file) {
                Ok(state) if state == self.known.parts[number].state => {}
                Err(Fault { kind: Kind::Io(error), .. }) => return Err(unreadable(&error)),
                _ => return Err(ErrorKind::Stale.because(why)),
            }
        }
        Ok(())
    }

    /// Fills a buffer with the bytes of the allocation from `from` on, by several threads.
    fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let share = to.len().div_ceil(THREADS).max(SHARE);
        thread::scope(|scope| {
            let parts = (from..).step_by(share).zip(to.chunks_mut(share));
            let parts: Vec<_> =
                parts.map(|(from, to)| start(scope, move || self.read_part(from, to))).collect();
            let ended =
                parts.into_iter().map(|part| part?.join().unwrap_or(Err(ErrorKind::Driver.into())));
            ended.fold(Ok(()), Result::and)
        })
    }

    fn read_part(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let (end, ranges) = (from + to.len() as u64, &self.known.ranges);
        let first = ranges.partition_point(|range| range.at + range.size <= from);
        let mut filled = 0;
        for range in ranges[first..].iter().take_while(|range| range.at < end) {
            let (start, stop) = (range.at.max(from), (range.at + range.size).min(end));
            let within = size(start - from)..size(stop - from);
            to[filled..within.start].fill(0);
            filled = within.end;
            let offset = range.offset + (start - range.at);
            self.read_exact(&self.files[&range.file], offset, &mut to[within])?;
        }
        to[filled..].fill(0);
        Ok(())
    }

    fn read_exact(&self, file: &File, mut offset: u64, mut to: &mut [u8]) -> Result<()> {
        while !to.is_empty() {
            match self.disk.read_to(file, offset, to) {
                Ok(0) => return Err(unreadable(&io::ErrorKind::UnexpectedEof.into())),
                Ok(arrived) => {
                    to = &mut to[arrived..];
                    offset += arrived as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&error)),
            }
        }
        Ok(())
    }
}

/// Codes of the system for too many open files: of this process, of all.
#[cfg(unix)]
const TOO_MANY: &[i32] = &[libc::EMFILE, libc::ENFILE];
/// `ERROR_TOO_MANY_OPEN_FILES`.
#[cfg(not(unix))]
const TOO_MANY: &[i32] = &[4];

/// Returns the meaning of a weights file that the system does not open or read.
fn unreadable(error: &io::Error) -> DeviceError {
    tracing::warn!(%error, "a weights file cannot be read again");
    let native = i64::from(error.raw_os_error().unwrap_or(0));
    let is_too_many = error.raw_os_error().is_some_and(|code| TOO_MANY.contains(&code));
    let error = match error.kind() {
        _ if is_too_many => ErrorKind::OutOfHostMemory
            .because("too many files are open to read a weights file again: raise the limit of open files, or close some"),
        io::ErrorKind::OutOfMemory => ErrorKind::OutOfHostMemory
            .because("the system has no memory to read a weights file again"),
        io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => ErrorKind::Stale
            .because("a weights file is gone or cut short: put it back, or free what came from it"),
        _ => ErrorKind::Driver
            .because("the system cannot read a weights file again: see to its permissions and the disk, or free what came from it"),
    };
    error.with_native(native)
}

impl BackingStore for Origin {
    fn prepare(&self, bytes: u64, pinner: &HostPinner<'_>) -> Result<()> {
        let mut known = lock(&self.known);
        known.retain(|_, known| (known.is_live)());
        let end = |known: &Arc<Known>| known.ranges.last().map_or(0, |range| range.at + range.size);
        let from_files: u64 = known.values().map(end).sum();
        drop(known);
        // Bytes of allocations that live elsewhere make this too little: the other store then grows as bytes come.
        self.rest.prepare(bytes.saturating_sub(from_files), pinner)
    }

    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        self.forget(id); // What is kept now and what is to be kept may lie in different stores.
        let known = lock(&self.known).get(&id).cloned().filter(|_| privacy == Privacy::Open);
        let is_lost = self.rest.kind() == StoreKind::Nothing;
        let (known, files) = match known.map(|known| Ok((self.open(&known)?, known))) {
            Some(Ok((files, known))) => (known, files),
            // The pool stays awake: what was loaded must not wake up as zeros.
            Some(Err(changed)) if is_lost => return Err(changed),
            // Neither a file nor the other store has them: they come back as zeros.
            None if is_lost => Default::default(),
            // No file has them, or not any more.
            _ => return self.rest.put(id, size, privacy, copy),
        };
        lock(&self.away).insert(id, Arc::new(Away { known, size, files }));
        Ok(())
    }

    fn flush(&self, id: AllocationId) -> Result<()> {
        self.rest.flush(id)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let away = lock(&self.away).get(&id).cloned();
        match away {
            Some(away) => self.get_away(&away, take),
            None => self.rest.get(id, take),
        }
    }

    fn forget(&self, id: AllocationId) {
        if lock(&self.away).remove(&id).is_none() {
            self.rest.forget(id);
        }
    }

    fn accepts(&self, privacy: Privacy) -> bool {
        self.rest.accepts(privacy)
    }

    /// Returns `File` also for the bytes that the other store keeps.
    fn kind(&self) -> StoreKind {
        StoreKind::File
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::{ErrorKind, io, unreadable};

    #[test]
    fn only_a_file_that_is_gone_is_to_be_put_back() {
        let told = |code| unreadable(&io::Error::from_raw_os_error(code));
        let kinds =
            [libc::ENOENT, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES, libc::EIO]
                .map(|code| (told(code).kind(), told(code).native() == i64::from(code)));
        let memory = (ErrorKind::OutOfHostMemory, true);
        let driver = (ErrorKind::Driver, true);
        assert_eq!(kinds, [(ErrorKind::Stale, true), memory, memory, memory, driver, driver]);
        assert!(told(libc::EMFILE).detail().contains("open files"), "{}", told(libc::EMFILE));
        let short = unreadable(&io::ErrorKind::UnexpectedEof.into());
        assert_eq!(short.kind(), ErrorKind::Stale, "{short}");
        assert!(!short.to_string().contains("allocation"), "nothing of its was freed: {short}");
    }
}
