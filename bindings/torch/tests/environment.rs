//! What the environment says holds for PyTorch and CuPy too: limits, and an arbiter whose tenant the process becomes. Every story is told by a
//! process of its own, because a process opens its devices once.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls C functions")]
mod arbiter;

use arbiter::{Arbiter, MIB, allocate, configure, error, tell_story};
use omniheap_torch::*;
use std::process::Command;

/// Runs one story of this file in a process with a variable set.
fn run(story: &str, variable: &str, value: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", story, "--ignored"]).env(variable, value);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn pytorch_and_cupy_are_tenants() {
    let arbiter = Arbiter::start("host");
    run("a_tenant_on_the_host", "OMNIHEAP_ARBITER", &arbiter.variable());
}

#[test]
#[ignore = "a story: run by pytorch_and_cupy_are_tenants"]
fn a_tenant_on_the_host() {
    tell_story(c"host");
}

#[test]
fn without_its_arbiter_nothing_is_allocated() {
    run("no_arbiter", "OMNIHEAP_ARBITER", "/nowhere/%d.sock");
}

#[test]
#[ignore = "a story: run by without_its_arbiter_nothing_is_allocated"]
fn no_arbiter() {
    configure(c"host");
    assert!(allocate(MIB).is_null());
    assert!(error().contains("OMNIHEAP_ARBITER names no arbiter"), "{}", error());
}

#[test]
fn a_limit_holds_by_device() {
    run("limited", "OMNIHEAP_LIMIT", "0=16MiB,1=64MiB");
}

#[test]
#[ignore = "a story: run by a_limit_holds_by_device"]
fn limited() {
    configure(c"host");
    assert!(allocate(17 * MIB).is_null());
    assert!(!allocate(8 * MIB).is_null());
    // SAFETY: to the host backend a stream is a number.
    let other = unsafe { omniheap_torch_alloc(17 * MIB, 1, core::ptr::null_mut()) };
    assert!(!other.is_null(), "device 1 has a limit of its own");
}

#[test]
fn a_limit_that_is_no_size_is_an_error() {
    run("nonsense", "OMNIHEAP_LIMIT", "lots");
}

#[test]
#[ignore = "a story: run by a_limit_that_is_no_size_is_an_error"]
fn nonsense() {
    configure(c"host");
    assert!(allocate(MIB).is_null());
    assert!(error().contains("OMNIHEAP_LIMIT is no size"), "{}", error());
}
