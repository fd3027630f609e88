//! What the environment says holds for PyTorch and CuPy too: limits, and an arbiter whose tenant the process becomes. Every story is told by a
//! process of its own, because a process opens its devices once.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls C functions")]
mod arbiter;

use arbiter::{Arbiter, MIB, allocate, configure, error, tell_story};
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
        let other = unsafe { omniheap_torch_alloc(17 * MIB, 1, core::ptr::null_mut()) };
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
