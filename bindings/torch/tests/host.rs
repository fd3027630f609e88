//! The exported functions on the host backend, called as PyTorch and CuPy call them.
#![expect(unsafe_code, reason = "calls C functions and writes through the addresses they return")]
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use omniheap_torch::*;
use serde_json::Value;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

const LIMIT: u64 = 64 << 20;
const MIB: usize = 1 << 20;

/// The settings are one for the process, and the figures too: tests run one after the other.
fn begin() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_configure(c"host".as_ptr(), LIMIT, 1) }, 0);
    guard
}

fn text(pointer: *const c_char) -> String {
    assert!(!pointer.is_null());
    // SAFETY: the library's texts are C strings, good until the next call.
    unsafe { CStr::from_ptr(pointer) }.to_str().expect("UTF-8").to_owned()
}

fn stats() -> Value {
    stats_of(0)
}

fn stats_of(device: i32) -> Value {
    serde_json::from_str(&text(omniheap_torch_stats(device))).expect("stats are JSON")
}

fn stream(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

fn allocate(size: usize, on: usize) -> *mut c_void {
    let size = isize::try_from(size).expect("small");
    ask(size, 0, on)
}

fn ask(size: isize, device: i32, on: usize) -> *mut c_void {
    // SAFETY: to the host backend a stream is a number.
    unsafe { omniheap_torch_alloc(size, device, stream(on)) }
}

fn use_on(pointer: *mut c_void, on: usize) {
    omniheap_torch_record_stream(pointer, stream(on));
}

fn cupy(size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { omniheap_stream_alloc(stream(9), size, 0) }
}

fn fill(pointer: *mut c_void, size: usize, value: u8) {
    // SAFETY: just allocated with this size.
    unsafe { pointer.cast::<u8>().write_bytes(value, size) };
}

fn holds(pointer: *mut c_void, size: usize, value: u8) -> bool {
    (0..size).step_by(509).all(|at| {
        // SAFETY: inside what was filled.
        let byte = unsafe { pointer.cast::<u8>().add(at) };
        // SAFETY: as above.
        unsafe { byte.read() == value }
    })
}

#[test]
fn registrable_memory_is_a_block_of_its_own_that_no_tag_puts_to_sleep() {
    let _one = begin();
    let granule = stats()["registrable"].as_u64().expect("host memory can be exported");
    let segments = || stats()["segments"].as_u64().expect("a number");
    let before = (stats()["reserved_bytes"].clone(), segments());
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_enter_tag(c"weights".as_ptr()) }, 0);
    let take = |size| {
        // SAFETY: to the host backend a stream is a number.
        unsafe { omniheap_torch_registrable(size, 0, stream(3)) }
    };
    let held = [take(1), take(3 << 20)];
    assert_eq!(omniheap_torch_leave_tag(), 0);
    assert!(held.iter().all(|it| !it.is_null() && (it.addr() as u64).is_multiple_of(4096)));
    let taken = stats()["reserved_bytes"].as_u64().expect("a number");
    assert_eq!(taken - before.0.as_u64().expect("a number"), 3 * granule, "one granule and two");
    assert_eq!(segments() - before.1, 2);
    fill(held[1], 3 << 20, 7);
    // SAFETY: C strings or null, and nothing uses what sleeps.
    assert_eq!(unsafe { omniheap_torch_sleep(0, ptr::null(), c"host".as_ptr()) }, 0);
    assert!(holds(held[1], 3 << 20, 7), "it is awake");
    // SAFETY: null names all tags.
    assert_eq!(unsafe { omniheap_torch_wake(0, ptr::null(), 0) }, 0);
    for (pointer, size) in held.into_iter().zip([1, 3 << 20]) {
        omniheap_torch_segment_free(pointer, size, 0, stream(3));
    }
    assert_eq!(segments(), before.1, "freed segments go back to the driver at once");
    assert!(take(-1).is_null() && take(1 << 40).is_null());
}

#[test]
fn bytes_are_ours_until_they_are_freed() {
    let _one = begin();
    let held: Vec<_> = (0..100_u8)
        .map(|at| {
            let size = 1 + usize::from(at) * 997;
            let pointer = allocate(size, 0);
            assert!(!pointer.is_null() && pointer.addr().is_multiple_of(512));
            fill(pointer, size, at);
            (pointer, size, at)
        })
        .collect();
    assert!(held.iter().all(|(pointer, size, value)| holds(*pointer, *size, *value)));
    assert_eq!(stats()["live"], 100);
    for (pointer, size, _) in held {
        omniheap_torch_free(pointer, size, 0, stream(0));
    }
    assert_eq!(stats()["live"], 0);
}

