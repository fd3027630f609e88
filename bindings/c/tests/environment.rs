//! What the environment says holds for C programs too: limits, and an arbiter whose tenant the process becomes. Every story is told by a process
//! of its own, which has the variable set from its start.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls C functions")]
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use omniheap::arbiter::{Order, Policy, Server, VARIABLE, order, tenants};
use omniheap_c::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use OmniheapStatus as Status;

const MIB: u64 = 1 << 20;

/// Tells a story in a process of its own with a variable set: runs the test `name`, which calls this, once more.
fn alone(name: &str, variable: &str, value: &Path, story: impl Fn()) {
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

/// Ends an arbiter although a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn open(backend: &CStr) -> Result<OmniheapManager, Status> {
    let mut manager = OmniheapManager { id: 0 };
    // SAFETY: a C string, no settings, and a place for the handle.
    match unsafe { omniheap_open(backend.as_ptr(), 0, ptr::null(), &raw mut manager) } {
        Status::Ok => Ok(manager),
        refused => Err(refused),
    }
}

fn allocate(manager: OmniheapManager, size: u64) -> Result<OmniheapAllocation, Status> {
    // Device memory, and no other: that alone is limited and divided.
    let request = OmniheapRequest { heap: 0, ..omniheap_request_default(size) };
    let mut made = OmniheapAllocation { id: 0 };
    // SAFETY: a request, and a place for the handle.
    match unsafe { omniheap_allocate(manager, &raw const request, &raw mut made) } {
        Status::Ok => Ok(made),
        refused => Err(refused),
    }
}

fn message() -> String {
    // SAFETY: the library's messages are C strings, good until the next failed call.
    unsafe { CStr::from_ptr(omniheap_error()) }.to_string_lossy().into_owned()
}

fn socket() -> PathBuf {
    std::env::var_os(VARIABLE).expect("the test set it").into()
}

fn held() -> Option<u64> {
    let pid = u64::from(std::process::id());
    let all = tenants(&socket()).expect("it answers");
    all.into_iter().find(|tenant| tenant.pid == pid).map(|tenant| tenant.held)
}

#[test]
fn a_c_program_is_a_tenant() {
    let path = std::env::temp_dir().join(format!("ohc-{}.sock", std::process::id()));
    let policy = Policy::parse("capacity = \"192MiB\"", None).expect("a policy");
    let mut server = Server::bind(&path, policy, None).expect("a socket");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| server.run(|| stop.load(Ordering::Relaxed)).expect("it serves"));
        let _stop = Stop(&stop);
        alone("a_c_program_is_a_tenant", VARIABLE, &path, is_a_tenant);
    });
    let _ = std::fs::remove_file(path.with_extension("sock.lock"));
}

/// What it takes is counted, what it keeps empty goes back when it is pressed, and nothing is left when it is closed.
fn is_a_tenant() {
    let manager = open(c"host").expect("it is there");
    let (live, empty) = (allocate(manager, 8 * MIB), allocate(manager, 64 * MIB));
    let taken = held().expect("this process is a tenant");
    assert!(taken >= 72 * MIB, "{taken}");
    assert_eq!(omniheap_free(empty.expect("it fits")), Status::Ok);
    order(&socket(), Order::Sleep { pid: std::process::id() }).expect("one's own process");
    let pressed = |_| {
        thread::sleep(Duration::from_millis(2));
        held().is_some_and(|held| held < taken - 60 * MIB)
    };
    assert!((0..5000).any(pressed), "still held: {:?}", held());
    let refused = allocate(manager, 300 * MIB).err();
    assert!(
        matches!(refused, Some(Status::ExceedsLimit | Status::OutOfDeviceMemory)),
        "{refused:?}"
    );
    assert_eq!(omniheap_free(live.expect("it fits")), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
    // The last device of a process that is closed ends its tenancy, after what it held was given back.
    let gone = |_| {
        thread::sleep(Duration::from_millis(2));
        held().unwrap_or(0) == 0
    };
    assert!((0..5000).any(gone), "still held: {:?}", held());
}

#[test]
fn without_its_arbiter_no_device_is_opened() {
    alone(
        "without_its_arbiter_no_device_is_opened",
        VARIABLE,
        Path::new("/nowhere/%d.sock"),
        || {
            assert_eq!(open(c"host"), Err(Status::InvalidConfig));
            assert!(message().contains("OMNIHEAP_ARBITER names no arbiter"), "{}", message());
        },
    );
}

#[test]
fn a_limit_that_is_no_size_is_an_error() {
    alone("a_limit_that_is_no_size_is_an_error", "OMNIHEAP_LIMIT", Path::new("lots"), || {
        for backend in [c"host", c"vulkan"] {
            let refused = open(backend).err();
            assert!(
                matches!(refused, Some(Status::InvalidConfig | Status::Unsupported)),
                "{refused:?}"
            );
        }
        assert_eq!(open(c"host"), Err(Status::InvalidConfig));
        assert!(message().contains("OMNIHEAP_LIMIT is no size"), "{}", message());
    });
}

#[test]
fn a_limit_holds() {
    alone("a_limit_holds", "OMNIHEAP_LIMIT", Path::new("16MiB"), || {
        let manager = open(c"host").expect("it is there");
        assert_eq!(allocate(manager, 17 * MIB).err(), Some(Status::OverBudget));
        allocate(manager, 8 * MIB).expect("it fits");
    });
}
