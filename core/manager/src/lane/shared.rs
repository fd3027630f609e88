//! State that the lanes of one pool share.
#![forbid(unsafe_code)]
use super::config::PoolConfig;
use super::growth::Growth;
use crate::device::{Block, Device, LARGEST_GROUP};
use crate::event::Event;
use crate::guards::Watch;
use crate::sync::Mutex;
use crate::{Align, Backend, ErrorKind, HeapId, Page, Result, Sharing, Span, TimelineId};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_strategy::pages::take_groups;
use std::sync::Mutex as ParkingLock;

/// A block that leaves its lane, and what it was taken for.
pub(crate) type Leaving<B> = (Arc<Block<B>>, Sharing);

/// One pool's settings, accounts and spare pages.
pub(crate) struct Shared<B: Backend> {
    pub(crate) device: Arc<Device<B>>,
    pub(crate) heap: HeapId,
    pub(crate) config: PoolConfig,
    pub(crate) growth: Growth,
    /// Every span starts at, and is a multiple of, this.
    pub(crate) unit: Align,
    reserved: AtomicU64,
    /// The part of `reserved` in blocks that one allocation each has for itself. Both change under the lock together.
    dedicated: Mutex<u64>,
    high: AtomicU64,
    needed: AtomicU64,
    /// True if the driver had no more pages when it was last asked.
    pub(super) refused: AtomicBool,
    /// Physical pages that are mapped nowhere.
    pub(super) spare: Mutex<Vec<Page>>,
    /// Pages of the pool that are host memory, and the bytes of their page groups. No account has them.
    on_host: Mutex<BTreeMap<Page, u64>>,
    /// True if the pool is asleep. A sleep or a wake holds the lock from its start to its end, and over calls of the driver: whoever waits
    /// for it is parked.
    pub(crate) asleep: ParkingLock<bool>,
    /// The guards, if there are any.
    pub(crate) watch: Option<Arc<Watch<B>>>,
}

impl<B: Backend> Shared<B> {
    pub(crate) fn new(
        device: Arc<Device<B>>,
        heap: HeapId,
        config: PoolConfig,
        growth: Growth,
        unit: Align,
        watch: Option<Arc<Watch<B>>>,
    ) -> Self {
        let [reserved, high, needed] = [const { AtomicU64::new(0) }; 3];
        Self {
            device,
            heap,
            config,
            growth,
            unit,
            reserved,
            dedicated: Mutex::new(0),
            high,
            needed,
            refused: AtomicBool::new(false),
            spare: Mutex::new(Vec::new()),
            on_host: Mutex::new(BTreeMap::new()),
            asleep: ParkingLock::new(false),
            watch,
        }
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Bytes that a minimum counts: a block of one allocation's own leaves with it.
    pub(crate) fn reserved_for_all(&self) -> u64 {
        let dedicated = self.dedicated.lock();
        self.reserved() - *dedicated
    }

    /// The most that the pool ever held.
    pub(crate) fn high(&self) -> u64 {
        self.high.load(Relaxed)
    }

    /// Notes how many bytes are needed now; returns the most that ever were.
    pub(crate) fn need(&self, bytes: u64) -> u64 {
        self.needed.fetch_max(bytes, Relaxed).max(bytes)
    }

    /// Books bytes that the pool is about to take, within its own maximum.
    pub(crate) fn claim(&self, bytes: u64) -> Result<(), ErrorKind> {
        let most = self.config.maximum;
        let within = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= most);
        self.reserved
            .fetch_update(Relaxed, Relaxed, within)
            .map(|_| ())
            .map_err(|_| ErrorKind::OverBudget)
    }

    /// As [`claim`](Self::claim), for a block.
    fn claim_block(&self, bytes: u64, sharing: Sharing) -> Result<(), ErrorKind> {
        if sharing == Sharing::Shared {
            return self.claim(bytes);
        }
        let mut dedicated = self.dedicated.lock();
        self.claim(bytes)?;
        *dedicated += bytes;
        Ok(())
    }

    /// Books a block's bytes back.
    fn release_block(&self, bytes: u64, sharing: Sharing) {
        if sharing == Sharing::Shared {
            return self.release(bytes);
        }
        let mut dedicated = self.dedicated.lock();
        self.release(bytes);
        *dedicated -= bytes;
    }

    /// Notes that claimed bytes have arrived.
    pub(super) fn note_high(&self) {
        self.high.fetch_max(self.reserved(), Relaxed);
    }

