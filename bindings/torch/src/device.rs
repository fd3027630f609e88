//! One device: its manager, the streams that were seen, and what is live by address.
#![expect(unsafe_code, reason = "uses streams of the caller")]
use crate::filter::Function;
use crate::graph::{Graphs, Kept, PoolId, Shared, Split, wait_for_all};
use crate::late::LateFrees;
use crate::live::Live;
use crate::lock;
use crate::map::{self, Addresses, Tenant};
use crate::meter::{Meter, SizeClass, UNIT};
use crate::profile::{self, Change};
use crate::record;
use crate::seats::{Handle, Seat, Seats};
use crate::streams::{Life, Streams};
use crate::tags::{self, Refusal, Tags, Target};
use crate::watch::{self, Event, Happened};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use omniheap::cuda::Standing;
use omniheap::residency::Arena;
use omniheap::weights::WeightsFile;
use omniheap::{
    Align, AllocateError, Allocation, BackendKind, Caps, ErrorKind, HeapId, Limits, Manager,
    ManagerConfig, Request, TimelineId,
    defrag::Defragmentation,
    placement::{Placement, Policy, Ranking, Reason, Region},
    pool::{Uses, Waiting},
    report::BlockNumber,
    seam::{HeapKind, Result},
    trace::report::{Fact, ReportData},
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// From here on PyTorch names no size: a product has overflowed.
const EXABYTE: u64 = 1 << 60;

/// The error text for a free of an address that is not live.
pub(crate) const NOT_LIVE: &str = "free of an address that is not live: freed twice, or not ours";

/// The pages of most devices.
const PAGE: u64 = 2 << 20;

/// Device memory or nothing: PyTorch asks for no other, and host memory would be a silent slowdown.
#[derive(Debug)]
struct DeviceOnly;

impl Policy for DeviceOnly {
    fn place(&self, _: &Request<'_>, caps: &Caps) -> Result<Placement> {
        let mut heaps = Ranking::new();
        heaps.push(device_heap(caps)?);
        Ok(Placement { region: Region::Device, heaps, reason: Reason::WrittenByKernels })
    }
}

fn device_heap(caps: &Caps) -> Result<HeapId> {
    let device = caps.heap_ids().find(|(_, heap)| heap.kind == HeapKind::Device);
    device.map(|(id, _)| id).ok_or(ErrorKind::NoSuchHeap.into())
}

/// Allocation at an address, the bytes that were asked for, and the stream that asked.
struct Resident<B: Streams> {
    held: Held<B>,
    size: u64,
    stream: Handle,
    shared: Shared,
}

/// Keeper of the bytes.
enum Held<B: Streams> {
    /// An allocation, and the seat of the stream that orders its bytes, if there is one.
    Plain(Allocation<B>, Option<Seat>),
    Kept(Kept),
}

/// An allocation that lived in a pool when a checkpoint was taken.
pub(crate) struct Saved {
    kept: Kept,
    size: u64,
    stream: Handle,
}

impl Saved {
    pub(crate) const fn address(&self) -> u64 {
        self.kept.address
    }
}

/// Settings of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) backend: BackendKind,
    /// The most bytes to hold of each device.
    pub(crate) limit: Option<u64>,
    /// Build pools from pages where the device has them.
    pub(crate) paged: bool,
}

/// One device.
pub(crate) struct Device<B: Streams> {
    ordinal: u32,
    kind: BackendKind,
    heap: HeapId,
    is_paged: bool,
    manager: Manager<B>,
    seats: Seats,
    live: Live<Resident<B>>,
    meter: Meter,
    graphs: Graphs<B>,
    tags: Tags<B>,
    late: LateFrees,
    /// Addresses at which blocks begin, as far as snapshots have shown.
    bases: Mutex<HashMap<BlockNumber, u64>>,
}

