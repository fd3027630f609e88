//! The C functions. Each catches panics, checks its arguments, and calls what the other modules have.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::device::{NOT_LIVE, Settings, is_shortage};
use crate::filter::Function;
use crate::graph::{PoolId, Split};
use crate::guard::{BUG, FORKED, LAST_OOM, failed, guarded, is_forked, say, text};
use crate::raise::Kind;
use crate::state::{self, answer, on};
use crate::streams::Life;
use crate::{lock, raise};
use core::cell::Cell;
use core::ffi::{c_char, c_double, c_int, c_void};
use core::panic::AssertUnwindSafe;
use core::ptr;
use omniheap::{AllocateError, BackendKind, ErrorKind};
use std::panic::catch_unwind;

/// Says how devices are opened, before the first allocation. `limit` is in bytes, 0 for none.
///
/// # Safety
///
/// `backend` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_configure(
    backend: *const c_char,
    limit: u64,
    paged: c_int,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(backend, "backend") }?;
        let backend = match name {
            "cuda" => BackendKind::Cuda,
            "hip" => BackendKind::Hip,
            "host" => BackendKind::Host,
            other => return Err(format!("unknown backend {other:?}; choose cuda, hip or host")),
        };
        let limit = (limit > 0).then_some(limit);
        let settings = Settings { backend, limit, paged: paged != 0 };
        state::configure(settings).map_err(|_| {
            "omniheap is in use with other settings; enable it once, before anything else".into()
        })
    })
}

/// Reason why there is no allocation: the exception that Python sees, and the text.
type Failure = (Kind, String);

/// The device that an allocation is for, opened now if it was not.
fn opened(device: c_int) -> Result<&'static state::AnyDevice, Failure> {
    if is_forked() {
        return Err((Kind::Error, format!("omniheap: {FORKED}")));
    }
    state::device(device).map_err(|error| {
        let line = format!("omniheap: device {device} cannot be opened: {error}");
        (kind_of(error.kind()), line)
    })
}

/// The exception for a failure.
fn kind_of(kind: ErrorKind) -> Kind {
    if is_shortage(kind) { Kind::OutOfMemory } else { Kind::Error }
}

/// Allocates, and returns the address or the failure.
///
/// # Safety
///
/// `stream` is null or a live stream of the device; where `life` says more, that holds.
unsafe fn allocate(
    size: u64,
    device: c_int,
    stream: *mut c_void,
    life: Life,
) -> Result<u64, Failure> {
    let found = opened(device)?;
    // SAFETY: the caller's promise.
    on!(found, it => unsafe { it.allocate(size, stream, life) }.map_err(|error: AllocateError| {
        (kind_of(error.kind()), it.explain(size, &error))
    }))
}

/// Allocates; on failure keeps the explanation and says nothing of how to report it.
///
/// # Safety
///
/// As for [`allocate`].
unsafe fn try_allocate(
    size: u64,
    device: c_int,
    stream: *mut c_void,
    life: Life,
) -> Result<u64, Failure> {
    // SAFETY: the caller's promise.
    explained(|| unsafe { allocate(size, device, stream, life) })
}

/// Runs an allocation, and keeps the explanation of its failure.
fn explained(work: impl FnOnce() -> Result<u64, Failure>) -> Result<u64, Failure> {
    let result =
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err((Kind::Error, BUG.into())));
    result.inspect_err(|(kind, line)| {
        line.clone_into(&mut lock(&LAST_OOM));
        // A thread that is ending asks nothing any more.
        let _ = IS_SHORTAGE.try_with(|last| last.set(*kind == Kind::OutOfMemory));
    })
}

thread_local! {
    /// Tells if memory was short for the thread's last allocation that failed.
    static IS_SHORTAGE: Cell<bool> = const { Cell::new(false) };
}

/// Returns 1 if memory was short for the last allocation that failed on this thread; 0 if something else was wrong, or none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_is_shortage() -> c_int {
    IS_SHORTAGE.try_with(Cell::get).unwrap_or(false).into()
}