    /// Books bytes back.
    pub(crate) fn release(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Relaxed);
    }

    /// The pages that are created as one at least, where the driver can: a pool that sleeps unmaps and maps all of them.
    pub(super) fn group(&self, page: u64) -> u64 {
        if self.config.sleepable { (LARGEST_GROUP / page).max(1) } else { 1 }
    }

    /// Rounds what a pool grows by to whole groups, where one is small beside the heap.
    pub(super) fn whole_groups(&self, bytes: u64, page: u64) -> u64 {
        let group = self.group(page) * page;
        let is_small = self.device.heap(self.heap).is_ok_and(|heap| heap.size / 64 >= group);
        let rounded = bytes.checked_next_multiple_of(group);
        rounded.filter(|_| self.config.sleepable && is_small).unwrap_or(bytes)
    }

    /// Cuts addresses into what is created as one.
    pub(crate) fn groups_of(&self, span: Span) -> impl Iterator<Item = Span> + use<B> {
        let page = self.page().unwrap_or(span.size);
        span.pieces(self.group(page) * page)
    }

    /// Takes pages from the driver, mapped nowhere.
    pub(super) fn take_pages(&self, count: u64, page: u64, pages: &mut Vec<Page>) -> Result<()> {
        let bytes = count.checked_mul(page).ok_or(ErrorKind::SizeOverflow)?;
        self.claim(bytes)?;
        let created = self.device.create_pages(self.heap, count, page, self.group(page), pages);
        created.inspect_err(|_| self.release(bytes))?;
        self.note_high();
        Ok(())
    }

    /// Takes pages of host memory, mapped nowhere, as long as the pool has `most` bytes of it at most.
    pub(super) fn take_host_pages(
        &self,
        count: u64,
        page: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        if self.host_mapped().saturating_add(count * page) > most {
            return Err(
                ErrorKind::OverBudget.because("the wake may use no more memory of the host")
            );
        }
        let remap = self.device.remap().ok_or(ErrorKind::Unsupported)?;
        self.device.count_call();
        remap.create_on_host(self.heap, count, self.group(page), pages)?;
        let mut on_host = self.on_host.lock();
        pages.iter().for_each(|one| *on_host.entry(*one).or_default() += page);
        drop(on_host);
        self.device.tell(&Event::TakeHostPages { heap: self.heap, bytes: count * page });
        Ok(())
    }

    /// Bytes of host memory that the pool has.
    pub(crate) fn host_mapped(&self) -> u64 {
        self.on_host.lock().values().sum()
    }

    /// Returns pages to the driver that are mapped nowhere. Returns the number of bytes of the device.
    pub(super) fn return_pages(&self, page: u64, pages: &[Page]) -> u64 {
        let mut known = self.on_host.lock();
        let (on_host, own): (Vec<_>, Vec<_>) =
            pages.iter().partition(|one| known.contains_key(one));
        for one in &on_host {
            known.remove(one);
        }
        drop(known);
        self.device.destroy_host_pages(self.heap, page, &on_host);
        self.device.destroy_pages(self.heap, page, &own);
        let bytes = own.len() as u64 * page;
        self.release(bytes);
        bytes
    }

    /// Returns up to `most` spare pages to the driver. Returns their bytes.
    pub(crate) fn return_spare(&self, most: u64) -> u64 {
        let Some(page) = self.page() else { return 0 };
        let (in_flight, mut pages) = (self.device.in_flight.begin(), Vec::new());
        take_groups(&mut self.spare.lock(), most, &mut pages);
        let bytes = self.return_pages(page, &pages);
        if !pages.is_empty() {
            in_flight.publish();
        }
        bytes
    }

    /// Takes a block from the driver, cleared where another domain may have used its memory.
    pub(crate) fn take_block(&self, size: u64) -> Result<Arc<Block<B>>> {
        let make = || self.device.backend().allocate(self.heap, size);
        self.take_made(size, Sharing::Shared, make)
    }

    /// As [`take_block`](Self::take_block); `make` asks the driver.
    pub(super) fn take_made(
        &self,
        size: u64,
        sharing: Sharing,
        make: impl FnOnce() -> Result<B::Block>,
    ) -> Result<Arc<Block<B>>> {
        self.claim_block(size, sharing)?;
        let (whole, on) = (Span { offset: 0, size }, TimelineId::MAIN);
        let taken = self.device.allocate_by(self.heap, size, make).and_then(|block| {
            if self.device.has_neighbours()
                && let Err(error) = self.device.clear(block.raw(), whole, on)
            {
                self.device.give_up(block);
                return Err(error);
            }
            Ok(Arc::new(block))
        });
        let block = taken.inspect_err(|_| self.release_block(size, sharing))?;
        self.note_high();
        Ok(block)
    }

    /// Returns blocks to the driver; call it without a lock.
    pub(crate) fn give_back(&self, blocks: Vec<Leaving<B>>) -> u64 {
        let mut bytes = 0;
        for (block, sharing) in &blocks {
            self.release_block(block.size(), *sharing);
            bytes += block.size();
        }
        drop(blocks);
        bytes
    }

    /// The size of a page, where the pool is made of pages.
    pub(crate) fn page(&self) -> Option<u64> {
        let page = self.device.heap(self.heap).ok()?.page?;
        (self.config.paged && self.device.remap().is_some()).then_some(page.get())
    }
}

impl<B: Backend> Drop for Shared<B> {
    fn drop(&mut self) {
        self.return_spare(u64::MAX);
    }
}
