//! Runs a plan: reads files by the fastest way that each range allows, and starts copies as pieces arrive.
#![expect(unsafe_code, reason = "reads into raw memory")]

use crate::disk::{Access, Buffer, Disk, Queue, size, skip};
use crate::error::{Error, ErrorKind, Fault};
use crate::file::Part;
use crate::plan::{ALIGN, COLD, PART, Piece, READ, Read, Want, plan_cached, plan_cold};
use crate::ring::{Patience, Ring, Slot};
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use omniheap_core::{
    Backend, BlockOffset, ErrorKind as Device, Manager, Move, Result as DeviceResult, TimelineId,
    Transfer, bytes,
};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Files that stay open during a load; more are opened again when they are needed.
const OPEN_FILES: usize = 128;
/// Most slots where all bytes are on disk: some are filled while others are copied.
const COLD_SLOTS: u64 = 32;

/// Where bytes go.
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
    pub(crate) threads: usize,
}

/// A file while it is read.
struct Open {
    cached: File,
    /// `None` where the file system has no direct I/O.
    direct: Option<File>,
}

/// Files that are open, by number.
type OpenFiles = Mutex<HashMap<usize, Arc<Open>>>;
/// Reads for threads, in order.
type WarmReads<B> = Vec<Warm<B>>;
/// Reads for the queue, in order.
type ColdReads = Vec<Read>;

/// A read that threads make, part by part.
struct Warm<B: Backend> {
    read: Read,
    access: Access,
    /// Bytes of a part.
    part: u64,
    /// Parts that are not read yet.
    left: AtomicUsize,
    /// What the parts fill, taken by whoever reads the first of them; `None` in it where the load has stopped.
    slot: OnceLock<Option<Arc<Slot<B>>>>,
}

impl<B: Backend> Warm<B> {
    fn new(read: Read, access: Access, part: u64) -> Self {
        let left = AtomicUsize::new(size(read.needs.div_ceil(part)));
        Self { read, access, part, left, slot: OnceLock::new() }
    }

    /// Returns where each part starts.
    fn starts(&self) -> impl Iterator<Item = u64> {
        (0..self.read.needs).step_by(size(self.part))
    }
}

/// Reads, by the way that is the fastest for each.
struct Ways<B: Backend> {
    warm: WarmReads<B>,
    cold: ColdReads,
}