#[test]
fn nothing_is_nothing_and_a_double_free_is_reported() {
    let _one = begin();
    assert!(ask(0, 0, 0).is_null());
    omniheap_torch_free(ptr::null_mut(), 0, 0, stream(0));
    let pointer = allocate(4096, 0);
    omniheap_torch_free(pointer, 4096, 0, stream(0));
    omniheap_torch_free(pointer, 4096, 0, stream(0));
    assert!(text(omniheap_torch_error()).contains("not live"));
    use_on(pointer, 1);
    assert!(text(omniheap_torch_error()).contains("not live"));
}

#[test]
fn a_free_that_states_a_wrong_size_is_reported_and_frees_what_was_recorded() {
    let _one = begin();
    let (before, earlier) = (stats()["live_bytes"].as_u64(), text(omniheap_torch_error()));
    omniheap_torch_free(allocate(4096, 0), 4096, 0, stream(0));
    omniheap_torch_free(allocate(4096, 0), 0, 0, stream(0));
    assert_eq!(text(omniheap_torch_error()), earlier, "zero says nothing");
    omniheap_torch_free(allocate(4096, 0), 1024, 0, stream(0));
    let said = text(omniheap_torch_error());
    assert!(said.contains("4096") && said.contains("1024"), "{said}");
    omniheap_torch_free(allocate(4096, 0), 1, 0, stream(0));
    assert!(text(omniheap_torch_error()).contains("says 1:"), "one byte is a size too");
    assert_eq!(stats()["live_bytes"].as_u64(), before, "all 4096 bytes are free again");
}

#[test]
fn a_shortage_is_null_without_pytorch_and_explained() {
    let _one = begin();
    let failures = stats()["out_of_memory"].as_u64().expect("a number");
    assert!(allocate(usize::try_from(LIMIT).expect("small") + 1, 0).is_null());
    assert_eq!(stats()["out_of_memory"], failures + 1);
    let why = text(omniheap_torch_explain_oom());
    assert!(why.starts_with("host out of memory. Tried to allocate 64.00 MiB. GPU 0 has"), "{why}");
    assert!(why.contains("67108865"), "{why}");
    for (size, has_overflowed) in [(-1, true), (1 << 60, true), ((1 << 60) - 1, false)] {
        assert!(ask(size, 0, 0).is_null());
        let why = text(omniheap_torch_explain_oom());
        let is_said = why.ends_with("Tried to allocate more than 1EB memory.");
        assert_eq!(is_said, has_overflowed, "{why}");
    }
    assert!(ask(1, 7, 0).is_null());
    assert!(text(omniheap_torch_error()).contains("device 7 cannot be opened"));
    let fits = allocate(MIB, 0);
    assert!(!fits.is_null());
    omniheap_torch_free(fits, MIB, 0, stream(0));
}

#[test]
fn a_failure_that_is_no_shortage_is_not_called_one() {
    let _one = begin();
    let explained = || text(omniheap_torch_explain_oom());
    // SAFETY: the function may be called until the process ends.
    assert_eq!(unsafe { omniheap_torch_watch(Some(note)) }, 0);
    TOLD.lock().expect("nobody panics with it").clear();
    let before = stats()["out_of_memory"].clone();
    // SAFETY: no stream.
    assert!(unsafe { omniheap_stream_alloc(ptr::null_mut(), 0, 0) }.is_null());
    let why = explained();
    assert!(
        why.starts_with("omniheap: host device 0 did not allocate 0 bytes: zero bytes"),
        "{why}"
    );
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_enter_tag(c"sleeper".as_ptr()) }, 0);
    let tagged = allocate(MIB, 1);
    // SAFETY: C strings, and nothing uses the tag meanwhile.
    let slept = unsafe { omniheap_torch_sleep(0, c"sleeper".as_ptr(), c"host".as_ptr()) };
    assert_eq!(slept, 0);
    assert!(cupy(MIB).is_null());
    assert_eq!(omniheap_torch_is_shortage(), 0, "a tag that is asleep");
    assert!(allocate(MIB, 1).is_null());
    assert!(explained().starts_with("tag \"sleeper\" is asleep"), "{}", explained());
    assert_eq!(omniheap_torch_leave_tag(), 0);
    assert!(ask(1, 7, 0).is_null());
    assert!(explained().starts_with("omniheap: device 7 cannot be opened"), "{}", explained());
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_torch_watch(None) }, 0);
    assert_eq!(stats()["out_of_memory"], before, "a counter of shortages");
    let told = core::mem::take(&mut *TOLD.lock().expect("nobody panics with it"));
    assert!(told.iter().all(|told| told.0 != Happened::OutOfMemory), "{told:?}");
    omniheap_torch_free(tagged, MIB, 0, stream(1));
}

/// An address that a watcher was told to be free, which it then asked for again, and what it got.
static AGAIN: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

unsafe extern "C" fn ask_again(event: *const Event) {
    // SAFETY: the library passes a live event.
    let Event { happened, device, address, .. } = unsafe { event.read() };
    if (happened, device) == (Happened::Freed, 0) {
        let again = allocate(3 * MIB, 9);
        AGAIN.lock().expect("nobody panics with it").push((address, again.addr() as u64));
    }
}

