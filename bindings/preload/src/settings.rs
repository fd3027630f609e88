//! Settings from environment variables, read when the first context allocates.
use crate::ending;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::LimitValue;
use omniheap_limits::{SystemLimits, VARIABLE, Vendor};
use std::env;
use std::path::PathBuf;
use std::sync::{Once, OnceLock};

/// True once a program wanted to export memory of `cuMemAlloc` to another process.
static EXPORTS: AtomicBool = AtomicBool::new(false);

/// The limit that was ordered; zero for none.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// The command that started a program and all its processes, from `OMNIHEAP_RUN`: three numbers with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first process.
    pub(crate) process: u32,
    /// The device and the number of the file that is the command's standard error.
    pub(crate) errors: (u64, u64),
}

impl Run {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let process = parts.next()?.parse().ok()?;
        let errors = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { process, errors })
    }
}

/// Settings of the process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The command that started the program, if one did.
    pub(crate) run: Option<Run>,
    /// The most bytes that the program may see of each device, as they were written.
    limit: Option<String>,
    /// File for the trace.
    pub(crate) trace: Option<PathBuf>,
    /// File for the report at the end.
    pub(crate) report: Option<PathBuf>,
    /// True if a summary line is written at the end.
    pub(crate) summary: bool,
    /// True if bytes behind allocations are watched.
    pub(crate) guards: bool,
    /// True if memory must be able to sleep.
    pub(crate) sleeps: bool,
    /// True if all allocations must be exportable by `cuIpcGetMemHandle`: the driver makes the small ones.
    pub(crate) exports: bool,
}

fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns the settings of the process.
pub(crate) fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        run: env::var("OMNIHEAP_RUN").ok().as_deref().and_then(Run::parse),
        limit: env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned()),
        trace: path("OMNIHEAP_TRACE"),
        report: path("OMNIHEAP_REPORT"),
        summary: is_set("OMNIHEAP_SUMMARY"),
        guards: is_set("OMNIHEAP_GUARDS"),
        sleeps: is_set("OMNIHEAP_SLEEP"),
        exports: is_set("OMNIHEAP_IPC"),
    })
}

/// Notes that a program wanted to export memory: what it allocates from now on shall be fit for that.
pub(crate) fn note_export() {
    EXPORTS.store(true, Relaxed);
}

/// Returns true if allocations shall be such as other processes can open. What sleeps has nobody else.
pub(crate) fn exports() -> bool {
    get().exports || EXPORTS.load(Relaxed) && !get().sleeps
}

/// Sets the most bytes that the program may see.
pub(crate) fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

/// Returns the most bytes that the program may see of a device: what was ordered, or the variable's, if that is smaller.
pub(crate) fn limit(device: i32) -> u64 {
    let ordered = Some(LIMIT.load(Relaxed)).filter(|ordered| *ordered > 0);
    written_limit(device).min(ordered.unwrap_or(u64::MAX))
}

/// Returns the limit that the variable sets for a device: none of its memory, where the variable cannot be read.
fn written_limit(device: i32) -> u64 {
    static SAID: Once = Once::new();
    let Some(text) = &get().limit else { return u64::MAX };
    let (text, device) = (text.clone(), u32::try_from(device).unwrap_or(0));
    let limits = SystemLimits::new(Vendor::Any, device).within("/", move |_| Some(text.clone()));
    match limits.read().pop().map(|limit| limit.value) {
        None => u64::MAX,
        Some(LimitValue::Bytes(bytes)) => bytes,
        Some(LimitValue::Unreadable(why)) => {
            SAID.call_once(|| ending::say(&format!("{VARIABLE}: {why}: no memory is given")));
            0
        }
        Some(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_three_numbers() {
        assert_eq!(Run::parse("7:26:9"), Some(Run { process: 7, errors: (26, 9) }));
        for text in ["", "7", "7:26", "7:26:9:1", "7:26:x", "-7:26:9", "7::9", "99999999999:1:1"] {
            assert_eq!(Run::parse(text), None, "{text:?}");
        }
    }
}
