//! The book of one context: its manager, its live allocations by address, and frees that wait for the device.
//!
//! The driver's functions that free memory wait for the device, and programs may count on that: work submitted earlier may still use the bytes.
//! So the bytes stay out of use until that work has run. One mark of the whole device stands for many frees. The host waits for a
//! mark only when memory has run out, because the work may itself wait for the program's next call.
#![expect(unsafe_code, reason = "wraps contexts and streams of the program")]
use crate::books::Account;
use crate::live::{Live, Ordered, Resident};
use crate::real::Handle;
use crate::streams::{DONE, Left, Streams};
use crate::vendor::Vendor;
use crate::{Code, capture, gate, lock, settings};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use omniheap_core::{
    Align, AllocateError, Allocation, Backend, Caps, Defragmentation, Epoch, ErrorKind, HeapId,
    HeapKind, Limits, Manager, ManagerConfig, Point, Report, Request, Result, Sleep, Span,
    TimelineId, UserPool, Uses, Waiting, Wake,
};
use omniheap_residency::HostStore;
use omniheap_stream::{Block, BlockKind};
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Instant;

/// The driver's alignment of device memory.
pub(crate) const UNIT: u64 = 512;
/// The smallest request that gets a block of its own where programs export memory.
pub(crate) const EXPORTED: u64 = 1 << 20;
/// Bytes of frees that share one mark, which asks the driver. They are marked as the program frees, so that the device has passed
/// the mark of the earlier ones when the program wants as much again.
const SHARE: u64 = 32 << 20;
/// Time in which an idle device tells that it has passed a mark.
const MOMENT: Duration = Duration::from_micros(50);
/// Answer to orders for memory that cannot sleep.
const AWAKE: &str =
    "this memory cannot sleep: start the program with --sleepable, on one device with pages";
/// The number of the next allocation.
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// The driver's code for "out of memory".
pub(crate) const OUT_OF_MEMORY: Code = 2;

/// Returns the addresses of a block, and the offset of an allocation in it.
const fn place<K: BlockKind>(block: &Block<K>, span: Span) -> (Span, u64) {
    (Span { offset: block.address(), size: block.size() }, span.offset)
}

fn device_heap(caps: &Caps) -> Result<HeapId> {
    let device = caps.heap_ids().find(|(_, heap)| heap.kind == HeapKind::Device);
    device.map(|(id, _)| id).ok_or(ErrorKind::NoSuchHeap.into())
}

/// Returns whether a call was done; a lost device does none.
fn unless_lost(done: Result<()>) -> Result<bool> {
    match done {
        Err(error) if error.kind() == ErrorKind::DeviceLost => Err(error),
        done => Ok(done.is_ok()),
    }
}

/// An allocation, the addresses of its block, and how far behind their start it lies.
type Made<B> = (Allocation<B>, (Span, u64));

/// A freed allocation and its address.
type Freed<B> = (u64, Resident<B>);

/// Frees that wait for the device.
struct Frees<B: Backend> {
    unmarked: Vec<Freed<B>>,
    /// Bytes of those.
    bytes: u64,
    /// Those that may be given out once the device has passed a mark of all work, in the order of the marks.
    marked: VecDeque<(Epoch, Vec<Freed<B>>)>,
}

impl<B: Backend> Default for Frees<B> {
    fn default() -> Self {
        Self { unmarked: Vec::new(), bytes: 0, marked: VecDeque::new() }
    }
}

impl<B: Backend> Frees<B> {
    fn take_unmarked(&mut self) -> Vec<Freed<B>> {
        self.bytes = 0;
        core::mem::take(&mut self.unmarked)
    }

    /// Lets what was taken wait as before.
    fn put_back(&mut self, freed: Vec<Freed<B>>) {
        self.bytes += freed.iter().map(|(_, freed)| freed.size).sum::<u64>();
        self.unmarked.extend(freed);
    }
}

/// Place and size of a live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) number: u64,
    pub(crate) is_whole: bool,
}

