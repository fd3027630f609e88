//! The C functions, called as C calls them: what they do, and what they refuse.
#![expect(unsafe_code, reason = "calls C functions")]
use core::ffi::{CStr, c_void};
use core::ptr;
use omniheap_c::*;

use OmniheapStatus as Status;

/// Calls a C function.
macro_rules! c {
    ($call:expr) => {
        // SAFETY: everything that is passed is live and as long as is said, or null where that is tested.
        unsafe { $call }
    };
}

#[path = "abi/begun.rs"]
mod begun;
#[path = "abi/binds.rs"]
mod binds;
#[path = "abi/closing.rs"]
mod closing;
#[path = "abi/guards.rs"]
mod guards;
#[path = "abi/hooks.rs"]
mod hooks;
#[path = "abi/images.rs"]
mod images;
#[path = "abi/passes.rs"]
mod passes;
#[path = "abi/residents.rs"]
mod residents;
#[path = "abi/sized.rs"]
mod sized;
#[path = "abi/weights.rs"]
mod weights;
#[path = "abi/words.rs"]
mod words;
#[path = "abi/wrap.rs"]
mod wrap;

fn open(paged: u32) -> OmniheapManager {
    let config = OmniheapConfig { paged, ..omniheap_config_default() };
    let mut manager = OmniheapManager { id: 0 };
    let status = c!(omniheap_open(c"host".as_ptr(), 0, &raw const config, &raw mut manager));
    assert_eq!(status, Status::Ok);
    manager
}

fn ask(manager: OmniheapManager, request: &OmniheapRequest) -> Result<OmniheapAllocation, Status> {
    let mut made = OmniheapAllocation { id: 0 };
    match c!(omniheap_allocate(manager, request, &raw mut made)) {
        Status::Ok => Ok(made),
        status => Err(status),
    }
}

fn message() -> String {
    // SAFETY: the library's messages are C strings, good until the next failed call.
    unsafe { CStr::from_ptr(omniheap_error()) }.to_str().expect("UTF-8").into()
}

fn report(manager: OmniheapManager) -> String {
    let (mut buffer, mut length) = (vec![0; 1 << 20], 0);
    let status =
        c!(omniheap_report_json(manager, buffer.as_mut_ptr(), buffer.len(), &raw mut length));
    assert_eq!(status, Status::Ok, "{}", message());
    let text = buffer[..length].iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8(text).expect("UTF-8")
}

fn write(to: OmniheapAllocation, bytes: &[u8]) -> Status {
    c!(omniheap_write(to, 0, bytes.as_ptr().cast(), bytes.len() as u64))
}

fn read(from: OmniheapAllocation, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let status = c!(omniheap_read(from, 0, bytes.as_mut_ptr().cast(), size as u64));
    assert_eq!(status, Status::Ok);
    bytes
}

