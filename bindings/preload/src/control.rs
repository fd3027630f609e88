//! The socket on which a program answers orders: `report`, `limit BYTES`, `sleep`, `wake`. One line comes, one line goes.
//!
//! Only the user who runs the program, and root, are answered. The thread starts with the first context, and only where
//! `OMNIHEAP_CONTROL` is set: to the path of the socket, or to `1` for the usual one.
#![expect(unsafe_code, reason = "asks the system who runs the program")]
use crate::books::Account;
use crate::ending::{self, Signals};
use crate::{books, gate, inside::Inside, settings};
use core::time::Duration;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};
use std::{env, fs, process, thread};

/// The whole path of the socket that this process has made: the program may go to another folder.
static LISTENS: OnceLock<PathBuf> = OnceLock::new();

/// The most bytes of an order.
const LONGEST: u64 = 256;
/// The longest time that an order may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the path of the socket that `OMNIHEAP_CONTROL` means; `omniheap control` derives the same from a process id.
fn path() -> Option<PathBuf> {
    let told = env::var_os("OMNIHEAP_CONTROL").filter(|it| !it.is_empty() && it != "0")?;
    if told != "1" {
        return Some(told.into());
    }
    let folder = env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    Some(folder.join(format!("omniheap-{}-{}.sock", user(), process::id())))
}

/// Takes the socket away.
pub(crate) fn end() {
    if let Some(path) = LISTENS.get() {
        let _ = fs::remove_file(path);
    }
}

fn user() -> u32 {
    // SAFETY: the function cannot fail.
    unsafe { libc::geteuid() }
}

/// Starts the thread that answers, if orders are wanted.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let Some(path) = path() else { return };
        let path = std::path::absolute(&path).unwrap_or(path);
        match listen(&path) {
            Ok(listener) => {
                if settings::get().sleeps {
                    gate::build();
                }
                let _ = LISTENS.set(path);
                let name = thread::Builder::new().name("omniheap".into());
                // The thread gets this mask: signals are the program's, whose handlers must not run in here.
                let _blocked = Signals::block(&[]);
                // Never joined: it ends with the process.
                let _ = name.spawn(move || serve(&listener));
            }
            Err(error) => ending::say(&format!("{}: no orders: {error}", path.display())),
        }
    });
}

/// Opens the socket. Other users can connect to it at no time.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_socket = |about: fs::Metadata| about.file_type().is_socket();
    if fs::symlink_metadata(path).is_ok_and(is_socket) && UnixStream::connect(path).is_err() {
        // A socket left by an ended process. `bind` refuses a socket that answers, and every other file.
        let _ = fs::remove_file(path);
    }
    // Peers are checked too, so the moment between these two calls is safe.
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn serve(listener: &UnixListener) {
    // Calls of this thread go straight to the driver.
    let Some(_inside) = Inside::enter() else { return };
    for stream in listener.incoming().flatten() {
        let _ = answer(stream);
    }
}

fn answer(mut stream: UnixStream) -> io::Result<()> {
    if !is_allowed(&stream) {
        return writeln!(stream, "error: the program belongs to another user");
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST)).read_line(&mut line)?;
    let reply = match obey(line.trim()) {
        Ok(said) => format!("ok: {said}"),
        Err(why) => format!("error: {why}"),
    };
    writeln!(stream, "{reply}")
}

/// Returns true if the peer is the user who runs this program, or root.
fn is_allowed(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let Ok(mut size) = libc::socklen_t::try_from(size_of::<libc::ucred>()) else { return false };
    let (option, to) = (libc::SO_PEERCRED, (&raw mut peer).cast());
    // SAFETY: an open socket; the out-pointers are valid, and the size is that of the structure.
    let code = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut size)
    };
    code == 0 && (peer.uid == user() || peer.uid == 0)
}

fn obey(order: &str) -> Result<String, String> {
    match order.split_once(' ').unwrap_or((order, "")) {
        ("report", "") => Ok(report()),
        ("limit", size) => limit(size),
        ("sleep", "") => sleep(),
        ("wake", "") => wake(),
        _ => Err("expected report, limit BYTES, sleep or wake".into()),
    }
}

fn report() -> String {
    let lines: Vec<_> = books::accounts().map(|book| book.summary_line()).collect();
    if lines.is_empty() { "nothing allocated yet".into() } else { lines.join("; ") }
}

fn limit(size: &str) -> Result<String, String> {
    let bytes = omniheap_limits::parse_size(size);
    let bytes = bytes.ok_or_else(|| format!("{size:?} is no size such as 8GiB"))?;
    // Set first, so that contexts that are opened meanwhile get it as well.
    settings::set_limit(bytes);
    let mut least = bytes;
    for book in books::accounts() {
        let bytes = settings::limit(book.ordinal());
        book.limit(bytes).map_err(|error| error.to_string())?;
        least = least.min(bytes);
    }
    Ok(format!("{least} bytes"))
}

/// Puts all memory to sleep; the program's work on it waits from now on. Where one context refuses, all stay awake.
fn sleep() -> Result<String, String> {
    if !gate::close() {
        return Err("a call of the program does not return; try again later".into());
    }
    each(|book| book.sleep()).inspect_err(|_| {
        // Contexts that cannot sleep cannot wake either, so errors are dropped.
        books::accounts().for_each(|book| drop(book.wake()));
        gate::open();
    })
}

/// Wakes all memory, and lets the program go on.
fn wake() -> Result<String, String> {
    let woken = each(|book| book.wake())?;
    gate::open();
    Ok(woken)
}

fn each(act: impl Fn(&'static dyn Account) -> Result<u64, String>) -> Result<String, String> {
    let bytes = books::accounts().map(act).sum::<Result<u64, String>>()?;
    Ok(format!("{bytes} bytes"))
}
