#![doc = include_str!("../README.md")]
#![expect(unsafe_code, reason = "declares what a layer owes to the contract of Backend")]
mod call;
#[cfg(test)]
mod documents;
mod fault;
mod forward;
mod limit;
mod plan;
mod record;
#[cfg(test)]
mod tests;

pub use call::{Call, CallKind};
pub use fault::{Fault, Faults, Quarantine};
pub use limit::{Limit, Limits};
pub use plan::{Corruption, Plan, errors, is_documented, mistakes};
pub use record::{Calls, Entry, Live, Record, Records};

use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{Backend, Caps, Epoch, Error, HeapBudget, HeapId, Result};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it through.
    Forward,
    /// Answer with this error; the wrapped backend never hears of it.
    Refuse(Error),
    /// Let it through and answer with this error all the same: what is given up is given up.
    ForwardThen(Error),
}

/// Hooks that a layer runs around each call. Every method has a default that changes nothing.
///
/// # Safety
///
/// The implementer guarantees that a backend with these hooks around it still keeps the promises of the seam:
///
/// - [`caps`](Self::caps) never changes.
/// - [`size`](Self::size) and [`address`](Self::address) falsify nothing that a caller relies on to stay inside a block.
/// - [`reached`](Self::reached) returns no later epoch than it was given.
pub unsafe trait Hooks: Send + Sync {
    /// Returns the device as this layer shows it. Answers the same for ever.
    fn caps<'a>(&'a self, inner: &'a Caps) -> &'a Caps {
        inner
    }
    /// Decides about a call before it is made.
    fn before(&self, call: &Call) -> Verdict {
        let _ = call;
        Verdict::Forward
    }
    /// Learns how a call ended. Not called when [`before`](Self::before) refused it.
    fn after(&self, call: &Call, result: Result<()>) {
        let _ = (call, result);
    }
    /// Returns true if the device was said to be lost and still works: what is given up waits for it then.
    fn seems_lost(&self) -> bool {
        false
    }
    /// Returns the size to ask the wrapped backend for.
    fn size(&self, call: &Call, size: u64) -> u64 {
        let _ = call;
        size
    }
    /// Returns the device address to report for a block.
    fn address(&self, block: u64, address: u64) -> u64 {
        let _ = block;
        address
    }
    /// Returns the reached epoch to report.
    fn reached(&self, epoch: Epoch) -> Epoch {
        epoch
    }
    /// Returns the budget to report.
    fn budget(&self, heap: HeapId, budget: HeapBudget) -> HeapBudget {
        let _ = heap;
        budget
    }
}

// SAFETY: the hooks that are there keep their own promise, and where there are none, the defaults change nothing.
unsafe impl<H: Hooks> Hooks for Option<H> {
    fn caps<'a>(&'a self, inner: &'a Caps) -> &'a Caps {
        self.as_ref().map_or(inner, |hooks| hooks.caps(inner))
    }
    fn before(&self, call: &Call) -> Verdict {
        self.as_ref().map_or(Verdict::Forward, |hooks| hooks.before(call))
    }
    fn after(&self, call: &Call, result: Result<()>) {
        if let Some(hooks) = self {
            hooks.after(call, result);
        }
    }
    fn seems_lost(&self) -> bool {
        self.as_ref().is_some_and(Hooks::seems_lost)
    }
    fn size(&self, call: &Call, size: u64) -> u64 {
        self.as_ref().map_or(size, |hooks| hooks.size(call, size))
    }
    fn address(&self, block: u64, address: u64) -> u64 {
        self.as_ref().map_or(address, |hooks| hooks.address(block, address))
    }
    fn reached(&self, epoch: Epoch) -> Epoch {
        self.as_ref().map_or(epoch, |hooks| hooks.reached(epoch))
    }
    fn budget(&self, heap: HeapId, budget: HeapBudget) -> HeapBudget {
        self.as_ref().map_or(budget, |hooks| hooks.budget(heap, budget))
    }
}

/// A backend that does something around every call of another.
pub struct Layer<B, H> {
    inner: B,
    hooks: H,
    next: AtomicU64,
}

impl<B, H> Layer<B, H> {
    /// Wraps a backend.
    #[must_use]
    pub const fn wrap(inner: B, hooks: H) -> Self {
        Self { inner, hooks, next: AtomicU64::new(0) }
    }

    /// Returns the wrapped backend.
    #[must_use]
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns the layer's hooks.
    #[must_use]
    pub const fn hooks(&self) -> &H {
        &self.hooks
    }
}

impl<B: Backend, H: Hooks> Layer<B, H> {
    /// Makes a call with the hooks around it.
    fn around<T>(&self, call: &Call, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let verdict = self.hooks.before(call);
        if let Verdict::Refuse(error) = verdict {
            return Err(error);
        }
        if call.kind.gives_up() && self.hooks.seems_lost() {
            // The caller need not wait for a lost device; this one still reads and writes. If it really is lost, it does not.
            let _ = self.inner.wait_idle();
        }
        let result = run();
        self.hooks.after(call, result.as_ref().map(drop).map_err(|error| *error));
        if let Verdict::ForwardThen(error) = verdict { Err(error) } else { result }
    }

    /// Makes a call that yields a block.
    fn admit(
        &self,
        call: Call,
        run: impl FnOnce() -> Result<B::Block>,
    ) -> Result<Wrapped<B::Block>> {
        let call = call.block(self.next.fetch_add(1, Ordering::Relaxed));
        let inner = self.around(&call, run)?;
        Ok(Wrapped { inner, call })
    }

    /// Makes a block in a way that the seam has no call for. The hooks see an allocation of `size` bytes.
    ///
    /// # Errors
    ///
    /// Those of the hooks and of `make`.
    ///
    /// # Safety
    ///
    /// `make` returns a block of the wrapped backend, of this heap and with `size` bytes at least.
    pub unsafe fn allocate_made(
        &self,
        heap: HeapId,
        size: u64,
        make: impl FnOnce() -> Result<B::Block>,
    ) -> Result<Wrapped<B::Block>> {
        self.admit(Call::new(CallKind::Allocate).heap(heap).size(self.rounded(heap, size)), make)
    }

    /// Returns the bytes that a block of `size` really takes from its heap.
    fn rounded(&self, heap: HeapId, size: u64) -> u64 {
        let granule = self.inner.caps().heap(heap).map(|heap| heap.granule);
        granule.and_then(|granule| granule.up(size)).unwrap_or(size)
    }

    /// Returns a call about `count` pages of a heap.
    fn call_of_pages(&self, kind: CallKind, heap: HeapId, count: u64) -> Call {
        let page = self.inner.caps().heap(heap).and_then(|heap| heap.page);
        let size = page.map_or(0, |page| page.get().saturating_mul(count));
        Call::new(kind).heap(heap).size(size).count(count)
    }
}

impl<B: fmt::Debug, H: fmt::Debug> fmt::Debug for Layer<B, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").field("hooks", &self.hooks).field("inner", &self.inner).finish()
    }
}

/// A block that remembers the call it came from.
#[derive(Debug)]
pub struct Wrapped<T> {
    inner: T,
    call: Call,
}

impl<T> Wrapped<T> {
    /// Returns the wrapped backend's block.
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns the number the layer gave it: unique for the life of the layer.
    pub const fn id(&self) -> u64 {
        self.call.block
    }

    /// Returns the call that made it.
    pub const fn origin(&self) -> &Call {
        &self.call
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Hooks do not panic while they hold a lock, so what lies behind a poisoned one is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
