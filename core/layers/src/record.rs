//! A backend that remembers what was asked of it.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use crate::{Call, CallKind, Hooks, Layer, lock};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use omniheap_seam::{Backend, Error, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Counts every call, keeps a ledger of what lives, and writes a log when asked to.
pub type Record<B> = Layer<B, Records>;

impl<B: Backend> Layer<B, Records> {
    /// Records what happens to `backend`.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self::wrap(backend, Records::default())
    }

    /// Returns the number of calls of each kind.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls(self.hooks().counts.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Returns the number of calls that took memory from the driver or gave it back. A call over a range of pages
    /// counts once.
    #[must_use]
    pub fn driver_calls(&self) -> u64 {
        self.calls().iter().filter(|(kind, _)| kind.is_memory()).map(|(_, count)| count).sum()
    }

    /// Returns the blocks, pages and bytes that live now.
    #[must_use]
    pub fn live(&self) -> Live {
        lock(&self.hooks().ledger).live
    }

    /// Returns the calls that made the live blocks and reservations, oldest first; `count` is how many positions are
    /// mapped.
    #[must_use]
    pub fn live_blocks(&self) -> Vec<Call> {
        lock(&self.hooks().ledger).blocks.values().copied().collect()
    }

    /// Returns the most bytes that blocks and pages together ever took.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        lock(&self.hooks().ledger).peak
    }

    /// Starts an empty log.
    pub fn start_log(&self) {
        lock(&self.hooks().log).clear();
        self.hooks().logging.store(true, Ordering::Release);
    }

    /// Stops the log and hands it over.
    #[must_use]
    pub fn take_log(&self) -> Vec<Entry> {
        self.hooks().logging.store(false, Ordering::Release);
        core::mem::take(&mut *lock(&self.hooks().log))
    }
}

const KINDS: usize = CallKind::ALL.len();

/// Hooks of [`Record`]: count calls and remember what they made.
#[derive(Debug)]
pub struct Records {
    counts: [AtomicU64; KINDS],
    ledger: Mutex<Ledger>,
    logging: AtomicBool,
    log: Mutex<Vec<Entry>>,
}

impl Default for Records {
    fn default() -> Self {
        let counts = [const { AtomicU64::new(0) }; KINDS];
        let (ledger, log) = (Mutex::default(), Mutex::default());
        Self { counts, ledger, logging: AtomicBool::new(false), log }
    }
}

/// One call and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The call.
    pub call: Call,
    /// Its error; `None` if it succeeded.
    pub error: Option<Error>,
}

/// Counts by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls([u64; KINDS]);

impl Calls {
    /// Returns the number of calls of this kind, successful or not.
    #[must_use]
    pub const fn of(&self, kind: CallKind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns every kind with its count.
    pub fn iter(&self) -> impl Iterator<Item = (CallKind, u64)> {
        CallKind::ALL.iter().copied().zip(self.0)
    }

    /// Returns the number of all calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Live memory on the driver's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Blocks with memory of their own.
    pub blocks: u64,
    /// Bytes of those blocks, as their heaps round them.
    pub block_bytes: u64,
    /// Reserved blocks.
    pub reservations: u64,
    /// Bytes of addresses they span.
    pub reserved_bytes: u64,
    /// Physical pages.
    pub pages: u64,
    /// Bytes of those pages.
    pub page_bytes: u64,
    /// Bytes of pages of host memory, which the device has not given.
    pub host_page_bytes: u64,
    /// Positions with a page mapped.
    pub mapped: u64,
}

impl Live {
    /// Returns the bytes taken from the device: blocks and pages.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.block_bytes + self.page_bytes
    }
}

#[derive(Debug, Default)]
struct Ledger {
    live: Live,
    peak: u64,
    blocks: BTreeMap<u64, Call>,
}

impl Ledger {
    fn apply(&mut self, call: &Call, result: Result<()>) {
        let live = &mut self.live;
        match call.kind {
            CallKind::Free => self.free(call),
            CallKind::Destroy => {
                live.pages -= call.count;
                live.page_bytes -= call.size;
            }
            CallKind::DestroyOnHost => live.host_page_bytes -= call.size,
            _ if result.is_err() => {}
            CallKind::CreateOnHost => live.host_page_bytes += call.size,
            CallKind::Reserve => {
                live.reservations += 1;
                live.reserved_bytes += call.size;
                self.blocks.insert(call.block, *call);
            }
            CallKind::Create => {
                live.pages += call.count;
                live.page_bytes += call.size;
            }
            CallKind::MapPages => self.map(call, u64::checked_add),
            CallKind::UnmapPages => self.map(call, u64::checked_sub),
            kind if kind.makes_block() => {
                live.blocks += 1;
                live.block_bytes += call.size;
                self.blocks.insert(call.block, *call);
            }
            _ => {}
        }
        self.peak = self.peak.max(self.live.bytes());
    }

    /// Counts positions, in total and for the block.
    fn map(&mut self, call: &Call, step: fn(u64, u64) -> Option<u64>) {
        let Some(block) = self.blocks.get_mut(&call.block) else { return };
        block.count = step(block.count, call.count).unwrap_or(0);
        self.live.mapped = step(self.live.mapped, call.count).unwrap_or(0);
    }

    fn free(&mut self, call: &Call) {
        let live = &mut self.live;
        if let Some(block) = self.blocks.remove(&call.block) {
            // A lost device refuses to unmap; with the block, its positions are gone all the same.
            live.mapped -= block.count;
        }
        if call.origin == Some(CallKind::Reserve) {
            live.reservations -= 1;
            live.reserved_bytes -= call.size;
        } else {
            live.blocks -= 1;
            live.block_bytes -= call.size;
        }
    }
}

// SAFETY: caps, sizes and addresses pass unchanged.
unsafe impl Hooks for Records {
    fn after(&self, call: &Call, result: Result<()>) {
        self.counts[call.kind as usize].fetch_add(1, Ordering::Relaxed);
        if call.kind.is_memory() {
            lock(&self.ledger).apply(call, result);
        }
        if self.logging.load(Ordering::Acquire) {
            lock(&self.log).push(Entry { call: *call, error: result.err() });
        }
    }
}
