//! Report of a lane for people and tools.
#![forbid(unsafe_code)]
use super::extra::{Residence, SlotExtra, SlotId};
use super::occupancy::Slot;
use super::state::Lane;
use crate::event::BlockNumber;
use crate::{Backend, Span, Tag};
use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::iter::Sum;
use omniheap_strategy::PieceState;

/// Sums over all pools, or over one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Live allocations, those that wait for a timeline included.
    pub live: u64,
    /// Bytes that their callers asked for.
    pub live_bytes: u64,
    /// Bytes of these that are away from the device, as their pool sleeps.
    pub away_bytes: u64,
    /// Bytes that they occupy, rounding included.
    pub granted_bytes: u64,
    /// The sum of the lanes' peaks of live bytes: exact for one lane, an upper bound for several.
    pub peak_live_bytes: u64,
    /// Bytes held from the driver.
    pub reserved_bytes: u64,
    /// Bytes in holes.
    pub free_bytes: u64,
    /// The largest hole.
    pub largest_hole: u64,
    /// Holes.
    pub holes: u64,
    /// Bytes freed that wait for a timeline: stranded until it passes.
    pub deferred_bytes: u64,
    /// Allocations made so far.
    pub allocated: u64,
    /// Frees so far.
    pub freed: u64,
}

impl Totals {
    /// Free bytes that are not in the largest hole, as a share of all free bytes: external fragmentation.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn fragmentation(&self) -> f64 {
        if self.free_bytes == 0 {
            0.0
        } else {
            1.0 - self.largest_hole as f64 / self.free_bytes as f64
        }
    }

    /// Bytes lost to rounding: internal fragmentation.
    #[must_use]
    pub const fn padding_bytes(&self) -> u64 {
        self.granted_bytes - self.live_bytes
    }

    fn add(a: Self, b: Self) -> Self {
        Self {
            live: a.live + b.live,
            live_bytes: a.live_bytes + b.live_bytes,
            away_bytes: a.away_bytes + b.away_bytes,
            granted_bytes: a.granted_bytes + b.granted_bytes,
            peak_live_bytes: a.peak_live_bytes + b.peak_live_bytes,
            reserved_bytes: a.reserved_bytes + b.reserved_bytes,
            free_bytes: a.free_bytes + b.free_bytes,
            largest_hole: a.largest_hole.max(b.largest_hole),
            holes: a.holes + b.holes,
            deferred_bytes: a.deferred_bytes + b.deferred_bytes,
            allocated: a.allocated + b.allocated,
            freed: a.freed + b.freed,
        }
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

/// One block, piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// Its number, which no other block ever has.
    pub number: BlockNumber,
    /// The lane that divides it.
    pub lane: u32,
    /// Bytes; for a reservation, addresses.
    pub size: u64,
    /// Live spans, in order.
    pub live: Vec<SpanReport>,
    /// Holes, in order.
    pub holes: Vec<Span>,
}

/// One live span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanReport {
    /// Place in its block.
    pub span: Span,
    /// Name that its owner gave it.
    pub name: Option<String>,
    /// Tag that its owner counts it by.
    pub tag: Option<Tag>,
    /// State of the span.
    pub state: SpanState,
}

/// State of a live span: movable, pinned or deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanState {
    /// In use; may be moved.
    Movable,
    /// In use; may not be moved.
    Pinned,
    /// Freed by its owner; waits for a timeline.
    Deferred,
}

