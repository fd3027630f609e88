//! One domain's view of an opened device: the backend, and exact accounts of what was taken from it.
#![expect(unsafe_code, reason = "returns blocks and pages to the backend")]
mod cost;
mod driver_budget;
mod in_flight;
mod opened;
mod system_limits;

pub use cost::MoveCost;
pub(crate) use cost::{Cost, Rates};
pub use driver_budget::DriverLimit;
pub use system_limits::HeapLimit;

use crate::event::{Backing, BlockNumber, Event, Observer, say};
use crate::{
    Backend, BlockOffset, Error, ErrorKind, Heap, HeapBudget, HeapId, Page, Placement, Point,
    Remap, Result, Span, TimelineId,
};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use in_flight::InFlight;
pub(crate) use in_flight::InFlightGuard;
use opened::Opened;

/// Bytes held from one heap, and their limits.
#[derive(Debug)]
struct Account {
    reserved: AtomicU64,
    peak: AtomicU64,
    hard: AtomicU64,
    soft: AtomicU64,
    /// Bytes that other domains must leave to this one.
    promised: AtomicU64,
}

/// Bytes held from one heap, and their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes held from the driver.
    pub reserved: u64,
    /// The most that was held since the peaks were last reset.
    pub peak_reserved: u64,
    /// Bytes above which memory is refused: the least of the budget, of what the limits of the process leave beside other heaps and
    /// domains, and of what the heap has beside what other domains hold and were promised, where any was.
    pub hard_limit: u64,
    /// Bytes above which empty blocks are given back and pressure callbacks run.
    pub soft_limit: u64,
    /// The driver's budget of the physical memory behind the heap, smoothed, and the bytes in use there. `None` where the driver
    /// reports none, where the manager ignores it ([`DriverLimit::Ignored`]), and before it was first read.
    pub driver: Option<HeapBudget>,
}

/// The backend with one domain's accounts. Everything that holds driver memory keeps it alive.
pub(crate) struct Device<B: Backend> {
    opened: Arc<Opened<B>>,
    accounts: Vec<Account>,
    blocks: AtomicU64,
    driver_calls: AtomicU64,
    quarantined: AtomicU64,
    observer: Option<Arc<dyn Observer>>,
    driver_limit: DriverLimit,
    /// Cached placement of a hint-free request.
    usual: Option<Placement>,
    /// Cost of moves, by heap.
    costs: Vec<Cost>,
    /// Memory that threads carry between the driver and the pools.
    pub(crate) in_flight: InFlight,
    /// True if pools must not wait for timelines, nor order them, to save memory.
    pub(crate) hurried: AtomicBool,
}

/// Bytes of the largest page group: a driver takes about as long for 32 MiB as for one page.
pub(crate) const LARGEST_GROUP: u64 = 32 << 20;
/// Page groups of which the pages that one request lacks consist at least: what moves whole must be small beside them.
const LEAST_GROUPS: u64 = 8;
/// The same for all pages of a heap, where small requests get a quarter of the largest group at most.
const LEAST_GROUPS_OF_HEAP: u64 = 256;

/// The next block's number, over all devices: observers may watch several.
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

impl<B: Backend> fmt::Debug for Device<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}

impl<B: Backend> Drop for Device<B> {
    /// Frees what a domain was promised for others. All that it held is gone by now: blocks and pages keep it alive.
    fn drop(&mut self) {
        for (heap, _) in self.opened.backend.caps().heap_ids() {
            let _ = self.promise(heap, 0);
        }
    }
}

impl<B: Backend> Device<B> {
    pub(crate) fn new(backend: B) -> Self {
        Self::over(Arc::new(Opened::new(backend)))
    }

    /// A further domain of the same device, with accounts of its own.
    pub(crate) fn another(&self) -> Self {
        Self::over(Arc::clone(&self.opened))
    }

    fn over(opened: Arc<Opened<B>>) -> Self {
        opened.count_domain();
        let account = |_: &Heap| Account {
            reserved: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            hard: AtomicU64::new(u64::MAX),
            soft: AtomicU64::new(u64::MAX),
            promised: AtomicU64::new(0),
        };
        let accounts = opened.backend.caps().heaps.iter().map(account).collect();
        let costs = opened.backend.caps().heaps.iter().map(|_| Cost::default()).collect();
        Self {
            opened,
            accounts,
            blocks: AtomicU64::new(0),
            driver_calls: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
            observer: None,
            driver_limit: DriverLimit::default(),
            usual: None,
            costs,
            in_flight: InFlight::new(),
            hurried: AtomicBool::new(false),
        }
    }