/// The book of one context.
pub(crate) struct Book<V: Vendor> {
    context: usize,
    pub(crate) ordinal: i32,
    manager: Manager<V::Gpu>,
    /// The pool of all memory; it sleeps where that is wanted and the device has pages.
    pool: UserPool<V::Gpu>,
    /// The pool of blocks of their own.
    wholes: UserPool<V::Gpu>,
    heap: HeapId,
    live: Mutex<Live<V::Gpu>>,
    /// Frees that wait for the device.
    frees: Mutex<Frees<V::Gpu>>,
    /// Held by whoever takes these frees, until they are given back or wait again.
    turn: Mutex<()>,
    /// Bytes of all frees that wait.
    waiting_bytes: AtomicU64,
    /// The lowest address that ever waited, and the end of the highest: most questions are about others.
    waited: (AtomicU64, AtomicU64),
    streams: Streams,
    /// Allocations with smaller numbers may be of streams that are gone, whose handles others have.
    ended: AtomicU64,
    /// True if the driver knows the blocks as allocations, so that a program could free them.
    is_plain: bool,
    /// Addresses at which such blocks began.
    blocks: Mutex<HashSet<u64>>,
}

impl<V: Vendor> Book<V> {
    /// Opens a book of a context, which is current.
    ///
    /// # Safety
    ///
    /// The context lives until [`close`](Self::close) was called, or nothing of the book is called any more.
    pub(crate) unsafe fn open(
        context: Handle,
        devices: i32,
        config: ManagerConfig,
    ) -> Result<Self> {
        // SAFETY: the caller's promise; what else the backend makes is never dropped.
        let (gpu, ordinal) = unsafe { V::open(context) }?;
        let mut config = config;
        // Programs say on which stream they free, and not on which streams they use.
        config.pool.uses = Uses::Undeclared;
        config.unit = Align::of(UNIT);
        // Addresses leave for good, so nothing ever moves.
        config.defragmentation = Defragmentation::Off;
        // Other devices reach plain blocks alone.
        let config = if devices > 1 { config.plain() } else { config };
        let is_plain = devices > 1 || gpu.as_remap().is_none();
        let manager = Manager::with_config(gpu, config);
        // The users of memory are unknown, so a stream could only be ordered behind all work. Some of that may wait for this stream.
        manager.set_waiting(Waiting::LastResort);
        // Streams of the program are unknown at first. A driver that marks stream by stream must know that there are some: this one
        // lives as long as its context.
        // SAFETY: the legacy stream of the context, which is current.
        let _ = unsafe { manager.backend().borrow_stream(V::native(core::ptr::null_mut())) };
        let heap = device_heap(manager.caps())?;
        let limit = settings::limit(ordinal);
        if limit < u64::MAX {
            manager.set_budget(heap, Limits::hard(limit))?;
        }
        let may_sleep = settings::get().sleeps && !is_plain;
        let own = manager.config().pool;
        let pool = manager.create_pool(heap, if may_sleep { own.sleepable() } else { own })?;
        let wholes = manager.create_pool(heap, own)?;
        Ok(Self {
            pool,
            wholes,
            context: context.expose_provenance(),
            ordinal,
            manager,
            heap,
            live: Mutex::default(),
            frees: Mutex::default(),
            turn: Mutex::default(),
            waiting_bytes: AtomicU64::new(0),
            waited: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
            streams: Streams::default(),
            ended: AtomicU64::new(0),
            is_plain,
            blocks: Mutex::default(),
        })
    }

    pub(crate) const fn context(&self) -> usize {
        self.context
    }

    /// Allocates memory that any stream may use at once; returns its address.
    pub(crate) fn allocate(&self, size: u64) -> Result<u64, AllocateError> {
        let is_whole = size >= EXPORTED && settings::exports();
        let request = Request::new(size);
        let request = if is_whole { request.dedicated() } else { request };
        self.take(size, (0, is_whole), &request)
    }

    /// Allocates in a stream's order; returns its address.
    pub(crate) fn allocate_on(
        &self,
        size: u64,
        (stream, timeline): (usize, TimelineId),
    ) -> Result<u64, AllocateError> {
        let request = Request::new(size);
        // A guard is laid and looked at on the timeline of its memory. That of a stream may be gone by then, or another stream's, or in a
        // capture: memory with guards is on none, and each of its frees waits for all work.
        let request = if self.has_guards() { request } else { request.on(timeline) };
        self.take(size, (stream, false), &request)
    }

    fn has_guards(&self) -> bool {
        self.manager.config().guards.is_some()
    }

