//! Signals: numbers that are waited on. A handle is the address of a cell laid out as AMD's `amd_signal_t`.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use crate::abi::{AgentHandle, Condition, SignalHandle, Status, Times};
use crate::bell;
use crate::ffi::{In, Out, export};
use crate::queue;

/// `AMD_SIGNAL_KIND_USER`
const USER: i64 = 1;
/// `AMD_SIGNAL_KIND_DOORBELL`
const DOORBELL: i64 = -1;
/// Cells that are made at once, and never given back: HIP may look at a signal that it has destroyed.
const CHUNK: usize = 512;
/// Destroyed cells that wait before one is used again, so that a late look does not see a stranger.
const QUARANTINE: usize = 256;

/// A signal. The first 64 bytes are `amd_signal_t`, which HIP reads directly.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Signal {
    /// 0 when the cell is free.
    kind: AtomicI64,
    value: AtomicI64,
    mailbox: AtomicU64,
    event: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    queue: AtomicU64,
    reserved: AtomicU64,
    /// Ours: the queue that this doorbell belongs to.
    rings: AtomicU64,
}

static CHUNKS: RwLock<Vec<&'static [Signal]>> = RwLock::new(Vec::new());
static FREE: Mutex<VecDeque<&'static Signal>> = Mutex::new(VecDeque::new());

impl Signal {
    /// Makes a signal.
    pub(crate) fn create(value: i64) -> &'static Self {
        Self::take(USER, value)
    }

    /// Makes the doorbell of a queue.
    pub(crate) fn doorbell(queue: u64) -> &'static Self {
        let signal = Self::take(DOORBELL, 0);
        signal.rings.store(queue, Ordering::SeqCst);
        signal
    }

    fn take(kind: i64, value: i64) -> &'static Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() <= QUARANTINE {
            let chunk: &'static [Self] = Box::leak((0..CHUNK).map(|_| Self::default()).collect());
            CHUNKS.write().unwrap_or_else(PoisonError::into_inner).push(chunk);
            free.extend(chunk);
        }
        let signal = free.pop_front().expect("filled above");
        drop(free);
        signal.start.store(0, Ordering::SeqCst);
        signal.end.store(0, Ordering::SeqCst);
        signal.value.store(value, Ordering::SeqCst);
        signal.kind.store(kind, Ordering::SeqCst);
        signal
    }

    /// Finds the signal behind a handle, if it is one.
    pub(crate) fn find(handle: SignalHandle) -> Result<&'static Self, Status> {
        let address = usize::try_from(handle.0).map_err(|_| Status::INVALID_SIGNAL)?;
        let chunks = CHUNKS.read().unwrap_or_else(PoisonError::into_inner);
        let found = chunks.iter().find_map(|chunk| {
            let offset = address.checked_sub(chunk.as_ptr().addr())?;
            let signal = chunk.get(offset / size_of::<Self>())?;
            (offset % size_of::<Self>() == 0).then_some(signal)
        });
        found.filter(|signal| signal.kind.load(Ordering::SeqCst) != 0).ok_or(Status::INVALID_SIGNAL)
    }

    /// Finds the signal of a packet or call that may have none.
    pub(crate) fn find_optional(handle: SignalHandle) -> Result<Option<&'static Self>, Status> {
        if handle.0 == 0 { Ok(None) } else { Self::find(handle).map(Some) }
    }

    /// As [`find`](Self::find), for calls that cannot answer an error: AMD's library does not survive them either.
    fn demand(handle: SignalHandle) -> &'static Self {
        Self::find(handle).unwrap_or_else(|_| panic!("{:#x} is not a signal", handle.0))
    }

    pub(crate) fn handle(&'static self) -> SignalHandle {
        SignalHandle(core::ptr::from_ref(self).expose_provenance() as u64)
    }

    pub(crate) fn load(&self) -> i64 {
        self.value.load(Ordering::SeqCst)
    }

    /// Marks work that ran from `start` until now as done.
    pub(crate) fn complete(&self, start: u64) {
        self.start.store(start, Ordering::SeqCst);
        self.end.store(now(), Ordering::SeqCst);
        self.value.fetch_sub(1, Ordering::SeqCst);
        bell::ring();
    }

    fn store(&self, value: i64) {
        if self.kind.load(Ordering::SeqCst) == DOORBELL {
            queue::ring(self.rings.load(Ordering::SeqCst), value);
        } else {
            self.value.store(value, Ordering::SeqCst);
        }
        bell::ring();
    }

    /// Returns the signal's cell to the free ones.
    pub(crate) fn destroy(&'static self) {
        self.kind.store(0, Ordering::SeqCst);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push_back(self);
    }

    fn times(&self) -> Times {
        Times { start: self.start.load(Ordering::SeqCst), end: self.end.load(Ordering::SeqCst) }
    }

    /// Waits until the masked value satisfies the condition and answers the value last seen.
    pub(crate) fn wait(
        &self,
        condition: Condition,
        reference: i64,
        mask: i64,
        timeout: Option<Duration>,
    ) -> i64 {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let holds = || Some(self.load()).filter(|value| condition.holds(value & mask, reference));
        bell::wait(deadline, holds).unwrap_or_else(|| self.load())
    }
}