impl<B: Streams> Device<B> {
    pub(crate) fn open(ordinal: u32, settings: &Settings) -> Result<Self> {
        let mut config = ManagerConfig::default();
        config.policy = Arc::new(DeviceOnly);
        // Programs of this kind run for hours in the memory that they took at first.
        config.pool.waiting = Waiting::Thrift;
        // Programs use what they allocate on other streams, say so or not, and free it before they are done there: the own
        // stream alone must run after that.
        config.pool.uses = Uses::Undeclared;
        config.unit = Align::of(UNIT);
        // Addresses leave for good, so nothing ever moves.
        config.defragmentation = Defragmentation::Off;
        let config = if settings.paged { config } else { config.plain() };
        let manager = Manager::with_config(B::open_device(ordinal)?, config);
        let heap = device_heap(manager.caps())?;
        let is_paged = settings.paged && manager.backend().as_remap().is_some();
        if let Some(limit) = settings.limit {
            manager.set_budget(heap, Limits::hard(limit))?;
        }
        Ok(Self {
            ordinal,
            kind: settings.backend,
            heap,
            is_paged,
            manager,
            seats: Seats::new(ordinal),
            live: Live::new(),
            meter: Meter::default(),
            graphs: Graphs::new(),
            tags: Tags::new(),
            late: LateFrees::default(),
            bases: Mutex::default(),
        })
    }

    /// The backend, for what passes the manager by.
    pub(crate) fn backend(&self) -> &B {
        self.manager.backend()
    }

    /// The heap that everything is allocated in.
    pub(crate) const fn heap(&self) -> HeapId {
        self.heap
    }

    /// Allocates in a stream's order; returns the address.
    ///
    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    pub(crate) unsafe fn allocate(
        &self,
        size: u64,
        stream: *mut c_void,
        life: Life,
    ) -> Result<u64, AllocateError> {
        // SAFETY: the caller's promise.
        let made = unsafe { self.allocate_once(size, stream, life) }.or_else(|error| {
            // SAFETY: as above.
            unsafe { self.allocate_in_need(size, stream, life, error) }
        });
        self.note_outcome(made, size, stream)
    }

    /// Allocates one driver handle that communication libraries can register; returns the address. It is in no tag: it never sleeps.
    ///
    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    pub(crate) unsafe fn allocate_registrable(
        &self,
        size: u64,
        stream: *mut c_void,
    ) -> Result<u64, AllocateError> {
        // SAFETY: the caller's promise.
        let made = unsafe { self.take_registrable(size, stream) };
        self.note_outcome(made, size, stream)
    }

    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    unsafe fn take_registrable(
        &self,
        size: u64,
        stream: *mut c_void,
    ) -> Result<(u64, Held<B>), AllocateError> {
        // SAFETY: the caller's promise.
        let Standing::Running(number) = (unsafe { self.manager.backend().standing(stream) })?
        else {
            let why = "registrable memory cannot be allocated in a capture; allocate it before";
            return Err(ErrorKind::Busy.because(why).into());
        };
        // SAFETY: as above.
        let seat = unsafe { self.seats.of(self.manager.backend(), stream, number, Life::Process) }?;
        let request = Request::new(size).registrable().on(seat.timeline);
        let allocation = self.manager.allocate(&request)?;
        let address = allocation.pin_for_life().ok_or(ErrorKind::Unsupported)?;
        Ok((address, Held::Plain(allocation, Some(seat))))
    }

    /// Notes what an allocation ended with, and tells whoever looks on; returns the address.
    fn note_outcome(
        &self,
        made: Result<(u64, Held<B>), AllocateError>,
        size: u64,
        stream: *mut c_void,
    ) -> Result<u64, AllocateError> {
        let (address, held) = made.inspect_err(|error| {
            if is_shortage(error.kind()) {
                self.meter.failed();
                self.tell(Happened::OutOfMemory, 0, size, stream.addr());
            }
        })?;
        let resident = Resident { held, size, stream: Handle::of(stream), shared: Shared::No };
        self.admit(address, resident);
        Ok(address)
    }

    /// Notes what lives at an address from now on, and tells everybody.
    #[inline]
    fn admit(&self, address: u64, resident: Resident<B>) {
        let (size, stream) = (resident.size, resident.stream.address);
        self.meter.allocated(size);
        self.live.insert(address, resident);
        record::allocated(address, size, stream);
        self.tell_profiler(address, rounded(size));
        self.tell(Happened::Allocated, address, size, stream);
    }