fn address(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// Allocates for PyTorch. Throws PyTorch's out-of-memory exception where memory is short, and its plain one for every other failure; returns
/// null only where PyTorch is not loaded.
///
/// # Safety
///
/// `stream` is null or a live stream of the device. With HIP, one that is not null stays so for the life of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omniheap_torch_alloc(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let size = match u64::try_from(size) {
        Ok(0) => return ptr::null_mut(),
        // A negative size is a product that overflowed: larger than every device.
        size => size.unwrap_or(u64::MAX),
    };
    // SAFETY: the caller's promise.
    match unsafe { try_allocate(size, device, stream, Life::Process) } {
        Ok(found) => address(found),
        // SAFETY: PyTorch called, and this function lets exceptions pass.
        Err(failure) => unsafe { throw(failure) },
    }
}

/// Throws a failure; returns null only where PyTorch is not loaded.
///
/// # Safety
///
/// As for [`raise::throw`].
unsafe fn throw((kind, line): Failure) -> *mut c_void {
    say(&line);
    // SAFETY: the caller's promise.
    unsafe { raise::throw(kind, line) };
    ptr::null_mut()
}

/// Allocates a segment of a `torch.cuda.MemPool`. Returns null when memory is short: PyTorch then empties its own caches and
/// asks again. Throws PyTorch's plain exception for every other failure; returns null for those too where PyTorch is not loaded.
///
/// # Safety
///
/// As for [`omniheap_torch_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omniheap_torch_segment(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    // SAFETY: the caller's promise.
    let made = unsafe { try_allocate(size, device, stream, Life::Process) };
    // SAFETY: PyTorch called, and this function lets exceptions pass.
    unsafe { segment(made) }
}

/// The address of a segment; null where memory is short, and an exception where something else is wrong.
///
/// # Safety
///
/// As for [`throw`].
unsafe fn segment(made: Result<u64, Failure>) -> *mut c_void {
    match made {
        // SAFETY: the caller's promise.
        Err(failure) if failure.0 == Kind::Error => unsafe { throw(failure) },
        made => or_null(made),
    }
}

/// Allocates a segment of a `torch.cuda.MemPool` whose memory communication libraries can register: one driver handle for each.
/// Returns null or throws as [`omniheap_torch_segment`] does.
///
/// # Safety
///
/// As for [`omniheap_torch_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omniheap_torch_registrable(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let made = explained(|| {
        let found = opened(device)?;
        on!(found, it => {
            // SAFETY: the caller's promise.
            unsafe { it.allocate_registrable(size, stream) }
                .map_err(|error| (kind_of(error.kind()), it.explain(size, &error)))
        })
    });
    // SAFETY: PyTorch called, and this function lets exceptions pass.
    unsafe { segment(made) }
}

/// Frees a segment of a `torch.cuda.MemPool`, and gives what is empty back to the driver: PyTorch frees segments when somebody
/// needs their memory.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_segment_free(
    pointer: *mut c_void,
    size: usize,
    device: c_int,
    stream: *mut c_void,
) {
    omniheap_torch_free(pointer, size, device, stream);
    answer!(device, "free", it => it.trim().map(drop).map_err(failed("free")));
}

/// The address of an allocation; null where there is none, which the log says.
fn or_null(made: Result<u64, Failure>) -> *mut c_void {
    match made {
        Ok(found) => address(found),
        Err((_, line)) => {
            say(&line);
            ptr::null_mut()
        }
    }
}

/// Frees for PyTorch. An address that is not live is ignored, a size other than the recorded one too; both are reported by
/// `omniheap_torch_error`. A size of zero says nothing.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_free(
    pointer: *mut c_void,
    size: usize,
    device: c_int,
    _stream: *mut c_void,
) {
    if pointer.is_null() {
        return;
    }
    let stated = Some(size as u64).filter(|size| *size > 0);
    answer!(device, "free", it => it.free(pointer.addr() as u64, stated));
}

/// Says that another stream uses the bytes too, so that they wait for it after a free.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    guarded(|| {
        let find = |device: &'static state::AnyDevice| on!(device, it => it.use_on(pointer.addr() as u64, stream));
        let used = state::opened().find_map(find);
        used.ok_or("record_stream of an address that is not live")?.map_err(failed("record_stream"))
    });
}

/// Gives everything empty back to the driver, on every device.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_reset() {
    guarded(|| {
        for device in state::opened() {
            on!(device, it => it.trim()).map_err(failed("empty_cache"))?;
        }
        Ok(())
    });
}

/// Sets the most that may be held of a device, as a share of it. PyTorch's hook for this takes no code; a function with one serves it too.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_memory_fraction(share: c_double, device: c_int) -> c_int {
    answer!(device, "memory fraction", it => it.set_share(share).map_err(failed("memory fraction")))
}

