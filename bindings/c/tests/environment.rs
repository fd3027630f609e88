//! Environment variables hold for C programs too: limits, and an arbiter whose tenant the process becomes. Every story
//! is told by a process of its own, which has the variable set from its start.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls C functions")]
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use omniheap::arbiter::{Order, Policy, Server, VARIABLE, order, tenants};
use omniheap_c::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
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

/// The socket of the arbiter of device 0.
fn socket() -> PathBuf {
    std::env::var(VARIABLE).expect("the test set it").replace("%d", "0").into()
}

fn held() -> Option<u64> {
    let pid = u64::from(std::process::id());
    let all = tenants(&socket()).expect("it answers");
    all.into_iter().find(|tenant| tenant.pid == pid).map(|tenant| tenant.held)
}

#[test]
fn a_c_program_is_a_tenant() {
    let path_of = |device: &str| {
        std::env::temp_dir().join(format!("ohc-{}-{device}.sock", std::process::id()))
    };
    let path = path_of("0");
    let policy = Policy::parse("capacity = \"192MiB\"", None).expect("a policy");
    let mut server = Server::bind(&path, policy, None).expect("a socket");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| server.run(|| stop.load(Ordering::Relaxed)).expect("it serves"));
        let _stop = Stop(&stop);
        alone("a_c_program_is_a_tenant", VARIABLE, &path_of("%d"), is_a_tenant);
    });
    let _ = std::fs::remove_file(path.with_extension("sock.lock"));
}

/// Checks that memory the process takes is counted, that empty memory goes back when it is pressed, and that nothing is
/// left when it is closed.
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
    assert!((0..60_000).any(pressed), "still held: {:?}", held());
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
    assert!((0..60_000).any(gone), "still held: {:?}", held());
}

/// Runs `part` of the story of a test in a process of its own, with the arbiter at `path`.
fn tell(name: &str, path: &Path, part: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(PART, part).env(VARIABLE, path);
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{part}: {said}");
}

/// Names the part that a process tells.
const PART: &str = "OMNIHEAP_TEST_PART";

#[test]
fn c_programs_publish_and_attach() {
    match std::env::var(PART).as_deref() {
        Ok("publishes") => return publishes(),
        Ok("attaches") => return attaches(),
        _ => {}
    }
    let path = std::env::temp_dir().join(format!("ohcs-{}.sock", std::process::id()));
    let policy = Policy::parse("capacity = \"64MiB\"", None).expect("a policy");
    let mut server = Server::bind(&path, policy, None).expect("a socket");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| server.run(|| stop.load(Ordering::Relaxed)).expect("it serves"));
        let _stop = Stop(&stop);
        tell("c_programs_publish_and_attach", &path, "publishes");
        tell("c_programs_publish_and_attach", &path, "attaches");
    });
    let _ = std::fs::remove_file(path.with_extension("sock.lock"));
}

fn weights() -> Vec<u8> {
    (0..9 * MIB).map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect()
}

fn publish(manager: OmniheapManager, name: &CStr, bytes: &[u8]) -> Status {
    let (name, start) = (name.as_ptr(), bytes.as_ptr().cast());
    // SAFETY: a C string, and memory of this length.
    unsafe { omniheap_share_publish(manager, OMNIHEAP_ANY, name, start, bytes.len()) }
}

fn attach(manager: OmniheapManager, name: &CStr) -> Result<OmniheapAttached, Status> {
    let mut attached = OmniheapAttached { id: 0 };
    // SAFETY: a C string, and a place for the handle.
    match unsafe { omniheap_share_attach(manager, OMNIHEAP_ANY, name.as_ptr(), &raw mut attached) }
    {
        Status::Ok => Ok(attached),
        refused => Err(refused),
    }
}

fn publishes() {
    let manager = open(c"host").expect("it is there");
    assert_eq!(publish(manager, c"model", &weights()), Status::Ok, "{}", message());
    assert_eq!(publish(manager, c"model", &weights()), Status::NameTaken);
    assert_eq!(publish(manager, c"a/b", &weights()), Status::InvalidArgument);
    assert_eq!(publish(manager, c"none", &[]), Status::ZeroSize);
    assert_eq!(publish(manager, c"large", &vec![0; 65 << 20]), Status::ExceedsLimit);
    // SAFETY: a null pointer is refused.
    let null = unsafe { omniheap_share_publish(manager, 0, c"x".as_ptr(), ptr::null(), 1) };
    assert_eq!(null, Status::NullArgument);
    assert_eq!(
        held(),
        Some(0),
        "what is published counts for nobody, and a refusal leaves nothing"
    );
    assert_eq!(omniheap_close(manager), Status::Ok);
}

