//! A bounded ring of pinned slots. Reads fill a slot, the device copies it on, and then it is filled again.
#![expect(unsafe_code, reason = "slots are raw memory that moves between threads")]

use crate::disk::Buffer;
use crate::error::ErrorKind;
use crate::plan::ALIGN;
use core::ptr::NonNull;
use omniheap_core::{
    Allocation, Backend, Epoch, ErrorKind as Device, Heap, HeapKind, HostAccess, Manager, Point,
    Request, Result as DeviceResult, TimelineId, Usage,
};
use omniheap_seam::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const ALIGN_BYTES: usize = ALIGN as usize;

/// Memory for one read.
pub(crate) struct Slot<B: Backend> {
    memory: Memory<B>,
    start: NonNull<u8>,
    /// Bytes of the memory before the slot.
    skipped: u64,
    size: u64,
}

/// Memory of a slot.
enum Memory<B: Backend> {
    /// Memory that the device copies from. It comes from the manager's staging pool, which keeps it for the next load until it is trimmed.
    Staging(Allocation<B>),
    /// The host's own, where it can map none of the device's. The bytes go by the device's writes.
    Host(#[expect(dead_code, reason = "owns what the slot points to")] Vec<u8>),
}

/// Progress of the device's copy out of a slot.
#[derive(Clone, Copy)]
enum Copied {
    /// Until this epoch.
    Until(Epoch),
    /// Unknown, because the device has no timelines or failed: until it is idle.
    Unknown,
}

// SAFETY: the pointer is to memory that the slot owns: an allocation that is pinned for life, or a vector that never grows.
unsafe impl<B: Backend> Send for Slot<B> {}
// SAFETY: as above; threads that share a slot write different parts of it.
unsafe impl<B: Backend> Sync for Slot<B> {}

impl<B: Backend> Slot<B> {
    fn new(manager: &Manager<B>, size: u64) -> Result<Self, ErrorKind> {
        // Direct I/O needs aligned memory, which not every heap gives: the slot starts at an aligned byte inside.
        let mut request = Request::new(size + ALIGN).usage(Usage::Upload).name("weights ring");
        // Cached memory is filled and read at full speed; write-combined memory is neither.
        let is_best =
            |heap: &Heap| heap.kind == HeapKind::Staging && heap.host == HostAccess::Cached;
        request.heap = manager.caps().heap_ids().find(|(_, heap)| is_best(heap)).map(|(id, _)| id);
        let allocation = match manager.allocate(&request) {
            Ok(allocation) => allocation,
            Err(error) if error.kind() == Device::NoSuchHeap => return Self::of_host(size),
            Err(error) => return Err(ErrorKind::Allocate(Box::new(error))),
        };
        allocation.pin_for_life();
        let mapped = allocation.map().map(|mapped| mapped.as_ptr());
        match mapped {
            Ok(first) => Ok(Self::within(Memory::Staging(allocation), first, size)),
            Err(error) if error.kind() == Device::NotMappable => Self::of_host(size),
            Err(error) => Err(ErrorKind::Device(error)),
        }
    }

    /// A slot of the host's own memory.
    fn of_host(size: u64) -> Result<Self, ErrorKind> {
        let (mut bytes, length) = (Vec::new(), crate::disk::size(size + ALIGN));
        let short = |_| ErrorKind::Device(Device::OutOfHostMemory.into());
        // Reads fill it: zeros would make the system give all of it now.
        bytes.try_reserve_exact(length).map_err(short)?;
        let first = NonNull::new(bytes.as_mut_ptr()).expect("vectors have no address 0");
        Ok(Self::within(Memory::Host(bytes), first, size))
    }

    /// A slot at the first aligned byte of memory, which has `ALIGN` bytes more than `size` from `first` on.
    fn within(memory: Memory<B>, first: NonNull<u8>, size: u64) -> Self {
        let skipped = first.addr().get().next_multiple_of(ALIGN_BYTES) - first.addr().get();
        // SAFETY: less than `ALIGN` bytes are skipped, and both callers made the memory as many larger than the slot.
        let start = unsafe { first.add(skipped) };
        Self { memory, start, skipped: skipped as u64, size }
    }

    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the slot's memory from `skip` on, up to `end`.
    pub(crate) fn buffer(&self, skip: usize, end: usize) -> Buffer {
        assert!(skip <= end && end as u64 <= self.size, "inside the slot");
        // SAFETY: checked above.
        let start = unsafe { self.start.add(skip) };
        Buffer { start: start.as_ptr(), length: end - skip }
    }

    /// Returns the memory that the device copies from; nothing where the host's own is in use.
    pub(crate) const fn staging(&self) -> Option<&Allocation<B>> {
        match &self.memory {
            Memory::Staging(allocation) => Some(allocation),
            Memory::Host(_) => None,
        }
    }

    /// Returns where a byte of the slot lies in the allocation.
    pub(crate) const fn offset(&self, at: u64) -> u64 {
        self.skipped + at
    }

    /// Makes the bytes of a read visible to the device.
    pub(crate) fn flush(&self, manager: &Manager<B>, length: u64) -> DeviceResult<()> {
        let Some(allocation) = self.staging() else { return Ok(()) };
        let heap = manager.caps().heap(allocation.heap());
        if heap.is_some_and(|heap| heap.host == HostAccess::Incoherent) {
            allocation.map()?.flush(self.skipped, length)?;
        }
        Ok(())
    }
}

/// The slots of one load.
pub(crate) struct Ring<'a, B: Backend> {
    manager: &'a Manager<B>,
    on: TimelineId,
    /// Bytes of a slot.
    size: u64,
    state: Mutex<State<B>>,
    /// Notified when a slot comes back, or the load stops.
    changed: Condvar,
}