#[test]
fn null_pointers_are_refused_by_name() {
    let manager = open(1);
    let request = omniheap_request_default(64);
    let made = ask(manager, &request).expect("small");
    let refused = [
        (c!(omniheap_open(ptr::null(), 0, ptr::null(), ptr::null_mut())), "backend"),
        (c!(omniheap_open(c"host".as_ptr(), 0, ptr::null(), ptr::null_mut())), "manager"),
        (c!(omniheap_allocate(manager, ptr::null(), ptr::null_mut())), "request"),
        (c!(omniheap_allocate(manager, &raw const request, ptr::null_mut())), "allocation"),
        (c!(omniheap_write(made, 0, ptr::null(), 1)), "data"),
        (c!(omniheap_read(made, 0, ptr::null_mut(), 1)), "data"),
        (c!(omniheap_map(made, ptr::null_mut())), "pointer"),
        (c!(omniheap_place(made, ptr::null_mut())), "place"),
        (c!(omniheap_report_json(manager, ptr::null_mut(), 9, &raw mut *Box::new(0))), "buffer"),
        (c!(omniheap_defragmented(manager, ptr::null_mut())), "moved"),
        (
            c!(omniheap_wrap_cuda(ptr::null_mut(), ptr::null_mut(), ptr::null(), ptr::null_mut())),
            "context",
        ),
        (c!(omniheap_wrap_vulkan(ptr::null(), ptr::null(), ptr::null_mut())), "device"),
        (c!(omniheap_pool_create(manager, 0, ptr::null(), ptr::null_mut())), "config"),
        (c!(omniheap_on_pressure(manager, None, ptr::null_mut())), "callback"),
    ];
    for (status, name) in refused {
        assert_eq!(status, Status::NullArgument, "{name}");
    }
    assert!(message().contains("callback is a null pointer"), "{}", message());
    assert_eq!(omniheap_free(made), Status::Ok);
    let mut sums = OmniheapTotals::default();
    assert_eq!(c!(omniheap_totals(manager, &raw mut sums)), Status::Ok);
    assert_eq!(sums.live, 0, "a refused allocation leaves nothing behind");
    assert_eq!(omniheap_close(manager), Status::Ok);
}

/// A pointer that is one byte beside where a `T` may be, with room for one.
fn beside<T>(room: &mut [u64; 16]) -> *mut T {
    room.as_mut_ptr().cast::<u8>().wrapping_add(1).cast()
}