impl<B: Backend> Lane<B> {
    /// Sums over the lane; what it holds from the driver is the pool's to say.
    pub(crate) fn totals(&self) -> Totals {
        let state = self.state.lock_flushed();
        let (mut usage, counts) = (state.bytes.strategy().usage(), state.occupancy.counts());
        if state.away.is_some() {
            (usage.free, usage.largest_hole, usage.holes) = (0, 0, 0); // They have no memory.
        }
        Totals {
            live: counts.live(),
            live_bytes: counts.live_bytes,
            away_bytes: state.away.as_ref().map_or(0, |_| counts.live_bytes),
            granted_bytes: counts.granted_bytes,
            peak_live_bytes: counts.peak_live_bytes,
            reserved_bytes: 0,
            free_bytes: usage.free,
            largest_hole: usage.largest_hole,
            holes: usage.holes,
            deferred_bytes: state.order.deferred_bytes(),
            allocated: counts.allocated,
            freed: counts.freed,
        }
    }

    /// The lane's blocks, piece by piece.
    pub(crate) fn block_reports(&self) -> Vec<BlockReport> {
        let state = self.state.lock_flushed();
        let blocks = state.bytes.blocks().map(|(id, block)| {
            let (number, size, lane) = (block.number(), block.size(), self.number);
            (id, BlockReport { number, lane, size, live: Vec::new(), holes: Vec::new() })
        });
        let mut blocks: BTreeMap<_, _> = blocks.collect();
        let slots = state.occupancy.iter();
        let owners: BTreeMap<_, _> =
            slots.map(|(id, slot)| (slot.key, (slot, state.occupancy.extra(id)))).collect();
        state.bytes.strategy().for_each(&mut |piece| {
            let Some(block) = blocks.get_mut(&piece.block) else { return };
            match piece.state {
                PieceState::Hole => block.holes.push(piece.span),
                // A live span without a slot is addresses without memory, which the pager holds.
                PieceState::Live(key) => {
                    if let Some((slot, extra)) = owners.get(&key) {
                        block.live.push(span_report(piece.span, slot, *extra));
                    }
                }
                PieceState::Padding => {}
            }
        });
        blocks.into_values().collect()
    }

    /// Checks the lane's counters and its strategy against a full walk.
    pub(crate) fn validate(&self) -> Result<(), &'static str> {
        let state = self.state.lock_flushed();
        let (mut live, mut bytes, mut granted) = (0, 0, 0);
        let here = |id: &SlotId| !state.remote.contains_key(&id.index);
        for (_, slot) in state.occupancy.iter().filter(|(id, _)| here(id)) {
            let grant = state.bytes.strategy().grant(slot.key);
            let grant = grant.map_err(|_| "a slot's span is not live")?;
            if grant.span.size < slot.size {
                return Err("a span is smaller than what was asked for");
            }
            (live, bytes, granted) = (live + 1, bytes + slot.size, granted + grant.span.size);
        }
        let counts = state.occupancy.counts();
        if (live, bytes, granted) != (counts.live(), counts.live_bytes, counts.granted_bytes) {
            return Err("the lane's counters differ from a walk of its slots");
        }
        state.order.validate(state.occupancy.iter().map(|(_, slot)| slot.user))?;
        state.bytes.validate(granted)
    }

    /// Names what is still live when a manager goes away. The memory stays until its owners drop it.
    pub(crate) fn warn_of_leaks(&self) {
        let known = &self.state.lock().occupancy;
        for (id, slot) in known.iter() {
            let extra = known.extra(id);
            if extra.is_some_and(|extra| extra.residence == Residence::ForRemote) {
                continue; // It is named by the lane of its owner.
            }
            let name = extra.and_then(|extra| extra.name.as_deref()).unwrap_or("unnamed");
            tracing::warn!(name, bytes = slot.size, "an allocation outlives its manager");
        }
    }
}

fn span_report(span: Span, slot: &Slot, extra: Option<&SlotExtra>) -> SpanReport {
    let name = extra.and_then(|extra| extra.name.as_deref()).map(String::from);
    let state = if slot.is_deferred() {
        SpanState::Deferred
    } else if slot.is_pinned() {
        SpanState::Pinned
    } else {
        SpanState::Movable
    };
    SpanReport { span, name, tag: extra.and_then(|extra| extra.tag), state }
}