#[test]
fn a_watcher_hears_of_a_free_before_the_bytes_can_be_somebody_elses() {
    let _one = begin();
    let held = allocate(3 * MIB, 9);
    // SAFETY: the function may be called until the process ends.
    assert_eq!(unsafe { omniheap_torch_watch(Some(ask_again)) }, 0);
    omniheap_torch_free(held, 3 * MIB, 0, stream(9));
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_torch_watch(None) }, 0);
    let again = core::mem::take(&mut *AGAIN.lock().expect("nobody panics with it"));
    let [(freed, other)] = again[..] else { panic!("one free: {again:?}") };
    assert_eq!(freed, held.addr() as u64);
    assert_ne!(
        other, freed,
        "the program of another thread would have it before the watcher knows"
    );
    omniheap_torch_free(
        ptr::with_exposed_provenance_mut(usize::try_from(other).expect("an address")),
        0,
        0,
        stream(9),
    );
}

#[test]
fn memory_of_a_capture_is_kept_until_its_pool_is_released() {
    let _one = begin();
    let pool = PoolId { captured: 1, named: 0 };
    let users = || omniheap_torch_pool_users(0, 1, 0);
    omniheap_torch_reset();
    let (before, reserved) = (stats()["live_bytes"].as_u64(), stats()["reserved_bytes"].clone());
    assert_eq!(users(), 0);
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { omniheap_torch_begin_pool(0, pool, ptr::null_mut()) };
    assert_eq!(users(), 1);
    let first = allocate(MIB, 3);
    omniheap_torch_free(first, MIB, 0, stream(3));
    let again = allocate(MIB, 3);
    assert_eq!(first, again, "a capture uses its own memory again");
    let crossed = allocate(MIB, 3);
    use_on(crossed, 4);
    omniheap_torch_free(crossed, MIB, 0, stream(3));
    let last = allocate(MIB, 3);
    assert_ne!(last, crossed, "what another stream used waits for the pool's end");
    omniheap_torch_end_pool(0, pool);
    omniheap_torch_free(again, MIB, 0, stream(3));
    let outside = allocate(MIB, 3);
    assert_ne!(outside, again, "others do not get the memory of a graph");
    omniheap_torch_reset();
    assert!(stats()["live_bytes"].as_u64() > before, "empty_cache leaves it alone");
    omniheap_torch_free(outside, MIB, 0, stream(3));
    omniheap_torch_free(last, MIB, 0, stream(3));
    omniheap_torch_release_pool(0, pool);
    assert_eq!((stats()["live_bytes"].as_u64(), users()), (before, 0));
    omniheap_torch_reset();
    assert_eq!(stats()["reserved_bytes"], reserved, "the graph's memory goes back too");
}

#[test]
fn requests_of_a_pool_share_blocks_unless_it_is_held_without() {
    let _one = begin();
    let segments_of = |named: u64, no_split: i32| {
        assert_eq!(omniheap_torch_hold_pool(0, 0, named, no_split), 0);
        // SAFETY: without a filter, every stream belongs to it.
        unsafe { omniheap_torch_begin_pool(0, PoolId { captured: 0, named }, ptr::null_mut()) };
        let held = [allocate(2 * MIB, 3), allocate(2 * MIB, 3)];
        omniheap_torch_end_pool(0, PoolId { captured: 0, named });
        let shown: Value = serde_json::from_str(&text(omniheap_torch_segments(0))).expect("JSON");
        let is_ours = |segment: &&Value| segment["segment_pool_id"][1] == named;
        let count = shown.as_array().expect("a list").iter().filter(is_ours).count();
        for pointer in held {
            omniheap_torch_free(pointer, 2 * MIB, 0, stream(3));
        }
        (0..2).for_each(|_| omniheap_torch_release_pool(0, PoolId { captured: 0, named }));
        count
    };
    assert_eq!((segments_of(71, 0), segments_of(72, 1)), (1, 2));
    omniheap_torch_reset();
}

#[test]
fn cupy_and_pytorch_share_one_manager() {
    let _one = begin();
    let theirs = cupy(MIB);
    let ours = allocate(MIB, 9);
    assert_eq!(stats()["live"], 2);
    omniheap_stream_free(stream(9), theirs, 0);
    omniheap_torch_free(ours, MIB, 0, stream(9));
    assert!(cupy(usize::MAX).is_null());
    assert_eq!(omniheap_torch_is_shortage(), 1);
}

/// The function of a device and a stream.
fn function(device: i32, on: Option<usize>) -> Option<extern "C" fn(usize) -> *mut c_void> {
    // SAFETY: to the host backend a stream is a number.
    let address = unsafe {
        omniheap_alloc_function(device, stream(on.unwrap_or(0)), i32::from(on.is_some()))
    };
    // SAFETY: a function of this kind, or null.
    unsafe { core::mem::transmute(address) }
}

