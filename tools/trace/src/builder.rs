//! Builds a trace from records that name allocations as their format does, and checks every invariant on the way.

use crate::blocks::Blocks;
use crate::error::ErrorKind;
use crate::event::{
    Alignment, AllocationId, Backing, Event, HeapId, Op, Region, Residence, Rung, StreamId,
};
use crate::ids::{IdMap, Life, Slot};
use crate::label::{LabelId, Labels};
use crate::limits::Limits;
use crate::trace::{Meta, Source, Trace};
use omniheap_pickle::tight;

/// Origin of an allocation's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locate {
    /// The allocation was made there.
    Bind,
    /// The allocation was moved there.
    Move,
}

/// Collects events; each method refuses what would break an invariant of [`Trace`].
///
/// # Examples
///
/// ```
/// use omniheap_trace::{Alignment, Builder, LabelId, Limits, Source, StreamId};
/// let mut builder = Builder::new(Source::Memory, &Limits::default());
/// let label = builder.label(LabelId::NONE, "weights")?;
/// let id = builder.allocate(7, 4096, StreamId(0), Alignment::UNKNOWN)?;
/// builder.set_label(id, label)?;
/// builder.at(3)?;
/// builder.free_completed(7, None, StreamId(0))?;
/// assert_eq!(builder.finish().summary().peak_live_bytes, 4096);
/// # Ok::<(), omniheap_trace::ErrorKind>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    limits: Limits,
    trace: Trace,
    ids: IdMap,
    blocks: Blocks,
    live: u64,
    live_bytes: u64,
    now_us: u64,
}

impl Builder {
    /// Begins a trace of this source, within these limits.
    pub fn new(source: Source, limits: &Limits) -> Self {
        let limits = Limits { events: limits.events.min(Limits::MAX_EVENTS), ..*limits };
        let trace = Trace { meta: Meta { source, ..Meta::default() }, ..Trace::default() };
        Self {
            limits,
            trace,
            ids: IdMap::default(),
            blocks: Blocks::default(),
            live: 0,
            live_bytes: 0,
            now_us: 0,
        }
    }

    /// Begins a trace with the labels and the metadata of another, without its events.
    pub fn like(other: &Trace, limits: &Limits) -> Self {
        let mut builder = Self::new(other.meta.source, limits);
        builder.trace.labels = other.labels.clone();
        builder.trace.meta = Meta { last_step: None, ..other.meta.clone() };
        builder
    }

    /// Sets the time of the events that follow.
    ///
    /// # Errors
    ///
    /// Time that goes back.
    #[inline]
    pub fn at(&mut self, time_us: u64) -> Result<(), ErrorKind> {
        if time_us < self.now_us {
            return Err(ErrorKind::TimeGoesBack { before: self.now_us, now: time_us });
        }
        self.now_us = time_us;
        Ok(())
    }