#[test]
fn misaligned_pointers_are_refused_by_name() {
    let manager = open(0);
    let request = omniheap_request_default(64);
    let made = ask(manager, &request).expect("small");
    let budget = omniheap_budget_default();
    let (mut none, mut room) = (OmniheapManager { id: 0 }, [0_u64; 16]);
    let refused = [
        (c!(omniheap_open(c"host".as_ptr(), 0, beside(&mut room), &raw mut none)), "config"),
        (c!(omniheap_open(c"host".as_ptr(), 0, ptr::null(), beside(&mut room))), "manager"),
        (c!(omniheap_allocate(manager, beside(&mut room), ptr::null_mut())), "request"),
        (c!(omniheap_allocate(manager, &raw const request, beside(&mut room))), "allocation"),
        (c!(omniheap_map(made, beside(&mut room))), "pointer"),
        (c!(omniheap_pin(made, beside(&mut room))), "address"),
        (c!(omniheap_place(made, beside(&mut room))), "place"),
        (c!(omniheap_totals(manager, beside(&mut room))), "totals"),
        (c!(omniheap_timeline_open(manager, beside(&mut room))), "timeline"),
        (c!(omniheap_timeline_mark(manager, 0, beside(&mut room))), "epoch"),
        (c!(omniheap_trim(manager, beside(&mut room))), "result"),
        (c!(omniheap_report_json(manager, ptr::null_mut(), 0, beside(&mut room))), "length"),
        (c!(omniheap_pool_create(manager, 0, beside(&mut room), ptr::null_mut())), "config"),
        (
            c!(omniheap_defragment_pass(
                manager,
                &raw const budget,
                None,
                None,
                ptr::null_mut(),
                beside(&mut room)
            )),
            "moved",
        ),
    ];
    for (status, name) in refused {
        assert_eq!(status, Status::InvalidArgument, "{name}");
    }
    assert!(message().contains("moved is not at a multiple of 8 bytes"), "{}", message());
    assert_eq!((room, none.id), ([0; 16], 0), "nothing was written");
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn misaligned_queues_are_refused_before_the_device_is_asked() {
    let described = OmniheapVulkanDevice {
        struct_size: size_of::<OmniheapVulkanDevice>(),
        get_instance_proc_addr: ptr::dangling(),
        instance: ptr::dangling_mut(),
        physical_device: ptr::dangling_mut(),
        device: ptr::dangling_mut(),
        queues: beside(&mut [0; 16]),
        queue_count: 1,
        enabled: 0,
        frames_in_flight: 0,
    };
    let mut none = OmniheapManager { id: 0 };
    let status = c!(omniheap_wrap_vulkan(&raw const described, ptr::null(), &raw mut none));
    assert_eq!((status, none.id), (Status::InvalidArgument, 0));
    assert!(message().contains("device.queues is not at a multiple of 8 bytes"), "{}", message());
}

#[test]
fn a_handle_is_good_for_its_own_kind_only() {
    let manager = open(0);
    let made = ask(manager, &omniheap_request_default(64)).expect("small");
    let (config, mut pool) = (omniheap_pool_config_default(), OmniheapPool { id: 0 });
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    for id in [manager.id, pool.id] {
        assert_eq!(omniheap_free(OmniheapAllocation { id }), Status::Stale);
    }
    assert!(message().contains("stands for no allocation"), "{}", message());
    for id in [manager.id, made.id] {
        assert_eq!(omniheap_pool_destroy(OmniheapPool { id }), Status::Stale);
    }
    for id in [made.id, pool.id] {
        assert_eq!(omniheap_close(OmniheapManager { id }), Status::Stale);
    }
    assert_eq!(omniheap_pool_destroy(pool), Status::Ok);
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn senseless_requests_are_refused() {
    let manager = open(1);
    let good = omniheap_request_default(64);
    for (request, expected) in [
        (OmniheapRequest { size: 0, ..good }, Status::ZeroSize),
        (OmniheapRequest { align: 3, ..good }, Status::InvalidAlignment),
        (OmniheapRequest { size: u64::MAX, ..good }, Status::ExceedsLimit),
        (OmniheapRequest { writer: 9, ..good }, Status::InvalidArgument),
        (OmniheapRequest { pattern: 9, ..good }, Status::InvalidArgument),
        (OmniheapRequest { work: 2, ..good }, Status::InvalidArgument),
        (OmniheapRequest { dependence: 3, ..good }, Status::InvalidArgument),
        (OmniheapRequest { flags: 1 << 31, ..good }, Status::InvalidArgument),
        (OmniheapRequest { tag: 65_536, ..good }, Status::InvalidArgument),
        (OmniheapRequest { heap: 77, ..good }, Status::NoSuchHeap),
        (OmniheapRequest { heap: 7777, ..good }, Status::NoSuchHeap),
        (OmniheapRequest { name: c"\xff".as_ptr(), ..good }, Status::InvalidArgument),
    ] {
        assert_eq!(ask(manager, &request).err(), Some(expected), "{request:?}: {}", message());
    }
    let mut none = OmniheapManager { id: 0 };
    let status = c!(omniheap_open(c"metal".as_ptr(), 0, ptr::null(), &raw mut none));
    assert_eq!(status, Status::InvalidArgument);
    assert!(message().contains("cuda, hip, vulkan, wgpu, host"), "{}", message());
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn stale_handles_are_refused_everywhere() {
    let manager = open(1);
    let made = ask(manager, &omniheap_request_default(64)).expect("small");
    assert_eq!(omniheap_close(manager), Status::Busy);
    assert_eq!(omniheap_free(made), Status::Ok);
    let again = ask(manager, &omniheap_request_default(64)).expect("small");
    let mut place = OmniheapPlace::default();
    let status = c!(omniheap_place(made, &raw mut place));
    for status in [
        status,
        omniheap_free(made),
        omniheap_use_on(made, 0),
        omniheap_free_after(made, 0, 0),
        write(made, b"x"),
    ] {
        assert_eq!(status, Status::Stale);
    }
    assert_eq!(omniheap_free(again), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Stale);
    assert_eq!(omniheap_free(OmniheapAllocation { id: 0 }), Status::Stale);
}

#[test]
fn texts_fit_or_say_how_long_they_are() {
    let manager = open(1);
    let (mut length, mut short) = (0, [0; 8]);
    // SAFETY: everything passed is live and as long as is said.
    let status =
        unsafe { omniheap_report_json(manager, short.as_mut_ptr(), short.len(), &raw mut length) };
    assert_eq!(status, Status::ShortBuffer);
    assert_eq!(short, [0; 8], "a buffer that is too short stays as it was");
    let mut exact = vec![0; length];
    let status =
        c!(omniheap_report_json(manager, exact.as_mut_ptr(), exact.len(), &raw mut length));
    assert_eq!(status, Status::ShortBuffer, "there is no room for the closing zero");
    let whole = report(manager);
    assert_eq!(whole.len(), length);
    let report: serde_json::Value = serde_json::from_str(&whole).expect("JSON");
    assert_eq!(report["schema"], omniheap::trace::report::ReportData::SCHEMA);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn pools_live_as_long_as_what_is_in_them() {
    let manager = open(0);
    let config = OmniheapPoolConfig { maximum: 4 << 20, ..omniheap_pool_config_default() };
    let mut pool = OmniheapPool { id: 0 };
    // SAFETY: everything passed is live.
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    let (request, mut made) = (omniheap_request_default(1 << 20), OmniheapAllocation { id: 0 });
    // SAFETY: as above.
    assert_eq!(c!(omniheap_pool_allocate(pool, &raw const request, &raw mut made)), Status::Ok);
    assert_eq!(omniheap_pool_destroy(pool), Status::Busy);
    let large = omniheap_request_default(8 << 20);
    let mut none = OmniheapAllocation { id: 0 };
    // SAFETY: as above.
    assert_ne!(c!(omniheap_pool_allocate(pool, &raw const large, &raw mut none)), Status::Ok);
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_pool_destroy(pool), Status::Ok);
    assert_eq!(omniheap_pool_destroy(pool), Status::Stale);
    let odd = OmniheapPoolConfig { strategy: OMNIHEAP_STRATEGY_BUDDY, ..config };
    // SAFETY: as above.
    let status = c!(omniheap_pool_create(manager, 0, &raw const odd, &raw mut pool));
    assert_eq!(status, Status::InvalidArgument);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

/// A pool of a mebibyte wakes up where the device may hold a quarter of that.
#[cfg(target_os = "linux")]
fn wake_without_room(manager: OmniheapManager, pool: OmniheapPool, made: OmniheapAllocation) {
    assert_eq!(c!(omniheap_pool_sleep(pool, ptr::null(), ptr::null_mut())), Status::Ok);
    assert_eq!(omniheap_set_budget(manager, 0, 1 << 18, 1 << 18), Status::Ok);
    assert_eq!(omniheap_pool_wake(pool), Status::OverBudget);
    assert_eq!(omniheap_pool_wake_host_mapped(pool, 1 << 18), Status::OverBudget);
    assert_eq!(omniheap_pool_wake_host_mapped(pool, 1 << 30), Status::Ok, "{}", message());
    let mut residence = OmniheapResidence::default();
    assert_eq!(c!(omniheap_pool_residence(pool, &raw mut residence)), Status::Ok);
    assert!(residence.host_mapped >= 1 << 20 && residence.asleep == 0, "{residence:?}");
    assert_eq!(read(made, 4096), [7; 4096]);
    assert_eq!(omniheap_set_budget(manager, 0, u64::MAX, u64::MAX), Status::Ok);
}

#[test]
#[cfg(target_os = "linux")]
fn pools_sleep_and_wake() {
    let manager = open(0);
    let config = OmniheapPoolConfig { sleepable: 1, ..omniheap_pool_config_default() };
    let mut pool = OmniheapPool { id: 0 };
    // SAFETY: everything passed is live.
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    let (request, mut made) = (omniheap_request_default(1 << 20), OmniheapAllocation { id: 0 });
    // SAFETY: as above.
    assert_eq!(c!(omniheap_pool_allocate(pool, &raw const request, &raw mut made)), Status::Ok);
    let (bytes, mut seen) = ([7u8; 4096], [0u8; 4096]);
    // SAFETY: as above.
    assert_eq!(c!(omniheap_write(made, 0, bytes.as_ptr().cast(), 4096)), Status::Ok);
    assert_eq!(omniheap_pool_wake(pool), Status::AlreadyAwake);
    for store in [OMNIHEAP_STORE_HOST, OMNIHEAP_STORE_FILE] {
        let sleep =
            OmniheapSleep { store, directory: c"/tmp".as_ptr(), ..omniheap_sleep_default() };
        let mut slept = OmniheapSlept::default();
        // SAFETY: as above.
        let status = c!(omniheap_pool_sleep(pool, &raw const sleep, &raw mut slept));
        assert_eq!((status, slept.live, slept.kept), (Status::Ok, 1 << 20, 0), "{}", message());
        // SAFETY: as above; null settings are the usual ones, and nothing has to be told.
        let again = c!(omniheap_pool_sleep(pool, ptr::null(), ptr::null_mut()));
        assert_eq!(again, Status::AlreadyAsleep);
        let mut residence = OmniheapResidence::default();
        // SAFETY: as above.
        assert_eq!(c!(omniheap_pool_residence(pool, &raw mut residence)), Status::Ok);
        let asleep = OmniheapResidence {
            evicted: 1 << 20,
            stored: 1 << 20,
            asleep: 1,
            ..OmniheapResidence::default()
        };
        assert_eq!(residence, asleep);
        seen.fill(1);
        // SAFETY: as above.
        let status = c!(omniheap_read(made, 0, seen.as_mut_ptr().cast(), 4096));
        assert_eq!((status, seen), (Status::Asleep, [1; 4096]), "nothing was touched");
        assert_eq!(omniheap_pool_wake(pool), Status::Ok);
        // SAFETY: as above.
        assert_eq!(c!(omniheap_read(made, 0, seen.as_mut_ptr().cast(), 4096)), Status::Ok);
        assert_eq!(seen, bytes);
    }
    wake_without_room(manager, pool, made);
    refuse_pins_and_nonsense(pool, made);
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_pool_destroy(pool), Status::Ok);
    // SAFETY: as above; the handle is stale.
    assert_eq!(c!(omniheap_pool_sleep(pool, ptr::null(), ptr::null_mut())), Status::Stale);
    assert_eq!(omniheap_pool_wake(pool), Status::Stale);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn memory_for_sleeps_is_there_before_the_first_one() {
    let manager = open(0);
    let held = || omniheap::residency::Arena::of_process().report().held;
    assert_eq!(omniheap_sleep_prepare(manager, 1 << 60, 1), Status::OutOfHostMemory);
    assert!(held() < 1 << 40 && message().contains("host memory"), "{}", message());
    let more = held() + (6 << 20);
    assert_eq!(omniheap_sleep_prepare(manager, more, 1), Status::Ok, "{}", message());
    assert!(held() >= more, "{} of {more}", held());
    let more = held() + (6 << 20);
    assert_eq!(omniheap_sleep_prepare(manager, more, 0), Status::Ok, "{}", message());
    let is_there = |_| {
        std::thread::sleep(core::time::Duration::from_millis(1));
        held() >= more
    };
    assert!((0..60_000).any(is_there), "{} of {more}, taken in the background", held());
    // There nobody hears of a failure, and it changes nothing.
    assert_eq!(omniheap_sleep_prepare(manager, 1 << 60, 0), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
    assert_eq!(omniheap_sleep_prepare(manager, 1, 0), Status::Stale);
}

#[cfg(target_os = "linux")]
fn refuse_pins_and_nonsense(pool: OmniheapPool, made: OmniheapAllocation) {
    let mut address = 0;
    // SAFETY: everything passed is live.
    assert_eq!(c!(omniheap_pin(made, &raw mut address)), Status::Ok);
    // SAFETY: as above.
    assert_eq!(c!(omniheap_pool_sleep(pool, ptr::null(), ptr::null_mut())), Status::Busy);
    assert!(message().contains("pinned"), "{}", message());
    let flags = OMNIHEAP_SLEEP_OVER_PINS;
    let over = OmniheapSleep { store: OMNIHEAP_STORE_NOTHING, flags, ..omniheap_sleep_default() };
    // SAFETY: as above, and nothing uses the address.
    assert_eq!(c!(omniheap_pool_sleep(pool, &raw const over, ptr::null_mut())), Status::Ok);
    let wrong = OmniheapSleep { store: 9, ..over };
    // SAFETY: as above.
    let status = c!(omniheap_pool_sleep(pool, &raw const wrong, ptr::null_mut()));
    assert_eq!(status, Status::InvalidArgument);
}

#[test]
fn frees_wait_for_their_epoch() {
    let manager = open(1);
    let (mut timeline, mut epoch) = (0, 0);
    assert_eq!(c!(omniheap_timeline_open(manager, &raw mut timeline)), Status::Ok);
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    assert_eq!(omniheap_use_on(made, timeline), Status::Ok);
    assert_eq!(c!(omniheap_timeline_mark(manager, timeline, &raw mut epoch)), Status::Ok);
    assert_eq!(omniheap_free_after(made, timeline, epoch), Status::Ok);
    assert_eq!(omniheap_timeline_wait(manager, timeline, epoch), Status::Ok);
    assert_eq!(omniheap_timeline_order(manager, 0, timeline, epoch), Status::Ok);
    assert_eq!(omniheap_timeline_order(manager, 77, timeline, epoch), Status::NoSuchTimeline);
    assert_eq!(omniheap_timeline_close(manager, timeline), Status::Ok);
    assert_eq!(omniheap_timeline_close(manager, timeline), Status::NoSuchTimeline);
    let status = c!(omniheap_timeline_adopt(manager, ptr::null_mut(), &raw mut timeline));
    assert_eq!(status, Status::Unsupported);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn bytes_wait_for_an_epoch_that_is_to_come() {
    let manager = open(0);
    let waiting = || {
        let mut sums = OmniheapTotals::default();
        assert_eq!(c!(omniheap_retire(manager, ptr::null_mut())), Status::Ok);
        assert_eq!(c!(omniheap_totals(manager, &raw mut sums)), Status::Ok);
        sums.waiting_bytes
    };
    let (mut timeline, mut epoch) = (0, 0);
    assert_eq!(c!(omniheap_timeline_open(manager, &raw mut timeline)), Status::Ok);
    assert_eq!(c!(omniheap_timeline_mark(manager, timeline, &raw mut epoch)), Status::Ok);
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    assert_eq!(omniheap_free_after(made, timeline, epoch + 1), Status::Ok);
    assert!(waiting() >= 4096, "the epoch has not been reached");
    let other = OmniheapRequest { timeline, ..omniheap_request_default(64) };
    let other = ask(manager, &other).expect("small");
    assert_eq!(omniheap_fill(other, 0, 64, 1), Status::Ok);
    assert_eq!(omniheap_timeline_wait(manager, timeline, epoch + 1), Status::Ok);
    assert_eq!(waiting(), 0);
    assert_eq!((omniheap_free(other), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
fn a_timeline_that_is_not_open_is_refused_and_the_allocation_stays() {
    for backend in [c"host", c"vulkan"] {
        let mut manager = OmniheapManager { id: 0 };
        if c!(omniheap_open(backend.as_ptr(), 0, ptr::null(), &raw mut manager)) != Status::Ok {
            println!("SKIPPED: no {backend:?} here: {}", message());
            continue;
        }
        let (mut closed, mut epoch) = (0, 0);
        assert_eq!(c!(omniheap_timeline_open(manager, &raw mut closed)), Status::Ok);
        assert_eq!(omniheap_timeline_close(manager, closed), Status::Ok);
        let made = ask(manager, &omniheap_request_default(4096)).expect("small");
        for timeline in [closed, 4711, OMNIHEAP_ANY] {
            let refused = [
                omniheap_free_after(made, timeline, 1),
                omniheap_use_on(made, timeline),
                c!(omniheap_timeline_mark(manager, timeline, &raw mut epoch)),
                c!(omniheap_timeline_reached(manager, timeline, &raw mut epoch)),
                omniheap_timeline_wait(manager, timeline, 1),
                omniheap_timeline_order(manager, timeline, 0, 0),
                omniheap_timeline_order(manager, 0, timeline, 1),
                omniheap_copy(manager, timeline, made, 0, made, 2048, 64),
                omniheap_timeline_close(manager, timeline),
            ];
            assert_eq!(refused, [Status::NoSuchTimeline; 9], "{backend:?} {timeline}");
        }
        assert!(message().contains("OMNIHEAP_ANY is no timeline"), "{}", message());
        assert_eq!(omniheap_free(made), Status::Ok, "it stayed live");
        assert_eq!(omniheap_close(manager), Status::Ok);
    }
}

#[test]
fn an_epoch_that_was_never_marked_is_called_so() {
    for backend in [c"host", c"vulkan"] {
        let mut manager = OmniheapManager { id: 0 };
        if c!(omniheap_open(backend.as_ptr(), 0, ptr::null(), &raw mut manager)) != Status::Ok {
            println!("SKIPPED: no {backend:?} here: {}", message());
            continue;
        }
        assert_eq!(omniheap_timeline_wait(manager, 0, 1 << 40), Status::NoSuchTimeline);
        let said = "epoch 1099511627776 of timeline 0 was never marked";
        assert!(message().contains(said), "{backend:?}: {}", message());
        assert_eq!(omniheap_timeline_order(manager, 0, 0, 1 << 40), Status::NoSuchTimeline);
        assert!(message().contains(said), "{backend:?}: {}", message());
        assert_eq!(omniheap_close(manager), Status::Ok);
    }
}

#[test]
fn the_best_device_here_is_opened() {
    let mut manager = OmniheapManager { id: 0 };
    assert_eq!(c!(omniheap_open_best(ptr::null(), &raw mut manager)), Status::Ok, "{}", message());
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    assert_eq!((omniheap_free(made), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
fn a_device_without_addresses_says_zero() {
    let mut manager = OmniheapManager { id: 0 };
    if c!(omniheap_open(c"wgpu".as_ptr(), 0, ptr::null(), &raw mut manager)) != Status::Ok {
        println!("SKIPPED: no wgpu device here: {}", message());
        return;
    }
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    let (mut place, mut address) = (OmniheapPlace::default(), 7);
    assert_eq!(c!(omniheap_place(made, &raw mut place)), Status::Ok);
    assert_eq!(c!(omniheap_pin(made, &raw mut address)), Status::Ok);
    assert_eq!((place.size, place.address, address), (4096, 0, 0));
    assert_eq!((omniheap_free(made), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
fn the_driver_tells_its_budget() {
    let manager = open(0);
    let (mut budget, mut used) = (0, u64::MAX);
    let status = c!(omniheap_driver_budget(manager, 0, &raw mut budget, &raw mut used));
    assert_eq!((status, used), (Status::Ok, 0));
    assert!(budget > 0);
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    let told = c!(omniheap_driver_budget(manager, 0, ptr::null_mut(), &raw mut used));
    assert_eq!(told, Status::Ok);
    assert!(used >= 4096);
    let none = c!(omniheap_driver_budget(manager, 99, &raw mut budget, &raw mut used));
    assert_eq!(none, Status::NoSuchHeap);
    let mut heap = 7;
    let kind = OMNIHEAP_KIND_DEVICE;
    let other = c!(omniheap_vulkan_heap(manager, u32::MAX, kind, &raw mut heap));
    assert_eq!((other, heap), (Status::Unsupported, 7), "host memory has no memory types");
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn threads_share_handles_without_harm() {
    let manager = open(1);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let one =
                        ask(manager, &omniheap_request_default(64 + round * 16)).expect("room");
                    assert_eq!(write(one, &[thread; 64]), Status::Ok);
                    assert_eq!(read(one, 64), [thread; 64]);
                    assert_eq!(omniheap_free(one), Status::Ok);
                    assert_eq!(omniheap_free(one), Status::Stale);
                }
            });
        }
    });
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn a_read_that_fails_touches_nothing_of_the_callers() {
    let manager = open(0);
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    let mut bytes = [7u8; 8];
    for (offset, size, why) in [
        (4090, 8, Status::OutOfRange),
        (4097, 0, Status::OutOfRange),
        (0, 1 << 60, Status::OutOfRange),
        (u64::MAX, 8, Status::SizeOverflow),
    ] {
        let status = c!(omniheap_read(made, offset, bytes.as_mut_ptr().cast(), size));
        assert_eq!((status, bytes), (why, [7; 8]), "{offset} and {size}");
    }
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn a_manager_records_what_it_does_until_it_is_closed() {
    let path = std::env::temp_dir().join(format!("omniheap-c-{}.trace", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
    let config = OmniheapConfig { trace: name.as_ptr(), ..omniheap_config_default() };
    let mut manager = OmniheapManager { id: 0 };
    assert_eq!(
        c!(omniheap_open(c"host".as_ptr(), 0, &raw const config, &raw mut manager)),
        Status::Ok
    );
    let made = ask(manager, &omniheap_request_default(4096)).expect("small");
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
    let trace = omniheap::trace::Trace::open(&path).expect("a whole trace");
    assert_eq!((trace.allocations(), trace.summary().peak_live_bytes), (1, 4096));
    std::fs::remove_file(&path).expect("written above");
    std::fs::write(&path, "precious").expect("a file to keep");
    let absent = c!(omniheap_open(c"host".as_ptr(), 7, &raw const config, &raw mut manager));
    assert_eq!(absent, Status::Unsupported);
    let to_nothing = c!(omniheap_open(c"host".as_ptr(), 0, &raw const config, ptr::null_mut()));
    assert_eq!(to_nothing, Status::NullArgument);
    assert_eq!(std::fs::read(&path).expect("kept"), b"precious", "a failed call changes nothing");
    std::fs::remove_file(path).expect("written above");
    let nowhere = OmniheapConfig { trace: c"/no/such/folder/x".as_ptr(), ..config };
    let status = c!(omniheap_open(c"host".as_ptr(), 0, &raw const nowhere, &raw mut manager));
    assert_eq!(status, Status::File);
}

#[test]
fn a_page_replaces_a_file_only_once_it_is_whole() {
    let folder = std::env::temp_dir().join(format!("omniheap-c-page-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let (path, before) = (folder.join("page.html"), folder.join("before"));
    std::fs::write(&path, "precious").expect("a file to replace");
    std::fs::hard_link(&path, &before).expect("two names of one file");
    let name = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
    let manager = open(0);
    assert_eq!(c!(omniheap_report_html(manager, name.as_ptr())), Status::Ok, "{}", message());
    assert!(std::fs::read_to_string(&path).expect("a page").contains("<html"));
    let kept = std::fs::read(&before).expect("a file");
    assert!(kept == b"precious", "a page that is not finished would have destroyed it");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 2, "nothing else is left");
    let nowhere = c"/no/such/folder/x.html".as_ptr();
    assert_eq!(c!(omniheap_report_html(manager, nowhere)), Status::File);
    assert_eq!(omniheap_close(manager), Status::Ok);
    std::fs::remove_dir_all(folder).expect("made above");
}