/// State that the threads of a load share.
struct Shared<'a, B: Backend> {
    run: &'a Run<'a, B>,
    ring: Ring<'a, B>,
    slots: usize,
    open: OpenFiles,
    warm: WarmReads<B>,
    /// Parts of warm reads in order: number of the read, first byte in it.
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
        let Ways { mut warm, cold } = self.classify(&open)?;
        // So few slots that they stay in the processor's cache: some are filled while others are copied.
        let (bytes, most) = match (warm.is_empty(), cold.is_empty()) {
            (true, _) => (COLD, COLD_SLOTS),
            (_, true) => (READ, self.threads as u64 * PART / READ + 6),
            _ => (READ, u64::MAX),
        };
        let slots = size((self.ring / bytes).min(most).max(2));
        let queue = if cold.is_empty() { None } else { self.queue(slots) };
        if queue.is_none() {
            // No `io_uring` here: threads read past the page cache.
            let direct = |read: &Read| Warm::new(read.clone(), Access::Direct, COLD);
            warm.extend(cold.iter().map(direct));
        }
        let parts_of = |(number, warm): (usize, &Warm<B>)| {
            warm.starts().map(move |start| (number, start)).collect::<Vec<_>>()
        };
        let parts = warm.iter().enumerate().flat_map(parts_of).collect();
        let ring = Ring::new(self.manager, self.on, bytes, slots);
        let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure = Mutex::default();
        let shared =
            Shared { run: self, ring, slots, open, warm, parts, next, is_stopped, failure };
        shared.spawn(queue.map(|queue| (queue, cold)), progress);
        shared.finish()
    }

    fn queue(&self, depth: usize) -> Option<SendQueue> {
        // The kernel takes some thousands at most.
        let depth = u32::try_from(depth).unwrap_or(u32::MAX).min(1024);
        self.disk.queue(depth).ok().map(SendQueue)
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
    fn classify(&self, files: &OpenFiles) -> Result<Ways<B>, Error> {
        let mut ways = Ways { warm: Vec::new(), cold: Vec::new() };
        for of_file in self.reads.chunk_by(|one, next| one.file == next.file) {
            let open = self.open(files, of_file[0].file)?;
            self.classify_file(&open, of_file, &mut ways);
        }
        Ok(ways)
    }

    /// Divides the reads of a file into those of cached ranges, and those that only the disk has.
    fn classify_file(&self, open: &Open, reads: &[Read], ways: &mut Ways<B>) {
        let is_cached = |read: &&Read| {
            let ask = || self.disk.is_cached(&open.cached, read.offset, read.length());
            open.direct.is_none() || ask().unwrap_or(true)
        };
        let (cached, cold): (Vec<_>, Vec<_>) = reads.iter().partition(is_cached);
        let wants = |reads: Vec<&Read>| reads.into_iter().flat_map(Read::wants).collect::<Vec<_>>();
        let (cached, cold) = (wants(cached), wants(cold));
        ways.cold.extend(plan_cold(cold));
        // What goes to host memory needs no copy: each part is a read of its own.
        let is_host = |want: &Want| matches!(self.targets[want.target], Target::Host(..));
        let longest = if cached.iter().all(is_host) { PART } else { READ };
        let reads = plan_cached(cached, longest).into_iter();
        ways.warm.extend(reads.map(|read| {
            let part = if self.goes_to_host(&read) { READ } else { PART };
            Warm::new(read, Access::Cached, part)
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

/// A queue on its way to the thread that uses it.
struct SendQueue(Box<dyn Queue>);

// SAFETY: no read runs when it moves to its thread, where it stays.
unsafe impl Send for SendQueue {}

impl<B: Backend> Shared<'_, B> {
    fn path(&self, file: usize) -> &Path {
        &self.run.parts[file].path
    }

    fn open(&self, file: usize) -> Result<Arc<Open>, Error> {
        self.run.open(&self.open, file)
    }

    /// Runs the threads, and reports progress from the caller's own.
    fn spawn(
        &self,
        cold: Option<(SendQueue, ColdReads)>,
        progress: &dyn Fn(u64) -> ControlFlow<()>,
    ) {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let start = |read: Box<dyn FnOnce() + Send>| {
                let started = thread::Builder::new().spawn_scoped(scope, read);
                if let Err(error) = started {
                    self.fail(Error::new(Path::new(""), ErrorKind::Io(error)));
                }
            };
            for _ in 0..self.run.threads.min(self.parts.len()) {
                let sender = sender.clone();
                start(Box::new(move || self.read_warm(&sender)));
            }
            if let Some((queue, reads)) = cold {
                let sender = sender.clone();
                start(Box::new(move || self.read_cold(queue, &reads, &sender)));
            }
            drop(sender);
            for arrived in &receiver {
                // What has arrived meanwhile is told at once: the caller may be slow, Python with a lock of its own.
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

    fn read_warm(&self, sender: &Sender<u64>) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&(number, start)) = self.parts.get(next) else { return };
            let warm = &self.warm[number];
            match self.read_part(warm, start) {
                Ok(false) => {}
                // Nobody listens any more only when the load ends.
                Ok(true) => drop(sender.send(warm.read.payload())),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Reads a part of a read, and starts its copies if it was the last one; returns whether it was.
    fn read_part(&self, warm: &Warm<B>, start: u64) -> Result<bool, Error> {
        let Warm { read, access, part, left, slot } = warm;
        let open = self.open(read.file)?;
        if *access == Access::Cached && self.run.goes_to_host(read) {
            return self.read_to_host(read, &open).map(|()| true);
        }
        let Some(slot) = slot.get_or_init(|| self.take(read)) else { return Ok(false) };
        let end = read.needs.min(start + part);
        self.fill(slot, read, start..end, &open, *access)?;
        // What other threads read is seen by the one that starts the copies.
        let is_last = left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.deliver(Arc::clone(slot), read)?;
        }
        Ok(is_last)
    }

    /// Takes a slot for a read. `None` once the load has stopped.
    fn take(&self, read: &Read) -> Option<Arc<Slot<B>>> {
        let taken = self.ring.take(Patience::Wait);
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
        if let (Access::Direct, Some(direct)) = (access, &open.direct) {
            let buffer = slot.buffer(0, size(read.length()));
            // SAFETY: direct reads have one part: the slot is ours alone.
            let arrived = unsafe { self.run.disk.read(direct, read.offset, &[buffer]) };
            if arrived.is_ok_and(|arrived| arrived as u64 >= read.needs) {
                return Ok(());
            }
            // Refused, or short: the way through the page cache takes every read, and names the error if it is one.
        }
        let buffer = slot.buffer(size(part.start), size(part.end));
        let offset = read.offset + part.start;
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
        let binding = slot.allocation().binding();
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
                    if align.divides(at) && align.divides(piece.size) {
                        let from = binding.place(at, piece.size)?;
                        moves.push(Move { from, to, size: piece.size });
                    } else {
                        self.write_padded(to, from, piece.size)?;
                    }
                }
            }
        }
        if moves.is_empty() { Ok(()) } else { self.run.transfer()?.copy(self.run.on, &moves) }
    }

    /// Writes a piece that does not start or end at a unit of the device's copies; its target has room for whole units.
    fn write_padded(
        &self,
        to: BlockOffset<'_, B::Block>,
        from: NonNull<u8>,
        length: u64,
    ) -> DeviceResult<()> {
        let padded = self.run.manager.caps().copy.align.up(length).ok_or(Device::SizeOverflow)?;
        let mut whole = vec![0; size(padded)];
        // SAFETY: the slot has `length` bytes from `from` on, and only this thread uses it.
        unsafe { bytes::read(from, &mut whole[..size(length)]) };
        self.run.transfer()?.write(self.run.on, to, &whole)
    }

    /// Reads past the page cache, as many reads at a time as there are slots.
    fn read_cold(&self, queue: SendQueue, reads: &[Read], sender: &Sender<u64>) {
        let mut cold = Cold { shared: self, reads, queue: queue.0, running: HashMap::new() };
        if let Err(error) = cold.run(sender) {
            self.fail(error);
        }
        // The queue waits for its reads before the slots go.
        let Cold { queue, running, .. } = cold;
        drop(queue);
        running.into_values().for_each(|one| self.ring.put(one.slot));
    }
}

/// A read in the queue.
struct Running<B: Backend> {
    slot: Arc<Slot<B>>,
    open: Arc<Open>,
    done: usize,
}

/// The thread that drives the queue.
struct Cold<'a, B: Backend> {
    shared: &'a Shared<'a, B>,
    reads: &'a [Read],
    queue: Box<dyn Queue>,
    /// Reads that the kernel has, by number.
    running: HashMap<usize, Running<B>>,
}

impl<B: Backend> Cold<'_, B> {
    fn run(&mut self, sender: &Sender<u64>) -> Result<(), Error> {
        let depth = self.shared.slots.min(1024);
        let mut next = 0;
        while next < self.reads.len() || !self.running.is_empty() {
            if self.shared.is_stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            let may_begin = next < self.reads.len() && self.running.len() < depth;
            match may_begin {
                true if self.begin(next)? => next += 1,
                _ if self.running.is_empty() => {}
                _ => self.end_one(sender)?,
            }
        }
        Ok(())
    }

    fn fail(&self, number: usize, kind: ErrorKind) -> Error {
        let read = &self.reads[number];
        Error::new(self.shared.path(read.file), Fault::at(read.offset, kind))
    }

    /// Starts a read; returns whether there was a slot for it.
    fn begin(&mut self, number: usize) -> Result<bool, Error> {
        let read = &self.reads[number];
        let open = self.shared.open(read.file)?;
        // Slots that other threads fill come back by themselves, those in the queue only if it is waited for.
        let patience = if self.running.is_empty() { Patience::Wait } else { Patience::Never };
        let slot = self.shared.ring.take(patience).map_err(|kind| self.fail(number, kind))?;
        let Some(slot) = slot else { return Ok(false) };
        self.running.insert(number, Running { slot, open, done: 0 });
        self.submit(number).map(|()| true)
    }

    /// Asks for what a read still lacks.
    fn submit(&mut self, number: usize) -> Result<(), Error> {
        let read = &self.reads[number];
        let one = &self.running[&number];
        let file = one.open.direct.as_ref().unwrap_or(&one.open.cached);
        let buffer = one.slot.buffer(one.done, size(read.length()));
        let offset = read.offset + one.done as u64;
        // SAFETY: slot and file stay in `running` until the read has ended or the queue was dropped.
        let started = unsafe { self.queue.start(file, offset, buffer, number as u64) };
        started.map_err(|error| self.fail(number, ErrorKind::Io(error)))
    }

    /// Waits for a read and starts its copies.
    fn end_one(&mut self, sender: &Sender<u64>) -> Result<(), Error> {
        let no_file = |error| Error::new(Path::new(""), ErrorKind::Io(error));
        let (token, arrived) = self.queue.wait().map_err(no_file)?;
        let number = size(token);
        let read = &self.reads[number];
        let one = self.running.get_mut(&number).expect("the queue returns what it was given");
        if let Ok(arrived) = arrived {
            one.done += arrived;
            let is_whole = one.done as u64 >= read.needs;
            // A read may be cut anywhere; direct I/O goes on from an aligned place only.
            if !is_whole && arrived > 0 && (one.done as u64).is_multiple_of(ALIGN) {
                return self.submit(number);
            }
        }
        let Running { slot, open, done } = self.running.remove(&number).expect("found above");
        if (done as u64) < read.needs
            && let Err(error) = self.shared.fill(&slot, read, 0..read.needs, &open, Access::Cached)
        {
            self.shared.ring.put(slot);
            return Err(error);
        }
        self.shared.deliver(slot, read)?;
        // Nobody listens any more only when the load ends.
        let _ = sender.send(read.payload());
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