    #[inline]
    fn take(
        &self,
        size: u64,
        (stream, is_whole): (usize, bool),
        request: &Request<'_>,
    ) -> Result<u64, AllocateError> {
        let made = match self.ask(request, is_whole) {
            // A device that is lost says so, and not that it is full.
            Err(error) if error.kind().is_out_of_memory() => match self.settle()? {
                true => self.ask(request, is_whole),
                false => Err(error),
            },
            made => made,
        }?;
        Ok(self.admit(size, made, is_whole, stream))
    }

    /// Asks for memory; tells the addresses of its block, and how far behind their start it lies.
    #[inline]
    fn ask(&self, request: &Request<'_>, is_whole: bool) -> Result<Made<V::Gpu>, AllocateError> {
        if is_whole {
            // Blocks that streams freed go back first: nobody else looks at them. A device that tells nothing has none.
            let _ = self.manager.retire();
            return self.wholes.allocate_and_look(request, place);
        }
        self.pool.allocate_at_once(request, place).map_or_else(|| self.ask_slowly(request), Ok)
    }

    /// As [`ask`](Self::ask), where no hole is at hand: what the device has passed is given out before the driver is asked.
    #[cold]
    fn ask_slowly(&self, request: &Request<'_>) -> Result<Made<V::Gpu>, AllocateError> {
        self.collect();
        loop {
            match self.pool.allocate_and_look(request, place) {
                Err(error) if error.kind() == ErrorKind::Asleep => gate::wait(),
                made => return made,
            }
        }
    }

    #[inline]
    fn admit(
        &self,
        size: u64,
        (allocation, (block, offset)): Made<V::Gpu>,
        is_whole: bool,
        stream: usize,
    ) -> u64 {
        let number = NUMBERS.fetch_add(1, Relaxed);
        if is_whole || self.is_plain {
            lock(&self.blocks).insert(block.offset);
        }
        let resident = Resident { allocation, size, number, is_whole, stream, block };
        let address = block.offset + offset;
        lock(&self.live).insert(address, resident);
        address
    }

    /// Frees what lives at an address once all work that was submitted until now has run; returns false if nothing does.
    pub(crate) fn free(&self, address: u64) -> bool {
        let Some(resident) = lock(&self.live).remove_if(address, |_| true) else { return false };
        if resident.is_whole {
            // Goes back to the driver, which waits as ever: nobody else could have it. What is there later is not ours.
            lock(&self.blocks).remove(&address);
            if self.has_guards() {
                // Work that still runs may write behind it, and afterwards nobody could see that.
                self.wait_for_work();
            }
            drop(resident);
            return true;
        }
        // Counted first, because the thread that takes the free subtracts it.
        self.waiting_bytes.fetch_add(resident.size, Relaxed);
        self.widen(address, address + resident.size);
        let mut frees = lock(&self.frees);
        frees.bytes += resident.size;
        frees.unmarked.push((address, resident));
        let is_due = frees.bytes >= SHARE;
        drop(frees);
        if self.has_guards() || is_due && V::WAITS {
            // An overwrite is reported inside the program's call of the free. A driver that waits there for the device, and does not tell what
            // has run, is waited for once for many frees.
            let _ = self.settle();
        } else if is_due {
            self.mark();
        }
        true
    }

    /// Waits for the work that was submitted until now, where that can be. Other threads go on meanwhile.
    fn wait_for_work(&self) {
        let timelines = self.manager.backend().timelines();
        if let Ok(epoch) = timelines.mark(TimelineId::ALL) {
            let _ = timelines.wait(Point { timeline: TimelineId::ALL, epoch });
        }
    }

    /// Frees what lives at an address in the order of the stream that it was made for; `None` for another stream, for memory that is in
    /// no order, and where a stream has ended since: a later one may have its handle, and yet another one its timeline.
    #[inline]
    pub(crate) fn free_in_own_order(&self, address: u64, stream: usize) -> Option<()> {
        let ended = self.ended.load(Relaxed);
        let is_its = |it: &Resident<V::Gpu>| {
            it.stream == stream && it.number >= ended && it.allocation.timeline().is_some()
        };
        let resident = lock(&self.live).remove_if(address, is_its)?;
        drop(resident);
        Some(())
    }

