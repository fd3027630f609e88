//! Blocks of one heap, divided by one strategy: where the two axes meet.
//!
//! A pool is a set of lanes. A lane has its own lock, strategy and blocks, and serves one timeline, or the threads that
//! hash to it. So threads do not queue behind one lock, and a timeline reuses at once what it freed in its own order.
//! Before a lane grows it looks into the others; what is idle there is lent.
mod config;
mod deferred;
mod gather;
mod growth;
mod guest;
mod lane;
mod notes;
mod ordered;
mod paged;
mod pager;
mod plain;
mod planned;
mod quiet;
mod shared;
mod slots;
mod warm;

pub use config::{PoolConfig, StrategyKind, Waiting};
pub use growth::Growth;
pub(crate) use guest::{ELSEWHERE, Guest, Lodging};
pub(crate) use lane::{Ask, Divider, Lane, Miss, State as LaneState};
pub use notes::Tag;
pub(crate) use notes::{Consent, Ending, Home, Note, Stay};
pub(crate) use pager::Pager;
pub(crate) use quiet::Patience;
pub(crate) use slots::{Ended, Noted, Owner, Slot, SlotId, Standing};

use crate::device::Device;
use crate::guard::{self, Sentry};
use crate::sync::{Signal, thread_number};
use crate::{Align, Backend, ErrorKind, HeapId, HeapKind, Result, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use lane::State;
use shared::Shared;
pub(crate) use shared::Shared as PoolShared;
use std::sync::OnceLock;
use warm::StateLock;

/// Timelines in the first table of lanes; every further table is twice as long.
const FIRST: u64 = 64;
/// Tables of lanes: enough for every timeline that 32 bits can name.
const TABLES: usize = 27;
/// Timelines on a device that has none, and so cannot say which there are.
const MOST_UNKNOWN: u32 = 1 << 16;
/// Lanes for threads at most.
const MOST_LANES: u32 = 64;

type Lanes<B> = Box<[OnceLock<Arc<Lane<B>>>]>;

/// What tells the lanes of all managers apart.
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
    threads: Lanes<B>,
    timelines: [OnceLock<Lanes<B>>; TABLES],
}

impl<B: Backend> Pool<B> {
    /// A pool that asks the driver for nothing until it is used or [primed](Self::prime).
    pub(crate) fn new(
        device: Arc<Device<B>>,
        heap: HeapId,
        config: PoolConfig,
        unit: Align,
        names: Arc<Names>,
        sentry: Option<Arc<Sentry<B>>>,
    ) -> Result<Self> {
        let about = device.heap(heap)?;
        config.check(about.size, about.max_block)?;
        let mut growth =
            Growth::new(about.granule.down(about.max_block.min(config.maximum)), about.granule);
        if let Some(block) = config.block {
            (growth.smallest, growth.largest) = (block, block);
            growth.shared_up_to = 0;
        }
        let lanes = match config.strategy {
            StrategyKind::General => {
                config.lanes.unwrap_or_else(cores).clamp(1, MOST_LANES).next_power_of_two()
            }
            _ => 1,
        };
        let granularity = device.backend().caps().neighbour_granularity;
        if config.strategy != StrategyKind::General {
            config::other(config.strategy, granularity).ok_or(ErrorKind::InvalidConfig)?;
        }
        let unit = unit.max(about.align.min(unit));
        let largest = config.block.unwrap_or_else(|| about.granule.down(config.maximum));
        if largest < unit.get() {
            return Err(ErrorKind::InvalidConfig.into()); // No block could ever hold anything.
        }
        let shared = Arc::new(Shared::new(device, heap, config, growth, unit, sentry));
        Ok(Self {
            shared,
            names,
            threads: (0..lanes).map(|_| OnceLock::new()).collect(),
            timelines: [const { OnceLock::new() }; TABLES],
        })
    }

    /// Takes the pool's minimum from the driver, for the lane of a timeline or of the calling thread.
    pub(crate) fn prime(&self, timeline: Option<TimelineId>) -> Result<()> {
        let minimum = self.shared.config.minimum;
        if self.shared.page().is_some() {
            return Ok(()); // Pages are kept, not made, below the minimum: see `trim_pages`.
        }
        while self.shared.reserved() < minimum {
            let growth = &self.shared.growth;
            let missing = minimum - self.shared.reserved();
            let size = growth.exact(missing.min(growth.largest)).ok_or(ErrorKind::ExceedsLimit)?;
            self.lane_for(timeline)?.prime(size.max(growth.smallest))?;
        }
        Ok(())
    }

    fn make_lane(&self, timeline: Option<TimelineId>) -> Arc<Lane<B>> {
        let granularity = self.shared.device.backend().caps().neighbour_granularity;
        let divider = match config::other(self.shared.config.strategy, granularity) {
            Some(other) => Divider::Other(other),
            None => Divider::General(config::general(granularity)),
        };
        let (number, manager) = (self.names.lanes.fetch_add(1, Relaxed), self.names.manager);
        let shared = Arc::clone(&self.shared);
        Arc::new(Lane {
            shared,
            timeline,
            number,
            state: StateLock::new(State::new(divider)),
            manager,
            moved: Signal::default(),
            borrowing: AtomicU32::new(0),
        })
    }