#[test]
fn bytes_of_no_stream_are_freed_wherever_they_are() {
    let _one = begin();
    let before = stats()["live"].clone();
    let held = [0, 1, 0].map(|device| omniheap_unordered_alloc(5000, device));
    assert!(held.iter().all(|it| !it.is_null() && it.addr().is_multiple_of(512)));
    fill(held[0], 5000, 7);
    assert!(holds(held[0], 5000, 7));
    assert!(held.into_iter().all(|it| omniheap_unordered_free(it) == 0));
    assert_eq!(stats()["live"], before);
    assert_eq!(omniheap_unordered_free(ptr::null_mut()), 0);
    for wrong in [held[0], stream(4096)] {
        assert_eq!(omniheap_unordered_free(wrong), -1);
        assert!(text(omniheap_torch_error()).contains("freed twice, or not ours"));
        assert_eq!(omniheap_stream_free(stream(1), wrong, 0), -1);
    }
    assert!(omniheap_unordered_alloc(0, 0).is_null());
    for (size, device, shortage) in [(1 << 63, 0, 1), (usize::MAX, 0, 1), (1, -1, 0), (1, 1000, 0)]
    {
        assert!(omniheap_unordered_alloc(size, device).is_null());
        assert_eq!(omniheap_torch_is_shortage(), shortage, "{size} bytes of device {device}");
    }
}

#[test]
fn a_runtime_that_names_nothing_has_a_function_for_each_device_and_stream() {
    let _one = begin();
    let [plain, second, ordered] = [(0, None), (1, None), (0, Some(9))]
        .map(|(device, on)| function(device, on).expect("free"));
    assert_ne!(plain as usize, second as usize);
    assert_ne!(plain as usize, ordered as usize);
    assert_eq!(function(0, Some(9)).map(|again| again as usize), Some(ordered as usize));
    let live = |device| stats_of(device)["live"].as_u64().expect("a number");
    let before = [live(0), live(1)];
    let held = [plain(4096), second(4096), ordered(4096)];
    assert_eq!([live(0) - before[0], live(1) - before[1]], [2, 1]);
    assert!(held.into_iter().all(|it| omniheap_unordered_free(it) == 0));
    assert!(plain(0).is_null() && plain(1 << 63).is_null());
    assert!(function(-1, None).is_none());
    let taken = (100..200).take_while(|on| function(0, Some(*on)).is_some()).count();
    assert_eq!(taken, 61, "64 with the three from above");
    assert!(text(omniheap_torch_error()).contains("use fewer streams"));
    assert!(function(0, None).is_some(), "those that were taken stay");
}

#[test]
fn the_limit_changes_and_other_settings_are_refused() {
    let _one = begin();
    assert_eq!(omniheap_torch_set_limit(0, 8 << 20), 0);
    assert!(allocate(9 * MIB, 0).is_null());
    assert_eq!(omniheap_torch_memory_fraction(2.0, 0), -1);
    assert!(text(omniheap_torch_error()).contains("memory fraction"));
    assert_eq!((omniheap_torch_set_limit(0, 0), &stats()["limit_bytes"]), (0, &Value::Null));
    assert_eq!((omniheap_torch_set_limit(0, 1), &stats()["limit_bytes"]), (0, &1.into()));
    assert_eq!(omniheap_torch_set_limit(0, LIMIT), 0);
    // SAFETY: C strings, and a null pointer, which is refused.
    assert_eq!(unsafe { omniheap_torch_configure(c"host".as_ptr(), LIMIT + 1, 1) }, -1);
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_torch_configure(ptr::null(), 0, 1) }, -1);
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_torch_configure(c"metal".as_ptr(), 0, 1) }, -1);
    assert!(text(omniheap_torch_error()).contains("choose cuda, hip or host"));
}

#[test]
fn devices_do_not_mix() {
    let _one = begin();
    let (here, there) = (ask(4096, 0, 5), ask(8192, 1, 5));
    assert_eq!(
        (&stats_of(0)["live_bytes"], &stats_of(1)["live_bytes"]),
        (&4096.into(), &8192.into())
    );
    assert_eq!(stats_of(1)["device"], 1);
    use_on(there, 6);
    omniheap_torch_free(there, 8192, 0, stream(5));
    assert!(text(omniheap_torch_error()).contains("not live"), "device 0 does not have it");
    assert_eq!(stats_of(1)["live"], 1);
    assert_eq!(omniheap_torch_set_limit(1, 1 << 20), 0);
    assert!(ask(2 << 20, 1, 5).is_null());
    let allowed = ask(2 << 20, 0, 5);
    assert!(!allowed.is_null(), "a limit is one device's");
    for (pointer, device) in [(here, 0), (there, 1), (allowed, 0)] {
        omniheap_torch_free(pointer, 0, device, stream(5));
    }
    assert_eq!((&stats_of(0)["live"], &stats_of(1)["live"]), (&0.into(), &0.into()));
}

