//! The store in a file.
#![forbid(unsafe_code)]
use crate::checksum::checksum;
use crate::disk::{is_in_memory, punch};
use crate::lock;
use crate::pipe::{FileSpan, Pipe, ReadAhead, SMALL, UNIT, WriteBehind, named};
use core::iter::successors;
use core::mem;
use omniheap_core::strategy::{Grant, Strategy, Tlsf};
use omniheap_core::{
    Align, AllocationId, BackingStore, Class, Error, ErrorKind, GetPiece, HostPinner, Layout,
    Privacy, PutPiece, Result, StoreKind,
};
use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

/// Bytes that have one checksum. They are copied together, so that the processor's cache has them while they are summed up.
const CHECKED: usize = 1 << 20;
/// Least size of the extents into which the file is divided: addresses only, the disk is not asked for them.
const EXTENT: u64 = 1 << 40;

/// Keeps bytes in a file without a name: it is gone with the process, however that ends. Several pools may share one.
///
/// Refuses secret allocations, and a process that was forked from the one that opened it. Bytes are checked when they come back: damaged ones are an error, and the pool stays asleep.
#[derive(Debug)]
pub struct FileStore {
    file: Arc<Backing>,
    /// Reader ahead of each lane. Not part of `Backing`: their threads hold that, and it would never be dropped.
    readers: Mutex<HashMap<Lane, ReadAhead>>,
    /// Writer behind of each lane that falls asleep and has something here. Whoever uses one takes it out.
    writers: Mutex<HashMap<Lane, WriteBehind>>,
    in_memory: bool,
}

/// The file, which may outlive the store until its bytes have left the disk.
#[derive(Debug)]
struct Backing {
    pipe: Arc<Pipe>,
    kept: Mutex<Contents>,
    /// No bytes that were forgotten are on the disk any more.
    cleared: Condvar,
    /// The process that opened it: a forked child has the same file, and its own idea of what is where.
    process: u32,
}

#[derive(Debug)]
struct Contents {
    strategy: Tlsf,
    /// Offsets of the extents in the file.
    extents: Vec<u64>,
    end: u64,
    by_id: HashMap<AllocationId, Arrival>,
    /// Kept bytes by arrival: a lane asks for its bytes in the order in which it stored them.
    kept: BTreeMap<Arrival, Arc<Kept>>,
    /// Number of the next arrival.
    came: u64,
    /// Places whose bytes are forgotten, and that are on the disk yet.
    forgotten: Vec<(u64, Grant)>,
    /// True while a thread takes them off the disk.
    is_clearing: bool,
}

/// The numbers of a lane and of its manager.
type Lane = (u32, u32);
/// The lane of an allocation, and a number that counts up with each allocation stored.
type Arrival = (Lane, u64);

/// The bytes of one allocation.
#[derive(Debug)]
struct Kept {
    arrival: Arrival,
    place: Arc<Place>,
    size: u64,
    /// One for each MiB.
    sums: Vec<u64>,
}

/// A place in the file. Dropping it gives it back: nobody needs its bytes, and none are still to be written.
#[derive(Debug)]
struct Place {
    /// Offset in the file.
    at: u64,
    grant: Grant,
    file: Weak<Backing>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(file) = self.file.upgrade() {
            file.give_back(self.at, self.grant);
        }
    }
}

