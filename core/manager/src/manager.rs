//! The object that programs hold: pools, policy and budgets of one device, behind `&self`.
mod allocate;
mod allocation;
mod binding;
mod budget;
mod config;
mod defragment;
mod error;
mod explain;
mod ladder;
mod launch;
mod overlay;
mod placed;
mod pools;
mod recall;
mod report;
mod sanitize;
mod sleepable;
#[cfg(test)]
mod tests;
mod transfer;

pub use allocation::{Allocation, Buffer};
pub use binding::{Binding, Mapped, Mapping, Pinned};
pub use budget::{Limits, Pressure, Relief};
pub use config::{Background, Defragmentation, ManagerConfig, Remapping};
pub use defragment::{Decision, Step};
pub use error::{AllocateError, GiveBack, Shortage};
pub use explain::{Explanation, Plan, Source, Verdict};
pub use launch::Program;
pub use overlay::{HeapOverlay, Overlay};
pub use placed::Placed;
pub use pools::UserPool;
pub use report::{PoolReport, Report};
pub use sleepable::Sleepable;
pub use transfer::CopyRegion;

use crate::defrag::DefragStats;
use crate::device::Device;
use crate::guards::Watch;
use crate::lane::{WaitMode, Waiting};
use crate::pool::{Names, Pool};
use crate::sync::Mutex;
use crate::{Backend, Caps, ErrorKind, HeapId, Request, Result, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use allocate::FastPath;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use defragment::Work;
use ladder::Climbs;
use std::sync::OnceLock;

type Callback = Arc<dyn Fn(&Pressure) -> Relief + Send + Sync>;

/// Hands out memory of one device. Cheap to clone; every clone is the same manager.
///
/// # Determinism
///
/// The same calls in the same order on one thread give the same places, on every run and on every device with equal caps,
/// where nothing depends on time. Three things do: whether a timeline has passed when memory is short or the host
/// accesses it, passes with a budget
/// in time, and on heaps whose pages a queue maps ([`Heap::mapper`](crate::Heap::mapper)) whether a request is served by mapping
/// pages or by copying, which is decided by what both took. [`Remapping::Always`] takes the last one away.
///
/// # Examples
///
/// ```
/// use omniheap_core::{Manager, Request, Usage};
/// use omniheap_host::Host;
///
/// let manager = Manager::new(Host::new());
/// let frame = manager.allocate(&Request::new(4096).usage(Usage::Upload).name("frame"))?;
/// frame.write(0, b"bytes")?;
/// assert_eq!(manager.totals().live, 1);
/// drop(frame); // reusable at once; the driver is not asked
/// assert_eq!(manager.totals().live, 0);
/// # Ok::<(), omniheap_core::AllocateError>(())
/// ```
pub struct Manager<B: Backend> {
    inner: Arc<Inner<B>>,
}

struct Inner<B: Backend> {
    device: Arc<Device<B>>,
    names: Arc<Names>,
    /// The guards, if there are any.
    watch: Option<Arc<Watch<B>>>,
    config: ManagerConfig,
    /// Requests that a held hole may serve before anything else is decided.
    fast_path: FastPath,
    /// The default pool of each heap.
    pools: Vec<OnceLock<Arc<Pool<B>>>>,
    user_pools: Mutex<Vec<Arc<Pool<B>>>>,
    callbacks: Mutex<Vec<Callback>>,
    climbs: Climbs,
    /// Host-visible heaps that are skipped because they are nearly full.
    host_visible: placed::HostVisibleHeaps,
    /// Statistics and costs of defragmentation.
    defrag_stats: Arc<DefragStats>,
    /// The timeline on which bytes are moved, once there was something to move.
    mover: OnceLock<TimelineId>,
    work: Work<B>,
}

impl<B: Backend> Clone for Manager<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<B: Backend> fmt::Debug for Manager<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("device", &self.caps().device)
            .field("report", &self.report())
            .finish()
    }
}

impl<B: Backend> Manager<B> {
    /// A manager of a device, with the usual settings. Nothing is asked of the driver yet.
    pub fn new(backend: B) -> Self {
        Self::with_config(backend, ManagerConfig::default())
    }

    /// A manager with settings of your own.
    pub fn with_config(backend: B, config: ManagerConfig) -> Self {
        Self::over(Device::new(backend), config)
    }