#[test]
fn a_fraction_of_the_device_is_a_limit() {
    let _one = begin();
    assert_eq!(omniheap_torch_memory_fraction(0.0, 0), 0);
    omniheap_torch_reset();
    assert!(allocate(MIB, 0).is_null());
    assert_eq!(stats()["limit_bytes"], 0);
    assert_eq!(omniheap_torch_set_limit(0, LIMIT), 0);
}

/// The name of a file of this process.
fn file(end: &str) -> CString {
    let path = std::env::temp_dir().join(format!("omniheap-torch-{}.{end}", std::process::id()));
    CString::new(path.to_str().expect("UTF-8")).expect("no zero byte")
}

#[test]
fn a_trace_is_read_back() {
    let _one = begin();
    let trace = file("trace");
    let earlier = allocate(MIB, 0);
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_trace(trace.as_ptr()) }, 0);
    // SAFETY: a C string. The trace goes on.
    assert_eq!(unsafe { omniheap_torch_trace(c"/no/such/folder/x.trace".as_ptr()) }, -1);
    let held = [allocate(MIB, 0), allocate(2 * MIB, 1)];
    std::thread::sleep(core::time::Duration::from_millis(3));
    omniheap_torch_free(held[0], MIB, 0, stream(0));
    omniheap_torch_free(earlier, MIB, 0, stream(0));
    // SAFETY: a null pointer finishes.
    assert_eq!(unsafe { omniheap_torch_trace(ptr::null()) }, 0);
    let read = omniheap::trace::Trace::open(trace.to_str().expect("UTF-8")).expect("a trace");
    assert_eq!(read.allocations(), 2);
    let sums = read.summary();
    assert_eq!((sums.peak_live_bytes, sums.final_live_bytes, sums.streams), (3 << 20, 2 << 20, 2));
    assert_eq!(sums.events, 3, "what lived before is not in it");
    assert!(sums.duration_us >= 3000, "in microseconds: {}", sums.duration_us);
    let freed = omniheap::trace::Op::FreeCompleted {
        id: omniheap::trace::AllocationId(0),
        size: MIB as u64,
        stream: omniheap::trace::StreamId(0),
    };
    assert_eq!(read.events()[2].op, freed);
    assert_eq!(read.meta().title, "PyTorch on omniheap");
    omniheap_torch_free(held[1], 2 * MIB, 0, stream(1));
    std::fs::remove_file(trace.to_str().expect("UTF-8")).expect("written above");
}

#[test]
fn a_page_replaces_a_file_only_once_it_is_whole() {
    let _one = begin();
    let page = file("html");
    let path = page.to_str().expect("UTF-8");
    let before = format!("{path}.before");
    std::fs::write(path, "precious").expect("a file to replace");
    std::fs::hard_link(path, &before).expect("two names of one file");
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_report(0, page.as_ptr()) }, 0);
    assert!(std::fs::read_to_string(path).expect("a page").contains("<html"));
    let kept = std::fs::read(&before).expect("a file");
    assert!(kept == b"precious", "a page that is not finished would have destroyed it");
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_report(0, c"/no/such/folder/x.html".as_ptr()) }, -1);
    for path in [path, &before] {
        std::fs::remove_file(path).expect("written above");
    }
}

#[test]
fn figures_count_what_the_program_holds() {
    let _one = begin();
    assert_eq!(omniheap_torch_reset_peaks(0), 0);
    let before = stats();
    let held: Vec<_> =
        [MIB, 3 * MIB, 5].into_iter().map(|size| (allocate(size, 0), size)).collect();
    use_on(held[0].0, 1);
    for (pointer, _) in &held {
        // CuPy frees without a size, on whichever stream.
        omniheap_stream_free(stream(3), *pointer, 0);
    }
    let after = stats();
    let grown = |key: &str| after[key].as_u64().zip(before[key].as_u64()).map(|(a, b)| a - b);
    let total = 4 * MIB as u64 + 5;
    assert_eq!((grown("allocated"), grown("freed")), (Some(3), Some(3)));
    assert_eq!((grown("allocated_bytes"), grown("freed_bytes")), (Some(total), Some(total)));
    assert_eq!((grown("live"), grown("live_bytes")), (Some(0), Some(0)));
    assert_eq!((grown("peak_live"), grown("peak_live_bytes")), (Some(3), Some(total)));
    assert_eq!(grown("peak_rounded_bytes"), Some(4 * MIB as u64 + 512));
    assert_eq!((grown("rounded_bytes"), grown("live_bytes")), (Some(0), Some(0)));
    let peaks = |class: &str| {
        let of = |stats: &Value| stats["pools"][class]["peak_live_bytes"].as_u64();
        of(&after).zip(of(&before)).map(|(a, b)| a - b)
    };
    assert_eq!(peaks("small_pool"), Some(MIB as u64 + 5));
    assert_eq!(peaks("large_pool"), Some(3 * MIB as u64));
    assert_eq!(omniheap_torch_reset_peaks(0), 0);
    let again = stats();
    assert_eq!(again["peak_live_bytes"], before["live_bytes"]);
    assert_eq!(again["pools"]["large_pool"]["peak_live"], before["pools"]["large_pool"]["live"]);
    assert_eq!(omniheap_torch_reset_peaks(99), -1);
}