/// Sets the most bytes that may be held of a device; 0 is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_set_limit(device: c_int, bytes: u64) -> c_int {
    let bytes = if bytes == 0 { u64::MAX } else { bytes };
    answer!(device, "limit", it => it.set_limit(bytes).map_err(failed("limit")))
}

/// From now on, streams that the filter accepts allocate from `pool`.
///
/// # Safety
///
/// `filter` is null or a `std::function<bool(stream)>` that the caller passes by value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_begin_pool(
    device: c_int,
    pool: PoolId,
    filter: *mut Function,
) {
    answer!(device, "capture", it => {
        // SAFETY: the caller's promise.
        unsafe { it.begin(pool, filter) };
        Ok(())
    });
}

/// Ends what `omniheap_torch_begin_pool` began.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_end_pool(device: c_int, pool: PoolId) {
    answer!(device, "capture", it => {
        it.end(pool);
        Ok(())
    });
}

/// Ends what `omniheap_torch_begin_pool` began last on this thread, where it has not ended: PyTorch ends nothing when a capture fails.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_capture_failed(device: c_int) -> c_int {
    answer!(device, "capture", it => {
        it.fail();
        Ok(())
    })
}

/// One user of a pool less; the last one ends it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_release_pool(device: c_int, pool: PoolId) {
    answer!(device, "capture", it => {
        it.release(pool);
        Ok(())
    });
}

/// One user of a pool more, without anything that allocates from it. With `no_split`, its requests never share a block.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_hold_pool(
    device: c_int,
    captured: u64,
    named: u64,
    no_split: c_int,
) -> c_int {
    let split = if no_split == 0 { Split::Allowed } else { Split::Never };
    answer!(device, "pool", it => {
        it.hold(PoolId { captured, named }, split);
        Ok(())
    })
}

/// Returns the number of users of a pool; -1 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_pool_users(device: c_int, captured: u64, named: u64) -> c_int {
    let mut users = -1;
    answer!(device, "pool", it => {
        users = c_int::try_from(it.users(PoolId { captured, named })).unwrap_or(c_int::MAX);
        Ok(())
    });
    users
}

/// Allocates in the order of a stream; null on failure: `omniheap_torch_error` says why, and
/// `omniheap_torch_is_shortage` whether memory is short.
///
/// # Safety
///
/// `stream` is null or a live stream of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_stream_alloc(
    stream: *mut c_void,
    size: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    or_null(unsafe { try_allocate(size as u64, device, stream, Life::Unknown) })
}

/// Frees bytes once a stream has passed. Another stream may have allocated them. Returns 0, or -1 for an address that is not live.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_stream_free(
    stream: *mut c_void,
    pointer: *mut c_void,
    device: c_int,
) -> c_int {
    if pointer.is_null() {
        return 0;
    }
    answer!(device, "free", it => it.free_on(pointer.addr() as u64, stream))
}

/// Notes that a capture of a stream is about to begin.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_stream_begin_capture(device: c_int, stream: *mut c_void) -> c_int {
    answer!(device, "capture", it => {
        it.begin_capture(stream);
        Ok(())
    })
}

/// Says that the capture of a stream has ended, or did not begin.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_stream_end_capture(device: c_int, stream: *mut c_void) -> c_int {
    answer!(device, "capture", it => {
        it.end_capture(stream);
        Ok(())
    })
}

/// Allocates for a program that names no stream: every stream may use the bytes at once. Null on failure, as for `omniheap_stream_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_unordered_alloc(size: usize, device: c_int) -> *mut c_void {
    let made = explained(|| {
        let found = opened(device)?;
        let size = size as u64;
        on!(found, it => it.allocate_unordered(size).map_err(|error| (kind_of(error.kind()), it.explain(size, &error))))
    });
    or_null(made)
}

/// Frees bytes on any device: once their own stream has passed, or all streams if they have none. Returns 0, or -1 for an address
/// that is not live.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_unordered_free(pointer: *mut c_void) -> c_int {
    if pointer.is_null() {
        return 0;
    }
    guarded(|| {
        let address = pointer.addr() as u64;
        let is_live = state::opened().any(|device| on!(device, it => it.free_if_live(address)));
        is_live.then_some(()).ok_or_else(|| NOT_LIVE.into())
    })
}
