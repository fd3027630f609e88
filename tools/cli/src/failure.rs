//! Failures that end a command early: one line and an exit code.
use core::fmt;
use omniheap::BackendKind;
use std::path::Path;

/// A command that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    line: String,
}

impl Failure {
    /// Creates a failure of the work: a missing device, a failed check.
    pub fn failed(line: impl Into<String>) -> Self {
        Self { code: 1, line: line.into() }
    }

    /// Creates a failure of the input or the options; nothing was done.
    pub fn input(line: impl Into<String>) -> Self {
        Self { code: 2, line: line.into() }
    }

    /// Creates a failure for work that Ctrl-C ended.
    pub fn interrupted(line: impl Into<String>) -> Self {
        Self { code: 130, line: line.into() }
    }

    /// Creates a failure for a proof that what is asked for cannot be.
    pub fn impossible(line: impl Into<String>) -> Self {
        Self { code: 3, line: line.into() }
    }

    /// Creates a failure for a device that could not be opened.
    pub fn no_device(backend: Option<BackendKind>, ordinal: u32, error: omniheap::Error) -> Self {
        let name = backend.map_or("none", BackendKind::name);
        if backend.is_some_and(|kind| !kind.is_built_in()) {
            return Self::failed(format!(
                "backend {name} is not built in; build with `--features {name}`"
            ));
        }
        if error.kind() == omniheap::ErrorKind::InvalidConfig {
            let what = format!("device {ordinal} of backend {name} was not opened: {error}");
            return Self::failed(what);
        }
        let why = absence(backend, error);
        Self::failed(format!(
            "device {ordinal} of backend {name} is not here: {why}; `omniheap devices` lists what is"
        ))
    }

    /// Returns the exit code.
    pub(crate) const fn code(&self) -> u8 {
        self.code
    }

    /// Returns a word for programs: the reason behind the exit code.
    pub(crate) const fn reason(&self) -> &'static str {
        match self.code {
            2 => "bad_input",
            3 => "impossible",
            130 => "interrupted",
            _ => "failed",
        }
    }

    /// Creates a failure for a file that could not be read.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let shown = path.display();
        Self::input(format!("{shown}: cannot read: {error}; check the path and its permissions"))
    }

    /// Creates a failure for a file that could not be written.
    pub fn unwritable(path: &Path, error: &std::io::Error) -> Self {
        let shown = path.display();
        Self::failed(format!(
            "{shown}: cannot write: {error}; name a file in a folder that you may write"
        ))
    }
}

/// Returns the reason why a device could not be opened, for people: a backend says only that it cannot when there is no
/// driver.
fn absence(backend: Option<BackendKind>, error: omniheap::Error) -> String {
    match error.kind() {
        omniheap::ErrorKind::Unsupported if backend == Some(BackendKind::Host) => {
            "host memory is one device, number 0".into()
        }
        omniheap::ErrorKind::Unsupported => {
            "there is no driver, or it has no such device; install the vendor's driver".into()
        }
        _ => error.to_string(),
    }
}

/// Returns whether a character changes how others look, or looks like nothing: controls, line breaks, marks of direction, of no width, and
/// those that software reads and people do not (annotations, tags).
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a file's name or a driver's message holds.
        let line: String =
            self.line.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect();
        f.write_str(&line)
    }
}

impl From<omniheap::Error> for Failure {
    fn from(error: omniheap::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<omniheap::AllocateError> for Failure {
    fn from(error: omniheap::AllocateError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}