fn residence(tag: &str) -> Value {
    let said = text(omniheap_torch_residence(0));
    serde_json::from_str::<Value>(&said).expect("it is JSON")[tag].clone()
}

#[test]
fn a_tag_sleeps_and_wakes_and_says_what_is_wrong() {
    let _one = begin();
    let size = 40 * MIB;
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_enter_tag(c"weights".as_ptr()) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_torch_enter_tag(c"inner".as_ptr()) }, -1);
    assert!(text(omniheap_torch_error()).contains("leave"));
    let pointer = allocate(size, 1);
    assert_eq!(omniheap_torch_leave_tag(), 0);
    assert_eq!(omniheap_torch_leave_tag(), -1);
    fill(pointer, size, 7);
    // SAFETY: C strings, and nothing uses the tag meanwhile.
    let sleep = |tag: *const c_char, to: *const c_char| unsafe { omniheap_torch_sleep(0, tag, to) };
    // SAFETY: null or a C string.
    let wake = |tag: *const c_char| unsafe { omniheap_torch_wake(0, tag, 0) };
    let (tag, host) = (c"weights".as_ptr(), c"host".as_ptr());
    for (tag, to) in [(c"other".as_ptr(), host), (tag, c"moon".as_ptr()), (tag, ptr::null())] {
        assert_eq!(sleep(tag, to), -1);
    }
    assert!(holds(pointer, size, 7));
    assert_eq!([sleep(tag, host), sleep(tag, host)], [0, -1]);
    assert_eq!(residence("weights")["host"], size);
    let other = allocate(size, 1);
    assert_eq!(wake(tag), -2, "there is no room");
    assert!(text(omniheap_torch_error()).contains("stays asleep"));
    omniheap_torch_free(other, size, 0, stream(1));
    assert_eq!([wake(ptr::null()), wake(ptr::null()), wake(tag)], [0, 0, -1]);
    assert!(holds(pointer, size, 7));
    omniheap_torch_free(pointer, size, 0, stream(1));
    omniheap_torch_reset();
    assert!(omniheap_torch_residence(99).is_null());
}

/// A weights file of one tensor of fives, opened; its handle and its path.
fn weights_of_fives(size: usize) -> (u64, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("omniheap-origin-{}", std::process::id()));
    let header = format!(r#"{{"w":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}"#);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + size, 5);
    std::fs::write(&path, &bytes).expect("a folder for files");
    let listed = CString::new(format!("[{path:?}]")).expect("no zero");
    let mut count = 0;
    // SAFETY: a C string, and a number.
    let handle = unsafe { omniheap_torch_weights_open(listed.as_ptr(), &raw mut count) };
    assert_eq!(count, 1);
    (handle, path)
}

/// Loads its tensor to a buffer.
fn load_to(handle: u64, buffer: &Buffer, wanted: &Wanted) -> i32 {
    let (host, none) = (c"host".as_ptr(), ptr::null_mut());
    let (buffer, wanted) = (ptr::from_ref(buffer), ptr::from_ref(wanted));
    // SAFETY: one value each, and memory that nothing else uses.
    unsafe { omniheap_torch_weights_load(handle, host, 0, buffer, 1, wanted, 1, None, none) }
}

