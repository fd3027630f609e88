//! Exact, thread-safe accounting of heaps and blocks.
use omniheap_seam::{Caps, ErrorKind, HeapBudget, HeapId, Result, lock};
use std::sync::Mutex;

/// Bytes and blocks in use. One lock, because two counters can only be checked together.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    max_blocks: u64,
}

#[derive(Debug)]
struct State {
    heaps: Vec<Account>,
    /// Accounts by [`omniheap_seam::Heap::physical`]; as large as the largest heap in it.
    groups: Vec<Account>,
    blocks: u64,
}

#[derive(Clone, Debug, Default)]
struct Account {
    size: u64,
    used: u64,
    group: usize,
}

impl Account {
    const fn free(&self) -> u64 {
        self.size - self.used
    }
}

impl Ledger {
    pub(crate) fn new(caps: &Caps) -> Self {
        let mut groups = vec![Account::default(); 256];
        let mut heaps = Vec::new();
        for heap in &caps.heaps {
            let group = usize::from(heap.physical);
            groups[group].size = groups[group].size.max(heap.size);
            heaps.push(Account { size: heap.size, used: 0, group });
        }
        let state = Mutex::new(State { heaps, groups, blocks: 0 });
        Self { state, max_blocks: caps.max_blocks }
    }

    /// Counts `bytes` in `blocks` blocks against the heap and its physical memory: both or neither.
    pub(crate) fn charge(&self, heap: HeapId, bytes: u64, blocks: u64) -> Result<()> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let account = state.heaps.get_mut(usize::from(heap.0)).ok_or(ErrorKind::NoSuchHeap)?;
        let group = &mut state.groups[account.group];
        let fits = bytes <= account.free() && bytes <= group.free();
        if !fits || blocks > self.max_blocks - state.blocks {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        account.used += bytes;
        group.used += bytes;
        state.blocks += blocks;
        Ok(())
    }

    /// Takes back what [`charge`](Self::charge) counted.
    pub(crate) fn refund(&self, heap: HeapId, bytes: u64, blocks: u64) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let Some(account) = state.heaps.get_mut(usize::from(heap.0)) else { return };
        account.used -= bytes;
        state.groups[account.group].used -= bytes;
        state.blocks -= blocks;
    }

    /// Returns the heap's used and available bytes.
    pub(crate) fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let state = lock(&self.state);
        let account = state.heaps.get(usize::from(heap.0)).ok_or(ErrorKind::NoSuchHeap)?;
        let reachable = account.used + state.groups[account.group].free();
        Ok(HeapBudget { budget: account.size.min(reachable), used: account.used })
    }
}