struct State<B: Backend> {
    /// Slots that no thread fills, oldest copy first.
    slots: VecDeque<(Arc<Slot<B>>, Copied)>,
    /// Slots that exist.
    made: usize,
    most: usize,
    is_stopped: bool,
}

/// Next action for a slot.
enum Next<B: Backend> {
    Take(Arc<Slot<B>>, Copied),
    Make,
    None,
}

impl<'a, B: Backend> Ring<'a, B> {
    pub(crate) fn new(manager: &'a Manager<B>, on: TimelineId, size: u64, most: usize) -> Self {
        let state = State { slots: VecDeque::new(), made: 0, most, is_stopped: false };
        Self { manager, on, size, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns a slot that may be filled. `None` once the load has stopped.
    pub(crate) fn take(&self) -> Result<Option<Arc<Slot<B>>>, ErrorKind> {
        let (slot, copied) = match self.next() {
            Next::Take(slot, copied) => (slot, copied),
            Next::None => return Ok(None),
            Next::Make => match Slot::new(self.manager, self.size) {
                Ok(slot) => return Ok(Some(Arc::new(slot))),
                Err(error) => {
                    self.do_with_fewer(error)?;
                    return self.take();
                }
            },
        };
        let waited = self.wait(copied);
        if let Err(error) = waited {
            self.give_back(slot, copied);
            return Err(ErrorKind::Device(error));
        }
        Ok(Some(slot))
    }

    fn next(&self) -> Next<B> {
        let mut state = lock(&self.state);
        loop {
            if state.is_stopped {
                return Next::None;
            }
            // The driver is asked only while there may be more slots: others wait for the lock meanwhile.
            let is_ready = || state.slots.front().is_some_and(|(_, copied)| self.is_over(*copied));
            if state.made < state.most && !is_ready() {
                state.made += 1;
                return Next::Make;
            }
            if let Some((slot, copied)) = state.slots.pop_front() {
                return Next::Take(slot, copied);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// After a slot could not be made: goes on with those that exist.
    fn do_with_fewer(&self, error: ErrorKind) -> Result<(), ErrorKind> {
        let mut state = lock(&self.state);
        state.made -= 1;
        if state.made == 0 {
            return Err(error);
        }
        state.most = state.made;
        Ok(())
    }

    fn give_back(&self, slot: Arc<Slot<B>>, copied: Copied) {
        lock(&self.state).slots.push_back((slot, copied));
        self.changed.notify_one();
    }

    /// Gives a slot back whose copies were submitted.
    pub(crate) fn send(&self, slot: Arc<Slot<B>>) -> DeviceResult<()> {
        let marked = self.manager.backend().as_timelines().map(|lines| lines.mark(self.on));
        let (copied, result) = match marked {
            Some(Ok(epoch)) => (Copied::Until(epoch), Ok(())),
            Some(Err(error)) => (Copied::Unknown, Err(error)),
            None => (Copied::Unknown, Ok(())),
        };
        self.give_back(slot, copied);
        result
    }

    /// Gives a slot back whose copies failed: some of them may run.
    pub(crate) fn abandon(&self, slot: Arc<Slot<B>>) {
        self.give_back(slot, Copied::Unknown);
    }

    /// Ends every wait for a slot.
    pub(crate) fn stop(&self) {
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }

    fn is_over(&self, copied: Copied) -> bool {
        let lines = self.manager.backend().as_timelines();
        match copied {
            Copied::Until(epoch) => {
                lines.is_some_and(|lines| lines.reached(self.on).is_ok_and(|now| now >= epoch))
            }
            Copied::Unknown => false,
        }
    }

    fn wait(&self, copied: Copied) -> DeviceResult<()> {
        let backend = self.manager.backend();
        match (copied, backend.as_timelines()) {
            (Copied::Until(epoch), Some(lines)) => lines.wait(Point { timeline: self.on, epoch }),
            _ => backend.wait_idle(),
        }
    }

    /// Waits for every copy.
    pub(crate) fn finish(&self) -> DeviceResult<()> {
        let state = lock(&self.state);
        let copies: Vec<_> = state.slots.iter().map(|(_, copied)| *copied).collect();
        drop(state);
        let waited = copies.into_iter().map(|copied| self.wait(copied));
        let result = waited.fold(Ok(()), Result::and);
        if result.is_err_and(|error| error.kind() != Device::DeviceLost) {
            // Copies may still run: the memory waits for them.
            let state = lock(&self.state);
            let staging = state.slots.iter().filter_map(|(slot, _)| slot.staging());
            staging.for_each(|allocation| allocation.outlast(self.on));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::Slot;
    use crate::error::ErrorKind;
    use omniheap_core::ErrorKind as Device;
    use omniheap_host::Host;

    #[test]
    fn a_slot_that_the_host_has_no_memory_for_is_an_error() {
        let slot = Slot::<Host>::of_host(u64::MAX / 2);
        assert!(
            matches!(slot.err(), Some(ErrorKind::Device(error)) if error.kind() == Device::OutOfHostMemory)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_slot_has_no_memory_of_the_host_before_it_is_filled() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
            pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
        };
        let before = resident();
        let slot = Slot::<Host>::of_host(1 << 30).expect("addresses");
        assert!(resident().saturating_sub(before) < 1 << 16, "a quarter of the slot's pages");
        drop(slot);
    }
}
