//! One arena of host memory for a process: taken from the system ahead of time, kept, and divided.
//!
//! The first touch of host memory is many times slower than a copy to the device, and so is pinning it. So memory is touched by
//! several threads when the arena grows, and stays in the arena until it is trimmed.
#![expect(unsafe_code, reason = "lends parts of pieces as slices")]
use crate::available::available_host_memory;
use crate::lock;
use crate::memory::{ALIGN, Memory};
use core::iter::successors;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::strategy::{BlockId, Grant, Strategy, Tlsf};
use omniheap_core::{Align, Backend, Class, ErrorKind, HostPinner, Layout, Manager, Result};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Builder, JoinHandle};

/// Threads that pin together.
const PINNERS: usize = 4;
/// No stretch of an allocation that is divided is shorter than this, but for the last one.
const SHORT: u64 = 64 << 10;
/// Every stretch starts at, and is a multiple of, this.
const UNIT: Align = Align::of(4096);

/// Configuration of an arena.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ArenaConfig {
    /// The most bytes that are taken from the system at a time: a multiple of 2 MiB. No stretch is longer.
    pub piece: u64,
    /// Bytes that the arena never exceeds.
    pub maximum: u64,
    /// Threads that touch new memory; `None` is one for each core, 16 at most.
    pub threads: Option<usize>,
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self { piece: 256 << 20, maximum: u64::MAX, threads: None }
    }
}

/// Bytes that an arena holds and lends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaReport {
    /// Bytes held from the system, all of them touched.
    pub held: u64,
    /// Bytes lent, rounding included.
    pub used: u64,
    /// Pieces that the bytes are in.
    pub pieces: u64,
}

/// Host memory that is taken ahead of time and kept. Cheap to clone; every clone is the same arena.
#[derive(Clone, Debug)]
pub struct Arena {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ArenaConfig,
    /// The process that made it: after a fork, the child's copy of the memory is not what others see.
    process: u32,
    divided: Mutex<Divided>,
    /// Held while the arena grows, so that two threads do not both grow it for the same need.
    growing: Mutex<()>,
}

#[derive(Debug)]
struct Divided {
    strategy: Tlsf,
    pieces: Vec<Option<Arc<Memory>>>,
}

impl Arena {
    /// Creates an arena that holds nothing yet.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` where `piece` is zero or no multiple of 2 MiB.
    pub fn with_config(config: ArenaConfig) -> Result<Self> {
        if config.piece == 0 || !config.piece.is_multiple_of(ALIGN as u64) {
            let why = "the arena's `piece` is not a multiple of 2 MiB";
            return Err(ErrorKind::InvalidConfig.because(why));
        }
        Ok(Self::new(config))
    }

    fn new(config: ArenaConfig) -> Self {
        let divided = Divided { strategy: Tlsf::new(Align::ONE), pieces: Vec::new() };
        let process = std::process::id();
        let (divided, growing) = (Mutex::new(divided), Mutex::new(()));
        Self { inner: Arc::new(Inner { config, process, divided, growing }) }
    }

