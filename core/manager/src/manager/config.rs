//! Configuration of a manager.
#![forbid(unsafe_code)]
use crate::defrag::Budget;
use crate::device::DriverLimit;
use crate::event::Observer;
use crate::guards::{Guards, Overwrite};
use crate::lane::PoolConfig;
use crate::{Align, Caps, DefaultPolicy, Heap, HeapId, HeapKind, Mapper, Policy};
use alloc::sync::Arc;

/// Configuration of a manager.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ManagerConfig {
    /// Policy that chooses the heap of a request.
    pub policy: Arc<dyn Policy>,
    /// Every span starts at, and is a multiple of, this.
    pub unit: Align,
    /// The default pools.
    pub pool: PoolConfig,
    /// Occasions on which live data is moved together.
    pub defragmentation: Defragmentation,
    /// Method by which pools of pages make room.
    pub remapping: Remapping,
    /// Growth beyond the driver's budget: avoided, or not.
    pub driver_limit: DriverLimit,
    /// The observer of what the manager does; none by default.
    pub observer: Option<Arc<dyn Observer>>,
    /// Guards behind all allocations; none by default.
    pub guards: Option<Guards>,
}

impl Default for ManagerConfig {
    fn default() -> Self {
        let pool = PoolConfig::new().paged();
        let (policy, unit) = (Arc::new(DefaultPolicy), Align::of(256));
        Self {
            policy,
            unit,
            pool,
            defragmentation: Defragmentation::default(),
            remapping: Remapping::default(),
            driver_limit: DriverLimit::default(),
            observer: None,
            guards: None,
        }
    }
}

impl ManagerConfig {
    /// The same settings with pools that grow by blocks, also where pages could be mapped.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.pool.paged = false;
        self
    }

    /// The same settings, within the driver's budget: see [`DriverLimit::Honoured`].
    #[must_use]
    pub fn within_driver_budget(mut self) -> Self {
        self.driver_limit = DriverLimit::Honoured;
        self
    }

    /// The same settings with an observer.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Returns the same settings with guards behind all allocations, for [`Manager::overwrites`](crate::Manager::overwrites).
    ///
    /// Every allocation has a guard from its last byte to the end of what it occupies, where there is room for one. Requests fail
    /// with `Unsupported` where the device moves no bytes, and with what it says where a guard cannot be laid.
    ///
    /// # Cost
    ///
    /// Every request takes the slow path and has all its bytes filled, as much when it is freed; it occupies at least sixteen
    /// bytes more than it asks for, which rounding often has anyway.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.guards = Some(Guards { told: None });
        self
    }

    /// As [`guarded`](Self::guarded), and calls `told` with each finding when it is noticed, which may be after the allocation's end.
    ///
    /// The callback must be quick, and must not call the manager.
    #[must_use]
    pub fn guarded_with(mut self, told: impl Fn(&Overwrite) + Send + Sync + 'static) -> Self {
        self.guards = Some(Guards { told: Some(Arc::new(told)) });
        self
    }

    /// The default pool's settings for one heap: pages only for device memory.
    pub(super) fn pool_for(&self, caps: &Caps, heap: HeapId) -> PoolConfig {
        let device = caps.heap(heap).is_some_and(|heap| heap.kind == HeapKind::Device);
        PoolConfig { paged: self.pool.paged && device, ..self.pool }
    }
}

/// Occasions on which live data is moved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defragmentation {
    /// Only where the caller says so: [`Manager::defragment`](crate::Manager::defragment) and [`Manager::begin_defragment`](crate::Manager::begin_defragment).
    Off,
    /// Also before a request would fail.
    #[default]
    OnRequest,
    /// Also a little with every [`Manager::step`](crate::Manager::step).
    Background(Background),
}

/// Method by which a pool of pages makes room when it is short of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remapping {
    /// [`WhereCheaper`](Self::WhereCheaper) on heaps whose pages a queue maps, [`Always`](Self::Always) on all others: on the
    /// former, places depend on timing.
    #[default]
    ByDevice,
    /// Free pages are always mapped elsewhere: the same calls give the same places on every device.
    Always,
    /// Live data is copied together where earlier measurements say that this is cheaper, so places depend on timing.
    WhereCheaper,
}

impl Remapping {
    /// Returns true if copying is weighed against mapping on this heap.
    pub(super) const fn weighs(self, heap: &Heap) -> bool {
        match self {
            Self::ByDevice => matches!(heap.mapper, Mapper::Queue),
            Self::Always => false,
            Self::WhereCheaper => true,
        }
    }
}

/// The budget and the thresholds of background defragmentation.
///
/// Background defragmentation starts above one threshold and stops below another, so that a workload at the edge does
/// not toggle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Background {
    /// The budget of one step.
    pub budget: Budget,
    /// Starts when more than this percentage of the reserved memory is free.
    pub begin_above: u8,
    /// Stops when less than this percentage is free.
    pub end_below: u8,
}

impl Background {
    /// Steps of this budget, between a quarter and a tenth of free memory.
    #[must_use]
    pub const fn new(budget: Budget) -> Self {
        Self { budget, begin_above: 25, end_below: 10 }
    }

    /// Begins above `begin` percent of free memory and ends below `end`.
    #[must_use]
    pub const fn between(mut self, end: u8, begin: u8) -> Self {
        (self.begin_above, self.end_below) = (begin, end);
        self
    }
}