    /// Frees the allocation at an address in the order of the stream whose timeline `find` returns. `None` if nothing lives there, or
    /// `find` returns none.
    pub(crate) fn free_on(
        &self,
        address: u64,
        find: impl FnOnce() -> Option<TimelineId>,
    ) -> Option<()> {
        let resident = lock(&self.live).remove_if(address, |_| true)?;
        let Some(timeline) = find() else {
            lock(&self.live).insert(address, resident);
            return None;
        };
        if resident.allocation.timeline() != Some(timeline) {
            // On a lost device nothing runs, and nothing protects the bytes.
            let _ = resident.allocation.use_on(timeline);
        }
        drop(resident);
        Some(())
    }

    /// Returns true if a block of ours began at an address. The driver would free it for any caller.
    pub(crate) fn is_own_block(&self, address: u64) -> bool {
        lock(&self.blocks).contains(&address)
    }

    /// Notes that the driver gave an address to the program itself.
    pub(crate) fn is_the_programs(&self, address: u64) {
        lock(&self.blocks).remove(&address);
    }

    /// Waits once for the work behind all waiting frees. Returns false if there were none, or a wait is not possible now.
    ///
    /// Frees that another thread is waiting for count too: their bytes are free when this returns.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    fn settle(&self) -> Result<bool> {
        let waited = self.waiting_bytes.load(Relaxed) > 0;
        let _turn = lock(&self.turn);
        let marked = self.mark_the_rest();
        let frees = lock(&self.frees);
        let marks: Vec<Epoch> = frees.marked.iter().map(|(epoch, _)| *epoch).collect();
        let is_empty = marks.is_empty() && frees.unmarked.is_empty();
        drop(frees);
        unless_lost(marked)?;
        let timelines = self.manager.backend().timelines();
        // While a capture is under way, later marks are not recorded yet, and earlier ones can be waited for.
        for epoch in marks.into_iter().rev() {
            if unless_lost(timelines.wait(Point { timeline: TimelineId::ALL, epoch }))? {
                self.give_back_to(epoch);
                return Ok(true);
            }
        }
        Ok(is_empty && waited)
    }

    /// Returns the turn to take frees, if nobody has it: whoever has it may wait for the device.
    fn try_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(turn) => Some(turn),
        }
    }

    /// Marks all work that was submitted until now, for the frees that wait unmarked. The host waits for nothing, also not for another
    /// thread that does.
    #[cold]
    fn mark(&self) {
        if let Some(_turn) = self.try_turn() {
            // Then they wait unmarked.
            let _ = self.mark_the_rest();
        }
    }

    /// As [`mark`](Self::mark), by whoever has the turn.
    fn mark_the_rest(&self) -> Result<()> {
        let freed = lock(&self.frees).take_unmarked();
        if freed.is_empty() {
            return Ok(());
        }
        let marked = self.manager.backend().timelines().mark(TimelineId::ALL);
        let mut frees = lock(&self.frees);
        match marked {
            Ok(epoch) => frees.marked.push_back((epoch, freed)),
            Err(_) => frees.put_back(freed),
        }
        marked.map(drop)
    }

    /// Gives back the frees whose marks the device has passed; as [`mark`](Self::mark), the host waits for nothing.
    fn collect(&self) {
        if lock(&self.frees).marked.is_empty() {
            return;
        }
        let Some(_turn) = self.try_turn() else { return };
        if let Ok(reached) = self.manager.backend().timelines().reached(TimelineId::ALL) {
            self.give_back_to(reached);
        }
    }

    /// Gives back the frees whose marks are not after a point that the device has passed.
    fn give_back_to(&self, reached: Epoch) {
        let mut frees = lock(&self.frees);
        let passed = frees.marked.partition_point(|(epoch, _)| *epoch <= reached);
        let passed: Vec<_> = frees.marked.drain(..passed).collect();
        drop(frees);
        self.give_back(passed.into_iter().flat_map(|(_, freed)| freed));
    }

    /// Frees what waited, and subtracts it afterwards: no thread sees a count of zero before the bytes are free.
    fn give_back(&self, freed: impl IntoIterator<Item = Freed<V::Gpu>>) {
        let bytes = freed.into_iter().map(|(_, freed)| {
            let size = freed.size;
            drop(freed);
            size
        });
        let bytes = bytes.sum();
        self.waiting_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Notes where something waits.
    fn widen(&self, start: u64, end: u64) {
        if start < self.waited.0.load(Relaxed) {
            self.waited.0.fetch_min(start, Relaxed);
        }
        if end > self.waited.1.load(Relaxed) {
            self.waited.1.fetch_max(end, Relaxed);
        }
    }

    /// Returns true if an address was freed and waits.
    pub(crate) fn is_waiting(&self, address: u64) -> bool {
        let waited = self.waited.0.load(Relaxed)..self.waited.1.load(Relaxed);
        if self.waiting_bytes.load(Relaxed) == 0 || !waited.contains(&address) {
            return false;
        }
        let holds =
            |(start, freed): &Freed<V::Gpu>| (*start..start + freed.size).contains(&address);
        let frees = lock(&self.frees);
        frees.marked.iter().flat_map(|(_, freed)| freed).chain(&frees.unmarked).any(holds)
    }

    /// Returns true if an address at which nothing lives lies in a block in which something does.
    pub(crate) fn is_vacant(&self, address: u64) -> bool {
        let live = lock(&self.live);
        let before = live.before(address).map(|(_, resident)| resident);
        let mut beside = before.into_iter().chain(live.behind(address));
        beside.any(|it| (it.block.offset..it.block.end()).contains(&address))
    }

    /// Returns the live allocation that has an address.
    pub(crate) fn find(&self, address: u64) -> Option<Found> {
        let live = lock(&self.live);
        let (start, resident) = live.before(address)?;
        let Resident { size, number, is_whole, .. } = *resident;
        (address - start < size).then_some(Found { address: start, size, number, is_whole })
    }

    /// Returns the timeline of the stream of this context with this number.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream.
    pub(crate) unsafe fn timeline(&self, stream: Handle, number: u64) -> Option<TimelineId> {
        // SAFETY: the caller's promise.
        unsafe { self.streams.timeline::<V>(self.manager.backend(), stream, number) }
    }

    /// Notes that the program is about to destroy a stream, whose handle another one may have then. Marks what it was given to do, and
    /// returns its timeline, which [`leave`](Self::leave) takes once the stream is gone. The driver's call waits for nothing, and so does
    /// this: where no mark is to be had, the timeline is lost.
    pub(crate) fn end_stream(&self, real: &V, stream: Handle) -> Option<Left> {
        let timeline = self.streams.end(real, stream)?;
        self.ended.store(NUMBERS.load(Relaxed), Relaxed);
        if V::WAITS {
            return Some((timeline, DONE));
        }
        let epoch = self.manager.backend().timelines().mark_all_at_once()?;
        Some((timeline, epoch))
    }

    /// Keeps the timeline of a stream that is gone for another one.
    pub(crate) fn leave(&self, left: Left) {
        self.streams.leave(left);
    }

    /// Marks and waits for nothing from now on.
    pub(crate) fn hold(&self) {
        self.manager.backend().timelines().begin_capture();
    }

    /// Allows marks and waits again after [`hold`](Self::hold).
    pub(crate) fn release(&self) {
        self.manager.backend().timelines().end_capture();
    }

    /// Returns the bytes that are live, and those that are held and free.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let totals = self.manager.totals();
        let held = self.manager.heap_use(self.heap).map_or(0, |held| held.reserved);
        let waiting = self.waiting_bytes.load(Relaxed);
        let empty = held.saturating_sub(totals.granted_bytes) + waiting;
        (totals.live_bytes.saturating_sub(waiting), empty)
    }

    /// Returns the live bytes that streams asked for in their order.
    pub(crate) fn ordered(&self) -> Ordered {
        lock(&self.live).ordered
    }

    /// Sets back a figure of these bytes.
    pub(crate) fn set_back(&self, change: impl Fn(&mut Ordered)) {
        change(&mut lock(&self.live).ordered);
    }

    /// Gives back `enough` bytes of what is empty, or all of it; returns how many. Waits for work of the program only where
    /// the driver does not tell what has run.
    pub(crate) fn shed(&self, enough: u64) -> u64 {
        if V::WAITS {
            let _ = self.settle();
        }
        self.mark();
        self.collect();
        // If the device reports nothing, nothing more is empty.
        let given = self.manager.trim_bytes(enough).unwrap_or(0);
        if given >= enough {
            return given;
        }
        // Pages go back once the device has passed the mark that they got just now.
        if V::WAITS {
            self.wait_for_work();
        } else {
            self.wait_a_moment();
        }
        self.collect();
        given + self.manager.trim_bytes(enough - given).unwrap_or(0)
    }

    /// Waits until a device that has done all its work tells so.
    fn wait_a_moment(&self) {
        let timelines = self.manager.backend().timelines();
        if let Ok(epoch) = timelines.mark(TimelineId::ALL) {
            let began = Instant::now();
            let is_late = || timelines.reached(TimelineId::ALL).is_ok_and(|now| now < epoch);
            while is_late() && began.elapsed() < MOMENT {
                core::hint::spin_loop();
            }
        }
    }

    pub(crate) fn gpu(&self) -> &V::Gpu {
        self.manager.backend()
    }

    /// Returns everything to the driver. The context ends, and with it everything that lives there.
    pub(crate) fn close(&self) {
        let _turn = lock(&self.turn);
        let wait = || self.manager.backend().timelines().wait_idle();
        let _ = wait();
        drop(core::mem::take(&mut *lock(&self.live)));
        let Frees { unmarked, marked, .. } = core::mem::take(&mut *lock(&self.frees));
        self.give_back(marked.into_iter().flat_map(|(_, freed)| freed).chain(unmarked));
        // Marks what streams freed; the marks are passed after a wait. A context that is gone refuses both, and then all has passed.
        let _ = self.manager.trim();
        let _ = wait();
        let _ = self.manager.trim();
        // The book stays, because threads may be looking at it. Its addresses would be missing to programs with many contexts.
        self.pool.give_up_addresses();
    }

    /// Returns the pool that can sleep.
    fn sleeper(&self) -> Result<&UserPool<V::Gpu>, &'static str> {
        Some(&self.pool).filter(|pool| pool.is_sleepable()).ok_or(AWAKE)
    }
}

