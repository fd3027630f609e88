//! An arbiter for the life of a test, and what a tenant of it does.
#![expect(unsafe_code, reason = "calls C functions")]
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use omniheap::arbiter::frame::TenantInfo;
use omniheap::arbiter::{Order, Policy, Server, VARIABLE, order, tenants};
use omniheap_torch::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub(crate) const MIB: isize = 1 << 20;
/// Bytes that the arbiter divides.
const CAPACITY: &str = "192MiB";

/// An arbiter on a thread, which ends with it.
pub(crate) struct Arbiter {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Arbiter {
    pub(crate) fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("oht-{}-{name}.sock", std::process::id()));
        let policy = Policy::parse(&format!("capacity = \"{CAPACITY}\""), None).expect("a policy");
        let mut server = Server::bind(&path, policy, None).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || server.run(|| stopped.load(Ordering::Relaxed)).expect("it serves");
        Self { path, stop, thread: Some(thread::spawn(run)) }
    }

    /// The value of the variable that names it.
    pub(crate) fn variable(&self) -> String {
        self.path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
        let mut lock = self.path.clone().into_os_string();
        lock.push(".lock");
        let _ = std::fs::remove_file(lock);
    }
}

pub(crate) fn configure(backend: &CStr) {
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_configure(backend.as_ptr(), 0, 1) }, 0);
}

pub(crate) fn allocate(size: isize) -> *mut c_void {
    // SAFETY: null is the default stream.
    unsafe { omniheap_torch_alloc(size, 0, ptr::null_mut()) }
}

pub(crate) fn error() -> String {
    // SAFETY: the library's texts are C strings, good until the next call.
    unsafe { CStr::from_ptr(omniheap_torch_error()) }.to_string_lossy().into_owned()
}

/// This process as the arbiter sees it.
fn own() -> TenantInfo {
    let path = PathBuf::from(std::env::var_os(VARIABLE).expect("the test set it"));
    let pid = u64::from(std::process::id());
    let all = tenants(&path).expect("it answers");
    all.into_iter().find(|tenant| tenant.pid == pid).expect("this process is a tenant")
}

/// A process that became a tenant without a word of its own: what it takes is counted, what it keeps empty goes back when it is pressed,
/// and what the device does not have is refused.
pub(crate) fn tell_story(backend: &CStr) {
    configure(backend);
    let (live, empty) = (allocate(8 * MIB), allocate(64 * MIB));
    assert!(!live.is_null() && !empty.is_null(), "{}", error());
    let taken = own().held;
    assert!(taken >= 72 << 20, "{taken}");
    // SAFETY: as above.
    let cupy = unsafe { omniheap_stream_alloc(ptr::null_mut(), 32 << 20, 0) };
    assert!(own().held >= taken + (32 << 20), "CuPy takes from the same device");
    omniheap_stream_free(ptr::null_mut(), cupy, 0);
    omniheap_torch_free(empty, 64 << 20, 0, ptr::null_mut());
    assert!(own().held >= taken, "what is kept empty is held");
    let path = PathBuf::from(std::env::var_os(VARIABLE).expect("the test set it"));
    order(&path, Order::Sleep { pid: std::process::id() }).expect("one's own process");
    let pressed = |_| {
        thread::sleep(Duration::from_millis(2));
        own().held < taken - (60 << 20)
    };
    assert!((0..60_000).any(pressed), "still held: {}", own().held);
    assert!(own().held >= 8 << 20, "what is live stays");
    assert!(allocate(300 * MIB).is_null(), "the device has less");
    assert!(!allocate(64 * MIB).is_null(), "{}", error());
}