impl FileStore {
    /// Opens a file in a directory. Nothing is to be seen in the directory, now or after a crash.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` where the directory does not exist or cannot be written; `Unsupported` where its file system has no files without
    /// a name. The log says what the system said.
    pub fn open(directory: impl AsRef<Path>) -> Result<Arc<Self>> {
        let directory = directory.as_ref();
        let flags = libc::O_TMPFILE | libc::O_CLOEXEC;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(directory);
        let file = opened.map_err(|error| refused(directory, &error))?;
        let in_memory = is_in_memory(&file);
        if in_memory {
            let directory = directory.display();
            tracing::warn!(%directory, "the directory is in memory: sleeping there frees no host memory");
        }
        let pipe = if in_memory { Pipe::cached(file) } else { Pipe::direct(file) };
        let (pipe, kept) = (Arc::new(pipe), Mutex::new(Contents::new()));
        let file =
            Arc::new(Backing { pipe, kept, cleared: Condvar::new(), process: std::process::id() });
        let (readers, writers) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { file, readers, writers, in_memory }))
    }

    /// Returns whether the directory is in memory (tmpfs), so that the file takes host memory.
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Hands an allocation's bytes to the lane's writer. Returns their checksums, and the writer if there is one.
    fn write(
        &self,
        lane: Lane,
        place: &Arc<Place>,
        size: u64,
        copy: &mut PutPiece<'_>,
    ) -> Result<(Vec<u64>, Option<WriteBehind>)> {
        let mut sums = Vec::new();
        let fill = |from: u64, bytes: &mut [u8]| {
            for (from, part) in (from..).step_by(CHECKED).zip(bytes.chunks_mut(CHECKED)) {
                copy(from, part)?;
                sums.push(checksum(part));
            }
            Ok(())
        };
        if size < SMALL {
            return self.file.pipe.write_small(place.at, size, fill).map(|()| (sums, None));
        }
        let known = self.take_writer(lane);
        let mut writer = known.map_or_else(|| self.file.pipe.write_behind(), Ok)?;
        if let Err(error) = writer.write(place.at, size, place, fill) {
            let _ = writer.end(); // The sleep fails, and for the first reason.
            return Err(error);
        }
        Ok((sums, Some(writer)))
    }

    /// Takes a lane's writer out. A forked child has no such thread.
    fn take_writer(&self, lane: Lane) -> Option<WriteBehind> {
        self.file.check_own().ok()?;
        lock(&self.writers).remove(&lane)
    }

    /// Returns a reader at the start of these bytes: the lane's own if it is there already, else a new one.
    fn read_from(&self, kept: &Kept) -> Result<ReadAhead> {
        // A forked child has no such thread.
        let known = lock(&self.readers).remove(&kept.arrival.0);
        if let Some(mut reader) = known.filter(|_| self.file.check_own().is_ok()) {
            if reader.is_at(kept.arrival.1) {
                return Ok(reader);
            }
            reader.end();
        }
        let (file, lane) = (Arc::clone(&self.file), kept.arrival.0);
        let next = move |last: &FileSpan| lock(&file.kept).after((lane, last.number));
        self.file.pipe.read_ahead(successors(Some(kept.span()), next))
    }
}

impl Kept {
    fn span(&self) -> FileSpan {
        FileSpan { number: self.arrival.1, at: self.place.at, size: self.size }
    }
}

impl Backing {
    /// Takes a place for bytes of this size.
    fn take(self: &Arc<Self>, size: u64) -> Result<Arc<Place>> {
        let (at, grant) = lock(&self.kept).take(size)?;
        Ok(Arc::new(Place { at, grant, file: Arc::downgrade(self) }))
    }

    fn check_own(&self) -> Result<()> {
        let is_own = self.process == std::process::id();
        let foreign =
            || ErrorKind::Unsupported.because("the backing file belongs to the parent process");
        is_own.then_some(()).ok_or_else(foreign)
    }

    /// Gives a place of the file back once its bytes have left the disk. A thread sees to that: it may take longer than reading them,
    /// and a wake does not wait for it.
    fn give_back(self: &Arc<Self>, at: u64, grant: Grant) {
        if self.check_own().is_err() {
            return; // The parent's bytes stay where they are.
        }
        let mut kept = lock(&self.kept);
        kept.forgotten.push((at, grant));
        if kept.is_clearing {
            return;
        }
        kept.is_clearing = true;
        drop(kept);
        let file = Arc::clone(self);
        if named().spawn(move || file.clear()).is_err() {
            self.clear();
        }
    }

    /// Takes what was forgotten off the disk.
    fn clear(&self) {
        let mut kept = lock(&self.kept);
        while let Some((at, grant)) = kept.forgotten.pop() {
            drop(kept);
            punch(self.pipe.file(), at, grant.span.size);
            kept = lock(&self.kept);
            let freed = kept.strategy.free(grant.key);
            debug_assert!(freed.is_ok(), "a place is live until it is given back");
        }
        kept.is_clearing = false;
        self.cleared.notify_all();
    }

