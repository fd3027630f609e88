//! Tests of everything that a request can say, and of the words of every error.
use super::*;
use omniheap::ErrorKind;
use std::collections::HashSet;

/// A text that a C function returns.
fn json(get: impl Fn(*mut core::ffi::c_char, usize, *mut usize) -> Status) -> serde_json::Value {
    let (mut buffer, mut length) = (vec![0; 4096], 0);
    assert_eq!(
        get(buffer.as_mut_ptr(), buffer.len(), &raw mut length),
        Status::Ok,
        "{}",
        message()
    );
    let text: Vec<u8> = buffer[..length].iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    serde_json::from_slice(&text).expect("JSON")
}

fn placed(manager: OmniheapManager, made: OmniheapAllocation) -> serde_json::Value {
    json(|buffer, capacity, length| {
        c!(omniheap_placement_json(manager, made, buffer, capacity, length))
    })
}

#[test]
fn every_kind_of_error_has_a_status_of_its_own() {
    let statuses: HashSet<i32> =
        ErrorKind::ALL.into_iter().map(|kind| Status::from(kind) as i32).collect();
    assert_eq!(statuses.len(), ErrorKind::ALL.len(), "two kinds share a status");
    assert!(!statuses.contains(&(Status::Ok as i32)));
}

#[test]
fn the_version_is_read_as_the_header_says() {
    let part = |text: &str| text.parse::<u32>().expect("a number");
    let [major, minor, patch] = [16, 8, 0].map(|bit| omniheap_version() >> bit & 255);
    assert_eq!(major, part(env!("CARGO_PKG_VERSION_MAJOR")));
    assert_eq!(minor, part(env!("CARGO_PKG_VERSION_MINOR")));
    assert_eq!(patch, part(env!("CARGO_PKG_VERSION_PATCH")));
    assert_eq!(omniheap_version(), OMNIHEAP_VERSION);
}

#[test]
fn published_bytes_are_read_and_not_written() {
    let manager = open(1);
    let made = ask(manager, &omniheap_request_default(64)).expect("small");
    assert_eq!(write(made, &[7; 64]), Status::Ok);
    assert_eq!(omniheap_publish(made), Status::Ok);
    assert_eq!(write(made, &[8; 64]), Status::Published);
    assert!(message().contains("allocate new ones"), "{}", message());
    assert_eq!(omniheap_fill(made, 0, 64, 9), Status::Published);
    assert_eq!(read(made, 64), [7; 64]);
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_publish(made), Status::Stale);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

fn budget_all_but_staging(manager: OmniheapManager, bytes: u64) {
    let (mut count, mut heap) = (0, OmniheapHeap::default());
    assert_eq!(c!(omniheap_heap_count(manager, &raw mut count)), Status::Ok);
    for number in 0..count {
        assert_eq!(c!(omniheap_heap(manager, number, &raw mut heap)), Status::Ok);
        if heap.kind != OMNIHEAP_KIND_STAGING {
            assert_eq!(omniheap_set_budget(manager, number, bytes, bytes), Status::Ok);
        }
    }
}

#[test]
fn a_request_that_may_spill_says_where_it_went() {
    let manager = open(1);
    let request = omniheap_request_default(1 << 20);
    let made = ask(manager, &request).expect("small");
    let why = placed(manager, made);
    assert_eq!((&why["region"], &why["rung"]), (&"device".into(), &"driver".into()), "{why}");
    budget_all_but_staging(manager, 4 << 20);
    let large = OmniheapRequest { size: 16 << 20, ..request };
    assert_eq!(ask(manager, &large).err(), Some(Status::OverBudget));
    let spilling = OmniheapRequest { flags: OMNIHEAP_MAY_SPILL, ..large };
    let spilled = ask(manager, &spilling).expect("host memory has room");
    let why = placed(manager, spilled);
    assert_eq!((&why["region"], &why["rung"]), (&"staging".into(), &"spill".into()), "{why}");
    assert!(why["reason"].as_str().is_some_and(|why| why.contains("spill")), "{why}");
    let other = open(1);
    let mut length = 0;
    let foreign = c!(omniheap_placement_json(other, spilled, ptr::null_mut(), 0, &raw mut length));
    assert_eq!(foreign, Status::Foreign);
    for status in [omniheap_free(made), omniheap_free(spilled)] {
        assert_eq!(status, Status::Ok);
    }
    assert_eq!((omniheap_close(manager), omniheap_close(other)), (Status::Ok, Status::Ok));
}

#[test]
fn zeroed_and_secret_bytes_leave_nothing_behind() {
    let manager = open(0);
    let secret = OmniheapRequest { flags: OMNIHEAP_SECRET, ..omniheap_request_default(4096) };
    let first = ask(manager, &secret).expect("small");
    assert_eq!(write(first, &[0xab; 4096]), Status::Ok);
    assert_eq!(omniheap_free(first), Status::Ok);
    let second = ask(manager, &omniheap_request_default(4096)).expect("small");
    assert_eq!(read(second, 4096), [0; 4096], "the secret was wiped");
    assert_eq!(write(second, &[0xcd; 4096]), Status::Ok);
    assert_eq!(omniheap_free(second), Status::Ok);
    let zeroed = OmniheapRequest { flags: OMNIHEAP_ZEROED, ..omniheap_request_default(4096) };
    let third = ask(manager, &zeroed).expect("small");
    assert_eq!(read(third, 4096), [0; 4096]);
    assert_eq!(omniheap_free(third), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn pools_and_managers_say_when_they_wait() {
    let config = OmniheapConfig { waiting: 9, ..omniheap_config_default() };
    let mut manager = OmniheapManager { id: 0 };
    let status = c!(omniheap_open(c"host".as_ptr(), 0, &raw const config, &raw mut manager));
    assert_eq!(status, Status::InvalidArgument);
    let config = OmniheapConfig { waiting: OMNIHEAP_WAITING_THRIFT, ..config };
    let status = c!(omniheap_open(c"host".as_ptr(), 0, &raw const config, &raw mut manager));
    assert_eq!(status, Status::Ok);
    assert_eq!(omniheap_set_waiting(manager, OMNIHEAP_WAITING_LAST_RESORT), Status::Ok);
    assert_eq!(omniheap_set_waiting(manager, OMNIHEAP_WAITING_THRIFT), Status::Ok);
    assert_eq!(omniheap_set_waiting(manager, 2), Status::InvalidArgument);
    let config = OmniheapPoolConfig {
        paged: 1,
        waiting: OMNIHEAP_WAITING_THRIFT,
        lanes: 1,
        ..omniheap_pool_config_default()
    };
    let mut pool = OmniheapPool { id: 0 };
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    assert_eq!(omniheap_pool_destroy(pool), Status::Ok);
    let wrong = OmniheapPoolConfig { waiting: 7, ..config };
    let status = c!(omniheap_pool_create(manager, 0, &raw const wrong, &raw mut pool));
    assert_eq!(status, Status::InvalidArgument);
    assert_eq!(omniheap_close(manager), Status::Ok);
}