    /// Tells PyTorch's profiler that bytes are live from now on, or are no longer where there are fewer.
    #[inline]
    fn tell_profiler(&self, address: u64, bytes: i64) {
        profile::tell(Change { device: self.ordinal, address, bytes }, || {
            let live = SizeClass::ALL.into_iter().map(|(class, _)| self.meter.rounded(class)).sum();
            [live, self.reserved()]
        });
    }

    /// Bytes that are held of the driver.
    fn reserved(&self) -> u64 {
        self.manager.heap_use(self.heap).map_or(0, |held| held.reserved)
    }

    /// Tells the watcher, if there is one.
    #[inline]
    fn tell(&self, happened: Happened, address: u64, bytes: u64, stream: usize) {
        watch::tell(|| {
            let (device, stream, reserved) = (self.ordinal, stream as u64, self.reserved());
            Event { happened, device, address, bytes, stream, reserved }
        });
    }

    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    #[inline]
    unsafe fn allocate_once(
        &self,
        size: u64,
        stream: *mut c_void,
        life: Life,
    ) -> Result<(u64, Held<B>), AllocateError> {
        // SAFETY: the caller's promise.
        match unsafe { self.manager.backend().standing(stream) }? {
            Standing::Running(number) if !self.graphs.is_capturing() => {
                // SAFETY: the caller's promise.
                unsafe { self.allocate_plain(size, stream, number, life) }
            }
            // SAFETY: as above.
            standing => unsafe { self.allocate_beside_captures(size, stream, standing, life) },
        }
    }

    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    unsafe fn allocate_plain(
        &self,
        size: u64,
        stream: *mut c_void,
        number: Option<u64>,
        life: Life,
    ) -> Result<(u64, Held<B>), AllocateError> {
        self.look_for_late();
        // SAFETY: the caller's promise.
        let seat = unsafe { self.seats.of(self.manager.backend(), stream, number, life) }?;
        let source = self.tags.source(&self.manager, self.heap)?;
        let allocation = source.allocate(&Request::new(size).on(seat.timeline))?;
        // The address leaves for good, so the bytes must never move.
        let address = allocation.pin_for_life().ok_or(ErrorKind::Unsupported)?;
        Ok((address, Held::Plain(allocation, Some(seat))))
    }

    /// Retires freed bytes that waited for other streams, once every few calls.
    #[inline]
    fn look_for_late(&self) {
        if self.late.are_waiting() || self.graphs.is_watching() {
            self.late.look(|| {
                self.late.freed(self.graphs.collect(&self.manager));
                self.manager.retire().unwrap_or(0)
            });
        }
    }

    /// Allocates in the order of no stream, and returns the address. No stream uses the bytes. After their free they wait for all
    /// streams.
    pub(crate) fn allocate_unordered(&self, size: u64) -> Result<u64, AllocateError> {
        let made = self.take_unordered(size).or_else(|error| {
            let is_freer =
                error.kind().is_out_of_memory() && self.graphs.give_back_all(&self.manager);
            if is_freer { self.take_unordered(size) } else { Err(error) }
        });
        self.note_outcome(made, size, core::ptr::null_mut())
    }

    fn take_unordered(&self, size: u64) -> Result<(u64, Held<B>), AllocateError> {
        self.look_for_late();
        let source = self.tags.source(&self.manager, self.heap)?;
        let allocation = source.allocate(&Request::new(size))?;
        let address = allocation.pin_for_life().ok_or(ErrorKind::Unsupported)?;
        Ok((address, Held::Plain(allocation, None)))
    }

