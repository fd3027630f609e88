//! One opened device: the backend, and exact accounts of what was taken from it.
#![expect(unsafe_code, reason = "returns blocks and pages to the backend")]
use crate::{Backend, Error, ErrorKind, Heap, HeapId, Page, Remap, Result};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is held from one heap, and how much may be.
#[derive(Debug)]
struct Account {
    reserved: AtomicU64,
    peak: AtomicU64,
    hard: AtomicU64,
    soft: AtomicU64,
}

/// How much of one heap is held and may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes held from the driver.
    pub reserved: u64,
    /// The most that was ever held.
    pub peak_reserved: u64,
    /// More than this is refused.
    pub hard_limit: u64,
    /// Above this, empty blocks are given back and pressure callbacks run.
    pub soft_limit: u64,
}

/// The backend with its accounts. Everything that holds driver memory keeps it alive.
pub(crate) struct Device<B: Backend> {
    backend: B,
    accounts: Vec<Account>,
    blocks: AtomicU64,
    driver_calls: AtomicU64,
    quarantined: AtomicU64,
}

impl<B: Backend> fmt::Debug for Device<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}

impl<B: Backend> Device<B> {
    pub(crate) fn new(backend: B) -> Self {
        let account = |_: &Heap| Account {
            reserved: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            hard: AtomicU64::new(u64::MAX),
            soft: AtomicU64::new(u64::MAX),
        };
        let accounts = backend.caps().heaps.iter().map(account).collect();
        Self {
            backend,
            accounts,
            blocks: AtomicU64::new(0),
            driver_calls: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
        }
    }

    pub(crate) const fn backend(&self) -> &B {
        &self.backend
    }

    pub(crate) fn heap(&self, heap: HeapId) -> Result<&Heap> {
        self.backend.caps().heap(heap).ok_or(Error::new(ErrorKind::NoSuchHeap))
    }

    pub(crate) fn remap(&self) -> Option<&dyn Remap<Block = B::Block>> {
        self.backend.as_remap()
    }

    fn account(&self, heap: HeapId) -> Result<&Account> {
        self.accounts.get(usize::from(heap.0)).ok_or(Error::new(ErrorKind::NoSuchHeap))
    }

    /// How much of a heap is held and may be held.
    pub(crate) fn heap_use(&self, heap: HeapId) -> Result<HeapUse> {
        let account = self.account(heap)?;
        Ok(HeapUse {
            reserved: account.reserved.load(Relaxed),
            peak_reserved: account.peak.load(Relaxed),
            hard_limit: account.hard.load(Relaxed),
            soft_limit: account.soft.load(Relaxed),
        })
    }

    pub(crate) fn set_limits(&self, heap: HeapId, soft: u64, hard: u64) -> Result<()> {
        if soft > hard {
            return Err(ErrorKind::InvalidConfig.into());
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

    /// Bytes that the driver refused to take back.
    pub(crate) fn quarantined(&self) -> u64 {
        self.quarantined.load(Relaxed)
    }

    pub(crate) fn count_call(&self) {
        self.driver_calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn quarantine(&self, bytes: u64) {
        self.quarantined.fetch_add(bytes, Relaxed);
        tracing::error!(
            bytes,
            "the driver refused to take memory back; it is lost until the device is closed"
        );
    }

    /// Books bytes of a heap before the driver is asked for them.
    pub(crate) fn claim(&self, heap: HeapId, bytes: u64) -> Result<()> {
        let account = self.account(heap)?;
        let hard = account.hard.load(Relaxed);
        let within = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= hard);
        let claimed = account.reserved.fetch_update(Relaxed, Relaxed, within);
        claimed.map(|_| ()).map_err(|_| Error::new(ErrorKind::OverBudget))
    }

    /// Notes that claimed bytes have arrived.
    fn arrived(&self, heap: HeapId) {
        if let Ok(account) = self.account(heap) {
            account.peak.fetch_max(account.reserved.load(Relaxed), Relaxed);
        }
    }

    /// Books bytes back.
    pub(crate) fn release(&self, heap: HeapId, bytes: u64) {
        if let Ok(account) = self.account(heap) {
            account.reserved.fetch_sub(bytes, Relaxed);
        }
    }

    fn claim_block(&self) -> Result<()> {
        let limit = self.backend.caps().max_blocks;
        let within = |count: u64| (count < limit).then_some(count + 1);
        let claimed = self.blocks.fetch_update(Relaxed, Relaxed, within);
        claimed.map(|_| ()).map_err(|_| Error::new(ErrorKind::OutOfDeviceMemory))
    }

    /// Asks the driver for a block within budget and limits.
    pub(crate) fn allocate(self: &Arc<Self>, heap: HeapId, size: u64) -> Result<Block<B>> {
        if size > self.heap(heap)?.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        self.claim(heap, size)?;
        self.take(heap, size, size, || self.backend.allocate(heap, size))
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
                self.blocks.fetch_sub(1, Relaxed);
            })
        });
        match made {
            Ok(raw) => {
                self.arrived(heap);
                Ok(Block { device: Arc::clone(self), heap, size, claimed, raw: Some(raw) })
            }
            Err(error) => {
                self.release(heap, claimed);
                Err(error)
            }
        }
    }

    /// Creates pages within budget.
    pub(crate) fn create_pages(
        &self,
        heap: HeapId,
        count: u64,
        page: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let remap = self.remap().ok_or(ErrorKind::Unsupported)?;
        let bytes = count.checked_mul(page).ok_or(ErrorKind::SizeOverflow)?;
        self.claim(heap, bytes)?;
        self.count_call();
        remap.create(heap, count, pages).inspect_err(|_| self.release(heap, bytes))?;
        self.arrived(heap);
        Ok(())
    }

    /// Returns pages that are not mapped.
    pub(crate) fn destroy_pages(&self, heap: HeapId, page: u64, pages: &[Page]) {
        let Some(remap) = self.remap().filter(|_| !pages.is_empty()) else { return };
        let bytes = pages.len() as u64 * page;
        self.count_call();
        // SAFETY: pagers hand over only pages that they created from this heap and hold unmapped in their own lists.
        if unsafe { remap.destroy(heap, pages) }.is_err() {
            self.quarantine(bytes);
        }
        self.release(heap, bytes);
    }
}

/// One driver allocation that returns itself.
pub(crate) struct Block<B: Backend> {
    device: Arc<Device<B>>,
    heap: HeapId,
    size: u64,
    claimed: u64,
    raw: Option<B::Block>,
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
    pub(crate) fn raw(&self) -> &B::Block {
        self.raw.as_ref().expect("present until drop")
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }
}

impl<B: Backend> Drop for Block<B> {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        self.device.count_call();
        // SAFETY: the block came from this backend in `take`. Lanes drop a block only when nothing in it is live and
        // its timelines have passed the last free, or after the device went idle.
        if unsafe { self.device.backend.free(raw) }.is_err() {
            self.device.quarantine(self.claimed);
        }
        self.device.blocks.fetch_sub(1, Relaxed);
        self.device.release(self.heap, self.claimed);
    }
}
