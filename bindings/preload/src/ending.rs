//! The recording of a program, and the lines and the report at its end.
#![expect(
    unsafe_code,
    reason = "registers a function for the end of the process, and blocks signals"
)]
use crate::books::Account;
use crate::settings::Run;
use crate::{books, control, inside, lock, settings};
use core::ffi::c_int;
use core::ptr;
use omniheap_core::ManagerConfig;
use omniheap_trace::{Recorder, report};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, Once, OnceLock};

/// Summary lines of contexts that were destroyed before the program ended.
static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());

static RECORDER: OnceLock<Option<Arc<Recorder>>> = OnceLock::new();

/// Writes a line to standard error. A reader that is gone must not end the program, so SIGPIPE is blocked meanwhile.
pub(crate) fn say(line: &str) {
    say_all(&format!("omniheap: {line}\n"));
}

/// Writes whole lines at once: other processes may be writing there too.
fn say_all(lines: &str) {
    let before = Signals::block(&[libc::SIGPIPE]);
    let _ = std::io::stderr().write_all(lines.as_bytes());
    before.consume(libc::SIGPIPE);
}

/// Returns the settings of a manager, as the environment wants them.
pub(crate) fn config() -> ManagerConfig {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the function unwinds nowhere, and stays: the library is never unloaded.
        let _ = unsafe { libc::atexit(at_exit) };
        // Now, so that the first process to allocate has both files.
        let _ = has_the_names();
    });
    let mut config = ManagerConfig::default();
    if let Some(recorder) = RECORDER.get_or_init(record) {
        config = config.observed(recorder.clone());
    }
    if settings::get().guards {
        config = config.guarded_with(|found| {
            say(&format!("written behind an allocation: {found:?}"));
        });
    }
    config
}

/// Signal mask of this thread before some signals were blocked. Dropping it restores the mask.
pub(crate) struct Signals {
    mask: libc::sigset_t,
    pending: libc::sigset_t,
}

impl Signals {
    /// Blocks signals on this thread; all of them if none is named.
    pub(crate) fn block(named: &[c_int]) -> Self {
        let [mut blocked, mut mask, mut pending] = [Self::none(); 3];
        if named.is_empty() {
            // SAFETY: a valid pointer.
            unsafe { libc::sigfillset(&raw mut blocked) };
        }
        for signal in named {
            // SAFETY: as above.
            unsafe { libc::sigaddset(&raw mut blocked, *signal) };
        }
        // SAFETY: as above.
        unsafe { libc::sigpending(&raw mut pending) };
        // SAFETY: valid pointers.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut mask) };
        Self { mask, pending }
    }

    /// Discards a signal that arrived since.
    fn consume(&self, signal: c_int) {
        // SAFETY: a valid pointer.
        if unsafe { libc::sigismember(&raw const self.pending, signal) } == 1 {
            return;
        }
        let (mut set, at_once) = (Self::none(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: as above.
        unsafe { libc::sigaddset(&raw mut set, signal) };
        // SAFETY: valid pointers; where nobody wants to know more, null is allowed.
        unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) };
    }

    const fn none() -> libc::sigset_t {
        // SAFETY: on Linux all zeros is the empty set.
        unsafe { core::mem::zeroed() }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: valid pointers; null is allowed where the mask before is not wanted.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) };
    }
}

fn record() -> Option<Arc<Recorder>> {
    let path = own_file(settings::get().trace.as_deref()?);
    match Recorder::create(&path) {
        Ok(recorder) => {
            recorder.title(&program());
            Some(recorder)
        }
        Err(error) => {
            say(&format!("{}: no trace: {error}", path.display()));
            None
        }
    }
}

/// Returns the name of the program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

extern "C" fn at_exit() {
    if inside::is_forked() {
        return;
    }
    // The process ended while this thread was inside the library, perhaps with a lock held.
    let Some(_inside) = inside::Inside::enter() else { return };
    let _ = std::panic::catch_unwind(end);
}

fn end() {
    let settings = settings::get();
    control::end();
    books::accounts().for_each(Account::look_at_guards);
    if let Some(recorder) = RECORDER.get().and_then(Option::as_ref)
        && let Err(error) = recorder.finish()
    {
        say(&format!("the trace is not whole: {error}"));
    }
    if let Some(book) = books::accounts().next() {
        report_on(book);
    }
    if settings.summary && settings.run.is_none_or(has_its_errors) {
        say_all(&summary());
    }
}

/// Returns true if the standard error of this process is that of the command which started the program. Elsewhere another process
/// may be reading, or it is a file of the program's own.
fn has_its_errors(run: Run) -> bool {
    let own = std::io::stderr().as_fd().try_clone_to_owned();
    let about = own.and_then(|own| File::from(own).metadata());
    about.is_ok_and(|about| (about.dev(), about.ino()) == run.errors)
}

/// Returns the lines about all contexts; those of a process that the program started begin with its name.
fn summary() -> String {
    let mut lines = lock(&KEPT).clone();
    lines.extend(books::accounts().map(|book| book.summary_line()));
    let is_first = settings::get().run.is_none_or(|run| run.process == process::id());
    let name =
        if is_first { String::new() } else { format!("{} ({}): ", program(), process::id()) };
    lines.iter().map(|line| format!("omniheap: {name}{line}\n")).collect()
}

/// Returns true if the files that a command has named are those of this process: the first one that asks makes one of them.
fn has_the_names() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let is_taken = |path: &Path| match File::create_new(path) {
        Err(error) => error.kind() == ErrorKind::AlreadyExists && path.is_file(),
        Ok(_) => false,
    };
    let settings = settings::get();
    let named = settings.trace.as_deref().or(settings.report.as_deref());
    *HAS.get_or_init(|| settings.run.is_none() || !named.is_some_and(is_taken))
}

/// Returns the file of this process for one that a command has named: another one beside it, where that is another process's.
fn own_file(path: &Path) -> PathBuf {
    if has_the_names() {
        return path.to_owned();
    }
    let kind = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{}.{kind}", process::id()))
}

/// Keeps the summary line of a context that is being destroyed, and writes its report.
pub(crate) fn keep(book: &dyn Account) {
    if settings::get().summary {
        lock(&KEPT).push(book.summary_line());
    }
    report_on(book);
}

/// Writes the page about a book, if one is wanted.
fn report_on(book: &dyn Account) {
    if let Some(path) = settings::get().report.as_deref().map(own_file)
        && let Err(error) = write_report(&path, book)
    {
        say(&format!("{}: no report: {error}", path.display()));
    }
}

fn write_report(path: &Path, book: &dyn Account) -> std::io::Result<()> {
    let data = report::from_manager(&book.report(), book.caps(), &program());
    let mut file = BufWriter::new(File::create(path)?);
    report::write_html(&data, &mut file)?;
    file.flush()
}