    /// Adds an allocation that the format calls `raw`.
    ///
    /// # Errors
    ///
    /// No bytes, a live allocation of that name, or more than the limits permit.
    #[inline]
    pub fn allocate(
        &mut self,
        raw: u64,
        size: u64,
        stream: StreamId,
        align: Alignment,
    ) -> Result<AllocationId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        if self.ids.get(raw).is_some_and(|slot| slot.life() != Life::Gone) {
            return Err(ErrorKind::DuplicateId(raw));
        }
        if self.live >= self.limits.live {
            return Err(ErrorKind::OverLimit { what: "live allocations", limit: self.limits.live });
        }
        self.live_bytes = self.live_bytes.checked_add(size).ok_or(ErrorKind::LiveOverflow)?;
        let id = AllocationId(self.trace.allocations);
        let event = self.push(Op::Allocate { id, size, stream, align })?;
        self.ids.insert(raw, Slot::new(event, Life::Live));
        self.live += 1;
        // Each allocation is an event, and events number below 2^30.
        self.trace.allocations += 1;
        Ok(id)
    }

    /// Notes that the program asked to free `raw`. `size` is checked where the format gives it.
    #[inline]
    pub(crate) fn free_requested(
        &mut self,
        raw: u64,
        size: Option<u64>,
        stream: StreamId,
    ) -> Result<(), ErrorKind> {
        let (slot, id, allocated) = self.find(raw, size)?;
        if slot.life() != Life::Live {
            return Err(ErrorKind::DoubleFree(raw));
        }
        self.ids.replace(raw, Slot::new(slot.event(), Life::Requested));
        self.push(Op::FreeRequested { id, size: allocated, stream })?;
        Ok(())
    }

    /// Notes that the bytes of `raw` may be reused.
    ///
    /// # Errors
    ///
    /// An allocation that is unknown, freed or of another size.
    #[inline]
    pub fn free_completed(
        &mut self,
        raw: u64,
        size: Option<u64>,
        stream: StreamId,
    ) -> Result<(), ErrorKind> {
        let (slot, id, allocated) = self.find(raw, size)?;
        if slot.life() == Life::Gone {
            return Err(ErrorKind::DoubleFree(raw));
        }
        self.ids.replace(raw, Slot::new(slot.event(), Life::Gone));
        self.live -= 1;
        self.live_bytes -= allocated;
        self.push(Op::FreeCompleted { id, size: allocated, stream })?;
        Ok(())
    }

    /// Notes where the bytes of `raw` lie.
    pub(crate) fn locate(
        &mut self,
        raw: u64,
        block: u64,
        offset: u64,
        how: Locate,
    ) -> Result<(), ErrorKind> {
        let (slot, id, size) = self.find(raw, None)?;
        if slot.life() == Life::Gone {
            return Err(ErrorKind::DoubleFree(raw));
        }
        let (block, block_size, _) = self.blocks.get(block)?;
        if offset.checked_add(size).is_none_or(|end| end > block_size) {
            return Err(ErrorKind::OutsideBlock { block_size });
        }
        let op = match how {
            Locate::Bind => Op::Bind { id, block, offset },
            Locate::Move => Op::Move { id, block, offset },
        };
        self.push(op).map(|_| ())
    }

    /// Notes which region the policy chose for `raw`, and why.
    pub(crate) fn place(
        &mut self,
        raw: u64,
        region: Region,
        reason: LabelId,
    ) -> Result<(), ErrorKind> {
        let (_, id, _) = self.find(raw, None)?;
        self.check_label(reason)?;
        self.push(Op::BlockOffset { id, region, reason }).map(|_| ())
    }

    /// Notes that block `raw` was taken from the driver.
    pub(crate) fn block_allocate(
        &mut self,
        raw: u64,
        size: u64,
        heap: HeapId,
        backing: Backing,
    ) -> Result<(), ErrorKind> {
        let block = self.blocks.take(raw, size, backing)?;
        self.push(Op::BlockAllocate { block, size, heap, backing }).map(|_| ())
    }

    /// Notes that block `raw` was given back.
    pub(crate) fn block_free(&mut self, raw: u64) -> Result<(), ErrorKind> {
        let (block, size, backing) = self.blocks.give_back(raw)?;
        self.push(Op::BlockFree { block, size, backing }).map(|_| ())
    }

    /// Notes that pages were taken from the driver.
    pub(crate) fn pages_take(&mut self, bytes: u64, heap: HeapId) -> Result<(), ErrorKind> {
        self.blocks.take_pages(bytes)?;
        self.push(Op::PagesTake { bytes, heap }).map(|_| ())
    }

    /// Notes that pages were given back.
    pub(crate) fn pages_return(&mut self, bytes: u64, heap: HeapId) -> Result<(), ErrorKind> {
        self.blocks.return_pages(bytes)?;
        self.push(Op::PagesReturn { bytes, heap }).map(|_| ())
    }

    /// Notes that pages of host memory were taken.
    pub(crate) fn host_pages_take(&mut self, bytes: u64, heap: HeapId) -> Result<(), ErrorKind> {
        self.blocks.take_host_pages(bytes)?;
        self.push(Op::HostPagesTake { bytes, heap }).map(|_| ())
    }

    /// Notes that pages of host memory were given back.
    pub(crate) fn host_pages_return(&mut self, bytes: u64, heap: HeapId) -> Result<(), ErrorKind> {
        self.blocks.return_host_pages(bytes)?;
        self.push(Op::HostPagesReturn { bytes, heap }).map(|_| ())
    }

    /// Notes where the bytes of block `raw` are from now on.
    pub(crate) fn reside(&mut self, raw: u64, residence: Residence) -> Result<(), ErrorKind> {
        let (block, ..) = self.blocks.get(raw)?;
        self.push(Op::Reside { block, residence }).map(|_| ())
    }

    /// Notes that another stream uses `raw`.
    pub(crate) fn use_on(&mut self, raw: u64, stream: StreamId) -> Result<(), ErrorKind> {
        let (slot, id, _) = self.find(raw, None)?;
        if slot.life() == Life::Gone {
            return Err(ErrorKind::DoubleFree(raw));
        }
        self.push(Op::Use { id, stream }).map(|_| ())
    }

    /// Notes that `raw` is called by another label now.
    pub(crate) fn name(&mut self, raw: u64, label: LabelId) -> Result<(), ErrorKind> {
        let (_, id, _) = self.find(raw, None)?;
        self.check_label(label)?;
        let labels = &mut self.trace.allocation_labels;
        match labels.get_mut(id.0 as usize) {
            Some(known) => {
                *known = label;
                Ok(())
            }
            None => self.set_label(id, label),
        }
    }

    /// Notes that a step of the program begins.
    ///
    /// # Panics
    ///
    /// Never: events number below 2^30.
    pub fn begin_step(&mut self) {
        let number = self.trace.events.len();
        let number = u32::try_from(number).expect("`new` keeps the limit below 2^30");
        self.trace.meta.last_step = Some(number);
    }

    /// Notes that a request reached a rung of the out-of-memory ladder.
    pub(crate) fn out_of_memory(
        &mut self,
        size: u64,
        stream: StreamId,
        rung: Rung,
    ) -> Result<(), ErrorKind> {
        self.push(Op::OutOfMemory { size, stream, rung }).map(|_| ())
    }

    /// Adds a label below `parent`.
    ///
    /// # Errors
    ///
    /// A parent that is unknown, or a text that is too long.
    pub fn label(&mut self, parent: LabelId, text: &str) -> Result<LabelId, ErrorKind> {
        self.check_label(parent)?;
        if text.len() > self.limits.string {
            return Err(ErrorKind::OverLimit {
                what: "bytes in one string",
                limit: self.limits.string as u64,
            });
        }
        if text.len() > Labels::MAX_TEXT - self.trace.labels.text_bytes() {
            return Err(ErrorKind::OverLimit {
                what: "bytes of strings",
                limit: Labels::MAX_TEXT as u64,
            });
        }
        Ok(self.trace.labels.intern(parent, text))
    }

    /// Sets the label of allocation `id`.
    ///
    /// # Errors
    ///
    /// A label that is unknown.
    pub fn set_label(&mut self, id: AllocationId, label: LabelId) -> Result<(), ErrorKind> {
        self.check_label(label)?;
        if label != LabelId::NONE {
            self.trace.allocation_labels.resize(id.0 as usize + 1, LabelId::NONE);
            self.trace.allocation_labels[id.0 as usize] = label;
        }
        Ok(())
    }

    /// Returns the state of `raw`; `None` if it was never allocated.
    pub(crate) fn life(&self, raw: u64) -> Option<Life> {
        self.ids.get(raw).map(Slot::life)
    }

    /// Returns whether `raw` was ever allocated.
    pub(crate) fn is_known(&self, raw: u64) -> bool {
        self.ids.get(raw).is_some()
    }

    /// Returns the metadata, to be filled in.
    pub(crate) fn meta(&mut self) -> &mut Meta {
        &mut self.trace.meta
    }

    /// Returns the finished trace.
    pub fn finish(mut self) -> Trace {
        self.trace.events.shrink_to_fit();
        self.trace
    }

    fn check_label(&self, label: LabelId) -> Result<(), ErrorKind> {
        if label.0 as usize <= self.trace.labels.len() {
            Ok(())
        } else {
            Err(ErrorKind::Malformed("label"))
        }
    }

    #[inline]
    fn find(&self, raw: u64, size: Option<u64>) -> Result<(Slot, AllocationId, u64), ErrorKind> {
        let slot = self.ids.get(raw).ok_or(ErrorKind::UnknownId(raw))?;
        let Op::Allocate { id, size: allocated, .. } = self.trace.events[slot.event() as usize].op
        else {
            unreachable!("slots are made by `allocate` alone, from the number of its event")
        };
        match size {
            Some(given) if given != allocated => Err(ErrorKind::SizeMismatch { given, allocated }),
            _ => Ok((slot, id, allocated)),
        }
    }

    /// Appends an event at the present time and returns its number.
    #[inline]
    fn push(&mut self, op: Op) -> Result<u32, ErrorKind> {
        let number = self.trace.events.len() as u64;
        if number >= self.limits.events {
            return Err(ErrorKind::OverLimit { what: "events", limit: self.limits.events });
        }
        tight::push(&mut self.trace.events, Event { time_us: self.now_us, op });
        Ok(u32::try_from(number).expect("`new` keeps the limit below 2^30"))
    }
}