    /// Returns the arena of this process.
    #[must_use]
    pub fn of_process() -> &'static Self {
        static ARENA: OnceLock<Arena> = OnceLock::new();
        ARENA.get_or_init(|| Self::new(ArenaConfig::default()))
    }

    /// Returns the length of the longest stretch.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.inner.config.piece
    }

    /// Grows until `bytes` bytes are free.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory` where the machine or the control group has less, before any memory is touched; `OverBudget` above the
    /// arena's maximum.
    pub fn prepare(&self, bytes: u64) -> Result<()> {
        let Inner { config, .. } = *self.inner;
        let _growing = lock(&self.inner.growing);
        let free = lock(&self.inner.divided).strategy.free_bytes();
        let mut missing = round(bytes.saturating_sub(free))?;
        self.check_room(missing)?;
        while missing > 0 {
            let piece = missing.min(config.piece);
            self.grow(piece)?;
            missing -= piece;
        }
        Ok(())
    }

    /// Has a device pin all memory that the arena holds, so that copies run at the speed of the link.
    fn pin(&self, pinner: &HostPinner<'_>, is_stopped: &AtomicBool) {
        let pieces: Vec<_> = lock(&self.inner.divided).pieces.iter().flatten().cloned().collect();
        let pin = |some: &[Arc<Memory>]| {
            let mut wanted = some.iter().take_while(|_| !is_stopped.load(Relaxed));
            wanted.find_map(|piece| piece.pin(pinner).err())
        };
        let share = pieces.len().div_ceil(PINNERS).max(1);
        let failed = thread::scope(|scope| {
            let start =
                |some| Builder::new().spawn_scoped(scope, move || pin(some)).map_err(|_| some);
            let parts: Vec<_> = pieces.chunks(share).map(start).collect();
            // Parts that got no thread are pinned by this one.
            parts.into_iter().find_map(|part| part.map_or_else(pin, |part| part.join().ok()?))
        });
        if let Some(error) = failed.filter(|error| error.kind() != ErrorKind::Unsupported) {
            tracing::warn!(%error, "host memory was not pinned: copies take longer");
        }
    }

    /// Grows until the arena has `bytes` bytes, lent ones included, and has a device pin them, piece after piece. A sleep at the same
    /// time uses what is ready.
    ///
    /// # Errors
    ///
    /// As for [`prepare`](Self::prepare). What the device does not pin is logged, and copied slower.
    pub fn prepare_pinned(&self, backend: &impl Backend, bytes: u64) -> Result<()> {
        self.prepare_pinned_unless(backend, bytes, &AtomicBool::new(false))
    }

    /// As [`prepare_pinned`](Self::prepare_pinned), until it is stopped.
    fn prepare_pinned_unless(
        &self,
        backend: &impl Backend,
        bytes: u64,
        is_stopped: &AtomicBool,
    ) -> Result<()> {
        let missing = |now: &ArenaReport| bytes.saturating_sub(now.held);
        HostPinner::lend(backend, |pinner| self.grow_pinned_unless(pinner, missing, is_stopped))
    }

    /// Grows until nothing is missing of what is wanted, and has a device pin all that the arena holds: each piece while the next is touched,
    /// because touching takes longest.
    pub(crate) fn grow_pinned(
        &self,
        pinner: &HostPinner<'_>,
        missing: impl Fn(&ArenaReport) -> u64,
    ) -> Result<()> {
        self.grow_pinned_unless(pinner, missing, &AtomicBool::new(false))
    }

    /// As [`grow_pinned`](Self::grow_pinned), until it is stopped.
    fn grow_pinned_unless(
        &self,
        pinner: &HostPinner<'_>,
        missing: impl Fn(&ArenaReport) -> u64,
        is_stopped: &AtomicBool,
    ) -> Result<()> {
        self.check_room(round(missing(&self.report()))?)?;
        thread::scope(|scope| {
            loop {
                if is_stopped.load(Relaxed) {
                    return Ok(());
                }
                let now = self.report();
                let more = round(missing(&now))?;
                if more > 0 {
                    self.prepare(now.held - now.used + more.min(self.longest()))?;
                }
                let pin = || self.pin(pinner, is_stopped);
                if Builder::new().spawn_scoped(scope, pin).is_err() {
                    pin();
                }
                if more <= self.longest() {
                    return Ok(());
                }
            }
        })
    }

    /// As [`prepare_pinned`](Self::prepare_pinned), by a thread in the background: call it while the program loads, and the first sleep
    /// is as fast as those behind it. Failures are logged, and met again by whoever takes.
    ///
    /// The thread keeps the device alive until it has finished or what is returned is dropped. A device that was wrapped must outlive it.
    pub fn prepare_pinned_ahead<B: Backend + 'static>(
        &self,
        manager: &Manager<B>,
        bytes: u64,
    ) -> Preparation {
        let (arena, manager) = (self.clone(), manager.clone());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let prepare = move || arena.prepare_pinned_unless(manager.backend(), bytes, &stopped);
        Preparation { is_stopped, process: std::process::id(), thread: ahead(bytes, prepare) }
    }

    /// Takes a stretch of `bytes` bytes. Its contents are unspecified, but initialized.
    ///
    /// # Errors
    ///
    /// `ZeroSize`, `ExceedsLimit` above [`longest`](Self::longest), and as for [`prepare`](Self::prepare); `Unsupported` in a
    /// process that was forked from the arena's.
    pub fn take(&self, bytes: u64) -> Result<Stretch> {
        let size = usize::try_from(bytes).map_err(|_| ErrorKind::ExceedsLimit)?;
        if size == 0 || bytes > self.longest() {
            let kind = if size == 0 { ErrorKind::ZeroSize } else { ErrorKind::ExceedsLimit };
            return Err(kind.into());
        }
        self.check_own()?;
        if let Some(stretch) = self.find(size) {
            return Ok(stretch);
        }
        let _growing = lock(&self.inner.growing);
        if let Some(stretch) = self.find(size) {
            return Ok(stretch); // Another thread grew the arena meanwhile.
        }
        // Growing by as much as is held keeps the number of pieces low, and what is too much small.
        let held = lock(&self.inner.divided).strategy.total_bytes();
        let wish = round(bytes.max(held).min(self.inner.config.piece))?;
        let exact = round(bytes)?;
        if self.check_room(wish).and_then(|()| self.grow(wish)).is_err() {
            self.check_room(exact)?;
            self.grow(exact)?;
        }
        self.find(size).ok_or(ErrorKind::OutOfHostMemory.into())
    }

    /// Takes a stretch of at most `bytes` bytes: a shorter one rather than new memory, which is neither touched nor pinned.
    pub(crate) fn take_up_to(&self, bytes: u64) -> Result<Stretch> {
        self.check_own()?;
        let whole = bytes.min(self.longest());
        let halves = successors(Some(whole), |size| Some(size / 2 / SHORT * SHORT));
        let mut sizes = halves.take_while(|size| *size == whole || *size >= SHORT);
        let found = sizes.find_map(|size| self.find(usize::try_from(size).ok()?));
        found.map_or_else(|| self.take(whole), Ok)
    }

    fn check_own(&self) -> Result<()> {
        let foreign = || ErrorKind::Unsupported.because("the arena belongs to the parent process");
        (std::process::id() == self.inner.process).then_some(()).ok_or_else(foreign)
    }

    fn find(&self, size: usize) -> Option<Stretch> {
        let layout = Layout { size: UNIT.up(size as u64)?, align: UNIT };
        let mut divided = lock(&self.inner.divided);
        let grant = divided.strategy.allocate(layout, Class::Linear).ok()?;
        let memory = divided.pieces.get(grant.block.0 as usize)?.clone()?;
        let start = memory.at(usize::try_from(grant.span.offset).ok()?);
        Some(Stretch { arena: self.clone(), _memory: memory, grant, start, size })
    }

    /// Refuses what the arena may not hold, or the machine does not have.
    fn check_room(&self, bytes: u64) -> Result<()> {
        let held = lock(&self.inner.divided).strategy.total_bytes();
        if held.checked_add(bytes).is_none_or(|sum| sum > self.inner.config.maximum) {
            return Err(ErrorKind::OverBudget.because("the arena's `maximum` is lower"));
        }
        if available_host_memory().is_some_and(|left| left < bytes) {
            let why = "the machine or its control group has less host memory available";
            return Err(ErrorKind::OutOfHostMemory.because(why));
        }
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get().min(16));
        let threads = self.inner.config.threads.unwrap_or_else(cores);
        let size = usize::try_from(bytes).map_err(|_| ErrorKind::ExceedsLimit)?;
        let memory = Arc::new(Memory::take(size, threads)?);
        let mut divided = lock(&self.inner.divided);
        let at = divided.strategy.add_block(bytes)?.0 as usize;
        if at == divided.pieces.len() {
            divided.pieces.push(None);
        }
        divided.pieces[at] = Some(memory);
        Ok(())
    }

    /// Returns empty pieces to the system. Returns the number of bytes.
    pub fn trim(&self) -> u64 {
        let mut divided = lock(&self.inner.divided);
        let Divided { strategy, pieces } = &mut *divided;
        let mut returned = Vec::new();
        for (id, piece) in (0u32..).map(BlockId).zip(pieces) {
            if piece.is_some() && strategy.is_empty(id) && strategy.remove_block(id).is_ok() {
                returned.extend(piece.take());
            }
        }
        drop(divided);
        returned.iter().map(|memory| memory.size() as u64).sum()
    }

    /// Returns what the arena holds.
    #[must_use]
    pub fn report(&self) -> ArenaReport {
        let divided = lock(&self.inner.divided);
        let (held, free) = (divided.strategy.total_bytes(), divided.strategy.free_bytes());
        let pieces = divided.pieces.iter().flatten().count() as u64;
        ArenaReport { held, used: held - free, pieces }
    }
}

