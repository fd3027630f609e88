//! The C functions that tell: figures, reasons, reports and traces.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::driver::Calls;
use crate::guard::{LAST_OOM, failed, guarded, last, say, text};
use crate::state::{self, answer, on};
use crate::{lock, record};
use core::ffi::{c_char, c_int};
use core::ptr;
use omniheap::trace::NewFile;
use omniheap::trace::ranks::{self, Digest, Job, Place, Problem};
use std::fs::File;
use std::io::{self, BufWriter};

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

/// Message of the last failure on this thread. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_error() -> *const c_char {
    last()
}

/// Gives C a text; null where it could not be made.
pub(crate) fn shown(text: impl FnOnce() -> Result<String, String>) -> *const c_char {
    let mut shown = String::new();
    let code = guarded(|| {
        shown = text()?;
        Ok(())
    });
    if code == 0 { say(&shown) } else { ptr::null() }
}

/// Figures of a device as JSON; null on failure. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_stats(device: c_int) -> *const c_char {
    shown(|| {
        let found = state::device(device).map_err(failed("stats"))?;
        Ok(on!(found, it => it.stats()).map_err(failed("stats"))?.to_string())
    })
}

/// Memory held of a device, as JSON in the words of PyTorch's snapshots: nothing before its first allocation. Null on
/// failure. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_segments(device: c_int) -> *const c_char {
    shown(|| {
        let found = state::if_opened(device);
        Ok(found.map_or_else(|| "[]".into(), |found| on!(found, it => it.segments()).to_string()))
    })
}

/// Lets the peaks of a device's figures begin anew.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_reset_peaks(device: c_int) -> c_int {
    answer!(device, "peaks", it => {
        it.reset_peaks();
        Ok(())
    })
}

/// Message of the process's last failed allocation; empty when none failed. Good until the thread's next call.
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
        write(path, |sink| omniheap::trace::report::write_html(&data, sink))
    })
}

/// Figures of a device for a picture of all ranks, as JSON of at most 64 KiB; null on failure. Good until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_digest(device: c_int, rank: u32, world: u32) -> *const c_char {
    shown(|| {
        let found = state::device(device).map_err(failed("digest"))?;
        let mut digest = Digest::of_report(&on!(found, it => it.picture()))
            .map_err(|error| format!("digest: {error}"))?;
        (digest.rank, digest.world) = (Some(rank), Some(world));
        digest.origin = format!("rank {rank}");
        serde_json::to_string(&digest).map_err(|error| format!("digest: {error}"))
    })
}

/// Says which rank of how many this process is: errors end with it, and reports and traces name it. A world of 0 ranks is not known, and a
/// `known` of 0 takes back what was said.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_set_rank(known: c_int, rank: u32, world: u32) -> c_int {
    guarded(|| {
        let world = (world > 0).then_some(world);
        let place = Place { rank, world, launcher: "the program" };
        record::tell_place((known != 0).then_some(place));
        Ok(())
    })
}

/// Writes the page of a job from digests, one a line.
///
/// # Safety
///
/// Both are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_job(digests: *const c_char, path: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let digests = unsafe { text(digests, "digests") }?;
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        let read = |line: &str| {
            let problem = |why: String| Problem { file: "a rank".into(), why };
            Digest::read(line.as_bytes(), "").map_err(|error| problem(error.to_string()))
        };
        let job = Job::new(digests.lines().map(read));
        write(path, |sink| ranks::write_html(&job, "omniheap: all ranks", sink))
    })
}

/// Writes a file; one that is there stays as it is until the new one is whole.
fn write(
    path: &str,
    content: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), String> {
    let new = NewFile::create(path.as_ref());
    let written = new.and_then(|new| new.write(content));
    written.map(drop).map_err(|error| format!("{path}: {error}"))
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