    /// Allocates while a capture is under way: on a stream that takes part in it, or on another one.
    ///
    /// # Safety
    ///
    /// As for [`Streams::borrow`]; `standing` is what the stream is now.
    #[cold]
    unsafe fn allocate_beside_captures(
        &self,
        size: u64,
        stream: *mut c_void,
        standing: Standing<B::Graph>,
        life: Life,
    ) -> Result<(u64, Held<B>), AllocateError> {
        let source = self.tags.source(&self.manager, self.heap)?;
        if let Some(taken) = self.graphs.allocate(&source, size, stream) {
            return taken.map(|(address, kept)| (address, Held::Kept(kept)));
        }
        match standing {
            Standing::Captured(capture) => {
                // SAFETY: the stream takes part in it, and the caller promises the stream.
                let taken = unsafe { self.graphs.allocate_found(&source, size, stream, capture) };
                taken.map(|(address, kept)| (address, Held::Kept(kept)))
            }
            Standing::Running(number) => {
                self.graphs.runs_again(self.manager.backend(), stream);
                // SAFETY: the caller's promise.
                unsafe { self.allocate_plain(size, stream, number, life) }
            }
        }
    }

    /// Tries once more after memory ran short and graphs that are gone gave theirs back; `error` is what was said first.
    ///
    /// # Safety
    ///
    /// As for [`Streams::borrow`].
    #[cold]
    unsafe fn allocate_in_need(
        &self,
        size: u64,
        stream: *mut c_void,
        life: Life,
        error: AllocateError,
    ) -> Result<(u64, Held<B>), AllocateError> {
        if !error.kind().is_out_of_memory() {
            return Err(error);
        }
        // SAFETY: the caller's promise.
        let standing = unsafe { self.manager.backend().standing(stream) }?;
        let may_wait = matches!(standing, Standing::Running(_));
        let is_freer = may_wait && self.graphs.forget_found(self.manager.backend());
        if !self.graphs.give_back_all(&self.manager) && !is_freer {
            return Err(error);
        }
        // SAFETY: the caller's promise.
        unsafe { self.allocate_once(size, stream, life) }
    }

