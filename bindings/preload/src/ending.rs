//! What is recorded while a program runs, and said and written when it ends.
#![expect(unsafe_code, reason = "registers a function for the end of the process")]
use crate::book::Book;
use crate::{books, control, inside, settings};
use omniheap_core::ManagerConfig;
use omniheap_trace::{Recorder, report};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Once, OnceLock};

static RECORDER: OnceLock<Option<Arc<Recorder>>> = OnceLock::new();

/// Says a line on standard error, whoever reads it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "omniheap: {line}");
}

/// Returns the settings of a manager, as the environment wants them.
pub(crate) fn config() -> ManagerConfig {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the function unwinds nowhere, and stays: the library is never unloaded.
        let _ = unsafe { libc::atexit(at_exit) };
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

fn record() -> Option<Arc<Recorder>> {
    let path = settings::get().trace.as_deref()?;
    match Recorder::create(path) {
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
    // A thread that is inside ended the process from within: nothing can be looked at.
    let Some(_inside) = inside::Inside::enter() else { return };
    let _ = std::panic::catch_unwind(end);
}

fn end() {
    let settings = settings::get();
    control::end();
    books::each(Book::look_at_guards);
    if let Some(recorder) = RECORDER.get().and_then(Option::as_ref)
        && let Err(error) = recorder.finish()
    {
        say(&format!("the trace is not whole: {error}"));
    }
    if let Some(path) = &settings.report
        && let Err(error) = write_report(path)
    {
        say(&format!("{}: no report: {error}", path.display()));
    }
    if settings.summary {
        books::each(|book| say(&book.summary_line()));
    }
}

fn write_report(path: &Path) -> std::io::Result<()> {
    let Some(book) = books::all().next() else { return Ok(()) };
    let data = report::from_manager(&book.report(), book.caps(), &program());
    let mut file = BufWriter::new(File::create(path)?);
    report::write_html(&data, &mut file)?;
    file.flush()
}