    /// Waits until nothing that was forgotten is on the disk.
    fn wait_until_clear(&self) {
        let kept = lock(&self.kept);
        let waited = self.cleared.wait_while(kept, |kept| kept.is_clearing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Contents {
    fn new() -> Self {
        Self {
            strategy: Tlsf::new(Align::ONE),
            extents: Vec::new(),
            end: 0,
            by_id: HashMap::new(),
            kept: BTreeMap::new(),
            came: 0,
            forgotten: Vec::new(),
            is_clearing: false,
        }
    }

    fn take(&mut self, size: u64) -> Result<(u64, Grant)> {
        let size = UNIT.up(size).ok_or(ErrorKind::SizeOverflow)?;
        let layout = Layout { size, align: UNIT };
        let grant = match self.strategy.allocate(layout, Class::Linear) {
            Ok(grant) => grant,
            Err(_) => {
                let extent = size.max(EXTENT);
                let end = self.end.checked_add(extent).ok_or(ErrorKind::SizeOverflow)?;
                self.strategy.add_block(extent)?;
                self.extents.push(self.end);
                self.end = end;
                self.strategy.allocate(layout, Class::Linear)?
            }
        };
        Ok((self.extents[grant.block.0 as usize] + grant.span.offset, grant))
    }

    fn insert(&mut self, id: AllocationId, place: Arc<Place>, size: u64, sums: Vec<u64>) {
        let arrival = (lane_of(id), self.came);
        self.came += 1;
        self.by_id.insert(id, arrival);
        self.kept.insert(arrival, Arc::new(Kept { arrival, place, size, sums }));
    }

    fn get(&self, id: AllocationId) -> Option<Arc<Kept>> {
        self.kept.get(self.by_id.get(&id)?).cloned()
    }

    fn remove(&mut self, id: AllocationId) -> Option<Arc<Kept>> {
        self.kept.remove(&self.by_id.remove(&id)?)
    }

    fn has(&self, lane: Lane) -> bool {
        self.kept.range((lane, 0)..=(lane, u64::MAX)).next().is_some()
    }

    /// Returns the span that a lane asks for next in pieces. If it is forgotten before it is read, nobody asks for it.
    fn after(&self, (lane, number): Arrival) -> Option<FileSpan> {
        let mut following = self.kept.range((lane, number + 1)..=(lane, u64::MAX));
        following.find(|(_, kept)| kept.size >= SMALL).map(|(_, kept)| kept.span())
    }
}

impl BackingStore for FileStore {
    fn prepare(&self, _bytes: u64, pinner: &HostPinner<'_>) -> Result<()> {
        self.file.check_own()?;
        // A wake that failed may have left some.
        let left = mem::take(&mut *lock(&self.readers));
        left.into_values().for_each(ReadAhead::end);
        self.file.wait_until_clear(); // The disk may have no room for both.
        self.file.pipe.prepare(pinner)
    }

    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        if !self.accepts(privacy) {
            return Err(ErrorKind::Unsupported.because("secret bytes are not written to files"));
        }
        self.file.check_own()?;
        if lock(&self.file.kept).by_id.contains_key(&id) {
            self.forget(id);
            self.file.wait_until_clear(); // The disk may have no room for both.
        }
        let place = self.file.take(size)?;
        let (sums, writer) = self.write(lane_of(id), &place, size, copy)?;
        let mut kept = lock(&self.file.kept);
        kept.insert(id, place, size, sums);
        // Under the same lock: whoever forgets a lane's last bytes ends its writer, and the flush would not hear of an error.
        drop(writer.and_then(|writer| lock(&self.writers).insert(lane_of(id), writer)));
        Ok(())
    }

    fn flush(&self, id: AllocationId) -> Result<()> {
        self.take_writer(lane_of(id)).map_or(Ok(()), WriteBehind::end)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        self.flush(id)?;
        let kept = lock(&self.file.kept).get(id).ok_or(ErrorKind::Stale)?;
        let mut sums = kept.sums.iter();
        let check = |from: u64, bytes: &[u8]| {
            for (from, part) in (from..).step_by(CHECKED).zip(bytes.chunks(CHECKED)) {
                if sums.next() != Some(&checksum(part)) {
                    return Err(ErrorKind::Driver.because("the backing file's bytes are damaged"));
                }
                take(from, part)?;
            }
            Ok(())
        };
        if kept.size < SMALL {
            return self.file.pipe.read_small(kept.place.at, kept.size, check);
        }
        let mut reader = self.read_from(&kept)?;
        match reader.read(kept.size, check) {
            Ok(true) => drop(lock(&self.readers).insert(kept.arrival.0, reader)),
            Ok(false) => reader.end(),
            Err(error) => {
                reader.end();
                return Err(error);
            }
        }
        Ok(())
    }

    fn kind(&self) -> StoreKind {
        StoreKind::File
    }

    fn forget(&self, id: AllocationId) {
        let mut contents = lock(&self.file.kept);
        let Some(kept) = contents.remove(id) else { return };
        let lane = kept.arrival.0;
        let has_more = contents.has(lane);
        let writer = if has_more { None } else { self.take_writer(lane) };
        drop(contents); // Before the place is given back.
        if !has_more {
            drop(lock(&self.readers).remove(&lane)); // What was read was freed before it was asked for.
        }
        let _ = writer.map(WriteBehind::end); // A sleep failed: nobody needs what is still written.
    }

    fn accepts(&self, privacy: Privacy) -> bool {
        privacy == Privacy::Open
    }
}

fn lane_of(id: AllocationId) -> Lane {
    (id.lane(), id.manager())
}

/// Returns the error for a directory that cannot hold the file, and logs it.
fn refused(directory: &Path, error: &io::Error) -> Error {
    let shown = directory.display();
    tracing::error!(directory = %shown, %error, "no backing file in this directory");
    let native = i64::from(error.raw_os_error().unwrap_or(0));
    let error = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::EISDIR) => ErrorKind::Unsupported
            .because("the directory's file system has no files without a name; choose another one"),
        _ => ErrorKind::InvalidConfig
            .because("the backing store's directory does not exist or cannot be written"),
    };
    error.with_native(native)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{PIECE, failed};
    use omniheap_core::{Allocation, Manager, Request};
    use omniheap_host::Host;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::sync::Barrier;
    use std::thread;