    /// The same, seen by an observer, within the driver's budget or not, and with the policy's decision for requests without
    /// hints: allocations of the fast path tell it.
    pub(crate) fn set_up(
        mut self,
        observer: Option<Arc<dyn Observer>>,
        driver_limit: DriverLimit,
        usual: Option<Placement>,
    ) -> Self {
        (self.observer, self.driver_limit, self.usual) = (observer, driver_limit, usual);
        self
    }

    /// Cached placement of a hint-free request; `None` if the policy refuses it.
    pub(crate) const fn usual(&self) -> Option<&Placement> {
        self.usual.as_ref()
    }

    /// Reads the driver's budget of every physical memory, smoothed: once a frame, where it matters.
    pub(crate) fn read_budgets(&self) {
        if self.driver_limit == DriverLimit::Ignored {
            return;
        }
        let caps = self.backend().caps();
        let is_first = |id: HeapId, physical: u8| {
            caps.heap_ids()
                .find(|(_, heap)| heap.physical == physical)
                .is_some_and(|(first, _)| first == id)
        };
        for (id, _) in caps.heap_ids().filter(|(id, heap)| is_first(*id, heap.physical)) {
            self.opened.driver_budgets.refresh(self.backend(), id, self.opened.held_beside(id));
        }
    }

    /// Reads the limits of the process anew, and says so where less may be held now than is held. Returns whether more of the heap may
    /// be held than before.
    pub(crate) fn read_limits(&self, heap: HeapId) -> bool {
        let before = self.opened.system_limits.hard(heap);
        self.opened.system_limits.read(self.backend());
        let (most, held) = (self.opened.system_limits.hard(heap), self.opened.system_limits.held());
        if most < held {
            tracing::warn!(target: "omniheap", heap = heap.0, most, held, "more memory is held than the limit allows");
        }
        most > before
    }

    /// Returns the limits of the process as they were last read.
    pub(crate) fn limits(&self) -> Vec<HeapLimit> {
        self.opened.system_limits.told()
    }