impl<V: Vendor> Account for Book<V> {
    fn ordinal(&self) -> i32 {
        self.ordinal
    }

    fn look_at_guards(&self) {
        if self.has_guards() {
            // Also behind what was freed, and is looked at when the work before that has run.
            self.wait_for_work();
            let _ = self.settle();
            // Findings are told as they are noticed; a device that is lost has none.
            let _ = self.manager.overwrites();
        }
    }

    fn limit(&self, bytes: u64) -> Result<()> {
        self.manager.set_budget(self.heap, Limits::hard(bytes))?;
        self.settle()?;
        self.manager.trim().map(drop)
    }

    fn sleep(&self) -> Result<u64, String> {
        let pool = self.sleeper()?;
        if capture::is_under_way::<V>() {
            return Err("a graph is being captured; try again later".into());
        }
        if self.wholes.reserved() > 0 {
            return Err("memory for export cannot sleep: start the program without --ipc".into());
        }
        // The sleep says itself what it cannot wait for.
        let _ = self.settle();
        // Whoever orders a sleep promises that the program uses none of its memory until it is awake. Work that streams were given
        // before is waited for: the pool's uses are undeclared.
        let slept = match pool.sleep(&Sleep::to(HostStore::new())) {
            Err(error) if error.kind() == ErrorKind::AlreadyAsleep => return Ok(0),
            slept => slept.map_err(|error| error.to_string())?,
        };
        Ok(slept.returned + self.manager.trim().unwrap_or(0))
    }

