//! The C functions. Each catches panics, checks its arguments, and calls what the other modules have.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::driver::Calls;
use crate::filter::Function;
use crate::graph::PoolId;
use crate::state::{self, Settings, on};
use crate::{lock, raise, record};
use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_double, c_int, c_void};
use core::panic::AssertUnwindSafe;
use core::ptr;
use omniheap::{AllocateError, BackendKind, Error};
use std::ffi::CString;
use std::io::Write as _;
use std::panic::catch_unwind;
use std::sync::Mutex;

/// What an allocation that failed said, for `omniheap_torch_explain_oom`.
static LAST_OOM: Mutex<String> = Mutex::new(String::new());

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Keeps a text for this thread and returns its address, which is good until the thread's next call.
fn say(text: &str) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|message| {
        *message.borrow_mut() = text;
        message.borrow().as_ptr()
    })
}

/// Runs something that may fail; on failure the thread's message says why, and the result is -1.
fn guarded(work: impl FnOnce() -> Result<(), String>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(line)) => {
            say(&line);
            -1
        }
        Err(_) => {
            say("omniheap met a bug of its own; please report it with what was called");
            -1
        }
    }
}

/// Text from a C string.
///
/// # Safety
///
/// `text` is null or a C string.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, String> {
    if text.is_null() {
        return Err(format!("{what} is a null pointer; pass a C string"));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| format!("{what} is not UTF-8"))
}

fn failed(doing: &str) -> impl Fn(Error) -> String {
    move |error| format!("{doing}: {error}")
}

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

/// Bytes of a device, without opening it; 0 where there is none.
///
/// # Safety
///
/// `backend` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_device_bytes(backend: *const c_char, device: c_int) -> u64 {
    let mut bytes = 0;
    guarded(|| {
        // SAFETY: the caller's promise.
        let kind = unsafe { text(backend, "backend") }?.parse().map_err(failed("backend"))?;
        let calls = Calls::of(kind).ok_or("this machine has no driver for that backend")?;
        bytes =
            calls.total(device).ok_or("there is no such device; look at nvidia-smi or rocminfo")?;
        Ok(())
    });
    bytes
}

/// Why the last call on this thread failed. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_error() -> *const c_char {
    MESSAGE.with(|message| message.borrow().as_ptr())
}

/// What an allocation ends with.
///
/// # Safety
///
/// `stream` is a live stream of the device, and stays so for the life of the process.
unsafe fn allocate(size: u64, device: c_int, stream: *mut c_void) -> Result<u64, String> {
    if state::is_forked() {
        return Err(
            "device memory cannot be used in a forked process; start it with the spawn method"
                .into(),
        );
    }
    let found = state::device(device)
        .map_err(|error| format!("device {device} cannot be opened: {error}"))?;
    // SAFETY: the caller's promise.
    on!(found, it => unsafe { it.allocate(size, stream) }
        .map_err(|error: AllocateError| it.explain(size, &error)))
}

/// Allocates; on failure keeps the explanation and says nothing of how to report it.
///
/// # Safety
///
/// As for [`allocate`].
unsafe fn try_allocate(size: u64, device: c_int, stream: *mut c_void) -> Result<u64, String> {
    // SAFETY: the caller's promise.
    let guard = AssertUnwindSafe(|| unsafe { allocate(size, device, stream) });
    let result =
        catch_unwind(guard).unwrap_or_else(|_| Err("omniheap met a bug of its own".into()));
    result.inspect_err(|line| line.clone_into(&mut lock(&LAST_OOM)))
}

fn address(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// Allocates for PyTorch. Throws PyTorch's out-of-memory exception; returns null only where PyTorch is not loaded.
///
/// # Safety
///
/// `stream` is null or a live stream of the device, and stays so for the life of the process.
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
    match unsafe { try_allocate(size, device, stream) } {
        Ok(found) => address(found),
        Err(line) => {
            let exception = raise::build(&line);
            say(&line);
            drop(line);
            match exception {
                // SAFETY: built just above, thrown once; PyTorch called, and this function lets exceptions pass.
                Some(exception) => unsafe { exception.throw() },
                None => ptr::null_mut(),
            }
        }
    }
}

