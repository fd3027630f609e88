//! Managers over host memory as tenants: real pages, in real processes.
#![expect(unsafe_code, reason = "forks, and handles signals")]
use crate::support::{Arbiter, MIB, Process, listen, often, path, say};
use core::time::Duration;
use omniheap_arbiter::frame::Tell;
use omniheap_arbiter::{ArbiterError, Arbitrated, Tenant, arbitrated, tenants};
use omniheap_core::{Backend, ErrorKind, HeapId, Manager, Relief, Request};
use omniheap_host::{Host, real_devices};
use omniheap_layers::{Fault, Plan};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, send,
    socket_with,
};
use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

const HEAP: HeapId = HeapId(0);

fn manager(socket: &Path) -> (Manager<Arbitrated<Host>>, Arc<Tenant>) {
    let tenant = Tenant::shared(socket).expect("a tenant");
    (Manager::new(arbitrated(Host::new(), Arc::clone(&tenant))), tenant)
}

fn request(mib: u64) -> Request<'static> {
    Request::new(mib * MIB).heap(HEAP)
}

/// The usual host device, and each real one. The first heap of each is what the arbiter divides.
fn devices() -> impl Iterator<Item = Host> {
    let real = real_devices().into_iter().map(Host::like);
    [Host::new()].into_iter().chain(real.map(|host| host.expect("host memory acts it out")))
}

pub(crate) fn what_a_manager_holds_is_what_the_arbiter_counts() {
    for host in devices() {
        println!("on {}", host.caps().device.name);
        let arbiter = Arbiter::start("manager.sock", "capacity = \"64MiB\"\n");
        let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
        let manager = Manager::new(arbitrated(host, Arc::clone(&tenant)));
        let live = manager.allocate(&request(24)).expect("it fits");
        assert_eq!(tenant.held(), manager.heap_use(HEAP).expect("a heap").reserved);
        let refused = manager.allocate(&request(48)).expect_err("the share is smaller");
        assert_eq!(refused.kind(), ErrorKind::OutOfDeviceMemory);
        drop(live);
        manager.trim().expect("host memory");
        assert_eq!(tenant.held(), manager.heap_use(HEAP).expect("a heap").reserved);
        let again = manager.allocate(&request(48)).expect("the books are as they were");
        drop((again, manager));
        assert_eq!(tenant.held(), 0, "everything was given back");
        arbiter.await_tenants(|all| all.iter().all(|it| it.held == 0));
    }
}

pub(crate) fn all_memory_of_every_device_is_counted() {
    let arbiter = Arbiter::start("devices.sock", "capacity = \"64MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    for caps in real_devices() {
        let host = Host::like(caps).expect("host memory acts it out");
        let manager = Manager::new(arbitrated(host, Arc::clone(&tenant)));
        let caps = manager.caps();
        let mut live = Vec::new();
        for (heap, about) in caps.heap_ids() {
            let size = MIB.min(about.max_block);
            live.push(manager.allocate(&Request::new(size).heap(heap)).expect("it fits"));
            let reserved = |heap| manager.heap_use(heap).expect("a heap").reserved;
            let of_device = caps.heap_ids().filter(|(heap, _)| caps.is_device_memory(*heap));
            let of_device: u64 = of_device.map(|(heap, _)| reserved(heap)).sum();
            assert_eq!(tenant.held(), of_device, "{about:?} of {}", caps.device.name);
        }
        drop(live);
        manager.return_memory(u64::MAX).expect("host memory");
        assert_eq!(tenant.held(), 0, "all that counts goes back: {}", caps.device.name);
    }
}

