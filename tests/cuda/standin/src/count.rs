//! Counts of calls, and the page that says them when the process ends.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::budget;
use crate::knobs::knobs;

static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// Counts a call, where somebody will ask.
pub(crate) fn call(name: &'static str) {
    if knobs().counts.is_some() {
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(name).or_default() += 1;
    }
}

/// Says that a rule of the driver was broken, and ends the process where that is asked for.
pub(crate) fn broken(rule: &str) {
    eprintln!("[cuda stand-in] broken rule: {rule}");
    BROKEN.fetch_add(1, Ordering::Relaxed);
    if knobs().is_strict {
        std::process::abort();
    }
}

/// Writes the page.
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
