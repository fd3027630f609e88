//! An arbiter on a thread, and tenants as processes.
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use omniheap_arbiter::frame::{Ask, TenantInfo};
use omniheap_arbiter::{DriverCount, Policy, Server, tenants};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub(crate) const MIB: u64 = 1 << 20;

/// An arbiter that ends with the test.
pub(crate) struct Arbiter {
    pub(crate) path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A path for a socket, short enough for one.
pub(crate) fn path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("omniheap-arbiter-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for tests");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("a folder for tests");
    folder.join(name)
}

impl Arbiter {
    pub(crate) fn start(name: &str, policy: &str) -> Self {
        Self::run(name, policy, |server| server)
    }

    /// Starts one that asks `count` what processes have, as it would ask a driver.
    pub(crate) fn compared(name: &str, policy: &str, count: DriverCount) -> Self {
        Self::run(name, policy, |server| server.compared_with(count))
    }

    fn run(name: &str, policy: &str, finish: impl FnOnce(Server) -> Server) -> Self {
        let path = path(name);
        let policy = Policy::parse(policy, None).expect("a policy");
        let mut server = finish(Server::bind(&path, policy, None).expect("a socket"));
        // Tenants of other users take part in the tests.
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || server.run(|| stopped.load(Ordering::Relaxed)).expect("it serves");
        Self { path, stop, thread: Some(thread::spawn(run)) }
    }

    pub(crate) fn tenants(&self) -> Vec<TenantInfo> {
        tenants(&self.path).expect("the arbiter answers")
    }

    /// Waits until the tenants are as they should be.
    pub(crate) fn await_tenants(&self, are: impl Fn(&[TenantInfo]) -> bool) {
        for _ in 0..60_000 {
            if are(&self.tenants()) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("never came: {:?}", self.tenants());
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// A process that runs one function of this program.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a role of this program.
    pub(crate) fn start(role: &str, socket: &Path, uid: Option<u32>, argument: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Self::spawn(command, role, socket, argument)
    }

    /// Starts a role as the first process of a process namespace of its own.
    pub(crate) fn start_apart(role: &str, socket: &Path, argument: &str) -> Self {
        let mut command = apart();
        command.arg(std::env::current_exe().expect("this program"));
        Self::spawn(command, role, socket, argument)
    }

    fn spawn(mut command: Command, role: &str, socket: &Path, argument: &str) -> Self {
        command.env("OMNIHEAP_TEST_ROLE", role);
        command.env("OMNIHEAP_TEST_SOCKET", socket).env("OMNIHEAP_TEST_ARGUMENT", argument);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u64 {
        self.child.id().into()
    }

    /// Returns the next line that the role says.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).expect("text"), 0, "the process ended");
        line.trim().to_owned()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{line}").expect("it listens");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// Stops a process, and waits until every thread of it stands still.
pub(crate) fn stop(id: u64) {
    let id = i32::try_from(id).expect("a process");
    kill_process(Pid::from_raw(id).expect("a process"), Signal::STOP).expect("it runs");
    let is_stopped = |task: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(task.expect("a thread").path().join("stat"));
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")))
    };
    while !fs::read_dir(format!("/proc/{id}/task")).expect("a process").all(is_stopped) {
        thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the role that this process was started for, the socket and the argument; `None` where it runs the tests.
pub(crate) fn role() -> Option<(String, PathBuf, String)> {
    let [name, socket, argument] =
        ["ROLE", "SOCKET", "ARGUMENT"].map(|word| std::env::var(format!("OMNIHEAP_TEST_{word}")));
    Some((name.ok()?, socket.ok()?.into(), argument.ok()?))
}

/// For roles: says a line to the test.
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// For roles: waits for a line from the test; ends with the test.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
    line.trim().to_owned()
}

/// Number of rounds of a test: the variable's value, or so few that the test is short.
pub(crate) fn often(variable: &str, short: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// A command that runs another one in a process namespace of its own, and ends that when it is killed.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    if !is_root() {
        command.args(["--user", "--map-current-user"]);
    }
    command
}

/// Returns true if processes can be started in namespaces of their own; prints a line if not.
pub(crate) fn has_namespaces() -> bool {
    let made = apart().arg("true").stderr(Stdio::null()).status();
    let has = made.is_ok_and(|status| status.success());
    if !has {
        eprintln!("NOT TESTED: no process namespaces here: `unshare --pid` is absent or forbidden");
    }
    has
}

/// A folder on NFS or another network file system, which a variable names; says so where it does not.
pub(crate) fn remote_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("OMNIHEAP_REMOTE_FOLDER").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("NOT TESTED: OMNIHEAP_REMOTE_FOLDER names no folder on a network file system");
    }
    folder
}

/// Returns true if processes of other users can be started.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A connection without a client around it.
pub(crate) struct Raw(pub(crate) OwnedFd);

impl Raw {
    pub(crate) fn open(path: &Path) -> Self {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        connect(&socket, &SocketAddrUnix::new(path).expect("a short path")).expect("it listens");
        Self(socket)
    }

    pub(crate) fn send(&self, packet: &[u8]) -> bool {
        send(&self.0, packet, SendFlags::NOSIGNAL).is_ok()
    }

    pub(crate) fn ask(&self, ask: Ask) -> bool {
        self.send(&ask.encode())
    }

    /// Returns the next packet; nothing at the end.
    pub(crate) fn hear(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65 << 10];
        let (_, length) = recv(&self.0, &mut *buffer, RecvFlags::empty()).ok()?;
        buffer.truncate(length);
        (length > 0).then_some(buffer)
    }
}