#[test]
fn loaded_weights_sleep_to_their_file_until_they_are_written() {
    let _one = begin();
    let size = 3 * MIB;
    let (handle, path) = weights_of_fives(size);
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_enter_tag(c"loaded".as_ptr()) }, 0);
    let pointer = allocate(size, 1);
    assert_eq!(omniheap_torch_leave_tag(), 0);
    let buffer = Buffer { address: pointer.expose_provenance() as u64, size: size as u64 };
    let wanted = Wanted { tensor: 0, buffer: 0, offset: 0 };
    let nowhere = Buffer { address: 0, ..buffer };
    assert_eq!(load_to(handle, &nowhere, &wanted), -1);
    assert!(text(omniheap_torch_error()).contains("address 0"));
    assert_eq!(load_to(handle, &buffer, &wanted), 0);
    // SAFETY: one value each.
    let remember = |buffer: Buffer| unsafe {
        omniheap_torch_weights_remember(handle, &raw const buffer, 1, &raw const wanted, 1)
    };
    let larger = Buffer { size: buffer.size + 512, ..buffer };
    assert_eq!((remember(larger), remember(buffer)), (0, 1), "only whole allocations");
    // SAFETY: C strings, and nothing uses the tag meanwhile.
    let sleep = || unsafe { omniheap_torch_sleep(0, c"loaded".as_ptr(), c"origin".as_ptr()) };
    // SAFETY: a C string.
    let wake = || unsafe { omniheap_torch_wake(0, c"loaded".as_ptr(), 0) };
    assert_eq!(sleep(), 0);
    assert_eq!(residence("loaded")["origin"], size);
    let file = std::fs::File::options().write(true).open(&path).expect("a file");
    let before = file.metadata().and_then(|data| data.modified()).expect("the time of a file");
    let touch = |time| file.set_modified(time).expect("the time of a file can be set");
    touch(before + core::time::Duration::from_secs(5));
    assert_eq!(wake(), -1, "it is in no other place");
    assert!(text(omniheap_torch_error()).contains("put it back"));
    touch(before);
    std::fs::rename(&path, path.with_extension("away")).expect("a file");
    assert_eq!(wake(), 0, "the file is open while the tag sleeps");
    std::fs::rename(path.with_extension("away"), &path).expect("a file");
    assert!(holds(pointer, size, 5));
    fill(pointer, size, 6);
    assert_eq!([buffer.address, 7].map(|at| omniheap_torch_weights_forget(at)), [1, 0]);
    assert_eq!([sleep(), wake()], [0, 0]);
    assert!(holds(pointer, size, 6), "what was written since is copied");
    omniheap_torch_free(pointer, size, 0, stream(1));
    assert_eq!(omniheap_torch_weights_close(handle), 0);
    std::fs::remove_file(&path).expect("the file");
}