    /// The observer of events, if there is one.
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// Tells the observer, if there is one, and `tracing`.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        say(event);
        if let Some(observer) = self.observer() {
            observer.observe(event);
        }
    }

    pub(crate) fn backend(&self) -> &B {
        &self.opened.backend
    }

    pub(crate) fn heap(&self, heap: HeapId) -> Result<&Heap> {
        self.backend().caps().heap(heap).ok_or(Error::new(ErrorKind::NoSuchHeap))
    }

    pub(crate) fn remap(&self) -> Option<&dyn Remap<Block = B::Block>> {
        self.backend().as_remap()
    }

    /// Cost of moves on a heap.
    ///
    /// # Panics
    ///
    /// Panics when there is no such heap: pools have checked theirs.
    pub(crate) fn cost(&self, heap: HeapId) -> &Cost {
        &self.costs[usize::from(heap.0)]
    }

    fn account(&self, heap: HeapId) -> Result<&Account> {
        self.accounts.get(usize::from(heap.0)).ok_or(Error::new(ErrorKind::NoSuchHeap))
    }

    /// Returns the bytes held from a heap, and their limits.
    pub(crate) fn heap_use(&self, heap: HeapId) -> Result<HeapUse> {
        let account = self.account(heap)?;
        let all = self.opened.heap(heap)?;
        let reserved = account.reserved.load(Relaxed);
        let unheld = account.promised.load(Relaxed).saturating_sub(reserved);
        let beside = all.left(reserved, unheld, self.heap(heap)?.size);
        let (hard, soft) = self.opened.system_limits.left(heap, reserved, unheld);
        drop(all);
        let hard_limit = account.hard.load(Relaxed).min(hard).min(beside);
        Ok(HeapUse {
            reserved,
            peak_reserved: account.peak.load(Relaxed),
            hard_limit,
            soft_limit: account.soft.load(Relaxed).min(soft).min(hard_limit),
            driver: self.opened.driver_budgets.last(
                self.backend(),
                heap,
                self.opened.held_beside(heap),
            ),
        })
    }

    pub(crate) fn set_limits(&self, heap: HeapId, soft: u64, hard: u64) -> Result<()> {
        if soft > hard {
            return Err(ErrorKind::InvalidConfig.because("the soft limit is above the hard limit"));
        }
        let account = self.account(heap)?;
        account.hard.store(hard, Relaxed);
        account.soft.store(soft, Relaxed);
        Ok(())
    }

    /// Driver calls that took or returned memory: the figure that a pool must keep low.
    pub(crate) fn driver_calls(&self) -> u64 {
        self.driver_calls.load(Relaxed)
    }

    /// Blocks and reservations held.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Relaxed)
    }

    /// Bytes that are lost until the device is closed, or until their secret is zeroed.
    pub(crate) fn quarantined(&self) -> u64 {
        self.quarantined.load(Relaxed)
    }

    pub(crate) fn count_call(&self) {
        self.driver_calls.fetch_add(1, Relaxed);
    }

    /// Counts memory that is lost until the device is closed.
    pub(crate) fn quarantine(&self, bytes: u64, why: &'static str) {
        self.quarantined.fetch_add(bytes, Relaxed);
        tracing::error!(bytes, why, "memory is lost until the device is closed");
    }

    /// Counts memory as in use again that was counted as lost.
    pub(crate) fn recover(&self, bytes: u64) {
        self.quarantined.fetch_sub(bytes, Relaxed);
    }

    /// Books bytes of a heap before the driver is asked for them.
    pub(crate) fn claim(&self, heap: HeapId, bytes: u64) -> Result<()> {
        let account = self.account(heap)?;
        if self.driver_limit == DriverLimit::Honoured {
            let held = self.opened.held_beside(heap);
            self.opened.driver_budgets.check(self.backend(), heap, held, bytes)?;
        }
        let mut all = self.opened.heap(heap)?;
        let held = account.reserved.load(Relaxed);
        let sum = held.checked_add(bytes).filter(|sum| *sum <= account.hard.load(Relaxed));
        let sum = sum.ok_or(ErrorKind::OverBudget)?;
        let promised = account.promised.load(Relaxed);
        let (before, after) = (promised.saturating_sub(held), promised.saturating_sub(sum));
        all.claim(bytes, before, after, self.heap(heap)?.size)?;
        // Nobody sees the sum before it is known to stay: it is locked.
        let claimed = self.opened.system_limits.claim(heap, bytes, before, after);
        claimed.inspect_err(|_| all.release(bytes, after, before))?;
        account.reserved.store(sum, Relaxed);
        Ok(())
    }

    /// Notes that claimed bytes have arrived.
    fn arrived(&self, heap: HeapId) {
        if let Ok(account) = self.account(heap) {
            account.peak.fetch_max(account.reserved.load(Relaxed), Relaxed);
        }
    }

    /// Books bytes back.
    pub(crate) fn release(&self, heap: HeapId, bytes: u64) {
        if let (Ok(account), Ok(mut all)) = (self.account(heap), self.opened.heap(heap)) {
            let held = account.reserved.load(Relaxed);
            let promised = account.promised.load(Relaxed);
            let (before, after) =
                (promised.saturating_sub(held), promised.saturating_sub(held - bytes));
            all.release(bytes, before, after);
            self.opened.system_limits.release(heap, bytes, before, after);
            account.reserved.store(held - bytes, Relaxed);
        }
    }

    /// Promises this domain bytes of a heap: the others leave them to it.
    pub(crate) fn promise(&self, heap: HeapId, bytes: u64) -> Result<()> {
        let account = self.account(heap)?;
        let mut all = self.opened.heap(heap)?;
        let held = account.reserved.load(Relaxed);
        let (before, after) =
            (account.promised.load(Relaxed).saturating_sub(held), bytes.saturating_sub(held));
        let size = self.heap(heap)?.size;
        all.promise(before, after, size)?;
        // Only more is refused, and to take that back is to ask for less.
        let promised = self.opened.system_limits.promise(heap, before, after);
        promised.inspect_err(|_| {
            let undone = all.promise(after, before, size);
            debug_assert!(undone.is_ok(), "less is never too much");
        })?;
        account.promised.store(bytes, Relaxed);
        Ok(())
    }

    /// Resets the peaks to the bytes held now.
    pub(crate) fn reset_peaks(&self) {
        for account in &self.accounts {
            account.peak.store(account.reserved.load(Relaxed), Relaxed);
        }
    }

    fn claim_block(&self) -> Result<()> {
        self.opened.claim_block()?;
        self.blocks.fetch_add(1, Relaxed);
        Ok(())
    }

    fn release_block(&self) {
        self.blocks.fetch_sub(1, Relaxed);
        self.opened.release_block();
    }

    /// Returns true if memory from the driver may hold what another domain left there.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.opened.domains() > 1
    }

    /// Returns true if a timeline was closed: closing waits for its work, so all of it has passed. Nobody closes all of
    /// them.
    pub(crate) fn is_closed(&self, timeline: TimelineId) -> Result<bool> {
        if timeline == TimelineId::ALL {
            return Ok(false);
        }
        match self.backend().as_timelines().map(|timelines| timelines.reached(timeline)) {
            Some(Err(error)) if error.kind() == ErrorKind::NoSuchTimeline => Ok(true),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Ok(false),
        }
    }

    /// Returns the answer of a timeline, or `None` where it was closed. Backends refuse other things as
    /// `NoSuchTimeline` too: epochs that were never marked, marks from a thread that may not submit.
    pub(crate) fn unless_closed<T>(
        &self,
        timeline: TimelineId,
        answer: Result<T>,
    ) -> Result<Option<T>> {
        match answer {
            Err(error) if error.kind() == ErrorKind::NoSuchTimeline => {
                if self.is_closed(timeline)? { Ok(None) } else { Err(error) }
            }
            other => other.map(Some),
        }
    }

    /// Waits until everything that was submitted to a timeline has passed. A device that cannot mark all of its work has done it
    /// when it is idle.
    pub(crate) fn drain(&self, timeline: TimelineId) -> Result<()> {
        let Some(timelines) = self.backend().as_timelines() else { return Ok(()) };
        let marked = timelines.mark(timeline);
        let waited = marked.and_then(|epoch| timelines.wait(Point { timeline, epoch }));
        match self.unless_closed(timeline, waited) {
            Err(error)
                if error.kind() == ErrorKind::NoSuchTimeline && timeline == TimelineId::ALL =>
            {
                self.backend().wait_idle()
            }
            drained => drained.map(|_| ()),
        }
    }

    /// Zeroes unused memory on a timeline, before it returns.
    pub(crate) fn clear(&self, block: &B::Block, span: Span, on: TimelineId) -> Result<()> {
        let transfer = self.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        transfer.fill(on, BlockOffset { block, offset: span.offset }, span.size, 0)?;
        self.finish(on)
    }

    /// Waits until everything on an open timeline is done; for the whole device where there are none.
    pub(crate) fn finish(&self, timeline: TimelineId) -> Result<()> {
        let Some(timelines) = self.backend().as_timelines() else {
            return self.backend().wait_idle();
        };
        let epoch = timelines.mark(timeline)?;
        timelines.wait(Point { timeline, epoch })
    }

    /// Asks the driver for a block within budget and limits.
    pub(crate) fn allocate(self: &Arc<Self>, heap: HeapId, size: u64) -> Result<Block<B>> {
        self.allocate_by(heap, size, || self.backend().allocate(heap, size))
    }

    /// As [`allocate`](Self::allocate); `make` asks the driver.
    pub(crate) fn allocate_by(
        self: &Arc<Self>,
        heap: HeapId,
        size: u64,
        make: impl FnOnce() -> Result<B::Block>,
    ) -> Result<Block<B>> {
        if size > self.heap(heap)?.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        self.claim(heap, size)?;
        self.take(heap, size, size, make)
    }

    /// Reserves addresses without memory.
    pub(crate) fn reserve(self: &Arc<Self>, heap: HeapId, size: u64) -> Result<Block<B>> {
        let remap = self.remap().ok_or(ErrorKind::Unsupported)?;
        self.take(heap, size, 0, || remap.reserve(heap, size))
    }

    /// Runs a driver call that makes a block; `claimed` bytes are booked back when it fails.
    fn take(
        self: &Arc<Self>,
        heap: HeapId,
        size: u64,
        claimed: u64,
        call: impl FnOnce() -> Result<B::Block>,
    ) -> Result<Block<B>> {
        let made = self.claim_block().and_then(|()| {
            self.count_call();
            call().inspect_err(|_| {
                self.release_block();
            })
        });
        match made {
            Ok(raw) => {
                self.arrived(heap);
                let number = BlockNumber(NEXT_BLOCK.fetch_add(1, Relaxed));
                let backing = if claimed == size { Backing::Memory } else { Backing::Pages };
                let address = self.backend().as_address().map(|address| address.address(&raw));
                self.tell(&Event::TakeBlock { block: number, size, heap, backing, address });
                Ok(Block { device: Arc::clone(self), number, heap, size, claimed, raw: Some(raw) })
            }
            Err(error) => {
                self.release(heap, claimed);
                if error.kind().is_out_of_memory() {
                    self.read_budgets();
                }
                Err(error)
            }
        }
    }

    /// Returns a block that work may still use: the driver gets it once the device is idle, or never.
    pub(crate) fn give_up(&self, block: Block<B>) {
        if self.settle().is_err() {
            self.abandon(Arc::new(block), "work on a block could not be followed");
        }
    }

    /// Keeps a block from the driver for good: work may still use it, or it has a secret.
    pub(crate) fn abandon(&self, block: Arc<Block<B>>, why: &'static str) {
        self.quarantine(block.claimed, why);
        core::mem::forget(block);
    }

    /// Waits until nothing runs on the device. A lost device runs nothing.
    ///
    /// # Errors
    ///
    /// As for [`Backend::wait_idle`], but for `DeviceLost`. Work may then still use whatever was freed.
    pub(crate) fn settle(&self) -> Result<()> {
        match self.backend().wait_idle() {
            Err(error) if error.kind() == ErrorKind::DeviceLost => Ok(()),
            other => other,
        }
    }

    /// Creates pages within budget, `group` and more as one where they are many.
    pub(crate) fn create_pages(
        &self,
        heap: HeapId,
        count: u64,
        page: u64,
        group: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let (held, largest) = (self.heap_use(heap)?.reserved / page, (LARGEST_GROUP / page).max(1));
        let beside_held = (held / LEAST_GROUPS_OF_HEAP).min(largest / 4);
        let most = beside_held.max(count / LEAST_GROUPS).clamp(group, largest);
        let remap = self.remap().ok_or(ErrorKind::Unsupported)?;
        let bytes = count.checked_mul(page).ok_or(ErrorKind::SizeOverflow)?;
        self.claim(heap, bytes)?;
        self.count_call();
        remap.create_groups(heap, count, most, pages).inspect_err(|_| self.release(heap, bytes))?;
        self.arrived(heap);
        self.tell(&Event::TakePages { heap, bytes });
        Ok(())
    }

    /// Returns pages of host memory that are not mapped.
    pub(crate) fn destroy_host_pages(&self, heap: HeapId, page: u64, pages: &[Page]) {
        let Some(remap) = self.remap().filter(|_| !pages.is_empty()) else { return };
        let bytes = pages.len() as u64 * page;
        self.count_call();
        // SAFETY: as in `destroy_pages`; the pool knows which of its pages are of host memory.
        if unsafe { remap.destroy_on_host(heap, pages) }.is_err() {
            self.quarantine(bytes, "the driver refused to take host pages back");
        }
        self.tell(&Event::ReturnHostPages { heap, bytes });
    }

    /// Returns pages that are not mapped.
    pub(crate) fn destroy_pages(&self, heap: HeapId, page: u64, pages: &[Page]) {
        let Some(remap) = self.remap().filter(|_| !pages.is_empty()) else { return };
        let bytes = pages.len() as u64 * page;
        self.count_call();
        // SAFETY: pagers hand over only pages that they created from this heap and hold unmapped in their own lists.
        if unsafe { remap.destroy(heap, pages) }.is_err() {
            self.quarantine(bytes, "the driver refused to take pages back");
        }
        self.release(heap, bytes);
        self.tell(&Event::ReturnPages { heap, bytes });
    }
}

