//! Log that a case writes its calls and findings to.

#![expect(unsafe_code, reason = "reads the runtime's names of errors")]

use core::ffi::CStr;
use core::fmt::Display;
use std::io::Write;

use omniheap_hip::sys::{Api, hipError_t};

/// Calls a function of the runtime, notes the answer as a line, and returns it.
macro_rules! call {
    ($run:expr, $table:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $table.$name;
        // SAFETY: what is passed is good for the call, or it is the kind of mistake that this line records the
        // library's answer to; a library that does not survive it is what the case is there to find out.
        let code = unsafe { function($($argument),*) };
        $run.answer(concat!(stringify!($name), "(", stringify!($($argument),*), ")"), code)
    }};
}

/// Calls a function of the runtime without noting the answer.
macro_rules! quiet {
    ($table:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $table.$name;
        // SAFETY: as in `call`.
        unsafe { function($($argument),*) }
    }};
}

pub(crate) use {call, quiet};

/// A run of one case.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) api: &'static Api,
    failed: usize,
}

/// Outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Checks that did not hold.
    pub failed: usize,
}

impl Run {
    pub(crate) const fn new(api: &'static Api) -> Self {
        Self { api, failed: 0 }
    }

    /// Writes a line now: the next call may end the process.
    fn line(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        // A reader that went away is no reason to stop the calls.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// Notes what a call answered.
    pub(crate) fn answer(&self, call: &str, code: hipError_t) -> hipError_t {
        let call = call.replace("&raw mut ", "&").replace("&raw const ", "&");
        self.line(&format!("  {call:<78} -> {} {}", code.0, self.name(code)));
        code
    }

    /// Notes something that may differ from library to library.
    pub(crate) fn fact(&self, what: &str, value: impl Display) {
        self.line(&format!("     {what}: {value}"));
    }

    /// Notes something that must hold on every library.
    pub(crate) fn check(&mut self, what: &str, holds: bool) {
        self.line(&format!("     {what}: {}", if holds { "ok" } else { "FAILED" }));
        self.failed += usize::from(!holds);
    }

    /// Returns a group of functions, noting when the library has none.
    pub(crate) fn group<T: Copy>(&self, name: &str, group: Option<T>) -> Option<T> {
        if group.is_none() {
            self.fact(name, "not in this library");
        }
        group
    }

    pub(crate) fn name(&self, code: hipError_t) -> String {
        let text = quiet!(self.api.core, hipGetErrorName(code));
        if text.is_null() {
            return "?".to_owned();
        }
        // SAFETY: the runtime's names are strings that live as long as the library, which is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    pub(crate) const fn finish(self) -> Outcome {
        Outcome { failed: self.failed }
    }
}
