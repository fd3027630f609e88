//! Runs a plan: reads files by the fastest way that each range allows, and starts copies as pieces arrive.
#![expect(unsafe_code, reason = "reads into raw memory")]

use crate::disk::{Access, Buffer, Disk, size, skip};
use crate::error::{Error, ErrorKind, Fault};
use crate::file::Part;
use crate::plan::{ALIGN, COLD_PART, PART, Piece, READ, Read, Want, plan_cached};
use crate::ring::{Ring, Slot};
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use omniheap_core::{
    Allocation, Backend, BlockOffset, ErrorKind as Device, Manager, Move, Result as DeviceResult,
    TimelineId, Transfer, bytes,
};
use omniheap_seam::lock;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

/// Files that stay open during a load; more are opened again when they are needed.
const OPEN_FILES: usize = 128;
/// Threads that saturate the bus (one alone reaches a tenth of it) and keep enough reads in flight for a disk.
const MOST_THREADS: usize = 16;

/// Destination of bytes.
pub(crate) enum Target<'a, B: Backend> {
    /// Host memory, which reads go straight to.
    Host(NonNull<u8>, PhantomData<&'a mut [u8]>),
    /// Device memory.
    Device(BlockOffset<'a, B::Block>),
}

// SAFETY: threads write disjoint ranges of it, as the plan says; the pointer's owner waits for the load.
unsafe impl<B: Backend> Sync for Target<'_, B> {}
// SAFETY: as above.
unsafe impl<B: Backend> Send for Target<'_, B> {}

/// One load.
pub(crate) struct Run<'a, B: Backend> {
    pub(crate) manager: &'a Manager<B>,
    pub(crate) disk: &'a dyn Disk,
    pub(crate) parts: &'a [Part],
    pub(crate) reads: &'a [Read],
    pub(crate) targets: &'a [Target<'a, B>],
    pub(crate) on: TimelineId,
    /// Bytes of the ring.
    pub(crate) ring: u64,
    /// Number of reading threads; chosen by the load if none.
    pub(crate) threads: Option<usize>,
}

/// A file while it is read.
struct Open {
    cached: File,
    /// `None` where the file system has no direct I/O.
    direct: Option<File>,
}

/// Files that are open, by number.
type OpenFiles = Mutex<HashMap<usize, Arc<Open>>>;

/// A read that threads make, part by part.
struct Planned<B: Backend> {
    read: Read,
    access: Access,
    /// Bytes of a part.
    part: u64,
    /// Parts that are not read yet.
    left: AtomicUsize,
    /// Slot that the parts fill, taken by whoever reads the first of them; `None` in it where the load has stopped.
    slot: OnceLock<Option<Arc<Slot<B>>>>,
}

impl<B: Backend> Planned<B> {
    fn new(read: Read, access: Access, part: u64) -> Self {
        let left = AtomicUsize::new(size(read.needs.div_ceil(part)));
        Self { read, access, part, left, slot: OnceLock::new() }
    }

    /// Returns where each part starts.
    fn starts(&self) -> impl Iterator<Item = u64> {
        (0..self.read.needs).step_by(size(self.part))
    }
}