    const SIZE: u64 = PIECE + 5000;

    fn id() -> AllocationId {
        let manager = Manager::new(Host::new());
        manager.allocate(&Request::new(64)).expect("small").id()
    }

    fn put(store: &FileStore, id: AllocationId) -> Result<()> {
        store.put(id, SIZE, Privacy::Open, &mut |at, bytes| {
            bytes.fill(u8::try_from(at / PIECE + 3).expect("few pieces"));
            Ok(())
        })
    }

    fn get(store: &FileStore, id: AllocationId) -> Result<u64, ErrorKind> {
        let mut seen = 0;
        let got = store.get(id, &mut |at, bytes| {
            let wanted = u8::try_from(at / PIECE + 3).expect("few pieces");
            assert!(at == seen && bytes.iter().all(|byte| *byte == wanted));
            seen += bytes.len() as u64;
            Ok(())
        });
        got.map(|()| seen).map_err(|error| error.kind())
    }

    #[test]
    fn bytes_stay_until_they_are_forgotten_and_the_directory_stays_empty() {
        let directory = std::env::temp_dir().join(format!("omniheap-store-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a folder");
        let (store, one, other) = (FileStore::open(&directory).expect("a file"), id(), id());
        put(&store, one).expect("room");
        put(&store, other).expect("room");
        assert_eq!((get(&store, one), get(&store, other)), (Ok(SIZE), Ok(SIZE)));
        store.forget(one);
        store.forget(one);
        assert_eq!((get(&store, one), get(&store, other)), (Err(ErrorKind::Stale), Ok(SIZE)));
        // So nothing is left after a kill, either.
        assert_eq!(std::fs::read_dir(&directory).expect("the folder").count(), 0);
        std::fs::remove_dir(&directory).expect("it is empty");
    }

    #[test]
    fn a_place_is_used_again_once_its_bytes_have_left_the_disk() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let (one, other) = (id(), id());
        lock(&store.file.kept).is_clearing = true; // As while the thread is at it.
        put(&store, one).expect("room");
        store.forget(one);
        put(&store, other).expect("room");
        store.file.clear();
        assert_eq!(get(&store, other), Ok(SIZE), "it has another place");
        put(&store, one).expect("room");
        assert_eq!(lock(&store.file.kept).get(one).expect("kept").place.at, 0, "the place is free");
    }

