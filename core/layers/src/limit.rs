//! A backend that offers less than it has.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use crate::{Call, CallKind, Hooks, Layer, Verdict, lock};
use omniheap_seam::{Backend, Caps, ErrorKind, HeapBudget, HeapId, Result};
use std::sync::Mutex;

/// Limits the live bytes of each heap and the number of live blocks.
///
/// Its caps show the lower limits, so a request that can never fit is `ExceedsLimit` and one that does not fit now is
/// `OutOfDeviceMemory`. Exact from any number of threads.
pub type Limit<B> = Layer<B, Limits>;

impl<B: Backend> Layer<B, Limits> {
    /// Limits `backend`; a limit above what the device has changes nothing.
    ///
    /// `heaps` are bytes by heap; heaps beyond the list keep what they have. `blocks` are live blocks.
    #[must_use]
    pub fn new(backend: B, heaps: &[u64], blocks: u64) -> Self {
        let mut caps = backend.caps().clone();
        for (heap, limit) in caps.heaps.iter_mut().zip(heaps) {
            heap.size = heap.size.min(*limit);
            heap.max_block = heap.max_block.min(*limit);
        }
        caps.max_blocks = caps.max_blocks.min(blocks);
        let used = Mutex::new(Used { heaps: vec![0; caps.heaps.len()], blocks: 0 });
        Self::wrap(backend, Limits { caps, used })
    }
}

/// Hooks of [`Limit`]: count bytes and blocks, and refuse those above the limits.
#[derive(Debug)]
pub struct Limits {
    caps: Caps,
    /// One lock, because bytes and blocks can only be checked together.
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    heaps: Vec<u64>,
    blocks: u64,
}

impl Limits {
    fn charge(&self, call: &Call, heap: HeapId, blocks: u64) -> Result<()> {
        let Some(limit) = self.caps.heap(heap) else {
            return Err(ErrorKind::NoSuchHeap.into());
        };
        if blocks > 0 && call.size > limit.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let mut used = lock(&self.used);
        let bytes = &mut used.heaps[usize::from(heap.0)];
        let after = bytes.checked_add(call.size).filter(|sum| *sum <= limit.size);
        let after = after.ok_or(ErrorKind::OutOfDeviceMemory)?;
        if blocks == 0 {
            *bytes = after;
            return Ok(());
        }
        if used.blocks >= self.caps.max_blocks {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        used.heaps[usize::from(heap.0)] = after;
        used.blocks += blocks;
        Ok(())
    }

    fn refund(&self, call: &Call, heap: HeapId, blocks: u64) {
        let mut used = lock(&self.used);
        used.heaps[usize::from(heap.0)] -= call.size;
        used.blocks -= blocks;
    }
}

// SAFETY: the caps are made once; sizes and addresses pass unchanged.
unsafe impl Hooks for Limits {
    fn caps<'a>(&'a self, _: &'a Caps) -> &'a Caps {
        &self.caps
    }

    fn before(&self, call: &Call) -> Verdict {
        let Some(heap) = call.heap else { return Verdict::Forward };
        let charged = match call.kind {
            kind if kind.makes_block() => self.charge(call, heap, 1),
            CallKind::Create => self.charge(call, heap, 0),
            _ => Ok(()),
        };
        charged.map_or_else(Verdict::Refuse, |()| Verdict::Forward)
    }

    fn after(&self, call: &Call, result: Result<()>) {
        let Some(heap) = call.heap else { return };
        match call.kind {
            kind if kind.makes_block() && result.is_err() => self.refund(call, heap, 1),
            CallKind::Create if result.is_err() => self.refund(call, heap, 0),
            CallKind::Free if call.origin.is_some_and(CallKind::makes_block) => {
                self.refund(call, heap, 1);
            }
            CallKind::Destroy => self.refund(call, heap, 0),
            _ => {}
        }
    }

    fn budget(&self, heap: HeapId, budget: HeapBudget) -> HeapBudget {
        let limit = self.caps.heap(heap).map_or(0, |heap| heap.size);
        let used = lock(&self.used).heaps.get(usize::from(heap.0)).copied().unwrap_or(0);
        HeapBudget { budget: budget.budget.min(limit), used }
    }
}