    fn over(device: Device<B>, config: ManagerConfig) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let caps = device.backend().caps();
        let usual = explain::decide(config.policy.as_ref(), &Request::new(1), caps).ok();
        let plain = usual.and_then(|placement| placement.heaps.as_slice().first().copied());
        let device = Arc::new(device.set_up(config.observer.clone(), config.driver_limit, usual));
        let caps = device.backend().caps();
        let pools = caps.heaps.iter().map(|_| OnceLock::new()).collect();
        let defrag_stats = Arc::new(DefragStats::default());
        let host_visible = placed::HostVisibleHeaps::new(caps);
        let first = plain.unwrap_or(HeapId(0));
        let watch = |guards| Arc::new(Watch::new(guards, Arc::clone(&device), first));
        let watch = config.guards.as_ref().map(watch);
        let fast_path = match plain {
            Some(heap) if watch.is_none() && config.observer.is_none() => FastPath::Silent(heap),
            Some(heap) if watch.is_none() => FastPath::Observed(heap),
            _ => FastPath::Off,
        };
        Self {
            inner: Arc::new(Inner {
                device,
                watch,
                names: Arc::new(Names::new(NEXT.fetch_add(1, Relaxed))),
                fast_path,
                config,
                pools,
                user_pools: Mutex::new(Vec::new()),
                callbacks: Mutex::new(Vec::new()),
                climbs: Climbs::default(),
                host_visible,
                defrag_stats,
                mover: OnceLock::new(),
                work: Work::new(),
            }),
        }
    }

    /// The device's backend, for what only it can do.
    #[must_use]
    pub fn backend(&self) -> &B {
        self.inner.device.backend()
    }

    /// Returns the device's capabilities.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        self.backend().caps()
    }

    /// Returns the manager's configuration.
    #[must_use]
    pub fn config(&self) -> &ManagerConfig {
        &self.inner.config
    }

    /// Tells this manager from all others.
    fn number(&self) -> u32 {
        self.inner.names.manager
    }

    /// Makes reusable everything whose timelines have passed; returns how many allocations that were.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn retire(&self) -> Result<u64> {
        let lanes = self.all_pools().into_iter().flat_map(|pool| pool.lanes());
        let retired = lanes.map(|lane| lane.retire(WaitMode::Poll)).sum();
        if let Some(watch) = &self.inner.watch {
            watch.poll(false);
        }
        retired
    }

    /// Gives empty blocks and pages back to the driver, down to the pools' minimums; returns how many bytes. Zeroes secrets first whose
    /// zeros the driver refused, and waits for the device where there are any. A lost device runs nothing, so that all its blocks are out
    /// of use; it unmaps nothing either, so pages stay until the manager ends.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn trim(&self) -> Result<u64> {
        self.all_pools().iter().for_each(|pool| pool.zero_kept());
        self.trim_some(u64::MAX, |_| true)
    }

    /// Gives empty blocks and pages back to the driver until they are `enough` bytes, of which the last may be too much; returns how
    /// many bytes. For programs that keep some of what is empty because they take it again soon.
    ///
    /// # Errors
    ///
    /// As for [`trim`](Self::trim).
    pub fn trim_bytes(&self, enough: u64) -> Result<u64> {
        self.trim_some(enough, |_| true)
    }

    /// As [`trim_bytes`](Self::trim_bytes), of some heaps.
    pub(in crate::manager) fn trim_some(
        &self,
        enough: u64,
        of: impl Fn(HeapId) -> bool,
    ) -> Result<u64> {
        match self.retire() {
            // Then everything has passed, which the pools find out.
            Err(error) if error.kind() == ErrorKind::DeviceLost => {}
            retired => drop(retired?),
        }
        if let Some(watch) = &self.inner.watch {
            watch.trim();
        }
        let mut trimmed = self.end_dropped_pools(&of);
        for pool in self.all_pools().iter().filter(|pool| of(pool.shared.heap)) {
            trimmed += pool.trim(enough.saturating_sub(trimmed))?;
        }
        Ok(trimmed)
    }

    /// Sets how pools wait: with `LastResort`, pools neither wait for timelines to save memory nor let one run after
    /// another; with `Thrift` they do again what they were made for.
    ///
    /// Use it while a stream is captured into a graph: to mark the stream, or to wait for it, would spoil the capture.
    pub fn set_waiting(&self, waiting: Waiting) {
        self.inner.device.hurried.store(waiting == Waiting::LastResort, Relaxed);
    }

    /// Calls `callback` when memory is short, before a request fails. It may free through this manager, and allocate; what it
    /// asks for itself does not call it again.
    ///
    /// A callback lives as long as its manager, so one that holds a clone of the manager keeps both alive for ever: give it a
    /// way there that you can end.
    pub fn on_pressure(&self, callback: impl Fn(&Pressure) -> Relief + Send + Sync + 'static) {
        self.inner.callbacks.lock().push(Arc::new(callback));
    }
}

impl<B: Backend> Drop for Inner<B> {
    fn drop(&mut self) {
        self.work.end();
        if let (Some(mover), Some(timelines)) =
            (self.mover.get(), self.device.backend().as_timelines())
            && *mover != TimelineId::MAIN
        {
            // Closing waits for the copies of passes that outlive the manager.
            let _ = timelines.close(*mover);
        }
        let pools = self.pools.iter().filter_map(OnceLock::get).cloned();
        let pools = pools.chain(self.user_pools.lock().iter().cloned()).collect::<Vec<_>>();
        for lane in pools.iter().flat_map(|pool| pool.lanes()) {
            // Waiting frees whatever was deferred; a lost device is reported by the calls that meet it.
            let _ = lane.retire(WaitMode::Block);
            lane.warn_of_leaks();
        }
        if let Some(watch) = &self.watch {
            watch.poll(true);
        }
    }
}