    fn wake(&self) -> Result<u64, String> {
        let pool = self.sleeper()?;
        match pool.wake(&Wake::all()) {
            Err(error) if error.kind() == ErrorKind::AlreadyAwake => Ok(0),
            woken => woken.map(|()| pool.reserved()).map_err(|error| error.to_string()),
        }
    }

    fn summary_line(&self) -> String {
        let Report { totals, peak_reserved_bytes, driver_calls, .. } = self.manager.summary();
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        format!(
            "device {}: {} MiB live now in {} MiB, at most {} MiB held; {} allocations took {driver_calls} driver calls",
            self.ordinal,
            mib(self.figures().0),
            mib(totals.reserved_bytes),
            mib(peak_reserved_bytes),
            totals.allocated,
        )
    }

    fn report(&self) -> Report {
        self.manager.report()
    }

    fn caps(&self) -> &Caps {
        self.manager.caps()
    }
}

/// Returns the driver's code for a failure, or `None` if the driver must answer the call itself.
pub(crate) fn code_of(error: &AllocateError) -> Option<Code> {
    let native = Code::try_from(error.error().native()).unwrap_or(0);
    match error.kind() {
        kind if kind.is_out_of_memory() => Some(OUT_OF_MEMORY),
        _ if native > 0 => Some(native),
        _ => None,
    }
}