/// State that the threads of a load share.
struct Shared<'a, B: Backend> {
    run: &'a Run<'a, B>,
    ring: Ring<'a, B>,
    threads: usize,
    open: OpenFiles,
    reads: Vec<Planned<B>>,
    /// Parts of the reads in order: number of the read, first byte in it.
    parts: Vec<(usize, u64)>,
    next: AtomicUsize,
    is_stopped: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl<B: Backend> Run<'_, B> {
    /// Loads. Every thread and every copy has ended when it returns, also after a failure.
    ///
    /// # Safety
    ///
    /// Host targets are valid for writes of all their pieces, and nothing else uses them during the call.
    pub(crate) unsafe fn run(
        &self,
        progress: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let open = Mutex::default();
        let reads = self.classify(&open)?;
        let is_cold = |planned: &Planned<B>| planned.access == Access::Direct;
        // Threads that wait for a disk need no core.
        let cores = || thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let most = || if reads.iter().any(is_cold) { MOST_THREADS } else { cores() };
        let threads = self.threads.unwrap_or_else(most);
        // Enough slots to fill some while others are copied, and few enough to stay in the CPU's cache.
        let (part, copied) = if reads.iter().all(is_cold) { (COLD_PART, 3) } else { (PART, 6) };
        let slots = (self.ring / READ).min(threads as u64 * part / READ + copied).max(2);
        let parts_of = |(number, planned): (usize, &Planned<B>)| {
            planned.starts().map(move |start| (number, start)).collect::<Vec<_>>()
        };
        let parts = reads.iter().enumerate().flat_map(parts_of).collect();
        let ring = Ring::new(self.manager, self.on, READ, size(slots));
        let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure = Mutex::default();
        let shared =
            Shared { run: self, ring, threads, open, reads, parts, next, is_stopped, failure };
        shared.spawn(progress);
        shared.finish()
    }

    /// Opens a file, or finds it open. A file that changed since its header was read is refused.
    fn open(&self, files: &OpenFiles, file: usize) -> Result<Arc<Open>, Error> {
        if let Some(open) = lock(files).get(&file) {
            return Ok(Arc::clone(open));
        }
        let (disk, part) = (self.disk, &self.parts[file]);
        let at_file = |fault: Fault| Error::new(&part.path, fault);
        let cached =
            disk.open(&part.path, Access::Cached).map_err(|error| at_file(error.into()))?;
        self.check(file, &cached)?;
        // Another file may have the name by now.
        let direct = disk.open(&part.path, Access::Direct).ok();
        let direct = direct.filter(|file| disk.state(file).is_ok_and(|now| now == part.state));
        let open = Arc::new(Open { cached, direct });
        if self.parts.len() <= OPEN_FILES {
            lock(files).insert(file, Arc::clone(&open));
        }
        Ok(open)
    }

    fn check(&self, file: usize, open: &File) -> Result<(), Error> {
        let part = &self.parts[file];
        let at_file = |fault: Fault| Error::new(&part.path, fault);
        let state = self.disk.state(open).map_err(at_file)?;
        if state == part.state { Ok(()) } else { Err(at_file(ErrorKind::Changed.into())) }
    }

    /// Finds the fastest way for each read.
    fn classify(&self, files: &OpenFiles) -> Result<Vec<Planned<B>>, Error> {
        let mut planned = Vec::new();
        for of_file in self.reads.chunk_by(|one, next| one.file == next.file) {
            let open = self.open(files, of_file[0].file)?;
            self.classify_file(&open, of_file, &mut planned);
        }
        Ok(planned)
    }

    /// Divides the reads of a file into those of cached ranges, and those that only the disk has.
    fn classify_file(&self, open: &Open, reads: &[Read], planned: &mut Vec<Planned<B>>) {
        let is_cached = |read: &&Read| {
            let ask = || self.disk.is_cached(&open.cached, read.offset, read.length());
            open.direct.is_none() || ask().unwrap_or(true)
        };
        let (cached, cold): (Vec<_>, Vec<_>) = reads.iter().partition(is_cached);
        let direct = |read: &Read| Planned::new(read.clone(), Access::Direct, COLD_PART);
        planned.extend(cold.into_iter().map(direct));
        let cached: Vec<_> = cached.into_iter().flat_map(Read::wants).collect();
        // Bytes that go to host memory need no copy: each part is a read of its own.
        let is_host = |want: &Want| matches!(self.targets[want.target], Target::Host(..));
        let longest = if cached.iter().all(is_host) { PART } else { READ };
        let reads = plan_cached(cached, longest).into_iter();
        planned.extend(reads.map(|read| {
            let part = if self.goes_to_host(&read) { READ } else { PART };
            Planned::new(read, Access::Cached, part)
        }));
    }

    fn transfer(&self) -> DeviceResult<&dyn Transfer<Block = B::Block>> {
        self.manager.backend().as_transfer().ok_or(Device::Unsupported.into())
    }

    fn goes_to_host(&self, read: &Read) -> bool {
        let is_host = |target: usize| matches!(self.targets[target], Target::Host(..));
        read.pieces.iter().all(|piece| is_host(piece.target))
    }
}