/// Every driver call fails once, or loses the device, and the arbiter counts no byte less than the driver has given, and none when
/// the device is closed.
pub(crate) fn a_driver_that_fails_leaves_the_books_right() {
    let arbiter = Arbiter::start("fault.sock", "capacity = \"64MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let plans = || (0..40).flat_map(|at| [Plan::Nth(at), Plan::LoseDeviceAt(at)]);
    for number in 0..devices().count() {
        let host = || devices().nth(number).expect("counted");
        println!("on {}", host().caps().device.name);
        let injected: u64 = plans().map(|plan| books_after(plan, host(), &tenant)).sum();
        assert!(injected > 5, "{injected}");
    }
}

/// Follows the books over a driver that fails; returns how many calls failed.
fn books_after(plan: Plan, host: Host, tenant: &Arc<Tenant>) -> u64 {
    let manager = Manager::new(arbitrated(Fault::new(host), Arc::clone(tenant)));
    manager.backend().inner().inject(plan, 0);
    let reserved = || manager.heap_use(HEAP).expect("a heap").reserved;
    for mib in [3, 24, 7] {
        if let Ok(live) = manager.allocate(&request(mib)) {
            let given = reserved();
            assert!(tenant.held() >= given, "{plan:?}: {} of {given}", tenant.held());
            drop(live);
        }
        let _ = manager.trim();
    }
    let most = reserved() + manager.report().quarantined_bytes;
    assert!(tenant.held() <= most, "{plan:?}: {} of {most}", tenant.held());
    let injected = manager.backend().inner().injected();
    drop(manager);
    assert_eq!(tenant.held(), 0, "{plan:?}");
    injected
}

/// Holds everything in a pool that is empty, and returns it when it is asked to.
pub(crate) fn hoards(socket: &Path, _: &str) {
    let (manager, tenant) = manager(socket);
    let live = Arc::new(Mutex::new(Some(manager.allocate(&request(56)).expect("it fits"))));
    let kept = Arc::clone(&live);
    manager.on_pressure(move |_| match kept.lock().expect("whole").take() {
        Some(live) => {
            drop(live);
            Relief::Freed
        }
        None => Relief::Nothing,
    });
    let pressed = manager.clone();
    let _attending = tenant.on_press(Arc::new(move |bytes| {
        pressed.return_memory(bytes).expect("host memory");
    }));
    say("hoarding");
    listen();
}

pub(crate) fn pressed_memory_reaches_the_other_tenant() {
    let arbiter = Arbiter::start("press.sock", "capacity = \"64MiB\"\npatience_ms = 10000\n");
    let mut hoarder = Process::start("hoards", &arbiter.path, None, "");
    assert_eq!(hoarder.hear(), "hoarding");
    let (manager, _) = manager(&arbiter.path);
    let live = manager.allocate(&request(24)).expect("the other one gave it back");
    live.write(0, &[7; 64]).expect("it is memory");
}

/// Has a child that asks for memory and lets go of what it has from its parent; then takes more itself.
pub(crate) fn forks(socket: &Path, _: &str) {
    let (manager, tenant) = manager(socket);
    let live = manager.allocate(&request(24)).expect("it fits");
    // SAFETY: the other threads of this process wait for frames, and hold none of the locks that the child takes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = manager.allocate(&request(24)).expect_err("nobody asked for this process");
        // Nor does the child ask or give back in the name of its parent.
        let is_told = matches!(tenant.take(MIB), Err(ArbiterError::Forked));
        tenant.give(24 * MIB);
        drop((live, manager, tenant));
        let says_why = refused.to_string().contains("forked");
        let is_right = is_told && refused.kind() == ErrorKind::DeviceLost && says_why;
        std::process::exit(i32::from(!is_right));
    }
    let mut status = -1;
    // SAFETY: an integer, which the kernel fills.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let more = manager.allocate(&request(24)).map(drop);
    say(&format!("{status} {more:?} {}", manager.heap_use(HEAP).expect("a heap").reserved / MIB));
    listen();
}

pub(crate) fn a_forked_child_is_refused_and_leaves_the_account_of_its_parent_alone() {
    let arbiter = Arbiter::start("fork.sock", "capacity = \"64MiB\"\n");
    let mut process = Process::start("forks", &arbiter.path, None, "");
    assert_eq!(process.hear(), "0 Ok(()) 48");
    let all = arbiter.tenants();
    assert_eq!((all.len(), all[0].held, all[0].connected), (1, 48 * MIB, 1));
}

/// Takes turns with another process, each when it is told to: looks for the other's pattern, leaves its own, and gives the memory back.
pub(crate) fn takes_turns(socket: &Path, pattern: &str) {
    let (manager, _) = manager(socket);
    let pattern: u8 = pattern.parse().expect("a number");
    let mut bytes = vec![0_u8; usize::try_from(2 * MIB).expect("small")];
    while listen() == "take" {
        let live = manager.allocate(&request(2)).expect("the other one gave everything back");
        live.read(0, &mut bytes).expect("it is memory");
        let seen = bytes.iter().position(|byte| *byte != 0);
        let seen = seen.map_or_else(|| "clean".into(), |at| format!("{} at {at}", bytes[at]));
        bytes.fill(pattern);
        live.write(0, &bytes).expect("it is memory");
        drop(live);
        manager.trim().expect("host memory");
        say(&seen);
    }
}

pub(crate) fn no_byte_of_one_user_is_seen_by_another() {
    // Room for one of them at a time, and they alternate: every turn is a hand-over.
    let arbiter = Arbiter::start("residue.sock", "capacity = \"3MiB\"\n");
    let start = |(uid, pattern)| Process::start("takes_turns", &arbiter.path, Some(uid), pattern);
    let mut processes = [(2001, "170"), (2002, "85")].map(start);
    for turn in 0..=often("OMNIHEAP_HAND_OVERS", 200) {
        let process = &mut processes[turn % 2];
        process.tell("take");
        assert_eq!(process.hear(), "clean", "hand-over {turn}");
    }
}

/// Has this process handle a signal by doing nothing; calls that wait are then interrupted by it.
fn handle(signal: libc::c_int) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeros are a valid `sigaction`: no flags, so that no call is restarted.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: the handler does nothing, and the struct is filled in.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) }, 0);
}

pub(crate) fn a_signal_that_the_program_handles_interrupts_no_question() {
    handle(libc::SIGUSR1);
    let path = path("signal.sock");
    let _ = std::fs::remove_file(&path);
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = socket(SocketFlags::CLOEXEC).expect("a socket");
    bind(&listener, &SocketAddrUnix::new(&path).expect("short")).expect("a path");
    rustix::net::listen(&listener, 1).expect("a socket");
    let asks = thread::spawn(move || tenants(&path));
    let asked = accept(&listener).expect("it connects");
    for _ in 0..200 {
        // SAFETY: the thread is joined below.
        assert_eq!(unsafe { libc::pthread_kill(asks.as_pthread_t(), libc::SIGUSR1) }, 0);
        thread::sleep(Duration::from_micros(200));
    }
    let answer = Tell::Tenants { more: false, tenants: Vec::new() }.encode();
    let _ = send(&asked, &answer, SendFlags::NOSIGNAL);
    let heard = asks.join().expect("no panic");
    assert!(heard.as_ref().is_ok_and(Vec::is_empty), "{heard:?}");
}