/// A thread that prepares memory of an arena. Dropping this stops it, and waits for the piece that it is at.
#[derive(Debug)]
#[must_use = "dropping it stops the preparation; `detach` lets it go on"]
pub struct Preparation {
    is_stopped: Arc<AtomicBool>,
    /// The process that started the thread: a forked child has a copy of this value, and no such thread to wait for.
    process: u32,
    /// None once it is detached, and where the system started no thread.
    thread: Option<JoinHandle<()>>,
}

impl Preparation {
    /// Lets the thread go on until the memory is prepared.
    pub fn detach(mut self) {
        self.thread = None;
    }

    /// Returns whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.process == std::process::id()) {
            self.is_stopped.store(true, Relaxed);
            // A panic of the thread was printed, and left the arena as it was.
            let _ = thread.join();
        }
    }
}

/// Grows an arena by a thread in the background. Returns nothing where the system starts none.
fn ahead(bytes: u64, grow: impl FnOnce() -> Result<()> + Send + 'static) -> Option<JoinHandle<()>> {
    let grow = move || {
        if let Err(error) = grow() {
            tracing::warn!(%error, bytes, "host memory was not prepared");
        }
    };
    let name = String::from("omniheap-arena");
    let started = Builder::new().name(name).spawn(grow);
    started.inspect_err(|error| tracing::warn!(%error, "no thread to prepare host memory")).ok()
}