    /// Frees what lives at an address; `stated` is what the caller believes that it has.
    ///
    /// # Errors
    ///
    /// A line that says what is wrong: nothing lives there, or it has another size. What lives there is freed all the same.
    pub(crate) fn free(&self, address: u64, stated: Option<u64>) -> Result<(), String> {
        let resident = self.live.remove(address);
        let resident = resident.ok_or(NOT_LIVE)?;
        let size = resident.size;
        self.give_back(address, resident);
        match stated {
            Some(stated) if stated != size => {
                Err(format!("free of {size} bytes that says {stated}: {size} are freed"))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn give_back(&self, address: u64, resident: Resident<B>) {
        let Resident { held, size, stream, shared } = resident;
        self.meter.freed(size);
        record::freed(address);
        self.tell_profiler(address, -rounded(size));
        // Told before the bytes can be somebody else's: an address that is told twice was free between.
        self.tell(Happened::Freed, address, size, stream.address);
        match held {
            Held::Plain(allocation, seat) => {
                self.tags.forget(&allocation);
                let is_current = self.is_current(seat);
                if shared == Shared::Yes || !is_current {
                    self.late.freed(1);
                }
                if !is_current {
                    // The order of another stream does not protect it. On a lost device nothing does, nor must.
                    let _ = allocation.use_on(TimelineId::ALL);
                }
                drop(allocation);
            }
            Held::Kept(kept) => self.late.freed(self.graphs.free(&self.manager, kept, shared)),
        }
    }

    /// Returns true if the order of a stream protects bytes with this seat.
    #[inline]
    fn is_current(&self, seat: Option<Seat>) -> bool {
        seat.is_some_and(|seat| self.seats.is_current(seat))
    }

    /// Frees the allocation at an address once a stream has passed. Any stream of the device may free it.
    ///
    /// # Errors
    ///
    /// The sentence that nothing lives at the address.
    pub(crate) fn free_on(&self, address: u64, stream: *mut c_void) -> Result<(), String> {
        let mut resident = self.live.remove(address).ok_or(NOT_LIVE)?;
        // On a lost device nothing protects the bytes, nor must.
        let _ = self.share(&mut resident, stream);
        self.give_back(address, resident);
        Ok(())
    }

    /// Frees what lives at an address; whether something does.
    pub(crate) fn free_if_live(&self, address: u64) -> bool {
        let resident = self.live.remove(address);
        resident.map(|resident| self.give_back(address, resident)).is_some()
    }

    /// Says that a stream uses the bytes at an address too; whether something lives there.
    pub(crate) fn use_on(&self, address: u64, stream: *mut c_void) -> Option<Result<()>> {
        self.live.with(address, |resident| self.share(resident, stream))
    }

    /// Notes that a stream uses bytes too.
    fn share(&self, resident: &mut Resident<B>, stream: *mut c_void) -> Result<()> {
        let Resident { held, stream: own, shared, .. } = resident;
        let is_own = *own == Handle::of(stream);
        match held {
            Held::Plain(_, seat) if is_own && self.is_current(*seat) => Ok(()),
            Held::Kept(_) if is_own => Ok(()),
            Held::Kept(_) => {
                *shared = Shared::Yes;
                Ok(())
            }
            Held::Plain(allocation, _) => {
                *shared = Shared::Yes;
                // Any stream serves here: these bytes wait for all streams.
                allocation.use_on(TimelineId::ALL)
            }
        }
    }

    /// Gives everything empty back to the driver, and what becomes empty by waiting for the device.
    pub(crate) fn trim(&self) -> Result<u64> {
        self.graphs.give_back_all(&self.manager);
        let mut bytes = self.manager.trim()?;
        // On a device that can only be waited for, the first wait shows what is free, and the second that nobody uses
        // it.
        for _ in 0..2 {
            if !self.graphs.is_capturing() && wait_for_all(&self.manager) {
                self.manager.retire()?;
                bytes += self.manager.trim()?;
            }
        }
        self.tell(Happened::Trimmed, 0, bytes, 0);
        Ok(bytes)
    }

    /// Returns memory to the driver because somebody else needs `bytes`: what is empty, and where that is not enough, what becomes
    /// empty by waiting for the device. Nothing while a capture is under way, which such calls might spoil.
    pub(crate) fn return_memory(&self, bytes: u64) -> Result<()> {
        if self.graphs.is_capturing() {
            return Ok(());
        }
        let missing = bytes.saturating_sub(self.manager.return_memory(bytes)?);
        if missing > 0 {
            self.graphs.give_back_all(&self.manager);
            if !self.graphs.is_capturing() && wait_for_all(&self.manager) {
                self.manager.retire()?;
                self.manager.return_memory(missing)?;
            }
        }
        Ok(())
    }

    /// Puts a tag to sleep, or all, and then returns what else is empty too.
    ///
    /// # Safety
    ///
    /// As for [`Tags::sleep`].
    pub(crate) unsafe fn sleep(&self, tag: Option<&str>, to: &Target) -> Result<(), Refusal> {
        self.check_no_capture("sleep")?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.tags.sleep(tag, to) }?;
        self.tell(Happened::Trimmed, 0, bytes, 0);
        if tag.is_none() {
            self.trim().map_err(|error| format!("all tags sleep, but empty_cache: {error}"))?;
        }
        Ok(())
    }

    /// Remembers what tensors of a file lie at an address, of which they fill all `size` bytes; whether such an allocation lives there.
    pub(crate) fn remember(
        &self,
        (address, size): (u64, u64),
        file: &WeightsFile,
        tensors: &[(usize, u64)],
    ) -> bool {
        let remember = |resident: &mut Resident<B>| match &resident.held {
            Held::Plain(allocation, _) if resident.size == size => {
                self.tags.remember(allocation.id(), file, tensors);
                true
            }
            _ => false,
        };
        self.live.with(address, remember).unwrap_or(false)
    }

    /// Forgets what the bytes at an address were loaded from; whether that was known.
    pub(crate) fn forget(&self, address: u64) -> bool {
        let forget = |resident: &mut Resident<B>| match &resident.held {
            Held::Plain(allocation, _) => self.tags.forget(allocation),
            Held::Kept(_) => false,
        };
        self.live.with(address, forget).unwrap_or(false)
    }

    /// Has the process's arena hold pinned memory for sleeping bytes.
    pub(crate) fn prepare_sleep(&self, bytes: u64, waits: bool) -> Result<()> {
        let arena = Arena::of_process();
        if waits {
            return arena.prepare_pinned(self.manager.backend(), bytes);
        }
        arena.prepare_pinned_ahead(&self.manager, bytes).detach();
        Ok(())
    }

    /// Wakes a tag, or all that are asleep.
    pub(crate) fn wake(&self, tag: Option<&str>, host_mapped: u64) -> Result<(), Refusal> {
        self.check_no_capture("wake")?;
        self.tags.wake(tag, host_mapped)
    }

    /// Places of the bytes of each tag.
    pub(crate) fn residence(&self) -> Value {
        self.tags.residence()
    }

    fn check_no_capture(&self, doing: &str) -> Result<(), String> {
        match self.graphs.is_capturing() {
            true => Err(format!(
                "{doing} while a graph is captured or a `use_mem_pool` block is open: end it first"
            )),
            false => Ok(()),
        }
    }

    /// Sets the most that may be held.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<()> {
        self.manager.set_budget(self.heap, Limits::hard(bytes))
    }

    /// Sets the most that may be held, as a share of the device.
    pub(crate) fn set_share(&self, share: f64) -> Result<()> {
        self.manager.set_budget_share(self.heap, share)
    }

    /// # Safety
    ///
    /// As for [`Graphs::begin`].
    pub(crate) unsafe fn begin(&self, pool: PoolId, filter: *mut Function) {
        // SAFETY: the caller's promise.
        unsafe { self.graphs.begin(self.manager.backend(), pool, filter) };
    }

    pub(crate) fn end(&self, pool: PoolId) {
        self.graphs.end(self.manager.backend(), pool);
    }

    /// Ends the capture that this thread began last and that failed.
    pub(crate) fn fail(&self) {
        self.late.freed(self.graphs.fail(&self.manager));
    }

    pub(crate) fn hold(&self, pool: PoolId, split: Split) {
        self.graphs.hold(pool, split);
    }

    pub(crate) fn users(&self, pool: PoolId) -> usize {
        self.graphs.users(pool)
    }

    pub(crate) fn release(&self, pool: PoolId) {
        self.late.freed(self.graphs.release(&self.manager, pool));
    }

    /// Returns the allocations that live in a pool, by address; nothing where there is no such pool.
    pub(crate) fn checkpoint(&self, pool: PoolId) -> Option<Vec<Saved>> {
        let mut saved = Vec::new();
        self.live.for_each(|_, Resident { held, size, stream, .. }| match held {
            Held::Kept(kept) if kept.is_in(pool) => {
                saved.push(Saved { kept: *kept, size: *size, stream: *stream });
            }
            _ => {}
        });
        saved.sort_unstable_by_key(Saved::address);
        self.graphs.has(pool).then_some(saved)
    }

    /// Has live in a pool what lived when a checkpoint was taken, in place of what lives there now. Returns the addresses that were freed. On
    /// failure what lived lives on.
    pub(crate) fn go_back(&self, pool: PoolId, saved: &[Saved]) -> Result<Vec<u64>> {
        // Without a user the pool would end with the last that lives in it.
        if !self.graphs.retain(pool) {
            return Err(ErrorKind::Stale.because("no graph uses the pool any more"));
        }
        let live = self.checkpoint(pool).unwrap_or_default();
        let freed: Vec<u64> = live.iter().map(Saved::address).collect();
        for address in &freed {
            self.free_if_live(*address);
        }
        let back = self.restore(pool, saved).inspect_err(|_| {
            // These allocations were freed just now, so their places are free.
            let _ = self.restore(pool, &live);
        });
        self.release(pool);
        back.map(|()| freed)
    }

    /// Has live again in a pool what lived once: all, or nothing. Whatever lies there must be free.
    fn restore(&self, pool: PoolId, saved: &[Saved]) -> Result<()> {
        let taken = self.graphs.retake(pool, saved.iter().map(|saved| saved.kept))?;
        for (Saved { size, stream, .. }, (kept, shared)) in saved.iter().zip(taken) {
            let held = Held::Kept(kept);
            self.admit(kept.address, Resident { held, size: *size, stream: *stream, shared });
        }
        Ok(())
    }

    /// Notes that the capture of a stream begins now.
    pub(crate) fn begin_capture(&self, stream: *mut c_void) {
        self.graphs.announce(self.manager.backend(), stream);
    }

    /// Notes that the capture of a stream has ended.
    pub(crate) fn end_capture(&self, stream: *mut c_void) {
        self.graphs.runs_again(self.manager.backend(), stream);
    }

    /// The most bytes that a request can have now, as far as is known.
    pub(crate) fn largest(&self) -> u64 {
        let Ok(held) = self.manager.heap_use(self.heap) else { return 0 };
        let below_limit = held.hard_limit.saturating_sub(held.reserved);
        let room = self.free_of_driver().unwrap_or(u64::MAX).min(below_limit);
        let totals = self.manager.totals();
        // Free pages are mapped side by side for it, with new ones; a block is one or the other.
        match self.is_paged {
            true => room.saturating_add(totals.free_bytes),
            false => room.max(totals.largest_hole),
        }
    }

    /// Bytes that the driver says are free, if it says so.
    fn free_of_driver(&self) -> Option<u64> {
        let backend = self.manager.backend();
        let told = backend.as_budget().and_then(|driver| driver.budget(self.heap).ok());
        told.map(|told| told.budget.saturating_sub(told.used))
    }

    /// Lets the peaks of `stats()` begin anew.
    pub(crate) fn reset_peaks(&self) {
        self.meter.reset_peaks();
        self.manager.reset_peaks();
    }

    /// The figures that `stats()` shows.
    pub(crate) fn stats(&self) -> Result<Value> {
        // Bytes that were freed and have passed their streams are not live any more.
        self.manager.retire()?;
        let report = self.manager.summary();
        let totals = report.totals;
        let held = self.manager.heap_use(self.heap)?;
        let rungs: serde_json::Map<String, Value> = omniheap::report::Rung::ALL
            .iter()
            .zip(report.rungs)
            .map(|(rung, count)| {
                (omniheap::placement::Keyword::word(*rung).replace('-', "_"), count.into())
            })
            .collect();
        let blocks = report.blocks;
        let rest = json!({
            "backend": self.kind.name(),
            "device": self.ordinal,
            "paged": self.is_paged,
            "registrable": self.manager.caps().heap(self.heap).and_then(|heap| heap.registrable).map(Align::get),
            "device_name": self.manager.caps().device.name,
            "padding_bytes": totals.padding_bytes(),
            "free_bytes": totals.free_bytes,
            "largest_hole": totals.largest_hole,
            "waiting_bytes": totals.deferred_bytes,
            "segments": blocks,
            "reserved_bytes": held.reserved,
            "peak_reserved_bytes": held.peak_reserved,
            "limit_bytes": (held.hard_limit < u64::MAX).then_some(held.hard_limit),
            "out_of_memory": self.meter.failures.load(Relaxed),
            "driver_calls": report.driver_calls,
            "rungs": rungs,
            "pools": self.by_class(blocks),
        });
        let mut shown = self.meter.total();
        shown.extend(rest.as_object().cloned().unwrap_or_default());
        Ok(Value::Object(shown))
    }

    /// The figures of each class of requests. Graphs keep them apart. In all other memory they lie side by side, and count for the
    /// pages that they would fill; what nothing lives in counts for neither.
    fn by_class(&self, blocks: u64) -> Value {
        let others = blocks.saturating_sub(self.graphs.held(SizeClass::Small).blocks);
        let figures = |(class, name): (SizeClass, &str)| {
            let kept = self.graphs.held(class);
            let mixed = self.meter.rounded(class).saturating_sub(kept.used);
            let bytes = kept.bytes + mixed.next_multiple_of(PAGE);
            let blocks = if class == SizeClass::Small { kept.blocks } else { others };
            let mut figures = self.meter.figures(class);
            figures.insert("segments".into(), blocks.into());
            figures.insert("reserved_bytes".into(), bytes.into());
            (name.to_owned(), Value::Object(figures))
        };
        Value::Object(SizeClass::ALL.into_iter().map(figures).collect())
    }

    /// Held memory as PyTorch's snapshots show it. Blocks that never had anything live in a snapshot are left out.
    pub(crate) fn segments(&self) -> Value {
        let report = self.manager.report();
        let mut addresses = Addresses::default();
        self.live.for_each(|address, Resident { held, size, stream, .. }| {
            let (granted, id) = match held {
                Held::Plain(allocation, _) => {
                    addresses.note(&allocation.binding(), address);
                    (*size, Some(allocation.id()))
                }
                Held::Kept(kept) => (kept.granted, None),
            };
            let tenant = Tenant { size: *size, granted, stream: stream.address, id };
            addresses.tenants.insert(address, tenant);
        });
        self.graphs.for_each_block(|pool, address, allocation| {
            addresses.note(&allocation.binding(), address);
            addresses.kept.insert(address, pool);
        });
        let pools = report.pools.iter().filter(|pool| pool.heap == self.heap);
        let blocks = pools.flat_map(|pool| &pool.blocks);
        map::segments(blocks, &addresses, &mut lock(&self.bases)).into()
    }

    /// The report's data, for the HTML page.
    pub(crate) fn picture(&self) -> ReportData {
        let mut data = omniheap::report::picture(&self.manager, "omniheap under PyTorch");
        if let Some(place) = record::place() {
            let fact =
                |name: &str, value: u32| Fact { name: name.into(), value: value.to_string() };
            data.facts.push(fact("rank", place.rank));
            data.facts.extend(place.world.map(|world| fact("world size", world)));
        }
        data
    }

    /// Error message for a request that failed here. A shortage of memory begins as PyTorch's: programs look for that.
    pub(crate) fn explain(&self, size: u64, error: &AllocateError) -> String {
        if let Some(line) = tags::explain(error.kind()) {
            return line;
        }
        let (name, rank) = (B::NAME, record::of_rank());
        if !is_shortage(error.kind()) {
            let device = self.ordinal;
            return format!(
                "omniheap: {name} device {device} did not allocate {size} bytes: {error}{rank}"
            );
        }
        if size >= EXABYTE {
            return format!("{name} out of memory. Tried to allocate more than 1EB memory.");
        }
        let (held, free) = (self.reserved(), self.free_of_driver().unwrap_or(0));
        let total = self.manager.caps().heap(self.heap).map_or(0, |heap| heap.size);
        format!(
            "{name} out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. \
             omniheap could not allocate {size} bytes and holds {held}; {error}{rank}",
            human(size),
            self.ordinal,
            human(total),
            human(free),
        )
    }
}

/// Returns true if a smaller request would do: PyTorch, and programs that halve their batch, call that out of memory. A
/// request above all that the device has is one of them; a host that is out of memory is none.
pub(crate) fn is_shortage(kind: ErrorKind) -> bool {
    tags::is_full(kind) || matches!(kind, ErrorKind::ExceedsLimit | ErrorKind::SizeOverflow)
}

/// Bytes in whole units, as PyTorch counts them.
fn rounded(size: u64) -> i64 {
    i64::try_from(size.next_multiple_of(UNIT)).unwrap_or(i64::MAX)
}

/// Bytes as PyTorch writes them.
fn human(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let scaled = |shift: u32| bytes as f64 / (1_u64 << shift) as f64;
    match bytes {
        ..=0x400 => format!("{bytes} bytes"),
        0x401..=0x10_0000 => format!("{:.2} KiB", scaled(10)),
        0x10_0001..=0x4000_0000 => format!("{:.2} MiB", scaled(20)),
        _ => format!("{:.2} GiB", scaled(30)),
    }
}

#[cfg(test)]
mod asleep;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
