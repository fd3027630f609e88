//! Several processes, and processes that end in the middle: this binary again, as the other process.
#![expect(unsafe_code, reason = "forks")]
use crate::common::{HEAP, MAIN, MIB, at, free, host, read, used};
use core::cell::RefCell;
use omniheap_core::{
    Allocation, Backend, ErrorKind, Export, Exported, HeapId, HeapKind, Manager, ManagerConfig,
    PoolConfig, Request, TimelineId, Timelines, Transfer,
};
use omniheap_host::{Block, Host, heap};
use std::fs::{File, read_dir};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Job of the other process; absent in the first one.
const ROLE: &str = "OMNIHEAP_OTHER_PROCESS";
const SIZE: u64 = 64 << 10;

/// The other process, where this is it; nothing where it is not.
#[test]
fn the_other_process() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let mut words = role.split(' ');
    match words.next() {
        Some("import") => import_and_wait(words.next().expect("a file")),
        Some("export") => export_and_wait(),
        Some("hand-over") => hand_over(),
        Some("sum") => sum_what_comes(),
        Some("fork") => fork(),
        Some("leave") => leave_with_live_memory(words.next() == Some("early")),
        _ => {}
    }
}

/// Another process with a role, and lines to and from it.
struct Other {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str) -> Self {
        let this = std::env::current_exe().expect("the test knows where it is");
        let mut command = Command::new(this);
        command.args(["--exact", "process::the_other_process", "--nocapture"]).env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let (to, from) =
            (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Self { process, to, from: BufReader::new(from) }
    }

    /// Returns the rest of the next line that starts with `word`.
    fn hear(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).expect("it talks") > 0 {
            // The test harness of the other process talks too, on the same line at first.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended before it said {word}");
    }

    fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it has ended");
    }
}

/// Returns the path at which another process finds a descriptor of this one.
fn path_of(exported: &Exported) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), exported.number())
}

/// Memory of another process, by the path of its descriptor.
fn import(host: &Host, path: &str) -> Block {
    let file = File::options().read(true).write(true).open(path).expect("of a process that lives");
    let exported = Exported { fd: file.into(), size: SIZE, uuid: host.caps().device.uuid };
    host.import(HEAP, &exported).expect("memory of the other process")
}

/// Open descriptors of this process.
fn descriptors() -> usize {
    read_dir("/proc/self/fd").expect("Linux").count()
}

fn wait_for_the_end() {
    std::io::stdin().lines().for_each(drop);
}

fn import_and_wait(path: &str) {
    let host = host(MIB);
    let block = import(&host, path);
    host.write(MAIN, at(&block, 0), b"seen").expect("inside");
    host.wait_idle().expect("alive");
    println!("ready");
    wait_for_the_end();
}

fn export_and_wait() {
    let host = host(MIB);
    let block = host.allocate_exportable(HEAP, SIZE).expect("fits");
    host.fill(MAIN, at(&block, 0), SIZE, 0x5a).expect("inside");
    host.wait_idle().expect("alive");
    let exported = host.export(&block).expect("exportable");
    println!("ready {}", path_of(&exported));
    wait_for_the_end();
}

#[test]
fn an_importer_that_is_killed_leaves_the_memory_to_its_exporter() {
    let host = host(MIB);
    let block = host.allocate_exportable(HEAP, SIZE).expect("fits");
    let exported = host.export(&block).expect("exportable");
    let mut other = Other::start(&format!("import {}", path_of(&exported)));
    other.hear("ready");
    other.kill();
    assert_eq!(read(&host, MAIN, &block, 0, 4), b"seen");
    host.fill(MAIN, at(&block, 0), SIZE, 7).expect("still ours");
    host.wait_idle().expect("alive");
    drop(exported);
    free(&host, block).expect("idle");
    assert_eq!(used(&host), 0, "all of it is back at once");
}

#[test]
fn an_importer_outlives_an_exporter_that_is_killed() {
    let host = host(MIB);
    let mut other = Other::start("export");
    let block = import(&host, &other.hear("ready"));
    other.kill();
    assert_eq!(read(&host, MAIN, &block, SIZE - 4, 4), [0x5a; 4], "no hang, and the same bytes");
    host.fill(MAIN, at(&block, 0), SIZE, 7).expect("alone with it now");
    assert_eq!(read(&host, MAIN, &block, 0, 4), [7; 4]);
    free(&host, block).expect("idle");
    assert_eq!(used(&host), 0);
}

/// Adds up the bytes of every block that the first process names, and says how many descriptors are open.
fn sum_what_comes() {
    let host = host(MIB);
    for path in std::io::stdin().lines() {
        let block = import(&host, &path.expect("text"));
        let length = usize::try_from(SIZE).expect("small");
        let sum: u64 = read(&host, MAIN, &block, 0, length).into_iter().map(u64::from).sum();
        free(&host, block).expect("idle");
        println!("sum {sum} {} {}", descriptors(), used(&host));
    }
}

#[test]
fn many_hand_overs_leave_nothing_open_on_either_side() {
    // In a process of its own: other tests open descriptors here.
    let mut other = Other::start("hand-over");
    other.hear("all handed over");
    drop(other.to);
    assert!(other.process.wait().expect("it ends").success());
}

