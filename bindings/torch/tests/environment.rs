//! Environment variables hold for PyTorch and CuPy too: limits, and an arbiter whose tenant the process becomes. Every
//! story is told by a process of its own, because a process opens its devices once.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls C functions")]
mod arbiter;

use arbiter::{Arbiter, MIB, allocate, configure, error, tell_story};
use core::ffi::{c_int, c_void};
use core::ptr;
use omniheap_torch::*;
use std::process::Command;

/// Tells a story in a process of its own with a variable set: runs the test `name`, which calls this, once more.
fn alone(name: &str, variable: &str, value: &str, story: impl Fn()) {
    const IS_ALONE: &str = "OMNIHEAP_TEST_ALONE";
    if std::env::var_os(IS_ALONE).is_some() {
        return story();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(IS_ALONE, "1").env(variable, value);
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn pytorch_and_cupy_are_tenants() {
    let arbiter = Arbiter::start("host");
    let (name, path) = ("pytorch_and_cupy_are_tenants", arbiter.variable());
    alone(name, "OMNIHEAP_ARBITER", &path, || tell_story(c"host"));
}

#[test]
fn without_its_arbiter_nothing_is_allocated() {
    let name = "without_its_arbiter_nothing_is_allocated";
    alone(name, "OMNIHEAP_ARBITER", "/nowhere/%d.sock", || {
        configure(c"host");
        assert!(allocate(MIB).is_null());
        assert!(error().contains("OMNIHEAP_ARBITER names no arbiter"), "{}", error());
    });
}

#[test]
fn a_limit_holds_by_device() {
    alone("a_limit_holds_by_device", "OMNIHEAP_LIMIT", "0=16MiB,1=64MiB", || {
        configure(c"host");
        assert!(allocate(17 * MIB).is_null());
        assert!(!allocate(8 * MIB).is_null());
        // SAFETY: to the host backend a stream is a number.
        let other = unsafe { omniheap_torch_alloc(17 * MIB, 1, ptr::null_mut()) };
        assert!(!other.is_null(), "device 1 has a limit of its own");
    });
}

#[test]
fn a_limit_that_is_no_size_is_an_error() {
    alone("a_limit_that_is_no_size_is_an_error", "OMNIHEAP_LIMIT", "lots", || {
        configure(c"host");
        assert!(allocate(MIB).is_null());
        assert!(error().contains("OMNIHEAP_LIMIT is no size"), "{}", error());
    });
}

/// Fills memory with the byte that `user` points to.
unsafe extern "C" fn fill(bytes: *mut c_void, length: usize, user: *mut c_void) -> c_int {
    // SAFETY: the test passes a byte, or nothing.
    let Some(byte) = (unsafe { user.cast::<u8>().as_ref() }) else { return 1 };
    // SAFETY: so much memory is to be filled.
    unsafe { bytes.cast::<u8>().write_bytes(*byte, length) };
    0
}

fn publishes_and_attaches() {
    configure(c"host");
    let mut byte = 5_u8;
    let (name, length, byte) = (c"model".as_ptr(), 3_u64 << 20, (&raw mut byte).cast());
    // SAFETY: C strings, and a function that takes what is passed with it.
    let publish = |user| unsafe { omniheap_share_publish(0, name, length, Some(fill), user) };
    assert_eq!((publish(ptr::null_mut()), publish(byte), publish(byte)), (-1, 0, 2));
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_share_publish(0, name, 1, None, byte) }, -1);
    let attach = |name: &core::ffi::CStr| {
        let mut attached = Attachment::default();
        // SAFETY: a C string, and room for the answer.
        let code = unsafe { omniheap_share_attach(0, name.as_ptr(), &raw mut attached) };
        (code, attached)
    };
    assert_eq!(attach(c"nothing").0, 1);
    // SAFETY: as above.
    assert_eq!(unsafe { omniheap_share_attach(0, name, ptr::null_mut()) }, -1);
    let [(_, first), (code, second)] = [attach(c"model"), attach(c"model")];
    assert_eq!((code, first.length, second.id), (0, length, first.id + 1), "{}", error());
    let mut read = [0_u8; 2];
    // SAFETY: room for two bytes.
    let mut read_at = |at| unsafe { omniheap_share_read(first.id, at, read.as_mut_ptr(), 2) };
    assert_eq!((read_at(length - 2), read_at(length - 1)), (0, -1));
    assert_eq!((read, omniheap_share_check(first.id)), ([5; 2], 0));
    let first_byte = usize::try_from(first.address).expect("an address");
    let start = ptr::with_exposed_provenance_mut::<u8>(first_byte);
    // SAFETY: attached host memory. Programs must not write it; this one shows that it is noticed.
    unsafe { start.write(6) };
    assert_eq!(omniheap_share_check(first.id), 3);
    for one in [first, second] {
        assert_eq!((omniheap_share_detach(one.id), omniheap_share_detach(one.id)), (0, -1));
    }
    // SAFETY: a C string.
    let withdraw = || unsafe { omniheap_share_withdraw(0, name) };
    assert_eq!((withdraw(), withdraw()), (0, 1));
}

#[test]
fn weights_are_published_and_attached() {
    let arbiter = Arbiter::start("share");
    let (name, path) = ("weights_are_published_and_attached", arbiter.variable());
    alone(name, "OMNIHEAP_ARBITER", &path, publishes_and_attaches);
}

#[test]
fn a_process_sets_its_own_quota() {
    let arbiter = Arbiter::start("quota");
    let (name, path) = ("a_process_sets_its_own_quota", arbiter.variable());
    alone(name, "OMNIHEAP_ARBITER", &path, || {
        let quota = |bytes| {
            let mut previous = 7;
            // SAFETY: room for the answer.
            let code = unsafe { omniheap_share_quota(0, bytes, &raw mut previous) };
            assert_eq!(code, 0, "{}", error());
            previous
        };
        let usual = quota(0);
        assert_eq!((quota(16 << 20), quota(0)), (usual, 16 << 20));
        // SAFETY: nothing is to be written.
        assert_eq!(unsafe { omniheap_share_quota(0, 1, ptr::null_mut()) }, 0);
        assert_eq!(quota(0), 1, "one byte is a quota");
    });
}

#[test]
fn a_fork_allocates_nothing() {
    alone("a_fork_allocates_nothing", "OMNIHEAP_LIMIT", "64MiB", || {
        configure(c"host");
        assert!(!allocate(MIB).is_null());
        // SAFETY: the child only calls functions that refuse at once, and ends without a word.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = allocate(MIB).is_null()
                && (omniheap_torch_set_limit(0, 1), omniheap_share_check(1)) == (-1, -1);
            let is_told = error().contains("spawn");
            // SAFETY: it ends this process alone.
            unsafe { libc::_exit(if refused && is_told { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: the child of above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the fork was refused with a reason");
    });
}