/// Rounds to what is taken from the system.
fn round(bytes: u64) -> Result<u64> {
    Ok(bytes.checked_next_multiple_of(ALIGN as u64).ok_or(ErrorKind::SizeOverflow)?)
}

/// A part of an arena, owned. Dropping it gives it back.
#[derive(Debug)]
pub struct Stretch {
    arena: Arena,
    /// Keeps the bytes mapped.
    _memory: Arc<Memory>,
    grant: Grant,
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: it owns its bytes: the strategy lends them to nobody else until it is dropped.
unsafe impl Send for Stretch {}
// SAFETY: shared references only read the bytes.
unsafe impl Sync for Stretch {}

impl Stretch {
    /// Returns the bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: the strategy granted `size` bytes from `start` on to this value alone; the system zeroed them before their
        // first use, so they are initialized, and `_memory` keeps them mapped.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    /// Returns the bytes, to write them.
    #[must_use]
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` makes this the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }

    /// Overwrites the bytes with zeros, also where nobody reads them any more.
    pub fn wipe(&mut self) {
        self.bytes_mut().fill(0);
        core::hint::black_box(self.bytes());
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        let freed = lock(&self.arena.inner.divided).strategy.free(self.grant.key);
        debug_assert!(freed.is_ok(), "a stretch is live until it is dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Arena {
        let config = ArenaConfig { piece: 4 << 20, threads: Some(2), ..ArenaConfig::default() };
        Arena::with_config(config).expect("a valid setting")
    }

    #[test]
    fn stretches_are_apart_and_what_is_empty_goes_back() {
        let arena = small();
        let mut all: Vec<_> = (0..64u8)
            .map(|number| {
                let mut stretch = arena.take(100_000).expect("room");
                stretch.bytes_mut().fill(number);
                stretch
            })
            .collect();
        for (number, stretch) in (0u8..).zip(&all) {
            assert!(stretch.bytes().iter().all(|byte| *byte == number));
        }
        let full = arena.report();
        assert!(full.used >= 64 * 100_000 && full.held >= full.used && full.pieces > 1);
        all.truncate(1);
        assert!(arena.trim() > 0);
        all.clear();
        arena.trim();
        assert_eq!(arena.report(), ArenaReport::default());
    }

    #[test]
    fn what_is_prepared_is_taken_without_growing() {
        let arena = small();
        arena.prepare(10 << 20).expect("room");
        let before = arena.report();
        assert_eq!((before.held, before.pieces), (10 << 20, 3));
        let taken: Vec<_> = (0..2).map(|_| arena.take(4 << 20).expect("room")).collect();
        assert_eq!(arena.report().held, before.held);
        drop(taken);
        arena.prepare(10 << 20).expect("it is free");
        assert_eq!(arena.report().held, before.held);
    }

    #[test]
    fn what_can_not_be_is_refused_before_memory_is_touched() {
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        let arena = small();
        assert_eq!(kind(arena.take(0).map(drop)), Err(ErrorKind::ZeroSize));
        assert_eq!(kind(arena.take((4 << 20) + 1).map(drop)), Err(ErrorKind::ExceedsLimit));
        assert_eq!(kind(arena.prepare(1 << 60)), Err(ErrorKind::OutOfHostMemory));
        assert_eq!(kind(arena.prepare(u64::MAX)), Err(ErrorKind::SizeOverflow));
        assert_eq!(arena.report(), ArenaReport::default());
        let config = ArenaConfig { maximum: 4 << 20, piece: 2 << 20, ..ArenaConfig::default() };
        let arena = Arena::with_config(config).expect("a valid setting");
        assert_eq!(kind(arena.prepare(5 << 20)), Err(ErrorKind::OverBudget));
        let odd = ArenaConfig { piece: 5, ..config };
        assert_eq!(kind(Arena::with_config(odd).map(drop)), Err(ErrorKind::InvalidConfig));
    }

    #[test]
    fn a_child_takes_nothing() {
        let mut arena = small();
        arena.prepare(4 << 20).expect("room");
        Arc::get_mut(&mut arena.inner).expect("nobody else has it").process += 1; // As in a child.
        for taken in [arena.take(64), arena.take_up_to(64)] {
            assert_eq!(taken.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
        }
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_it_does_not_have() {
        for (later, is_told) in [(0, true), (1, false)] {
            let process = std::process::id() + later; // 1: as in a child.
            let is_stopped = Arc::new(AtomicBool::new(false));
            let thread = Some(thread::spawn(|| ()));
            drop(Preparation { is_stopped: Arc::clone(&is_stopped), process, thread });
            assert_eq!(is_stopped.load(Relaxed), is_told);
        }
    }

    #[test]
    fn a_wiped_stretch_is_zero() {
        let arena = small();
        let mut stretch = arena.take(5000).expect("room");
        stretch.bytes_mut().fill(9);
        stretch.wipe();
        assert!(stretch.bytes().iter().all(|byte| *byte == 0));
    }
}