/// Passes blocks to a third process, one after the other.
fn hand_over() {
    let rounds: u64 = if cfg!(debug_assertions) { 500 } else { 100_000 };
    let host = host(MIB);
    let mut other = Other::start("sum");
    let (mut theirs, mut ours) = (None, None);
    for round in 0..rounds {
        let block = host.allocate_exportable(HEAP, SIZE).expect("fits");
        let value = round.to_le_bytes()[0];
        host.fill(MAIN, at(&block, 0), SIZE, value).expect("inside");
        host.wait_idle().expect("alive");
        let exported = host.export(&block).expect("exportable");
        writeln!(other.to, "{}", path_of(&exported)).expect("it listens");
        let told = other.hear("sum");
        let (sum, open) = told.split_once(' ').expect("three numbers");
        assert_eq!(sum.parse(), Ok(SIZE * u64::from(value)), "round {round}");
        assert_eq!(theirs.get_or_insert(open.to_owned()), open, "round {round}");
        drop(exported);
        free(&host, block).expect("idle");
        assert_eq!(*ours.get_or_insert(descriptors()), descriptors(), "round {round}");
    }
    assert_eq!(used(&host), 0);
    drop(other.to);
    assert!(other.process.wait().expect("it ends").success());
    println!("all handed over");
}

/// Keeps a manager in a static and live memory in statics and in a thread's own storage, and ends.
fn leave_with_live_memory(is_early: bool) {
    static MANAGER: OnceLock<Manager<Host>> = OnceLock::new();
    static LIVE: Mutex<Vec<Allocation<Host>>> = Mutex::new(Vec::new());
    thread_local! {
        static FIRST: RefCell<Vec<Allocation<Host>>> = const { RefCell::new(Vec::new()) };
        static LAST: RefCell<Vec<Allocation<Host>>> = const { RefCell::new(Vec::new()) };
    }
    // Storage that a thread touched first ends last: then nothing of its own that the manager uses is there any more.
    FIRST.with_borrow_mut(Vec::clear);
    let manager = MANAGER.get_or_init(|| Manager::new(Host::new()));
    let take = || manager.allocate(&Request::new(100_000).on(MAIN)).expect("fits");
    let one = take();
    one.fill(0, 100_000, 1).expect("inside");
    LIVE.lock().expect("no panic").push(one);
    for local in [&FIRST, &LAST] {
        let loose = manager.allocate(&Request::new(100_000)).expect("fits");
        local.with_borrow_mut(|local| local.extend([take(), loose]));
    }
    drop(take());
    if is_early {
        std::process::exit(0);
    }
}

#[test]
fn a_process_may_end_with_live_memory_in_statics() {
    let runs = if cfg!(debug_assertions) { 10 } else { 100 };
    for (run, role) in (0..runs).flat_map(|run| [(run, "leave"), (run, "leave early")]) {
        let mut other = Other::start(role);
        drop(other.to);
        let status = other.process.wait().expect("it ends");
        assert!(status.success(), "run {run}, {role}: {status}");
    }
}

/// Uses and drops the parent's manager in a forked child, which must leave the parent's memory alone.
fn act_as_child(manager: Manager<Host>, one: Allocation<Host>, line: TimelineId) -> i32 {
    let lost =
        |done: omniheap_core::Result<()>| done.is_err_and(|e| e.kind() == ErrorKind::DeviceLost);
    let (host, mut byte) = (manager.backend(), [0]);
    let refused = [
        lost(one.map().map(drop)),
        lost(one.write(0, &[2; 64])),
        lost(one.read(0, &mut byte)),
        lost(one.fill(0, 64, 2)),
        lost(host.wait_idle()),
        lost(host.close(line)),
        lost(host.hold(MAIN).map(drop)),
        manager.allocate(&Request::new(64 << 20)).is_err(),
    ];
    let _ = manager.trim(); // Gives nothing of the parent's back.
    drop((one, manager));
    let first = refused.iter().position(|refused| !refused);
    first.map_or(0, |which| i32::try_from(which).unwrap_or(99) + 1)
}

fn fork() {
    for paged in [false, true] {
        let host = Host::builder().heap(heap(HeapKind::Unified, 1 << 30)).open().expect("a device");
        let manager = Manager::with_config(host, ManagerConfig::default());
        let mut config = PoolConfig::new();
        config.paged = paged;
        let pool = manager.create_pool(HeapId(0), config).expect("a pool");
        let line = manager.backend().open().expect("another timeline");
        let one = pool.allocate(&Request::new(4096)).expect("fits");
        let gone = pool.allocate(&Request::new(8 << 20)).expect("fits");
        one.write(0, &[1; 64]).expect("inside");
        one.map().expect("visible").write(64, &[1; 64]).expect("inside");
        drop((gone, pool)); // Free pages, which the child would like to give back.
        // SAFETY: the child calls what any process may, and ends without the parent's handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // A call that hangs ends the child.
            // SAFETY: a signal for this process alone.
            unsafe { libc::alarm(60) };
            let code = act_as_child(manager, one, line);
            // SAFETY: ends this process.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: waits for the child, and writes to a number of this function.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0), "paged: {paged}");
        let mut seen = [0; 128];
        one.read(0, &mut seen).expect("the parent goes on");
        assert_eq!(seen, [1; 128], "paged: {paged}");
        one.map().expect("visible").read(0, &mut seen).expect("inside");
        assert_eq!(seen, [1; 128], "paged: {paged}");
    }
    println!("both ended");
}

#[test]
fn a_forked_child_is_refused_and_changes_nothing() {
    // In a process of its own: a fork copies the locks of whatever other tests do meanwhile.
    let mut other = Other::start("fork");
    other.hear("both ended");
    drop(other.to);
    assert!(other.process.wait().expect("it ends").success());
}
