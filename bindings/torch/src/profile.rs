//! PyTorch's profiler: with `profile_memory=True` it hears of what is allocated and freed, as from PyTorch's own allocator.
#![expect(unsafe_code, reason = "calls C++ functions")]
use crate::loaded::Loaded;
use core::ffi::c_void;
use core::ptr;
use std::sync::OnceLock;

/// A device as PyTorch passes it: its kind, and its number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    kind: i8,
    number: i8,
}

/// PyTorch's number for CUDA devices, and for those of AMD.
const CUDA: i8 = 1;

/// PyTorch's functions.
struct Profiler {
    is_on: unsafe extern "C" fn() -> bool,
    report: unsafe extern "C" fn(*mut c_void, i64, usize, usize, Place),
}

/// Set once PyTorch allocates here: whatever else allocates is not its profiler's business.
static PROFILER: OnceLock<Profiler> = OnceLock::new();

/// Has PyTorch's profiler hear of memory from now on; nothing where PyTorch is not loaded, or is one that lacks the functions.
pub(crate) fn attach() -> Option<()> {
    let found = Profiler::find()?;
    PROFILER.get_or_init(|| found);
    Some(())
}

impl Profiler {
    fn find() -> Option<Self> {
        let base = Loaded::find(c"libc10.so")?;
        Some(Self {
            // SAFETY: the mangled name spells out the arguments, and all versions return a `bool`.
            is_on: unsafe { base.function(c"_ZN3c1022memoryProfilingEnabledEv") }?,
            // SAFETY: the mangled name spells out the arguments; a device is two bytes, passed by value.
            report: unsafe {
                base.function(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
            }?,
        })
    }
}

/// Change of a device's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) device: u32,
    pub(crate) address: u64,
    /// Bytes that are live from now on; negative for those that no longer are.
    pub(crate) bytes: i64,
}

/// Tells this thread's profiler of a change, if it has one that wants to know; `sums` are the live and the held bytes after it.
#[inline]
pub(crate) fn tell(change: Change, sums: impl FnOnce() -> [u64; 2]) {
    if let Some(profiler) = PROFILER.get()
        // SAFETY: it has no preconditions.
        && unsafe { (profiler.is_on)() }
    {
        report(profiler, change, sums());
    }
}

#[cold]
fn report(profiler: &Profiler, change: Change, sums: [u64; 2]) {
    let [live, held] = sums.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let address = usize::try_from(change.address).unwrap_or(0);
    let place = Place { kind: CUDA, number: i8::try_from(change.device).unwrap_or(0) };
    // SAFETY: it only notes the numbers; the address is not read.
    unsafe {
        (profiler.report)(ptr::without_provenance_mut(address), change.bytes, live, held, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

    static HEARD: [AtomicI64; 5] = [const { AtomicI64::new(0) }; 5];

    extern "C" fn always() -> bool {
        true
    }

    extern "C" fn hear(address: *mut c_void, bytes: i64, live: usize, held: usize, place: Place) {
        let place = i64::from(place.kind) * 100 + i64::from(place.number);
        let [address, live, held] = [address.addr(), live, held].map(|number| number as i64);
        let heard = [address, bytes, live, held, place];
        HEARD.iter().zip(heard).for_each(|(slot, number)| slot.store(number, Relaxed));
    }

    #[test]
    fn the_profiler_hears_where_how_much_and_what_is_left() {
        let profiler = Profiler { is_on: always, report: hear };
        report(&profiler, Change { device: 3, address: 4096, bytes: -512 }, [1024, 2048]);
        let heard = HEARD.each_ref().map(|slot| slot.load(Relaxed));
        assert_eq!(heard, [4096, -512, 1024, 2048, 103]);
    }
}