fn attaches() {
    let manager = open(c"host").expect("it is there");
    assert_eq!(attach(manager, c"nothing").err(), Some(Status::NotPublished));
    let attached =
        attach(manager, c"model").unwrap_or_else(|status| panic!("{status:?}: {}", message()));
    let (mut address, mut length) = (0, 0);
    // SAFETY: places for two numbers.
    let placed = unsafe { omniheap_share_place(attached, &raw mut address, &raw mut length) };
    assert_eq!((placed, length), (Status::Ok, 9 * MIB));
    let (wanted, mut found) = (weights(), vec![0; 9 << 20]);
    let read = |offset, bytes: &mut [u8]| {
        let (start, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: memory of this length.
        unsafe { omniheap_share_read(attached, offset, start, length) }
    };
    assert_eq!(read(0, &mut found), Status::Ok);
    assert!(found == wanted, "the bytes of a process that has ended");
    let mut beyond = [7; 2];
    assert_eq!(read(9 * MIB - 1, &mut beyond), Status::OutOfRange);
    assert_eq!((read(u64::MAX, &mut beyond), beyond), (Status::OutOfRange, [7; 2]));
    assert_eq!(omniheap_share_check(attached), Status::Ok);
    let first = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(address).expect("small"));
    // SAFETY: attached host memory. Programs must not write it; this one shows that it is noticed.
    unsafe { first.write(wanted[0] ^ 1) };
    assert_eq!(omniheap_share_check(attached), Status::Changed);
    assert_eq!(omniheap_close(manager), Status::Busy, "something is attached");
    assert_eq!(omniheap_share_detach(attached), Status::Ok);
    assert_eq!(omniheap_share_detach(attached), Status::Stale);
    assert_eq!(omniheap_share_check(OmniheapAttached { id: 0 }), Status::Stale);
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_share_withdraw(manager, c"model".as_ptr()) }, Status::Ok);
    assert_eq!(attach(manager, c"model").err(), Some(Status::NotPublished));
    assert_eq!(omniheap_close(manager), Status::Ok);
}

/// Threads of this process that prepare memory for sleeps. One that has been joined can still be listed for a moment:
/// the kernel wakes who joins it before it takes it from the list, but says from before then that it exits.
fn preparing() -> usize {
    const EXITING: u32 = 4; // PF_EXITING
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let runs = |stat: &String| {
        // Number, (name), state, four numbers more, and the flags.
        let (name, fields) =
            stat.split_once('(').expect("a name").1.rsplit_once(") ").expect("all");
        let flags = fields.split(' ').nth(6).and_then(|flags| flags.parse::<u32>().ok());
        name == "omniheap-arena" && flags.expect("a number") & EXITING == 0
    };
    stats.filter(runs).count()
}

#[test]
fn a_manager_that_is_closed_leaves_no_thread_that_uses_its_device() {
    const NAME: &str = "a_manager_that_is_closed_leaves_no_thread_that_uses_its_device";
    alone(NAME, "OMNIHEAP_TEST_PREPARES", Path::new("1"), || {
        let manager = open(c"host").expect("it is there");
        assert_eq!(omniheap_sleep_prepare(manager, 2 << 30, 0), Status::Ok);
        assert_eq!(omniheap_sleep_prepare(manager, 3 << 30, 0), Status::Ok);
        assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
        assert_eq!(preparing(), 0, "they have ended");
    });
}

/// Closes the manager that an arbiter's press shrinks, from its own callback.
unsafe extern "C" fn close_when_pressed(_: u32, _: u64, _: u64, user: *mut c_void) -> u32 {
    // SAFETY: the test passes its own.
    let (manager, live, told) = unsafe { user.cast::<Pressed>().as_ref() }.expect("not null");
    told.lock().expect("nobody panics with it").get_or_insert_with(|| {
        assert_eq!(omniheap_free(*live), Status::Ok);
        (omniheap_close(*manager), message())
    });
    0
}

/// A manager, all that is live in it, and what its callback was told.
type Pressed = (OmniheapManager, OmniheapAllocation, Mutex<Option<(Status, String)>>);

#[test]
fn a_press_that_calls_back_keeps_its_manager() {
    let path_of = |device: &str| {
        std::env::temp_dir().join(format!("ohp-{}-{device}.sock", std::process::id()))
    };
    let path = path_of("0");
    let policy = Policy::parse("capacity = \"192MiB\"", None).expect("a policy");
    let mut server = Server::bind(&path, policy, None).expect("a socket");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| server.run(|| stop.load(Ordering::Relaxed)).expect("it serves"));
        let _stop = Stop(&stop);
        alone("a_press_that_calls_back_keeps_its_manager", VARIABLE, &path_of("%d"), || {
            let manager = open(c"host").expect("it is there");
            let live = allocate(manager, 8 * MIB).expect("it fits");
            let pressed: Pressed = (manager, live, Mutex::new(None));
            let user = (&raw const pressed).cast_mut().cast::<c_void>();
            // SAFETY: the callback's own pair, which lives on.
            let set = unsafe { omniheap_on_pressure(manager, Some(close_when_pressed), user) };
            assert_eq!(set, Status::Ok);
            order(&socket(), Order::Sleep { pid: std::process::id() }).expect("one's own process");
            let told = || pressed.2.lock().expect("nobody panics with it").clone();
            let heard = |_| {
                thread::sleep(Duration::from_millis(2));
                told().is_some()
            };
            assert!((0..60_000).any(heard), "the callback was not called");
            let (status, said) = told().expect("it was heard");
            assert_eq!(status, Status::Busy);
            assert!(said.contains("another call uses the manager"), "{said}");
            assert_eq!(omniheap_close(manager), Status::Ok, "behind the press: {}", message());
        });
    });
    let _ = std::fs::remove_file(path.with_extension("sock.lock"));
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
    alone("a_limit_holds", "OMNIHEAP_LIMIT", Path::new("0=16MiB,1=64MiB"), || {
        let manager = open(c"host").expect("it is there");
        assert_eq!(allocate(manager, 17 * MIB).err(), Some(Status::OverBudget));
        allocate(manager, 8 * MIB).expect("it fits");
    });
}
