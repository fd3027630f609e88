//! The device that a replay runs on: real, or one without bytes that has its limits.
use super::clock::Clock;
use super::planned::{Kept, keep};
use super::program::Program;
use super::run::{Played, Until, play};
use omniheap::host::{Host, heap};
use omniheap::layers::Limit;
use omniheap::schedule::Schedule;
use omniheap::{
    Align, AnyBackend, Backend, BackendKind, Caps, Error, ErrorKind, HeapId, ManagerConfig,
    Request,
    defrag::Remapping,
    open,
    placement::{DefaultPolicy, Policy},
    seam::{DeviceInfo, Heap, HeapKind, Result, erase},
};
use omniheap_null::Null;

/// The heap of a device that has no size of its own: address space, not memory.
const WIDE: u64 = 256 << 30;

/// Use of paged pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// Paged where the device can remap.
    Wanted,
    /// Blocks only.
    Off,
}

/// Memory capacity of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The device's own capacity.
    Whole,
    /// This many bytes.
    Bytes(u64),
}

/// Device of a replay.
#[derive(Debug)]
pub enum Device {
    /// This machine's memory.
    Host,
    /// Accounts only.
    Null(Box<Caps>),
    /// An opened device.
    Real(AnyDevice),
}

/// An opened device, printable.
pub struct AnyDevice(AnyBackend);

impl AnyDevice {
    /// Returns a clock that asks the driver about the heap that plain requests go to.
    fn clock(&self) -> Result<Clock> {
        let heap = first_heap(self.0.caps())?;
        Ok(Clock::new(Some((AnyBackend::clone(&self.0), heap))))
    }
}

impl core::fmt::Debug for AnyDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.caps().device.fmt(f)
    }
}

impl Device {
    /// Opens device `ordinal` of a backend, or a null device.
    pub fn open(backend: Option<BackendKind>, ordinal: u32) -> Result<Self> {
        match backend {
            None => Ok(Self::Null(Box::new(host_caps(WIDE)))),
            Some(BackendKind::Host) if ordinal == 0 => Ok(Self::Host),
            Some(kind) => Ok(Self::Real(AnyDevice(open(kind, ordinal)?))),
        }
    }

    /// Returns the same limits without bytes, with a capacity; only the heap that plain requests go to remains.
    pub fn null(&self, capacity: u64) -> Result<Null> {
        let mut caps = match self {
            Self::Host => host_caps(WIDE),
            Self::Null(caps) => (**caps).clone(),
            Self::Real(device) => device.0.caps().clone(),
        };
        let mut heap = caps.heaps.swap_remove(usize::from(first_heap(&caps)?.0));
        heap.size = capacity;
        heap.max_block = heap.max_block.min(capacity);
        caps.heaps = vec![heap];
        Ok(Null::new(caps))
    }

    /// Returns the same device without bytes, with every size that it has.
    pub fn emptied(&self) -> Result<Self> {
        Ok(Self::Null(Box::new(self.null(WIDE)?.caps().clone())))
    }

    /// Returns whether a replay builds its pools from pages.
    pub fn is_paged(&self, paging: Paging) -> Result<bool> {
        let pages = |caps: &Caps| {
            let first = first_heap(caps)?;
            // Managers build pools from pages in device memory only.
            let paged = |heap: &Heap| heap.kind == HeapKind::Device && heap.page.is_some();
            Ok::<_, Error>(caps.heap(first).is_some_and(paged))
        };
        let can = match self {
            Self::Host => cfg!(target_os = "linux"),
            Self::Null(caps) => pages(caps)?,
            Self::Real(device) => device.0.as_remap().is_some() && pages(device.0.caps())?,
        };
        Ok(can && paging == Paging::Wanted)
    }

    /// Replays on a fresh manager.
    pub fn play(&self, program: &Program, capacity: Capacity, paging: Paging) -> Result<Played> {
        let config = config(paging, capacity);
        match (self, capacity) {
            (Self::Host, _) => {
                let host = Host::like(host_caps(bytes(capacity)))?;
                play(erase(host), Clock::new(None), config, program, Until::End, |_, _| ())
            }
            (Self::Null(_), _) => {
                let null = self.null(bytes(capacity))?;
                play(erase(null), Clock::new(None), config, program, Until::End, |_, _| ())
            }
            (Self::Real(device), Capacity::Whole) => play(
                AnyBackend::clone(&device.0),
                device.clock()?,
                config,
                program,
                Until::End,
                |_, _| (),
            ),
            (Self::Real(device), Capacity::Bytes(capacity)) => {
                let limited = limited(AnyBackend::clone(&device.0), capacity)?;
                play(erase(limited), device.clock()?, config, program, Until::End, |_, _| ())
            }
        }
    }

