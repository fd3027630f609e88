//! Functions for a runtime whose hook names neither device nor stream: one address for each pair of them.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::exports::{omniheap_stream_alloc, omniheap_unordered_alloc};
use crate::guard::{failed, guarded};
use crate::lock;
use crate::state;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::{Mutex, OnceLock};

/// A device, and the stream that orders its bytes, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    device: c_int,
    stream: Option<usize>,
}

/// Most pairs of device and stream in one process.
const PAIRS: usize = 64;
static TAKEN: [OnceLock<Pair>; PAIRS] = [const { OnceLock::new() }; PAIRS];

type Allocate = extern "C" fn(usize) -> *mut c_void;

/// Allocates for a pair; null for no bytes.
extern "C" fn allocate<const AT: usize>(size: usize) -> *mut c_void {
    match TAKEN[AT].get() {
        Some(_) if size == 0 => ptr::null_mut(),
        Some(Pair { device, stream: None }) => omniheap_unordered_alloc(size, *device),
        Some(Pair { device, stream: Some(stream) }) => {
            let stream = ptr::with_exposed_provenance_mut(*stream);
            // SAFETY: whoever asked for the function promised that the stream lives while the function is called.
            unsafe { omniheap_stream_alloc(stream, size, *device) }
        }
        None => ptr::null_mut(),
    }
}

/// The functions of eight pairs.
macro_rules! eight {
    ($($first:literal)*) => {
        [$(
            allocate::<$first>, allocate::<{ $first + 1 }>, allocate::<{ $first + 2 }>, allocate::<{ $first + 3 }>,
            allocate::<{ $first + 4 }>, allocate::<{ $first + 5 }>, allocate::<{ $first + 6 }>, allocate::<{ $first + 7 }>,
        )*]
    };
}

static FUNCTIONS: [Allocate; PAIRS] = eight!(0 8 16 24 32 40 48 56);

/// Returns the place of a pair, and takes a free one for a new pair. `None` if other pairs have all places.
fn place(pair: Pair) -> Option<usize> {
    static TAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = lock(&TAKING);
    TAKEN.iter().position(|taken| *taken.get_or_init(|| pair) == pair)
}

/// Returns the address of a `void *(size_t)` that allocates on a device in the order of `stream`. If `ordered` is 0, no stream
/// orders the bytes. Equal arguments give the same address. Null after 64 different pairs of device and stream.
///
/// # Safety
///
/// Unless `ordered` is 0, `stream` is null or a stream of the device that lives while the function is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_alloc_function(
    device: c_int,
    stream: *mut c_void,
    ordered: c_int,
) -> *const c_void {
    let stream = (ordered != 0).then(|| stream.expose_provenance());
    let mut found = ptr::null();
    guarded(|| {
        // Opens the device now, because the runtime that calls the function will not report why it fails.
        state::device(device).map_err(failed("device"))?;
        let none =
            "64 pairs of device and stream have functions already; use fewer streams, or none";
        let at = place(Pair { device, stream }).ok_or(none)?;
        found = FUNCTIONS[at] as *const c_void;
        Ok(())
    });
    found
}