    /// The lane of a timeline, or of the calling thread, where it was used before.
    #[inline]
    pub(crate) fn known_lane(&self, timeline: Option<TimelineId>) -> Option<&Arc<Lane<B>>> {
        let Some(timeline) = timeline else {
            return self.threads[thread_number() as usize & (self.threads.len() - 1)].get();
        };
        let (table, at) = position(timeline);
        self.timelines[table].get()?[at].get()
    }

    /// The lane of a timeline, or of the calling thread, made at first use.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` where the device does not know it: any number would cost memory for all below it.
    pub(crate) fn lane_for(&self, timeline: Option<TimelineId>) -> Result<&Arc<Lane<B>>> {
        if let Some(known) = self.known_lane(timeline) {
            return Ok(known);
        }
        match (timeline, self.shared.device.backend().as_timelines()) {
            (Some(timeline), Some(timelines)) => drop(timelines.reached(timeline)?),
            (Some(timeline), None) if timeline.0 >= MOST_UNKNOWN => {
                return Err(ErrorKind::NoSuchTimeline.into());
            }
            _ => {}
        }
        Ok(self.lane(timeline))
    }

    #[inline]
    fn lane(&self, timeline: Option<TimelineId>) -> &Arc<Lane<B>> {
        let Some(timeline) = timeline else {
            let slot = &self.threads[thread_number() as usize & (self.threads.len() - 1)];
            return slot.get_or_init(|| self.make_lane(None));
        };
        let (table, at) = position(timeline);
        let lanes = self.timelines[table]
            .get_or_init(|| (0..FIRST << table).map(|_| OnceLock::new()).collect());
        lanes[at].get_or_init(|| self.make_lane(Some(timeline)))
    }

    /// Every lane that was ever used.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane<B>>> {
        let chunks = self.timelines.iter().filter_map(OnceLock::get).flatten();
        self.threads.iter().chain(chunks).filter_map(OnceLock::get).cloned().collect()
    }

    /// Rounds a request to what the pool divides.
    #[inline]
    pub(crate) fn ask(&self, layout: crate::Layout, class: crate::Class) -> Result<Ask, ErrorKind> {
        let align = layout.align.max(self.shared.unit);
        let size = self.shared.unit.up(layout.size).ok_or(ErrorKind::SizeOverflow)?;
        Ok(Ask { layout: crate::Layout { size, align }, class, size: layout.size })
    }

    /// As [`ask`](Self::ask), with room for a guard where guards are laid and the pool can ever give it.
    pub(crate) fn ask_guarded(
        &self,
        layout: crate::Layout,
        class: crate::Class,
    ) -> Result<Ask, ErrorKind> {
        let plain = self.ask(layout, class)?;
        let Some(size) = layout.size.checked_add(guard::LEAST).filter(|_| self.has_room()) else {
            return Ok(plain);
        };
        match self.ask(crate::Layout { size, ..layout }, class) {
            Ok(wide) if wide.layout.size <= self.most() => Ok(Ask { size: layout.size, ..wide }),
            _ => Ok(plain),
        }
    }

    /// Whether guards may take room of their own: not where all pieces have one size, and not in a small bank.
    fn has_room(&self) -> bool {
        let kind = self.shared.device.heap(self.shared.heap).map(|heap| heap.kind);
        self.shared.sentry.is_some()
            && kind != Ok(HeapKind::Constant)
            && !matches!(self.shared.config.strategy, StrategyKind::Slab(_) | StrategyKind::Exact)
    }

    /// The most that one request can ever get.
    fn most(&self) -> u64 {
        match (self.shared.page(), self.shared.device.heap(self.shared.heap)) {
            (Some(_), Ok(heap)) => heap.size.min(self.shared.config.maximum),
            _ => self.shared.growth.largest,
        }
    }

    /// Gives back what is empty; says how many bytes.
    pub(crate) fn trim(&self) -> Result<u64> {
        let mut bytes = 0;
        for lane in self.lanes() {
            lane.settle(Patience::Look)?;
            bytes += lane.trim_blocks();
            bytes += lane.trim_pages()?;
        }
        Ok(bytes)
    }
}

impl<B: Backend> Drop for Lane<B> {
    fn drop(&mut self) {
        let state = self.state.lock();
        let is_bare = state.blocks.iter().flatten().next().is_none() && state.guests.is_empty();
        drop(state);
        if is_bare {
            return;
        }
        // A lost device has nothing in flight, so its answer does not matter.
        let _ = self.shared.device.backend().wait_idle();
        self.dismantle();
    }
}

/// Which table a timeline's lane is in, and where. Tables never move, so a lane can be looked up without a lock.
#[inline]
fn position(timeline: TimelineId) -> (usize, usize) {
    let number = u64::from(timeline.0) + FIRST;
    let table = number.ilog2() - FIRST.ilog2();
    let at = number - (FIRST << table);
    (table as usize, usize::try_from(at).expect("at most 32 bits"))
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(MOST_LANES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timeline_has_a_place_of_its_own() {
        let ids = (0..1000).chain([4095, 4096, 65_535, 65_536, u32::MAX - 1, u32::MAX]);
        let mut seen = alloc::collections::BTreeSet::new();
        for id in ids {
            let (table, at) = position(TimelineId(id));
            assert!(table < TABLES && (at as u64) < FIRST << table, "timeline {id}");
            assert!(seen.insert((table, at)), "timeline {id} shares a lane");
        }
    }
}