    /// Replays on a fresh manager of a null device, and returns the bytes reserved over time: each change as the number of
    /// steps before it and the bytes from then on. The device has at least `room` bytes.
    pub fn reserved_curve(
        &self,
        program: &Program,
        paging: Paging,
        room: u64,
    ) -> Result<(Played, Vec<(u64, u64)>)> {
        let (config, null) = (config(paging, Capacity::Whole), self.null(WIDE.max(room))?);
        let mut curve: Vec<(u64, u64)> = Vec::new();
        let played =
            play(erase(null), Clock::new(None), config, program, Until::End, |step, device| {
                let bytes = device.live().bytes();
                if curve.last().map_or(0, |&(_, held)| held) != bytes {
                    curve.push((step as u64, bytes));
                }
            })?;
        Ok((played, curve))
    }

    /// Replays by the schedule of the program's trace on a fresh manager.
    pub fn keep(&self, program: &Program, schedule: &Schedule) -> Result<Kept> {
        let config = config(Paging::Off, Capacity::Whole);
        match self {
            Self::Host => keep(erase(Host::like(host_caps(WIDE))?), config, program, schedule),
            Self::Null(_) => keep(erase(self.null(WIDE)?), config, program, schedule),
            Self::Real(device) => keep(AnyBackend::clone(&device.0), config, program, schedule),
        }
    }

    /// Replays on a null device of `capacity` bytes until something fails; says how much was reserved if nothing did.
    pub fn completes(
        &self,
        program: &Program,
        capacity: u64,
        paging: Paging,
    ) -> Result<Option<u64>> {
        let device = self.null(capacity)?;
        let config = config(paging, Capacity::Bytes(capacity));
        let played =
            play(erase(device), Clock::new(None), config, program, Until::FirstFailure, |_, _| ())?;
        Ok(played.failed.is_empty().then_some(played.peak_reserved))
    }
}

const fn bytes(capacity: Capacity) -> u64 {
    match capacity {
        Capacity::Whole => WIDE,
        Capacity::Bytes(bytes) => bytes,
    }
}

/// Returns the usual settings, with one lane for threads: a replay has one thread, and the result is the same every time.
///
/// A plain pool with a known capacity allocates it as one block, as an engine with a fixed budget would.
fn config(paging: Paging, capacity: Capacity) -> ManagerConfig {
    let mut config = ManagerConfig::default();
    // The outcome of a replay depends on the trace and on caps, not on how long calls took.
    config.remapping = Remapping::Always;
    config.pool.lanes = Some(1);
    if let (Paging::Off, Capacity::Bytes(bytes)) = (paging, capacity) {
        config.pool.minimum = Align::of(2 << 20).down(bytes);
    }
    match paging {
        Paging::Wanted => config,
        Paging::Off => config.plain(),
    }
}

/// Host memory as one heap of device memory.
fn host_caps(size: u64) -> Caps {
    let mut caps = Host::new().caps().clone();
    caps.heaps = vec![heap(HeapKind::Device, size)];
    caps.device = DeviceInfo { name: "host memory".into(), ..caps.device };
    caps
}

/// Returns the heap that requests go to which say nothing of their use.
fn first_heap(caps: &Caps) -> Result<HeapId> {
    let placement = DefaultPolicy.place(&Request::new(1), caps)?;
    placement.heaps.as_slice().first().copied().ok_or(ErrorKind::NoSuchHeap.into())
}

/// Returns the device with `capacity` bytes of the first heap and next to nothing of the others.
fn limited(device: AnyBackend, capacity: u64) -> Result<Limit<AnyBackend>> {
    let first = first_heap(device.caps())?;
    let limit = |(heap, _): (HeapId, &Heap)| if heap == first { capacity } else { 1 };
    let limits: Vec<_> = device.caps().heap_ids().map(limit).collect();
    Ok(Limit::new(device, &limits, u64::MAX))
}
