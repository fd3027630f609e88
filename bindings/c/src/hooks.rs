//! Log messages, and memory pressure.
#![expect(unsafe_code, reason = "calls the caller's functions")]
use crate::handle::{OmniheapManager, holder};
use crate::status::{Failure, OmniheapStatus, call};
use core::ffi::{c_char, c_void};
use core::fmt::{self, Write as _};
use omniheap::pool::Relief;
use std::ffi::CString;
use std::sync::{PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Level of errors.
pub const OMNIHEAP_LOG_ERROR: u32 = 1;
/// Level of warnings: something is doubtful.
pub const OMNIHEAP_LOG_WARN: u32 = 2;
/// Level of events.
pub const OMNIHEAP_LOG_INFO: u32 = 3;
/// Level of details that help to find faults.
pub const OMNIHEAP_LOG_DEBUG: u32 = 4;

/// Gets a log message: its level, a text that is good during the call, and the pointer that was registered.
pub type OmniheapLogger =
    Option<unsafe extern "C" fn(level: u32, message: *const c_char, user: *mut c_void)>;

/// Told that memory is short: the heap, the bytes wanted, the bytes held, and the pointer that was registered. Returns
/// non-zero when it freed something.
pub type OmniheapPressure =
    Option<unsafe extern "C" fn(heap: u32, wanted: u64, reserved: u64, user: *mut c_void) -> u32>;

/// The caller's pointer.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: it is only handed back; whoever registered it promised that it may be used from any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    const fn get(self) -> *mut c_void {
        self.0
    }
}

type Log = unsafe extern "C" fn(u32, *const c_char, *mut c_void);

static LOGGER: RwLock<Option<(Log, u32, User)>> = RwLock::new(None);

/// Sends log messages up to a level to `logger`; a null function ends that. Once this has returned, the function that was
/// registered before is not called any more.
///
/// Refused with `Busy` where the process already has another receiver of Rust's `tracing`.
///
/// # Safety
///
/// `logger` may be called from any thread, with `user`, until it is replaced; it does not call omniheap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_set_logger(
    logger: OmniheapLogger,
    level: u32,
    user: *mut c_void,
) -> OmniheapStatus {
    call(|| {
        if !(OMNIHEAP_LOG_ERROR..=OMNIHEAP_LOG_DEBUG).contains(&level) && logger.is_some() {
            return Err(Failure::invalid(format!("level is {level}; pass one of OMNIHEAP_LOG_…")));
        }
        install()?;
        *LOGGER.write().unwrap_or_else(PoisonError::into_inner) =
            logger.map(|logger| (logger, level, User(user)));
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    })
}

/// Receives events, once for the process.
fn install() -> Result<(), Failure> {
    static DONE: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*done {
        tracing::subscriber::set_global_default(Receiver).map_err(|_| {
            let message = "this process already has a receiver of `tracing` events; use that one";
            Failure::new(OmniheapStatus::Busy, message)
        })?;
        *done = true;
    }
    Ok(())
}

struct Receiver;

fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => OMNIHEAP_LOG_ERROR,
        Level::WARN => OMNIHEAP_LOG_WARN,
        Level::INFO => OMNIHEAP_LOG_INFO,
        _ => OMNIHEAP_LOG_DEBUG,
    }
}

/// The name of an event that has one of its own; others are called after the place in the source where they are.
fn named(about: &Metadata<'_>) -> &'static str {
    if about.target() == "omniheap" { about.name() } else { "" }
}

impl Subscriber for Receiver {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        let logger = LOGGER.read().unwrap_or_else(PoisonError::into_inner);
        logger.is_some_and(|(_, level, _)| number(*about.level()) <= level)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(named(event.metadata()).to_owned());
        event.record(&mut text);
        let message = CString::new(text.0.trim_start().replace('\0', " ")).unwrap_or_default();
        // Held during the call: whoever replaces the logger knows that the old one is not called any more.
        let logger = LOGGER.read().unwrap_or_else(PoisonError::into_inner);
        let Some((log, _, user)) = *logger else { return };
        // SAFETY: whoever registered it promised that it may be called from any thread with its pointer.
        unsafe { log(number(*event.metadata().level()), message.as_ptr(), user.get()) };
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message, then the fields.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Calls `callback` when memory is short, before a request fails. It may free through the manager.
///
/// # Safety
///
/// `callback` may be called from any thread, with `user`, until the manager is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_on_pressure(
    manager: OmniheapManager,
    callback: OmniheapPressure,
    user: *mut c_void,
) -> OmniheapStatus {
    call(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        let user = User(user);
        holder(manager)?.manager.on_pressure(move |short| {
            let heap = u32::from(short.heap.0);
            // SAFETY: the caller's promise.
            match unsafe { callback(heap, short.wanted, short.reserved, user.get()) } {
                0 => Relief::Nothing,
                _ => Relief::Freed,
            }
        });
        Ok(())
    })
}
