//! One device: its manager, the streams that were seen, and what is live by address.
#![expect(unsafe_code, reason = "adopts streams of the caller")]
use crate::driver::Calls;
use crate::filter::Function;
use crate::graph::{Graphs, Kept, PoolId, Shared};
use crate::live::Live;
use crate::meter::Meter;
use crate::record;
use crate::state::Settings;
use crate::streams::Streams;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use omniheap::{
    AllocateError, Allocation, BackendKind, Caps, ErrorKind, HeapId, HeapKind, Manager,
    ManagerConfig, Placement, Policy, Ranking, Reason, Region, Request, Result, TimelineId,
    Waiting,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

thread_local! {
    /// The device, stream and timeline that this thread used last: most programs stay on one.
    static LAST: Cell<(u32, usize, TimelineId)> = const { Cell::new((u32::MAX, 0, TimelineId::MAIN)) };
}

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

/// What lives at an address, and the bytes that were asked for.
struct Resident<B: Streams> {
    held: Held<B>,
    size: u64,
}

/// Who keeps the bytes.
enum Held<B: Streams> {
    Plain(Allocation<B>, Shared),
    Kept(Kept, Shared),
}

/// One device.
pub(crate) struct Device<B: Streams> {
    ordinal: u32,
    kind: BackendKind,
    heap: HeapId,
    manager: Manager<B>,
    streams: RwLock<HashMap<usize, TimelineId>>,
    live: Live<Resident<B>>,
    meter: Meter,
    graphs: Graphs<B>,
}

impl<B: Streams> Device<B> {
    pub(crate) fn open(ordinal: u32, settings: &Settings) -> Result<Self> {
        let mut config = ManagerConfig::default();
        config.policy = Arc::new(DeviceOnly);
        // Programs of this kind run for hours in the memory that they took at first.
        config.pool.waiting = Waiting::Thrift;
        let config = if settings.paged { config } else { config.plain() };
        let manager = Manager::with_config(B::open_device(ordinal)?, config);
        let heap = device_heap(manager.caps())?;
        if let Some(limit) = settings.limit {
            manager.set_budget(heap, limit, limit)?;
        }
        Ok(Self {
            ordinal,
            kind: settings.backend,
            heap,
            manager,
            streams: RwLock::default(),
            live: Live::new(),
            meter: Meter::default(),
            graphs: Graphs::new(),
        })
    }

    /// The timeline of a stream.
    ///
    /// # Safety
    ///
    /// As for [`Streams::adopt`].
    unsafe fn timeline(&self, stream: *mut c_void) -> Result<TimelineId> {
        let (ordinal, last, timeline) = LAST.get();
        if ordinal == self.ordinal && last == stream.addr() {
            return Ok(timeline);
        }
        let timeline = match self.known(stream) {
            Some(timeline) => timeline,
            // SAFETY: the caller's promise.
            None => unsafe { self.adopt(stream) }?,
        };
        LAST.set((self.ordinal, stream.addr(), timeline));
        Ok(timeline)
    }

    fn known(&self, stream: *mut c_void) -> Option<TimelineId> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&stream.addr()).copied()
    }

    /// # Safety
    ///
    /// As for [`Streams::adopt`].
    #[cold]
    unsafe fn adopt(&self, stream: *mut c_void) -> Result<TimelineId> {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(timeline) = streams.get(&stream.addr()) {
            return Ok(*timeline);
        }
        // SAFETY: the caller's promise.
        let timeline = unsafe { self.manager.backend().adopt(stream) }?;
        streams.insert(stream.addr(), timeline);
        Ok(timeline)
    }

    /// Allocates in a stream's order; returns the address.
    ///
    /// # Safety
    ///
    /// As for [`Streams::adopt`].
    pub(crate) unsafe fn allocate(
        &self,
        size: u64,
        stream: *mut c_void,
    ) -> Result<u64, AllocateError> {
        let made = if self.graphs.is_capturing() {
            // SAFETY: the caller's promise.
            unsafe { self.allocate_in_capture(size, stream) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.allocate_plain(size, stream) }
        };
        let (address, held) = made.inspect_err(|_| self.meter.failed())?;
        self.meter.allocated(size);
        self.live.insert(address, Resident { held, size });
        record::allocated(address, size, stream);
        Ok(address)
    }

    /// # Safety
    ///
    /// As for [`Streams::adopt`].
    unsafe fn allocate_plain(
        &self,
        size: u64,
        stream: *mut c_void,
    ) -> Result<(u64, Held<B>), AllocateError> {
        // SAFETY: the caller's promise.
        let timeline = unsafe { self.timeline(stream) }?;
        let allocation = self.manager.allocate(&Request::new(size).on(timeline))?;
        // The address leaves for good, so the bytes must never move.
        let address = allocation.pin_for_life().ok_or(ErrorKind::Unsupported)?;
        Ok((address, Held::Plain(allocation, Shared::No)))
    }

    /// # Safety
    ///
    /// As for [`Streams::adopt`].
    #[cold]
    unsafe fn allocate_in_capture(
        &self,
        size: u64,
        stream: *mut c_void,
    ) -> Result<(u64, Held<B>), AllocateError> {
        let _relaxed = Calls::of(self.kind).map(Calls::relax);
        match self.graphs.allocate(&self.manager, size, stream) {
            Some(taken) => taken.map(|(address, kept)| (address, Held::Kept(kept, Shared::No))),
            // SAFETY: the caller's promise.
            None => unsafe { self.allocate_plain(size, stream) },
        }
    }

    /// Frees what lives at an address; `stated` is what the caller believes that it has.
    ///
    /// # Errors
    ///
    /// A line that says what is wrong: nothing lives there, or it has another size. What lives there is freed all the same.
    pub(crate) fn free(&self, address: u64, stated: Option<u64>) -> Result<(), String> {
        let resident = self.live.remove(address);
        let Resident { held, size } =
            resident.ok_or("free of an address that is not live: freed twice, or not ours")?;
        self.meter.freed(size);
        record::freed(address);
        match held {
            Held::Plain(allocation, Shared::Yes) if self.graphs.is_capturing() => {
                self.graphs.free_later(allocation, &self.manager);
            }
            Held::Plain(allocation, _) => drop(allocation),
            Held::Kept(kept, shared) => self.graphs.free(kept, shared, &self.manager),
        }
        match stated {
            Some(stated) if stated != size => {
                Err(format!("free of {size} bytes that says {stated}: {size} are freed"))
            }
            _ => Ok(()),
        }
    }

    /// Says that another stream uses the bytes at an address too; whether something lives there.
    ///
    /// # Safety
    ///
    /// As for [`Streams::adopt`].
    pub(crate) unsafe fn use_on(&self, address: u64, stream: *mut c_void) -> Option<Result<()>> {
        self.live.with(address, |Resident { held, .. }| {
            // SAFETY: the caller's promise.
            let timeline = unsafe { self.timeline(stream) }?;
            match held {
                Held::Plain(allocation, shared) => {
                    allocation.use_on(timeline)?;
                    *shared = Shared::Yes;
                }
                Held::Kept(_, shared) => *shared = Shared::Yes,
            }
            Ok(())
        })
    }

    /// Gives everything empty back to the driver.
    pub(crate) fn trim(&self) -> Result<u64> {
        self.manager.trim()
    }

    /// Sets the most that may be held.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<()> {
        self.manager.set_budget(self.heap, bytes, bytes)
    }

    /// Sets the most that may be held, as a share of the device.
    pub(crate) fn set_share(&self, share: f64) -> Result<()> {
        self.manager.set_budget_share(self.heap, share)
    }

    /// # Safety
    ///
    /// As for [`Graphs::begin`].
    pub(crate) unsafe fn begin(&self, pool: PoolId, filter: *mut Function) {
        // Before the capture begins, which no mark or wait of ours may spoil.
        self.manager.set_waiting(Waiting::LastResort);
        // SAFETY: the caller's promise.
        unsafe { self.graphs.begin(pool, filter) };
    }

    pub(crate) fn end(&self, pool: PoolId) {
        self.graphs.end(pool, &self.manager);
        if !self.graphs.is_capturing() {
            self.manager.set_waiting(Waiting::Thrift);
        }
    }

    pub(crate) fn release(&self, pool: PoolId) {
        self.graphs.release(pool, &self.manager);
    }

    /// Lets the peaks of `stats()` begin anew.
    pub(crate) fn reset_peaks(&self) {
        self.meter.reset_peaks();
        self.manager.reset_peaks();
    }

    /// The figures that `stats()` shows.
    pub(crate) fn stats(&self) -> Result<Value> {
        // What was freed and has passed its streams is not live any more.
        self.manager.retire()?;
        let (totals, report) = (self.manager.totals(), self.manager.report());
        let held = self.manager.heap_use(self.heap)?;
        let rungs: serde_json::Map<String, Value> = omniheap::Rung::ALL
            .iter()
            .zip(report.rungs)
            .map(|(rung, count)| (omniheap::Word::word(*rung).replace('-', "_"), count.into()))
            .collect();
        Ok(json!({
            "backend": self.kind.name(),
            "device": self.ordinal,
            "device_name": self.manager.caps().device.name,
            "live": self.meter.count.now(),
            "peak_live": self.meter.count.peak(),
            "live_bytes": self.meter.bytes.now(),
            "peak_live_bytes": self.meter.bytes.peak(),
            "padding_bytes": totals.padding_bytes(),
            "free_bytes": totals.free_bytes,
            "largest_hole": totals.largest_hole,
            "waiting_bytes": totals.deferred_bytes,
            "reserved_bytes": held.reserved,
            "peak_reserved_bytes": held.peak_reserved,
            "limit_bytes": (held.hard_limit < u64::MAX).then_some(held.hard_limit),
            "allocated": self.meter.count.added(),
            "allocated_bytes": self.meter.bytes.added(),
            "freed": self.meter.count.taken(),
            "freed_bytes": self.meter.bytes.taken(),
            "out_of_memory": self.meter.failures.load(Relaxed),
            "driver_calls": report.driver_calls,
            "rungs": rungs,
        }))
    }

    /// The report's data, for the HTML page.
    pub(crate) fn picture(&self) -> omniheap::trace::report::ReportData {
        omniheap::picture(&self.manager, "omniheap under PyTorch")
    }

    /// What an error message says of a request that failed here.
    pub(crate) fn explain(&self, size: u64, error: &AllocateError) -> String {
        let held = self.manager.heap_use(self.heap).map_or(0, |held| held.reserved);
        format!(
            "{} out of memory on device {}: omniheap could not allocate {size} bytes and holds {held}; {error}",
            B::NAME,
            self.ordinal,
        )
    }
}
