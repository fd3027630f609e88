//! Pools: blocks of one heap, divided by one strategy.
//!
//! A pool is a set of lanes. A lane has its own lock, strategy and blocks, and serves the threads that have its number, so that
//! threads do not queue behind one lock. Threads that live at the same time have different numbers, and each lane is made by the
//! first thread that needs it: a pool has as many as threads use it. All timelines share a lane; each hole knows which of them used it last, so a timeline
//! reuses at once what it freed in its own order. Before a lane grows it looks into the others; what is idle there is lent.
mod away;

use crate::device::{Device, LARGEST_GROUP};
use crate::guards::{LEAST, Watch};
use crate::lane::{
    Ask, Growth, Lane, MakeStrategy, PoolConfig, REMOTE, Shared, StrategyKind, Suballocator, other,
};
use crate::sync::thread_number;
use crate::{
    Align, Backend, Class, ErrorKind, Heap, HeapId, HeapKind, Layout, Request, Result, TimelineId,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use omniheap_strategy::{Checked, Grant, Strategy, Tlsf};
use std::sync::OnceLock;

/// Lanes for threads at most.
const MOST_LANES: u32 = 64;
/// Lanes that threads may make for each core, where the pool's configuration gives no number. A thread that stands
/// still with its lane's lock taken holds up those that share it; with many lanes that is rare, and threads that wait
/// hold no more memory than these lanes.
const LANES_FOR_EACH_CORE: u32 = 4;

type Lanes<B> = Box<[OnceLock<Arc<Lane<B>>>]>;

/// Numbers that tell the lanes of all managers apart.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) manager: u32,
    lanes: AtomicU32,
}

impl Names {
    pub(crate) const fn new(manager: u32) -> Self {
        Self { manager, lanes: AtomicU32::new(0) }
    }
}

/// Blocks of one heap, divided by one strategy, with limits.
pub(crate) struct Pool<B: Backend> {
    pub(crate) shared: Arc<Shared<B>>,
    names: Arc<Names>,
    lanes: Lanes<B>,
    /// Makes the strategy of each lane where the pool has its own.
    make: Option<MakeStrategy>,
}

impl<B: Backend> Pool<B> {
    /// A pool that asks the driver for nothing until it is used or [primed](Self::prime).
    pub(crate) fn new(
        device: Arc<Device<B>>,
        heap: HeapId,
        config: PoolConfig,
        make: Option<MakeStrategy>,
        unit: Align,
        names: Arc<Names>,
        watch: Option<Arc<Watch<B>>>,
    ) -> Result<Self> {
        let about = device.heap(heap)?;
        config.check(about.size, about.max_block)?;
        let growth = growth(&config, about);
        let lanes = match config.strategy {
            StrategyKind::General if config.sleepable => config.lanes.unwrap_or(1),
            StrategyKind::General => config.lanes.unwrap_or_else(lanes_for_threads),
            StrategyKind::Custom => config.lanes.unwrap_or(1),
            _ => 1,
        };
        let lanes = lanes.clamp(1, MOST_LANES).next_power_of_two();
        let granularity = device.backend().caps().neighbour_granularity;
        if !matches!(config.strategy, StrategyKind::General) && make.is_none() {
            let detail = "the strategy refuses its settings: a buddy's smallest piece is a power of two, a slab's piece has a size";
            other(config.strategy, granularity).ok_or(ErrorKind::InvalidConfig.because(detail))?;
        }
        let largest = config.block.unwrap_or_else(|| about.granule.down(config.maximum));
        if largest < unit.get() {
            // No block could ever hold anything.
            return Err(ErrorKind::InvalidConfig
                .because("the pool's `block` or `maximum` is below the manager's `unit`"));
        }
        let shared = Arc::new(Shared::new(device, heap, config, growth, unit, watch));
        if config.sleepable {
            let detail = match (shared.page(), &shared.watch) {
                (None, _) => Some("`sleepable` needs a heap with pages, which this one has not"),
                (_, Some(_)) => Some("guards are looked at any time: a guarded pool cannot sleep"),
                _ => None,
            };
            if let Some(detail) = detail {
                return Err(ErrorKind::Unsupported.because(detail));
            }
        }
        Ok(Self { shared, names, lanes: (0..lanes).map(|_| OnceLock::new()).collect(), make })
    }

    /// Takes the pool's minimum from the driver, for the lane of the calling thread.
    pub(crate) fn prime(&self) -> Result<()> {
        let minimum = self.shared.config.minimum;
        if self.shared.page().is_some() {
            return Ok(()); // Pages are kept, not made, below the minimum: see `trim_some_pages`.
        }
        while self.shared.reserved_for_all() < minimum {
            let growth = &self.shared.growth;
            let missing = minimum - self.shared.reserved_for_all();
            let size = growth.exact(missing.min(growth.largest)).ok_or(ErrorKind::ExceedsLimit)?;
            self.lane().prime(size.max(growth.smallest))?;
        }
        Ok(())
    }

    fn make_lane(&self) -> Arc<Lane<B>> {
        let granularity = self.shared.device.backend().caps().neighbour_granularity;
        // Spans are whole units: a granularity up to that is kept without a check.
        let checked = if granularity > self.shared.unit { granularity } else { Align::ONE };
        let other = match &self.make {
            Some(make) => {
                let checked = Checked::new(make(granularity), REMOTE, report_broken);
                Some(Box::new(checked) as Box<dyn Strategy>)
            }
            None => other(self.shared.config.strategy, granularity),
        };
        let suballocator = match other {
            Some(other) => Suballocator::Other(other),
            None => Suballocator::General(Tlsf::new(checked)),
        };
        let number = self.names.lanes.fetch_add(1, Relaxed);
        Arc::new(Lane::new(Arc::clone(&self.shared), suballocator, self.names.manager, number))
    }