    #[test]
    fn what_is_kept_again_replaces_what_was_kept() {
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        put(&store, one).expect("room");
        put(&store, one).expect("room");
        assert_eq!(get(&store, one), Ok(SIZE));
        let full = store.put(one, SIZE, Privacy::Open, &mut |_, _| Err(ErrorKind::Busy.into()));
        assert!(full.is_err(), "what the copy says");
        assert_eq!(get(&store, one), Err(ErrorKind::Stale), "nothing is kept after a failure");
        store.file.wait_until_clear();
        let kept = lock(&store.file.kept);
        assert_eq!(kept.strategy.free_bytes(), kept.strategy.total_bytes(), "places are lost");
    }

    #[test]
    fn what_is_replaced_has_left_the_disk_before_the_new_bytes_come() {
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        let blocks = || store.file.pipe.file().metadata().expect("open").blocks();
        put(&store, one).expect("room");
        store.flush(one).expect("room");
        assert!(blocks() > 0, "they are on the disk");
        let copy = &mut |at: u64, _: &mut [u8]| {
            assert!(at > 0 || blocks() == 0, "the disk may have no room for both");
            Ok(())
        };
        store.put(one, SIZE, Privacy::Open, copy).expect("room");
    }

    #[test]
    fn what_is_forgotten_leaves_the_disk_and_the_file_goes_with_the_store() {
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        put(&store, one).expect("room");
        store.forget(one);
        HostPinner::lend(&Host::new(), |pinner| store.prepare(SIZE, pinner)).expect("room");
        let about = store.file.pipe.file().metadata().expect("open");
        assert_eq!(about.blocks(), 0, "blocks are on the disk");
        let file = Arc::downgrade(&store.file);
        put(&store, one).expect("room");
        store.forget(one);
        drop(store);
        while file.strong_count() > 0 {
            thread::yield_now(); // The thread ends, and the file with it.
        }
    }

