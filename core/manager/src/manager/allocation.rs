//! The caller's owned token for live bytes.
use super::{AllocateError, GiveBack, Manager};
use crate::event::AllocationId;
use crate::lane::{Lane, LaneSlot, SlotId};
use crate::{Backend, ErrorKind, Layout, Point, Request, Result, TimelineId};
use bytemuck::Pod;
use core::fmt;
use core::marker::PhantomData;

/// Live bytes, owned. Dropping it frees them; it keeps the device alive.
///
/// An allocation is not an address: defragmentation may move it. Ask for its [`binding`](Self::binding) when you need
/// to know where it is; it does not move while you hold that.
#[must_use = "dropping an allocation frees it"]
pub struct Allocation<B: Backend> {
    owned: LaneSlot<B>,
    size: u64,
}

impl<B: Backend> fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id()).field("size", &self.size).finish()
    }
}

impl<B: Backend> Allocation<B> {
    /// Makes the owner of a slot an allocation.
    #[inline]
    pub(super) const fn new(owned: LaneSlot<B>, size: u64) -> Self {
        Self { owned, size }
    }

    #[inline]
    pub(super) const fn lane(&self) -> &Lane<B> {
        self.owned.lane()
    }

    #[inline]
    pub(super) const fn slot(&self) -> SlotId {
        self.owned.slot()
    }

    pub(super) fn into_slot(self) -> LaneSlot<B> {
        self.owned
    }

    /// Bytes that were asked for.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// A name for this allocation that does not own it.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        self.lane().id_of(self.slot())
    }

    /// Returns the timeline that orders the uses of the bytes, if the request named one.
    #[must_use]
    pub fn timeline(&self) -> Option<TimelineId> {
        self.lane().timeline_of(self.slot())
    }

    /// Declares that another timeline uses the bytes too: after a free they wait for it.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` where the backend does not know it.
    pub fn use_on(&self, timeline: TimelineId) -> Result<()> {
        let lane = self.lane();
        if self.timeline() == Some(timeline) {
            return Ok(());
        }
        if let Some(timelines) = lane.shared.device.backend().as_timelines() {
            timelines.reached(timeline)?;
        }
        Ok(lane.use_on(self.slot(), timeline)?)
    }

    /// Calls it `name` in reports.
    pub fn set_name(&self, name: &str) {
        self.lane().set_name(self.slot(), name);
    }

    /// Frees it: at once for its own timeline, after they have passed for the others that use it.
    #[inline]
    pub fn free(self) {
        drop(self);
    }
}

impl<B: Backend> Allocation<B> {
    /// Frees it once `point` has passed; on the allocation's own timeline, in its order and so at once.
    ///
    /// A point that is never marked keeps the bytes until the manager ends: the report counts them as deferred.
    pub fn free_after(self, point: Point) {
        let after = Some(point).filter(|point| self.timeline() != Some(point.timeline));
        match after {
            Some(point) => self.into_slot().free_after(point),
            None => drop(self),
        }
    }
}

impl<B: Backend> Manager<B> {
    /// Frees an allocation of this manager.
    ///
    /// # Errors
    ///
    /// `Foreign` when it belongs to another manager; it comes back and stays live.
    pub fn free(&self, allocation: Allocation<B>) -> Result<(), GiveBack<Allocation<B>>> {
        if allocation.lane().manager != self.number() {
            return Err(GiveBack { given: allocation, error: ErrorKind::Foreign.into() });
        }
        drop(allocation);
        Ok(())
    }

    /// Returns the size of the live allocation that an id of this manager names.
    ///
    /// # Errors
    ///
    /// `Foreign` for another manager's, `Stale` for one that was freed or never was.
    pub fn check(&self, id: AllocationId) -> Result<u64> {
        if id.manager != self.number() {
            return Err(ErrorKind::Foreign.into());
        }
        let lanes = self.all_pools().into_iter().flat_map(|pool| pool.lanes());
        let lane = lanes.into_iter().find(|lane| lane.number == id.lane).ok_or(ErrorKind::Stale)?;
        let slot = SlotId { index: id.slot, generation: id.generation };
        Ok(lane.size_of(slot)?)
    }
}

/// An array of `T` in device memory.
#[must_use = "dropping a buffer frees it"]
pub struct Buffer<T, B: Backend> {
    allocation: Allocation<B>,
    count: u64,
    of: PhantomData<fn() -> T>,
}

impl<T, B: Backend> fmt::Debug for Buffer<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("allocation", &self.allocation)
            .field("count", &self.count)
            .finish()
    }
}

impl<T: Pod, B: Backend> Buffer<T, B> {
    /// Values in the array.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The bytes behind it.
    pub const fn allocation(&self) -> &Allocation<B> {
        &self.allocation
    }

    /// Gives up the type and keeps the bytes.
    pub fn into_allocation(self) -> Allocation<B> {
        self.allocation
    }

    fn offset(first: u64) -> Result<u64> {
        first.checked_mul(size_of::<T>() as u64).ok_or(ErrorKind::SizeOverflow.into())
    }

    /// Writes values from the host, starting at index `first`.
    ///
    /// # Errors
    ///
    /// As for [`Allocation::write`].
    pub fn write(&self, first: u64, values: &[T]) -> Result<()> {
        self.allocation.write(Self::offset(first)?, bytemuck::cast_slice(values))
    }

    /// Reads values to the host, starting at index `first`.
    ///
    /// # Errors
    ///
    /// As for [`Allocation::read`].
    pub fn read(&self, first: u64, values: &mut [T]) -> Result<()> {
        self.allocation.read(Self::offset(first)?, bytemuck::cast_slice_mut(values))
    }
}

impl<B: Backend> Manager<B> {
    /// Allocates an array of `count` values. `request` is a [`Usage`](crate::Usage) or a [`Request`]; its size is replaced.
    ///
    /// # Errors
    ///
    /// `SizeOverflow` when the array does not fit in 64 bits, `ZeroSize` when it is empty, or as for
    /// [`allocate`](Self::allocate).
    pub fn allocate_slice<'a, T: Pod>(
        &self,
        count: u64,
        request: impl Into<Request<'a>>,
    ) -> Result<Buffer<T, B>, AllocateError> {
        let request = request.into();
        let layout = Layout::array::<T>(count).ok_or(ErrorKind::SizeOverflow)?;
        let layout = layout.align(layout.align.max(request.layout.align));
        let allocation = self.allocate(&request.layout(layout))?;
        Ok(Buffer { allocation, count, of: PhantomData })
    }
}