/// Nanoseconds on the clock that timestamps are given in.
pub(crate) fn now() -> u64 {
    static ZERO: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // Never 0, which HIP takes for "no timestamp yet".
    u64::try_from(ZERO.get_or_init(Instant::now).elapsed().as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_add(1_000_000)
}

export! {
    fn hsa_signal_create(value: i64, _count: u32, _consumers: In<AgentHandle>, out: Out<SignalHandle>) {
        if out.is_null() { Err(Status::INVALID_ARGUMENT) } else { out.set(Signal::create(value).handle()) }
    }

    fn hsa_amd_signal_create(
        value: i64, _count: u32, _consumers: In<AgentHandle>, _attributes: u64, out: Out<SignalHandle>,
    ) {
        if out.is_null() { Err(Status::INVALID_ARGUMENT) } else { out.set(Signal::create(value).handle()) }
    }

    fn hsa_signal_destroy(handle: SignalHandle) {
        Signal::find(handle)?.destroy();
        Ok(())
    }

    fn hsa_amd_signal_value_pointer(handle: SignalHandle, out: Out<*mut i64>) {
        out.set(Signal::find(handle)?.value.as_ptr())
    }

    fn hsa_amd_profiling_get_async_copy_time(handle: SignalHandle, out: Out<Times>) {
        out.set(Signal::find(handle)?.times())
    }

    fn hsa_amd_profiling_get_dispatch_time(_agent: AgentHandle, handle: SignalHandle, out: Out<Times>) {
        out.set(Signal::find(handle)?.times())
    }

    fn hsa_amd_profiling_async_copy_enable(_enable: bool) {
        Ok(())
    }

    fn hsa_amd_profiling_set_profiler_enabled(_queue: *mut c_void, _enable: i32) {
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_load_relaxed(handle: SignalHandle) -> i64 {
    Signal::demand(handle).load()
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_store_relaxed(handle: SignalHandle, value: i64) {
    Signal::demand(handle).store(value);
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_store_screlease(handle: SignalHandle, value: i64) {
    Signal::demand(handle).store(value);
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_silent_store_relaxed(handle: SignalHandle, value: i64) {
    Signal::demand(handle).store(value);
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_add_relaxed(handle: SignalHandle, value: i64) {
    Signal::demand(handle).value.fetch_add(value, Ordering::SeqCst);
    bell::ring();
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_subtract_relaxed(handle: SignalHandle, value: i64) {
    Signal::demand(handle).value.fetch_sub(value, Ordering::SeqCst);
    bell::ring();
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_wait_scacquire(
    handle: SignalHandle,
    condition: Condition,
    reference: i64,
    timeout: u64,
    _state: u32,
) -> i64 {
    let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
    Signal::demand(handle).wait(condition, reference, -1, timeout)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::Signal;
    use crate::abi::{Condition, SignalHandle, Status};

    #[test]
    fn strangers_are_not_signals() {
        let signal = Signal::create(1);
        assert_eq!(Signal::find(signal.handle()).map(Signal::load), Ok(1));
        for handle in [SignalHandle(0), SignalHandle(signal.handle().0 + 8), SignalHandle(u64::MAX)]
        {
            assert_eq!(Signal::find(handle).err(), Some(Status::INVALID_SIGNAL));
        }
        let handle = signal.handle();
        signal.destroy();
        assert_eq!(Signal::find(handle).err(), Some(Status::INVALID_SIGNAL));
    }

    #[test]
    fn a_wait_ends_with_the_value_or_the_time() {
        let signal = Signal::create(1);
        let seen = signal.wait(Condition::EQUAL, 0, -1, Some(Duration::from_millis(5)));
        assert_eq!(seen, 1);
        let other = std::thread::spawn(|| signal.complete(1));
        assert_eq!(signal.wait(Condition::EQUAL, 0, -1, None), 0);
        other.join().expect("does not panic");
        signal.destroy();
    }
}