impl<B: Backend> Shared<'_, B> {
    fn path(&self, file: usize) -> &Path {
        &self.run.parts[file].path
    }

    fn open(&self, file: usize) -> Result<Arc<Open>, Error> {
        self.run.open(&self.open, file)
    }

    /// Runs the threads, and reports progress from the caller's own.
    fn spawn(&self, progress: &dyn Fn(u64) -> ControlFlow<()>) {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..self.threads.min(self.parts.len()) {
                let sender = sender.clone();
                let read = move || self.read(&sender);
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, read) {
                    self.fail(Error::new(Path::new(""), ErrorKind::Io(error)));
                }
            }
            drop(sender);
            for arrived in &receiver {
                // Bytes that have arrived meanwhile are told at once: the caller may be slow, Python with a lock of its
                // own.
                if progress(arrived + receiver.try_iter().sum::<u64>()).is_break() {
                    self.fail(Error::new(Path::new(""), ErrorKind::Cancelled));
                }
            }
        });
    }

    fn fail(&self, error: Error) {
        // The first failure is the cause; others may follow from it.
        lock(&self.failure).get_or_insert(error);
        self.is_stopped.store(true, Ordering::Relaxed);
        self.ring.stop();
    }

    /// Waits for the copies; tells the failure, or that a file changed.
    fn finish(self) -> Result<(), Error> {
        let failure = lock(&self.failure).take();
        let unchanged = || {
            let files: std::collections::BTreeSet<_> =
                self.run.reads.iter().map(|read| read.file).collect();
            files.into_iter().try_for_each(|file| self.run.check(file, &self.open(file)?.cached))
        };
        let checked = failure.map_or_else(unchanged, Err);
        let device = |error| Error::new(Path::new(""), ErrorKind::Device(error));
        let finished = self.ring.finish().map_err(device);
        checked.and(finished)
    }

    /// Reads parts until there are no more.
    fn read(&self, sender: &Sender<u64>) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&(number, start)) = self.parts.get(next) else { return };
            let planned = &self.reads[number];
            match self.read_part(planned, start) {
                Ok(false) => {}
                // Nobody listens any more only when the load ends.
                Ok(true) => drop(sender.send(planned.read.payload())),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Reads a part of a read, and starts its copies if it was the last one; returns whether it was.
    fn read_part(&self, planned: &Planned<B>, start: u64) -> Result<bool, Error> {
        let Planned { read, access, part, left, slot } = planned;
        let open = self.open(read.file)?;
        if *access == Access::Cached && self.run.goes_to_host(read) {
            return self.read_to_host(read, &open).map(|()| true);
        }
        let Some(slot) = slot.get_or_init(|| self.take(read)) else { return Ok(false) };
        let end = read.needs.min(start + part);
        self.fill(slot, read, start..end, &open, *access)?;
        // Bytes that other threads read are visible to the one that starts the copies.
        let is_last = left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.deliver(Arc::clone(slot), read)?;
        }
        Ok(is_last)
    }

    /// Takes a slot for a read. `None` once the load has stopped.
    fn take(&self, read: &Read) -> Option<Arc<Slot<B>>> {
        let taken = self.ring.take();
        taken.unwrap_or_else(|kind| {
            self.fail(Error::new(self.path(read.file), Fault::at(read.offset, kind)));
            None
        })
    }

    /// Reads the pieces to where they belong, without a slot.
    fn read_to_host(&self, read: &Read, open: &Open) -> Result<(), Error> {
        let is_next = |one: &Piece, next: &Piece| one.at + one.size == next.at;
        for pieces in read.pieces.chunk_by(is_next) {
            let buffers: Option<Vec<_>> = pieces.iter().map(|piece| self.buffer(piece)).collect();
            let mut buffers = buffers.expect("all pieces go to the host");
            let offset = read.offset + pieces[0].at;
            // SAFETY: no other read has these bytes.
            unsafe { self.read_exact(read.file, &open.cached, offset, &mut buffers) }?;
        }
        Ok(())
    }

    /// Returns the host memory of a piece.
    fn buffer(&self, piece: &Piece) -> Option<Buffer> {
        let Target::Host(start, _) = &self.run.targets[piece.target] else { return None };
        // SAFETY: `run`'s caller promises that the target has the piece.
        let start = unsafe { start.add(size(piece.target_offset)) };
        Some(Buffer { start: start.as_ptr(), length: size(piece.size) })
    }

    /// Fills a slot with bytes of a read.
    fn fill(
        &self,
        slot: &Slot<B>,
        read: &Read,
        part: Range<u64>,
        open: &Open,
        access: Access,
    ) -> Result<(), Error> {
        let offset = read.offset + part.start;
        if let (Access::Direct, Some(direct)) = (access, &open.direct) {
            // Whole units of the disk. The next part starts behind them: parts are whole units too.
            let end = part.end.next_multiple_of(ALIGN);
            let buffer = slot.buffer(size(part.start), size(end));
            // SAFETY: parts do not overlap, and each is read by one thread.
            let arrived = unsafe { self.run.disk.read(direct, offset, &[buffer]) };
            if arrived.is_ok_and(|arrived| arrived as u64 >= part.end - part.start) {
                return Ok(());
            }
            // Refused, or short: the way through the page cache takes every read, and names the error if it is one.
        }
        let buffer = slot.buffer(size(part.start), size(part.end));
        // SAFETY: nobody else has this part of the slot.
        unsafe { self.read_exact(read.file, &open.cached, offset, &mut [buffer]) }
    }

    /// Fills buffers through the page cache, one after the other.
    ///
    /// # Safety
    ///
    /// As for [`Disk::read`].
    unsafe fn read_exact(
        &self,
        file: usize,
        open: &File,
        mut offset: u64,
        mut buffers: &mut [Buffer],
    ) -> Result<(), Error> {
        while !buffers.is_empty() {
            let fail = |kind| Error::new(self.path(file), Fault::at(offset, kind));
            // SAFETY: the caller's promise, for what is left of the buffers.
            match unsafe { self.run.disk.read(open, offset, buffers) } {
                // The header said that there is more.
                Ok(0) => return Err(fail(ErrorKind::Changed)),
                Ok(arrived) => {
                    offset += arrived as u64;
                    buffers = skip(buffers, arrived);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fail(ErrorKind::Io(error))),
            }
        }
        Ok(())
    }

    /// Starts the copies of a filled slot.
    fn deliver(&self, slot: Arc<Slot<B>>, read: &Read) -> Result<(), Error> {
        let device = |error| {
            Error::new(self.path(read.file), Fault::at(read.offset, ErrorKind::Device(error)))
        };
        match self.copy(&slot, read) {
            Ok(()) => self.ring.send(slot).map_err(device),
            Err(error) => {
                self.ring.abandon(slot);
                Err(device(error))
            }
        }
    }

    fn copy(&self, slot: &Slot<B>, read: &Read) -> DeviceResult<()> {
        let manager = self.run.manager;
        let align = manager.caps().copy.align;
        slot.flush(manager, read.needs)?;
        let binding = slot.staging().map(Allocation::binding);
        let mut moves = Vec::with_capacity(read.pieces.len());
        for piece in &read.pieces {
            // SAFETY: the plan keeps pieces inside the read, which fits the slot.
            let from = unsafe { slot.start().add(size(piece.at)) };
            match &self.run.targets[piece.target] {
                Target::Host(start, _) => {
                    // SAFETY: `run`'s caller promises that the target has the piece.
                    let to = unsafe { start.add(size(piece.target_offset)) };
                    // SAFETY: both have the piece's bytes, and nothing else writes either now.
                    unsafe { bytes::copy(from, to, size(piece.size)) };
                }
                Target::Device(place) => {
                    let to = BlockOffset { offset: place.offset + piece.target_offset, ..*place };
                    let at = slot.offset(piece.at);
                    let is_whole = align.divides(at) && align.divides(piece.size);
                    match binding.as_ref().filter(|_| is_whole) {
                        Some(binding) => {
                            let from = binding.place(at, piece.size)?;
                            moves.push(Move { from, to, size: piece.size });
                        }
                        // SAFETY: the read has filled the slot, and only this thread uses it.
                        None => unsafe { self.write(to, from, piece.size) }?,
                    }
                }
            }
        }
        if moves.is_empty() { Ok(()) } else { self.run.transfer()?.copy(self.run.on, &moves) }
    }

    /// Writes a piece that the device cannot copy from the slot: because the slot is the host's own, or because the piece does not start or
    /// end at a unit of the device's copies. Its target has room for whole units.
    ///
    /// # Safety
    ///
    /// From `from` on, `length` bytes were written, and nothing writes them during the call.
    unsafe fn write(
        &self,
        to: BlockOffset<'_, B::Block>,
        from: NonNull<u8>,
        length: u64,
    ) -> DeviceResult<()> {
        let align = self.run.manager.caps().copy.align;
        let (transfer, whole) = (self.run.transfer()?, align.down(length));
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice::from_raw_parts(from.as_ptr(), size(length)) };
        let (units, rest) = bytes.split_at(size(whole));
        if !units.is_empty() {
            transfer.write(self.run.on, to, units)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        // Less than a unit, which is small.
        let mut last = vec![0; size(align.get())];
        last[..rest.len()].copy_from_slice(rest);
        transfer.write(self.run.on, BlockOffset { offset: to.offset + whole, ..to }, &last)
    }
}