    #[test]
    fn the_disk_writes_while_the_next_is_copied_and_a_flush_waits_for_it() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let (one, other) = (id(), id());
        [one, other].into_iter().for_each(|id| put(&store, id).expect("room"));
        assert_eq!(lock(&store.writers).len(), 2, "each pool has its own");
        store.flush(one).expect("room");
        assert!(lock(&store.writers).contains_key(&lane_of(other)), "the other pool goes on");
        let place = lock(&store.file.kept).get(one).expect("kept").place.at;
        let mut last = [0];
        store.file.pipe.file().read_exact_at(&mut last, place + SIZE - 1).expect("written");
        assert_eq!((last, get(&store, one), get(&store, other)), ([4], Ok(SIZE), Ok(SIZE)));
        assert!(lock(&store.writers).is_empty(), "what is asked for is written");
    }

    #[test]
    fn a_write_that_fails_later_is_told_by_the_flush() {
        let mut store = FileStore::open(std::env::temp_dir()).expect("a file");
        let file = Arc::get_mut(&mut store).and_then(|store| Arc::get_mut(&mut store.file));
        let null = std::fs::File::open("/dev/null").expect("a device"); // Not for writing.
        file.expect("nobody else has it").pipe = Arc::new(Pipe::cached(null));
        let (one, other) = (id(), id());
        put(&store, one).expect("it is written later");
        assert_eq!(store.flush(other), Ok(()), "nothing of this pool was written");
        assert_eq!(store.flush(one).map_err(|error| error.kind()), Err(ErrorKind::Driver));
        store.forget(one);
        put(&store, one).expect("it is written later");
        store.forget(one);
        assert!(lock(&store.writers).is_empty(), "the sleep failed, and the next begins anew");
    }

    #[test]
    fn a_pools_last_bytes_and_its_next_ones_are_forgotten_and_kept_at_once() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let (one, at_end) = (id(), Barrier::new(2));
        thread::scope(|scope| {
            let put = scope.spawn(|| {
                store.put(one, SMALL + 1, Privacy::Open, &mut |at, _| {
                    if at == SMALL {
                        at_end.wait(); // The last byte is copied,
                        at_end.wait(); // and the other thread has the lock.
                    }
                    Ok(())
                })
            });
            at_end.wait();
            let kept = lock(&store.file.kept); // As while another thread forgets what this pool has kept.
            at_end.wait();
            for _ in 0..1000 {
                assert!(
                    lock(&store.writers).is_empty(),
                    "it would end the writer, and drop its error"
                );
                thread::yield_now();
            }
            drop(kept);
            put.join().expect("no panic").expect("room");
        });
        assert!(lock(&store.writers).contains_key(&lane_of(one)));
    }

    #[test]
    fn what_is_read_ahead_is_given_back_when_it_is_forgotten() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let manager = Manager::new(Host::new());
        let all = [64; 5].map(|size| manager.allocate(&Request::new(size)).expect("small"));
        let ids = all.each_ref().map(Allocation::id);
        ids.into_iter().for_each(|id| put(&store, id).expect("room"));
        assert_eq!(get(&store, ids[0]), Ok(SIZE));
        assert!(comes(&store, ids[1]), "and the thread looks for what follows");
        lock(&store.file.kept).is_clearing = true; // As while the thread is at it.
        [ids[4], ids[3]].into_iter().for_each(|id| store.forget(id));
        assert_eq!(lock(&store.file.kept).forgotten.len(), 2);
    }

    #[test]
    fn a_place_is_given_back_once_nothing_is_written_to_it() {
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        put(&store, one).expect("room");
        store.flush(one).expect("room");
        lock(&store.file.kept).is_clearing = true; // As while the thread is at it.
        let writer = Arc::clone(&lock(&store.file.kept).get(one).expect("kept").place);
        store.forget(one);
        assert!(lock(&store.file.kept).forgotten.is_empty(), "a piece is still to be written");
        drop(writer);
        assert_eq!(lock(&store.file.kept).forgotten.len(), 1);
    }

    /// Returns whether these bytes are read ahead.
    fn comes(store: &FileStore, id: AllocationId) -> bool {
        let (lane, number) = lock(&store.file.kept).get(id).expect("kept").arrival;
        lock(&store.readers).get_mut(&lane).is_some_and(|reader| reader.is_at(number))
    }

    #[test]
    fn the_disk_goes_on_with_what_the_lane_asks_for_next() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let manager = Manager::new(Host::new());
        let all = [64; 5].map(|size| manager.allocate(&Request::new(size)).expect("small"));
        let [first, small, second, third, last] = all.each_ref().map(Allocation::id);
        let other = id();
        [first, other].into_iter().for_each(|id| put(&store, id).expect("room"));
        store.put(small, 64, Privacy::Open, &mut |_, _| Ok(())).expect("room");
        [second, third, last].into_iter().for_each(|id| put(&store, id).expect("room"));
        assert_eq!(get(&store, first), Ok(SIZE));
        assert!(comes(&store, second), "neither another pool's bytes nor few bytes");
        assert!(store.get(small, &mut |_, _| Ok(())).is_ok());
        assert_eq!(get(&store, second), Ok(SIZE));
        assert!(comes(&store, third));
        // Bytes that were read too early are not those that came later.
        store.forget(third);
        put(&store, third).expect("room");
        assert_eq!((get(&store, last), get(&store, other)), (Ok(SIZE), Ok(SIZE)));
        assert_eq!(get(&store, third), Ok(SIZE));
        assert!(lock(&store.readers).is_empty(), "nothing is left to read");
        assert_eq!(get(&store, second), Ok(SIZE));
        HostPinner::lend(&Host::new(), |pinner| store.prepare(SIZE, pinner)).expect("room");
        assert!(lock(&store.readers).is_empty(), "a sleep has its memory");
        assert_eq!(get(&store, second), Ok(SIZE));
        let file = Arc::downgrade(&store.file);
        drop(store);
        while file.strong_count() > 0 {
            thread::yield_now(); // The thread ends, and the file with it.
        }
    }

    #[test]
    fn a_pool_that_wakes_beside_another_one_keeps_what_was_read_for_it() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let managers = [(); 2].map(|()| Manager::new(Host::new()));
        let small = |manager: &Manager<Host>| manager.allocate(&Request::new(64)).expect("small");
        let all = managers.each_ref().map(|manager| [(); 2].map(|()| small(manager)));
        let ids = all.each_ref().map(|pool| pool.each_ref().map(Allocation::id));
        ids.as_flattened().iter().for_each(|id| put(&store, *id).expect("room"));
        ids.iter().for_each(|[first, _]| assert_eq!(get(&store, *first), Ok(SIZE)));
        for [_, second] in ids {
            assert!(comes(&store, second));
            assert_eq!(get(&store, second), Ok(SIZE));
        }
        assert!(lock(&store.readers).is_empty(), "nothing is left to read");
    }

    #[test]
    fn no_thread_waits_for_a_lane_that_has_nothing_here() {
        let store = FileStore::open(std::env::temp_dir()).expect("a file");
        let manager = Manager::new(Host::new());
        let all = [64; 2].map(|size| manager.allocate(&Request::new(size)).expect("small"));
        let [first, second] = all.each_ref().map(Allocation::id);
        [first, second].into_iter().for_each(|id| put(&store, id).expect("room"));
        assert_eq!(get(&store, first), Ok(SIZE));
        store.forget(second); // Freed while its pool wakes up.
        assert!(!lock(&store.readers).is_empty());
        store.forget(first);
        assert!(lock(&store.readers).is_empty());
    }

    #[test]
    fn what_a_child_forgets_stays_on_its_parents_disk() {
        let (mut store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        let parent = Arc::get_mut(&mut store).and_then(|store| Arc::get_mut(&mut store.file));
        parent.expect("nobody else has it").process += 1; // As in a child.
        let place = store.file.take(SIZE).expect("room");
        store.file.pipe.write_small(place.at, 4096, |_, _| Ok(())).expect("room");
        lock(&store.file.kept).insert(one, place, SIZE, Vec::new());
        store.forget(one);
        let kept = lock(&store.file.kept);
        assert!(!kept.is_clearing && kept.forgotten.is_empty());
        assert!(store.file.pipe.file().metadata().expect("open").blocks() > 0);
    }

    #[test]
    fn damage_is_noticed() {
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        put(&store, one).and_then(|()| store.flush(one)).expect("room");
        let (mut byte, file) = ([0], store.file.pipe.file());
        file.read_exact_at(&mut byte, PIECE + 1).expect("written");
        file.write_all_at(&[byte[0] ^ 1], PIECE + 1).expect("open");
        assert_eq!(get(&store, one), Err(ErrorKind::Driver), "one bit");
        file.write_all_at(&byte, PIECE + 1).expect("open");
        assert_eq!(get(&store, one), Ok(SIZE));
        file.set_len(PIECE).expect("open");
        assert_eq!(get(&store, one), Err(ErrorKind::Driver), "cut short");
    }

    #[test]
    fn what_can_not_be_stored_is_refused() {
        let kind = |result: Result<Arc<FileStore>>| result.map(drop).map_err(|error| error.kind());
        assert_eq!(kind(FileStore::open("/no/such/folder")), Err(ErrorKind::InvalidConfig));
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        let secret = store.put(one, 64, Privacy::Secret, &mut |_, _| Ok(()));
        assert_eq!(secret.map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
        let failed = store.put(one, 64, Privacy::Open, &mut |_, _| Err(ErrorKind::Busy.into()));
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::Busy));
        assert_eq!(get(&store, one), Err(ErrorKind::Stale), "nothing of it is kept");
        assert_eq!(failed_kind(libc::ENOSPC), ErrorKind::OutOfHostMemory);
        assert_eq!(failed_kind(libc::EIO), ErrorKind::Driver);
    }

    fn failed_kind(code: i32) -> ErrorKind {
        failed(&io::Error::from_raw_os_error(code)).kind()
    }

    #[test]
    fn memory_is_said_to_be_memory() {
        let shared = Path::new("/dev/shm");
        if shared.is_dir() {
            assert!(FileStore::open(shared).expect("a file").is_in_memory());
        }
    }
}