/// A weights file of tensors of bytes, each with its shape; all its bytes are sevens.
fn weights_of(name: &str, shapes: &[(&str, &[u64])]) -> (u64, std::path::PathBuf) {
    let (mut entries, mut at) = (serde_json::Map::new(), 0);
    for (name, shape) in shapes {
        let end = at + shape.iter().product::<u64>();
        let entry = serde_json::json!({ "dtype": "U8", "shape": shape, "data_offsets": [at, end] });
        entries.insert((*name).to_owned(), entry);
        at = end;
    }
    let header = Value::Object(entries).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + usize::try_from(at).expect("small"), 7);
    let path = std::env::temp_dir().join(format!("omniheap-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("a folder for files");
    let listed = CString::new(format!("[{path:?}]")).expect("no zero");
    let mut count = 0;
    // SAFETY: a C string, and a number.
    let handle = unsafe { omniheap_torch_weights_open(listed.as_ptr(), &raw mut count) };
    assert_eq!(count, shapes.len() as u64, "{}", text(omniheap_torch_error()));
    (handle, path)
}

/// Tensors of three forms, one of them without bytes.
const SHAPES: [(&str, &[u64]); 5] =
    [("a", &[2, 3]), ("b", &[2, 3]), ("c", &[1]), ("d", &[0]), ("e", &[2, 3])];

#[test]
fn tensors_are_listed_by_form() {
    let _one = begin();
    let (handle, path) = weights_of("forms", &SHAPES);
    let mut forms = [9; 5];
    // SAFETY: room for as many numbers as are said.
    let mut list =
        |count| unsafe { omniheap_torch_weights_list(handle, forms.as_mut_ptr(), count) };
    assert!(list(4).is_null(), "there are five");
    let listed: Value = serde_json::from_str(&text(list(5))).expect("JSON");
    let names = [("U8", [2, 3].as_slice(), 6), ("U8", &[1], 1), ("U8", &[0], 0)];
    let names = names.map(|(dtype, shape, size)| serde_json::json!([dtype, shape, 1, 1, size]));
    assert_eq!(listed, serde_json::json!([["a", "b", "c", "d", "e"], names]));
    assert_eq!(forms, [0, 0, 1, 2, 0]);
    // SAFETY: a C string, and a number that is not written.
    let missing =
        unsafe { omniheap_torch_weights_open(c"[\"/nowhere\"]".as_ptr(), forms.as_mut_ptr()) };
    assert_eq!(missing, 0, "there is no such file");
    assert_eq!(omniheap_torch_weights_close(handle), 0);
    std::fs::remove_file(&path).expect("the file");
}

unsafe extern "C" fn stop(_: u64, _: u64, answer: *mut c_void) -> i32 {
    i32::from(!answer.is_null())
}

#[test]
fn tensors_are_arranged_in_buffers_and_loaded_there() {
    let _one = begin();
    let (handle, path) = weights_of("arranged", &SHAPES);
    let mut wanted = [Wanted { tensor: 9, buffer: 9, offset: 9 }; 5];
    // SAFETY: room for five, and null names the first five.
    let arranged =
        unsafe { omniheap_torch_weights_arrange(handle, ptr::null(), 5, wanted.as_mut_ptr()) };
    let (sizes, counts): (Vec<u64>, Vec<u64>) =
        serde_json::from_str(&text(arranged)).expect("JSON");
    assert_eq!((sizes.len(), counts), (1, vec![4]), "small ones together, the empty one nowhere");
    assert_eq!(wanted.map(|each| each.tensor), [0, 1, 2, 3, 4]);
    let mut memory = vec![0_u8; usize::try_from(sizes[0]).expect("small")];
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    let load = |size: u64, wanted: &[Wanted], report: Option<Report>, user: *mut c_void| {
        let (buffer, host) = (Buffer { address, size }, c"host".as_ptr());
        let (buffer, list, count) = (&raw const buffer, wanted.as_ptr(), wanted.len());
        // SAFETY: memory of this size that nothing else uses, and as many values as are said.
        unsafe {
            omniheap_torch_weights_load(handle, host, 0, buffer, 1, list, count, report, user)
        }
    };
    let (goes_on, ends) = (ptr::null_mut(), ptr::dangling_mut());
    assert_eq!(load(sizes[0], &wanted, Some(stop), ends), -1, "the caller ended it");
    assert_eq!(load(sizes[0], &wanted, Some(stop), goes_on), 0);
    assert_eq!(load(sizes[0], &wanted, None, goes_on), 0, "a second load is as good");
    let one = [Wanted { tensor: 2, buffer: 0, offset: 0 }];
    assert_eq!((load(1, &one, None, goes_on), load(0, &one, None, goes_on)), (0, -1));
    let nowhere = [Wanted { tensor: 3, buffer: 8, offset: 0 }];
    assert_eq!(load(1, &nowhere, None, goes_on), 0, "what has no bytes needs no buffer");
    assert_eq!(memory.iter().filter(|byte| **byte == 7).count(), 19);
    assert_eq!(omniheap_torch_weights_close(handle), 0);
    std::fs::remove_file(&path).expect("the file");
}

/// Events that a watcher was told: kind, address, bytes, and stream.
static TOLD: Mutex<Vec<(Happened, u64, u64, u64)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(event: *const Event) {
    // SAFETY: the library passes a live event.
    let Event { happened, device, address, bytes, stream, .. } = unsafe { event.read() };
    // A reset trims the devices that other tests have opened, too.
    if device == 0 {
        TOLD.lock().expect("nobody panics with it").push((happened, address, bytes, stream));
    }
}

#[test]
fn a_watcher_is_told_of_everything_that_happens() {
    let _one = begin();
    omniheap_torch_reset();
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_enter_tag(c"watched".as_ptr()) }, 0);
    let tagged = allocate(MIB, 1);
    assert_eq!(omniheap_torch_leave_tag(), 0);
    // SAFETY: the function may be called until the process ends.
    assert_eq!(unsafe { omniheap_torch_watch(Some(note)) }, 0);
    let held = allocate(1000, 5);
    omniheap_torch_free(held, 1000, 0, stream(5));
    let large = usize::try_from(LIMIT).expect("small") + 1;
    assert!(allocate(large, 6).is_null());
    // SAFETY: C strings, and nothing uses the tag meanwhile.
    let slept = unsafe { omniheap_torch_sleep(0, c"watched".as_ptr(), c"host".as_ptr()) };
    assert_eq!(slept, 0);
    omniheap_torch_reset();
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_torch_watch(None) }, 0);
    omniheap_torch_free(tagged, MIB, 0, stream(1));
    let told = TOLD.lock().expect("nobody panics with it").clone();
    let at = held.addr() as u64;
    let expected = [
        (Happened::Allocated, at, 1000, 5),
        (Happened::Freed, at, 1000, 5),
        (Happened::OutOfMemory, 0, LIMIT + 1, 6),
    ];
    assert_eq!(told[..3], expected);
    let trims = &told[3..];
    assert!(trims.iter().all(|told| (told.0, told.1, told.3) == (Happened::Trimmed, 0, 0)));
    assert_eq!(trims.len(), 2, "a sleep and a trim: {trims:?}");
    assert!(trims[0].2 >= MIB as u64 && trims[0].2.is_multiple_of(4096), "pages: {trims:?}");
}

#[test]
fn memory_for_sleeps_is_there_before_the_first_one() {
    let _one = begin();
    let held = || omniheap::residency::Arena::of_process().report().held;
    let more = held() + (6 << 20);
    assert_eq!(omniheap_torch_prepare_sleep(0, more, 1), 0, "{}", text(omniheap_torch_error()));
    assert!(held() >= more, "{} of {more}", held());
    let more = held() + (6 << 20);
    assert_eq!(omniheap_torch_prepare_sleep(0, more, 0), 0);
    let is_there = |_| {
        std::thread::sleep(core::time::Duration::from_millis(1));
        held() >= more
    };
    assert!((0..60_000).any(is_there), "{} of {more}, taken in the background", held());
    assert_eq!(omniheap_torch_prepare_sleep(99, 1, 0), -1);
}