/// Attempts of a call that must not fail, because its effect cannot be undone.
const ATTEMPTS: u32 = 8;

/// Repeats a call a few times while the driver refuses it, even with `DeviceLost`: on a lost device that does no harm, and
/// if the report was wrong, copies in flight must not be forgotten.
pub(crate) fn insist(mut call: impl FnMut() -> Result<()>) -> Result<()> {
    (1..ATTEMPTS).fold(call(), |answer, _| answer.or_else(|_| call()))
}

/// One driver allocation that returns itself.
pub(crate) struct Block<B: Backend> {
    pub(super) device: Arc<Device<B>>,
    pub(super) number: BlockNumber,
    pub(super) heap: HeapId,
    pub(super) size: u64,
    pub(super) claimed: u64,
    pub(super) raw: Option<B::Block>,
}

impl<B: Backend> fmt::Debug for Block<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("heap", &self.heap)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Block<B> {
    pub(crate) fn backend(&self) -> &B {
        self.device.backend()
    }

    pub(crate) fn raw(&self) -> &B::Block {
        self.raw.as_ref().expect("present until drop")
    }

    pub(crate) fn at(&self, offset: u64) -> BlockOffset<'_, B::Block> {
        BlockOffset { block: self.raw(), offset }
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) const fn number(&self) -> BlockNumber {
        self.number
    }
}

impl<B: Backend> Drop for Block<B> {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        // Told before the driver has it: afterwards another block may have the same address, and tools know of no memory there.
        self.device.tell(&Event::ReturnBlock { block: self.number });
        self.device.count_call();
        // SAFETY: the block came from this backend in `take`. Lanes drop a block only when nothing in it is live and
        // its timelines have passed the last free, or after the device went idle.
        if unsafe { self.device.backend().free(raw) }.is_err() {
            self.device.quarantine(self.claimed, "the driver refused to take a block back");
        }
        self.device.release_block();
        self.device.release(self.heap, self.claimed);
    }
}