    /// The lane of the calling thread, where it was used before.
    #[inline]
    pub(crate) fn known_lane(&self) -> Option<&Arc<Lane<B>>> {
        match &*self.lanes {
            [only] => only.get(),
            lanes => lanes[thread_number() & (lanes.len() - 1)].get(),
        }
    }

    /// The lane of the calling thread, made at first use.
    pub(crate) fn lane(&self) -> &Arc<Lane<B>> {
        let slot = &self.lanes[thread_number() & (self.lanes.len() - 1)];
        slot.get_or_init(|| self.make_lane())
    }

    /// The pool's lane, where it has only one.
    pub(crate) fn only_lane(&self) -> Option<&Arc<Lane<B>>> {
        (self.lanes.len() == 1).then(|| self.lane())
    }

    /// The lane of the calling thread, to which a timeline is known.
    ///
    /// # Errors
    ///
    /// As for [`Lane::enter`].
    pub(crate) fn lane_for(&self, timeline: Option<TimelineId>) -> Result<&Arc<Lane<B>>> {
        let lane = self.lane();
        lane.enter(timeline)?;
        Ok(lane)
    }

    /// Every lane, made where it was never used: a pool that falls asleep has none to come.
    fn every_lane(&self) -> Vec<Arc<Lane<B>>> {
        self.lanes.iter().map(|slot| Arc::clone(slot.get_or_init(|| self.make_lane()))).collect()
    }

    /// Every lane that was ever used.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane<B>>> {
        self.lanes.iter().filter_map(OnceLock::get).cloned().collect()
    }

    /// Zeroes secrets whose zeros the driver refused; waits for the device where there are any.
    pub(crate) fn zero_kept(&self) {
        self.lanes().iter().for_each(|lane| lane.zero_kept());
    }

    /// Rounds a request to what the pool divides.
    #[inline]
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Ask, ErrorKind> {
        let ask = self.round(request.layout, request.class, request.timeline);
        ask.ok_or(ErrorKind::SizeOverflow)
    }

    /// As [`ask`](Self::ask), of what a request says of its bytes; `None` where they are too many.
    #[inline]
    pub(crate) fn round(
        &self,
        Layout { size, align }: Layout,
        class: Class,
        timeline: Option<TimelineId>,
    ) -> Option<Ask> {
        let unit = self.shared.unit;
        let layout = Layout { size: unit.up(size)?, align: align.max(unit) };
        Some(Ask { layout, class, size, timeline })
    }

    /// As [`ask`](Self::ask), with the room of a guard where the pool can ever give it.
    pub(crate) fn ask_with_room(&self, request: &Request<'_>) -> Result<Ask, ErrorKind> {
        let plain = self.ask(request)?;
        let size = self.room().and_then(|room| request.layout.size.checked_add(room));
        let Some(size) = size else { return Ok(plain) };
        let layout = Layout { size, ..request.layout };
        match self.ask(&request.layout(layout)) {
            Ok(wide) if wide.layout.size <= self.most() => Ok(Ask { size: plain.size, ..wide }),
            _ => Ok(plain),
        }
    }

    /// Bytes of a guard: none where all pieces have one size, and none in a small bank.
    fn room(&self) -> Option<u64> {
        let kind = self.shared.device.heap(self.shared.heap).map(|heap| heap.kind);
        let has_room = kind != Ok(HeapKind::Constant)
            && !matches!(self.shared.config.strategy, StrategyKind::Slab(_) | StrategyKind::Custom);
        (has_room && self.shared.watch.is_some()).then_some(LEAST)
    }

    /// The most that one request can ever get.
    fn most(&self) -> u64 {
        match (self.shared.page(), self.shared.device.heap(self.shared.heap)) {
            (Some(_), Ok(heap)) => heap.size.min(self.shared.config.maximum),
            _ => self.shared.growth.largest,
        }
    }

    /// Returns what is empty to the driver, until that is `enough`. Returns the number of bytes, of which the last block or page group
    /// may be too much.
    pub(crate) fn trim(&self, enough: u64) -> Result<u64> {
        let mut bytes = 0;
        for lane in self.lanes() {
            lane.poll_to_empty()?;
            bytes += lane.trim_some_blocks(enough.saturating_sub(bytes)).0;
            if bytes < enough {
                bytes += lane.trim_some_pages((enough - bytes).saturating_add(LARGEST_GROUP))?;
            }
        }
        Ok(bytes)
    }
}

/// Sizes of the blocks of a pool in a heap.
fn growth(config: &PoolConfig, about: &Heap) -> Growth {
    let largest = about.granule.down(about.max_block.min(config.maximum));
    let usual = Growth::new(largest, about.granule);
    match (config.block, config.growth) {
        (Some(block), _) => Growth { smallest: block, largest: block, shared_up_to: 0, ..usual },
        (None, None) => usual,
        (None, Some(own)) => {
            let largest = own.largest.min(largest);
            let granule = own.granule.max(about.granule);
            Growth { smallest: own.smallest.min(largest), largest, granule, ..own }
        }
    }
}

/// As many lanes as threads are likely to need: each is made by the first thread that has its number.
///
/// The cores are counted once: the standard library opens files of the cgroup for it, some twenty system calls.
fn lanes_for_threads() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    let count = || {
        let cores = std::thread::available_parallelism();
        cores.map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(MOST_LANES))
    };
    CORES.get_or_init(count).saturating_mul(LANES_FOR_EACH_CORE)
}

/// Says which promise a pool's own strategy broke.
fn report_broken(what: &'static str, grant: Option<Grant>) {
    tracing::error!(target: "omniheap", ?grant, "a pool's own strategy broke its contract: {what}");
}
