//! Counts of calls, and the file in which they are written when the process ends.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::budget;
use crate::knobs::knobs;

static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// Counts a call, if counts are wanted.
pub(crate) fn call(name: &'static str) {
    if knobs().counts.is_some() {
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(name).or_default() += 1;
    }
}

/// Reports a broken rule of the driver. Ends the process if `STANDIN_STRICT` is set.
pub(crate) fn broken(rule: &str) {
    eprintln!("[cuda stand-in] broken rule: {rule}");
    BROKEN.fetch_add(1, Ordering::Relaxed);
    if knobs().is_strict {
        std::process::abort();
    }
}

/// Writes the counts.
pub(crate) fn write() {
    let Some(path) = &knobs().counts else { return };
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut page = String::new();
    for (name, count) in &*calls {
        let _ = writeln!(page, "{name} {count}");
    }
    let _ = writeln!(page, "bytes.peak {}", budget::peak());
    let _ = writeln!(page, "bytes.held {}", budget::held());
    let _ = writeln!(page, "rules.broken {}", BROKEN.load(Ordering::Relaxed));
    if let Err(error) = std::fs::write(path, page) {
        eprintln!("[cuda stand-in] {path}: {error}");
    }
}