/// Frees for PyTorch. An address that is not live is ignored, and reported by `omniheap_torch_error`.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_free(
    pointer: *mut c_void,
    _size: usize,
    device: c_int,
    _stream: *mut c_void,
) {
    if pointer.is_null() || state::is_forked() {
        return;
    }
    guarded(|| {
        let found = state::device(device).map_err(failed("free"))?;
        let freed = on!(found, it => it.free(pointer.addr() as u64));
        freed
            .then_some(())
            .ok_or("free of an address that is not live: freed twice, or not ours".into())
    });
}

/// Says that another stream uses the bytes too, so that they wait for it after a free.
///
/// # Safety
///
/// `stream` is null or a live stream of the device, and stays so for the life of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    if pointer.is_null() || state::is_forked() {
        return;
    }
    guarded(|| {
        let find = |device: &'static state::AnyDevice| {
            // SAFETY: the caller's promise.
            on!(device, it => unsafe { it.use_on(pointer.addr() as u64, stream) })
        };
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

/// Sets the most that may be held of a device, as a share of it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_memory_fraction(share: c_double, device: c_int) {
    guarded(|| {
        let found = state::device(device).map_err(failed("memory fraction"))?;
        on!(found, it => it.set_share(share)).map_err(failed("memory fraction"))
    });
}

/// Sets the most bytes that may be held of a device; 0 is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_set_limit(device: c_int, bytes: u64) -> c_int {
    guarded(|| {
        let found = state::device(device).map_err(failed("limit"))?;
        let bytes = if bytes == 0 { u64::MAX } else { bytes };
        on!(found, it => it.set_limit(bytes)).map_err(failed("limit"))
    })
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
    guarded(|| {
        let found = state::device(device).map_err(failed("capture"))?;
        // SAFETY: the caller's promise.
        on!(found, it => unsafe { it.begin(pool, filter) });
        Ok(())
    });
}

/// Ends what `omniheap_torch_begin_pool` began.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_end_pool(device: c_int, pool: PoolId) {
    guarded(|| {
        let found = state::device(device).map_err(failed("capture"))?;
        on!(found, it => it.end(pool));
        Ok(())
    });
}

/// One user of a pool less; the last one ends it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_release_pool(device: c_int, pool: PoolId) {
    guarded(|| {
        let found = state::device(device).map_err(failed("capture"))?;
        on!(found, it => it.release(pool));
        Ok(())
    });
}

/// Allocates for CuPy in the order of a stream; null when memory is short.
///
/// # Safety
///
/// `stream` is null or a live stream of the device, and stays so for the life of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_cupy_alloc(
    stream: *mut c_void,
    size: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { try_allocate(size as u64, device, stream) } {
        Ok(found) => address(found),
        Err(line) => {
            say(&line);
            ptr::null_mut()
        }
    }
}

/// Frees for CuPy.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_cupy_free(stream: *mut c_void, pointer: *mut c_void, device: c_int) {
    omniheap_torch_free(pointer, 0, device, stream);
}

/// Figures of a device as JSON; null on failure. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_stats(device: c_int) -> *const c_char {
    let mut shown = String::new();
    let code = guarded(|| {
        let found = state::device(device).map_err(failed("stats"))?;
        shown = on!(found, it => it.stats()).map_err(failed("stats"))?.to_string();
        Ok(())
    });
    if code == 0 { say(&shown) } else { ptr::null() }
}

/// Why the last allocation of the process failed; empty when none did. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_explain_oom() -> *const c_char {
    say(&lock(&LAST_OOM))
}

/// Writes the HTML report of a device.
///
/// # Safety
///
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_report(device: c_int, path: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        let found = state::device(device).map_err(failed("report"))?;
        let data = on!(found, it => it.picture());
        let written = || {
            let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
            omniheap::trace::report::write_html(&data, &mut file)?;
            file.flush()
        };
        written().map_err(|error| format!("{path}: {error}"))
    })
}

/// Starts to record a trace in a new file; a null path finishes it.
///
/// # Safety
///
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_trace(path: *const c_char) -> c_int {
    guarded(|| {
        if path.is_null() {
            return record::stop()
                .map_err(|error| format!("the trace could not be finished: {error}"));
        }
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        record::start(path.as_ref()).map_err(|error| format!("{path}: {error}"))
    })
}
