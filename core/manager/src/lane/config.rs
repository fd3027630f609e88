//! Configuration of a pool.
#![forbid(unsafe_code)]
use super::growth::Growth;
use crate::{Align, ErrorKind, Layout, Result};
use alloc::boxed::Box;
use omniheap_strategy::{Buddy, Bump, Ring, Slab, Stack, Strategy};

/// Makes a strategy that keeps unlike neighbours so far apart.
pub(crate) type MakeStrategy = Box<dyn Fn(Align) -> Box<dyn Strategy> + Send + Sync>;

/// Algorithm that divides a pool's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StrategyKind {
    /// Any size in any order: [`Tlsf`](omniheap_strategy::Tlsf).
    General,
    /// Powers of two: [`Buddy`], with this smallest piece.
    Buddy(u64),
    /// One size: [`Slab`].
    Slab(Layout),
    /// Last in, first out: [`Stack`].
    Stack,
    /// First in, first out in one block: [`Ring`].
    Ring,
    /// Everything dies together: [`Bump`].
    Bump,
    /// A strategy of your own: [`Manager::create_pool_with`](crate::Manager::create_pool_with) sets it, and only it.
    Custom,
}

/// Condition under which a paged pool waits for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Only before a request would fail. Where the pool would hold a fifth more than was ever live, 16 MiB at least, a request
    /// takes what other timelines may still use, and its own timeline runs after them; the host does not wait.
    #[default]
    LastResort,
    /// Also before it holds a hundredth more than was ever live, 64 MiB at least: less memory, and a stall now and then while
    /// it grows.
    Thrift,
}

/// Timelines that may use the bytes of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uses {
    /// Its own timeline, and those that were named with [`use_on`](crate::Allocation::use_on).
    #[default]
    Declared,
    /// Any timeline, unannounced, as long as the allocation's own timeline runs after that use before it uses the bytes
    /// again. So bytes that leave their timeline, to another one or to the driver, wait for all work that was submitted to
    /// the device before ([`TimelineId::ALL`](crate::TimelineId::ALL)).
    ///
    /// Timelines may also end unannounced: only the one that a request names is ever asked to wait for others.
    Undeclared,
}

/// Configuration of a pool. Start from [`PoolConfig::new`] and chain what matters.
///
/// ```
/// use omniheap_core::{PoolConfig, StrategyKind};
/// let frames = PoolConfig::new().strategy(StrategyKind::Ring).block(64 << 20).maximum(64 << 20);
/// assert_eq!(frames.block, Some(64 << 20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The algorithm.
    pub strategy: StrategyKind,
    /// Bytes taken from the driver when the pool is made, and kept, beside blocks that one allocation each has for itself. Pages are
    /// taken as they are needed, and then kept.
    pub minimum: u64,
    /// Bytes that the pool never exceeds.
    pub maximum: u64,
    /// The size of every block; `None` lets the pool choose by request.
    pub block: Option<u64>,
    /// Sizes of blocks by request, where `block` is unset; `None` is [`Growth::new`].
    pub growth: Option<Growth>,
    /// Build the pool from pages where the heap has them. General strategy only.
    pub paged: bool,
    /// Condition under which a pool of pages waits for work that may still use them.
    pub waiting: Waiting,
    /// Timelines that may use an allocation.
    pub uses: Uses,
    /// Lanes for threads; one makes the pool deterministic across threads. `None` is one for each thread that uses the pool at
    /// the same time, up to four for each core, with the general strategy, and one with a strategy of your own. The other
    /// strategies have one lane.
    pub lanes: Option<u32>,
    /// True if the pool can [sleep](crate::UserPool::sleep): it is made of pages, in groups of 32 MiB where the driver
    /// has groups, and has one lane unless `lanes` says otherwise.
    pub sleepable: bool,
    /// True if a request wakes the pool when it is asleep, instead of failing with `Asleep`.
    pub wakes_on_request: bool,
    /// True if a user makes the pool.
    pub(crate) is_own: bool,
}

