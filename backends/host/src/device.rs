//! The device: its memory, its timelines, and whether it is still there.
use crate::block::{Block, Body};
use crate::caps::{self, Config};
use crate::driver::forks;
use crate::hold::{Gate, Hold, Status};
use crate::ledger::Ledger;
#[cfg(target_os = "linux")]
use crate::pages::Pages;
use crate::programs::Programs;
use crate::timeline::{Job, Line, Task};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use omniheap_limits::{SystemLimits, Vendor};
use omniheap_seam::{Caps, Epoch, ErrorKind, Result, TimelineId};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Host memory as a device.
///
/// The device does not survive `fork`: its threads and pages stay with the parent. In the child every call answers
/// `DeviceLost`, and nothing of the parent's memory changes; open a new device there.
///
/// The device is strict: what a driver would leave undefined is a typed error here. Put it in an [`Arc`] to keep
/// [`hold`](Self::hold) and [`lose`](Self::lose) at hand while a manager uses it.
pub struct Host {
    pub(crate) id: u64,
    pub(crate) caps: Caps,
    pub(crate) ledger: Ledger,
    pub(crate) status: Arc<Status>,
    /// Distinguishes the process that opened the device from its forked children.
    forks: u64,
    /// Pages of each heap; a heap without pages has none.
    #[cfg(target_os = "linux")]
    pub(crate) pages: Vec<Option<Arc<Pages>>>,
    main: Arc<Line>,
    /// Waits for the others, where all of them are marked at once.
    all: Arc<Line>,
    pub(crate) lines: RwLock<BTreeMap<TimelineId, Arc<Line>>>,
    pub(crate) next_line: AtomicU32,
    pub(crate) programs: Programs,
    pub(crate) limits: SystemLimits,
}

impl Host {
    /// Returns all memory of this machine, with the heaps and limits of a usual device.
    ///
    /// # Panics
    ///
    /// Panics when the process cannot open another file.
    #[must_use]
    pub fn new() -> Self {
        Self::like(Config::usual().into_caps()).expect("the usual heaps are valid")
    }

    /// Starts a device without heaps; add at least one.
    #[must_use]
    pub fn builder() -> Config {
        Config::new()
    }

    /// Acts out the device that `caps` describes. Heaps may be larger than this machine's memory: bytes that nobody
    /// touches cost none.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for no heap, a heap or block limit of zero, an alignment above a gibibyte, or pages smaller than
    /// the operating system's; `Unsupported` for pages where the system cannot remap; `OutOfHostMemory`.
    pub fn like(caps: Caps) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        caps::check(&caps)?;
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ledger: Ledger::new(&caps),
            status: Arc::default(),
            forks: forks(),
            #[cfg(target_os = "linux")]
            pages: open_pages(&caps)?,
            main: Line::new(),
            all: Line::new(),
            lines: RwLock::default(),
            next_line: AtomicU32::new(TimelineId::MAIN.0 + 1),
            programs: Programs::default(),
            limits: SystemLimits::new(Vendor::Any, 0),
            caps,
        })
    }

    /// The same device, limited from outside as another one would be: for tests of limits.
    #[must_use]
    pub fn limited_by(mut self, limits: SystemLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Holds a timeline back: what is submitted to it from now on waits until the guard is dropped.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `DeviceLost`, `OutOfHostMemory`.
    pub fn hold(&self, timeline: TimelineId) -> Result<Hold> {
        self.check_process()?;
        let gate = Arc::new(Gate::default());
        let hold = Hold { gate: Arc::clone(&gate) };
        self.status.register(&gate);
        self.submit(timeline, Task::Hold(gate))?;
        Ok(hold)
    }

    /// Loses the device, as a crash or an unplugged cable would: pending work is dropped, waiters wake, and every call
    /// from now on answers `DeviceLost`. Frees still release what they can.
    pub fn lose(&self) {
        self.status.lose();
    }

    /// Refuses when the device is lost.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.check_process()?;
        if self.status.is_lost() { Err(ErrorKind::DeviceLost.into()) } else { Ok(()) }
    }

    /// Refuses in a forked child, before anything is locked: threads that held a lock there, or would wait for work,
    /// are gone.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.forks == forks() { Ok(()) } else { Err(ErrorKind::DeviceLost.into()) }
    }

    /// Refuses a block of another device.
    pub(crate) fn own<'a>(&self, block: &'a Block) -> Result<&'a Arc<Body>> {
        if block.body.owner == self.id { Ok(&block.body) } else { Err(ErrorKind::Foreign.into()) }
    }

    /// Appends work to a timeline.
    pub(crate) fn submit(&self, on: TimelineId, task: Task) -> Result<()> {
        self.check_alive()?;
        let status = Arc::clone(&self.status);
        self.with_line(on, |line| line.submit(Job { status, task }))?
    }

    /// Runs `f` with the timeline, if it is open.
    pub(crate) fn with_line<T>(
        &self,
        id: TimelineId,
        f: impl FnOnce(&Arc<Line>) -> T,
    ) -> Result<T> {
        if id == TimelineId::MAIN {
            return Ok(f(&self.main));
        }
        let lines = self.lines.read().unwrap_or_else(PoisonError::into_inner);
        lines.get(&id).map(f).ok_or(ErrorKind::NoSuchTimeline.into())
    }

    /// As [`with_line`](Self::with_line), for what only looks: also all timelines together.
    pub(crate) fn watch_line<T>(
        &self,
        id: TimelineId,
        look: impl FnOnce(&Arc<Line>) -> T,
    ) -> Result<T> {
        if id == TimelineId::ALL { Ok(look(&self.all)) } else { self.with_line(id, look) }
    }

    /// Marks all timelines at once.
    pub(crate) fn mark_all(&self) -> Result<Epoch> {
        for line in self.all_lines() {
            let epoch = line.mark();
            if line.reached() < epoch {
                let (status, task) = (Arc::clone(&self.status), Task::After(line, epoch));
                self.all.submit(Job { status, task })?;
            }
        }
        Ok(self.all.mark())
    }

    /// Waits until every timeline has done what it has to do now, and the marks of all of them are reached.
    pub(crate) fn wait_for_lines(&self) {
        self.all_lines().iter().chain([&self.all]).for_each(|line| line.wait(line.mark()));
    }

    /// Returns every timeline that is open now.
    pub(crate) fn all_lines(&self) -> Vec<Arc<Line>> {
        let lines = self.lines.read().unwrap_or_else(PoisonError::into_inner);
        lines.values().chain([&self.main]).cloned().collect()
    }
}

impl Config {
    /// Opens the device.
    ///
    /// # Errors
    ///
    /// As for [`Host::like`].
    pub fn open(self) -> Result<Host> {
        Host::like(self.into_caps())
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            return;
        }
        // A guard that outlives the device must not keep it from closing.
        self.status.open_all();
        self.all_lines().iter().chain([&self.all]).for_each(|line| {
            line.close();
        });
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("caps", &self.caps).field("ledger", &self.ledger).finish()
    }
}

#[cfg(target_os = "linux")]
fn open_pages(caps: &Caps) -> Result<Vec<Option<Arc<Pages>>>> {
    let open = |size: u64| Pages::new(size).map(Arc::new);
    caps.heaps.iter().map(|heap| heap.page.map(|page| open(page.get())).transpose()).collect()
}