impl PoolConfig {
    /// A general-purpose pool without limits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            strategy: StrategyKind::General,
            minimum: 0,
            maximum: u64::MAX,
            block: None,
            growth: None,
            paged: false,
            waiting: Waiting::LastResort,
            uses: Uses::Declared,
            lanes: None,
            sleepable: false,
            wakes_on_request: false,
            is_own: false,
        }
    }

    /// Sets the algorithm that divides the blocks.
    #[must_use]
    pub const fn strategy(mut self, strategy: StrategyKind) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the bytes that are taken from the driver when the pool is made, and kept.
    #[must_use]
    pub const fn minimum(mut self, bytes: u64) -> Self {
        self.minimum = bytes;
        self
    }

    /// Sets the bytes that the pool never exceeds.
    #[must_use]
    pub const fn maximum(mut self, bytes: u64) -> Self {
        self.maximum = bytes;
        self
    }

    /// Sets the size of every block; `None` lets the pool choose by request.
    #[must_use]
    pub fn block(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.block = bytes.into();
        self
    }

    /// Sets how large the next block is, by request and by what the pool holds.
    ///
    /// ```
    /// use omniheap_core::{Align, Growth, PoolConfig};
    /// let growth = Growth { part: 8, ..Growth::new(1 << 30, Align::of(64 << 10)) };
    /// let config = PoolConfig::new().growth(growth);
    /// assert_eq!(growth.block_for(1000, 0), Some(4 << 20));
    /// assert_eq!(growth.block_for(1000, 128 << 20), Some(16 << 20), "an eighth of what the pool holds");
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn growth(mut self, growth: impl Into<Option<Growth>>) -> Self {
        self.growth = growth.into();
        self
    }

    /// Builds the pool from pages where the heap has them. General strategy only.
    #[must_use]
    pub const fn paged(mut self) -> Self {
        self.paged = true;
        self
    }

    /// Lets the pool [sleep](crate::UserPool::sleep): its memory leaves the device and comes back at the same addresses. Makes it
    /// a pool of pages.
    #[must_use]
    pub const fn sleepable(mut self) -> Self {
        (self.paged, self.sleepable) = (true, true);
        self
    }

    /// Has a request wake the pool when it is asleep.
    #[must_use]
    pub const fn wakes_on_request(mut self) -> Self {
        self.wakes_on_request = true;
        self
    }

    /// Sets when a pool of pages waits for work that may still use them.
    #[must_use]
    pub const fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// Sets which timelines may use an allocation.
    #[must_use]
    pub const fn uses(mut self, uses: Uses) -> Self {
        self.uses = uses;
        self
    }

    /// Sets the number of lanes for threads; `None` is one for each thread that uses the pool, with the general strategy.
    #[must_use]
    pub fn lanes(mut self, lanes: impl Into<Option<u32>>) -> Self {
        self.lanes = lanes.into();
        self
    }

    /// Checks that the settings agree with each other and with a heap.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when minimum is above maximum, a block is zero or larger than the maximum, lanes are zero, or
    /// pages are asked for with another strategy than the general one; `ExceedsLimit` when the heap is smaller. A pool
    /// also refuses, as `InvalidConfig`, blocks that could hold nothing: smaller than a unit of the manager.
    pub fn check(&self, heap_size: u64, max_block: u64) -> Result<()> {
        let block = self.block.unwrap_or(1);
        let is_ring = matches!(self.strategy, StrategyKind::Ring);
        let is_general = matches!(self.strategy, StrategyKind::General);
        let invalid = [
            (self.maximum == 0, "the pool's `maximum` is 0; set at least one block"),
            (self.minimum > self.maximum, "the pool's `minimum` is above its `maximum`"),
            (block == 0, "the pool's `block` is 0; leave it unset to let the pool choose"),
            (block > self.maximum, "the pool's `block` is above its `maximum`"),
            (self.lanes == Some(0), "the pool's `lanes` is 0; leave it unset or set at least 1"),
            (self.sleepable && !self.paged, "`sleepable` needs `paged`"),
            (self.wakes_on_request && !self.sleepable, "`wakes_on_request` needs `sleepable`"),
            (self.paged && !is_general, "`paged` needs `StrategyKind::General`"),
            (is_ring && self.block.is_none(), "`StrategyKind::Ring` needs the size of its `block`"),
        ];
        let exceeding = [
            (block > max_block, "the pool's `block` is above the heap's largest block"),
            (self.minimum > heap_size, "the pool's `minimum` is above the heap's size"),
        ];
        let first = |rules: &[(bool, &'static str)]| {
            rules.iter().find(|(is_broken, _)| *is_broken).map(|(_, detail)| *detail)
        };
        match (first(&invalid), first(&exceeding)) {
            (Some(detail), _) => Err(ErrorKind::InvalidConfig.because(detail)),
            (None, Some(detail)) => Err(ErrorKind::ExceedsLimit.because(detail)),
            (None, None) => Ok(()),
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// A strategy of a kind, for the lanes that do not use the general one.
pub(crate) fn other(kind: StrategyKind, granularity: Align) -> Option<Box<dyn Strategy>> {
    Some(match kind {
        StrategyKind::General | StrategyKind::Custom => return None,
        StrategyKind::Buddy(smallest) => Box::new(Buddy::new(Align::new(smallest)?, granularity)),
        StrategyKind::Slab(layout) => Box::new(Slab::new(layout, granularity).ok()?),
        StrategyKind::Stack => Box::new(Stack::new(granularity)),
        StrategyKind::Ring => Box::new(Ring::new(granularity)),
        StrategyKind::Bump => Box::new(Bump::new(granularity)),
    })
}
