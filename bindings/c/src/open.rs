//! Devices: those that are here, opened by backend and number.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::defrag::{OmniheapBudget, limits, omniheap_budget_default};
use crate::handle::{Holder, MANAGERS, Native, OmniheapManager, Settings, take_manager};
use crate::sized::{grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, call, check, put, put_text, text};
use core::ffi::c_char;
use omniheap::cuda::Cuda;
use omniheap::hip::Hip;
use omniheap::vulkan::Vulkan;
use omniheap::{
    Align, BackendKind, ErrorKind, ManagerConfig,
    defrag::{Background, Defragmentation},
    pool::Waiting,
};
use serde_json::json;
use std::sync::Arc;

/// Pools of pages wait for the device only before a request would fail.
pub const OMNIHEAP_WAITING_LAST_RESORT: u32 = 0;
/// Pools of pages also wait, or let timelines run after each other, before they hold much more than was ever live: less
/// memory, and a stall now and then while they grow.
pub const OMNIHEAP_WAITING_THRIFT: u32 = 1;

/// Live data is moved together before a request would fail, and where the caller says so.
pub const OMNIHEAP_DEFRAGMENTATION_ON_REQUEST: u32 = 0;
/// Live data is moved only where the caller says so.
pub const OMNIHEAP_DEFRAGMENTATION_OFF: u32 = 1;
/// Live data is moved before a request would fail, and a little with every `omniheap_step`.
pub const OMNIHEAP_DEFRAGMENTATION_BACKGROUND: u32 = 2;

/// Configuration of a manager. Start from `omniheap_config_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapConfig {
    /// Bytes of this struct, which `omniheap_config_default` sets.
    pub struct_size: usize,
    /// Every allocation starts at, and is a multiple of, this: a power of two.
    pub unit: u64,
    /// Non-zero: build pools from pages where the device has them, so that holes do not add up.
    pub paged: u32,
    /// `OMNIHEAP_WAITING_…`.
    pub waiting: u32,
    /// Record a trace of everything into this file until the manager is closed; null for none.
    pub trace: *const c_char,
    /// `OMNIHEAP_DEFRAGMENTATION_…`.
    pub defragmentation: u32,
    /// Percentage of free memory above which steps begin to move; 0 is the usual one, which is 25.
    pub begin_above: u32,
    /// Percentage of free memory below which they end; 0 is the usual one, which is 10.
    pub end_below: u32,
    /// Non-zero: guards behind all allocations, for `omniheap_overwrites`. They cost memory and time; use them to look for a bug.
    pub guards: u32,
    /// Limits of one step; null for none.
    pub step: *const OmniheapBudget,
}

/// The usual settings; C has it as an inline function.
#[must_use]
pub fn omniheap_config_default() -> OmniheapConfig {
    let config = ManagerConfig::default();
    OmniheapConfig {
        struct_size: size_of::<OmniheapConfig>(),
        unit: config.unit.get(),
        paged: u32::from(config.pool.paged),
        waiting: OMNIHEAP_WAITING_LAST_RESORT,
        trace: core::ptr::null(),
        defragmentation: OMNIHEAP_DEFRAGMENTATION_ON_REQUEST,
        begin_above: 0,
        end_below: 0,
        guards: 0,
        step: core::ptr::null(),
    }
}

grows!(OmniheapConfig to trace: "config" from "omniheap_config_default");

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_config_default` is the short way.
///
/// # Safety
///
/// `config` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_config_init(
    config: *mut OmniheapConfig,
    struct_size: usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(config, struct_size, &omniheap_config_default()) }
}

/// Returns the kind of waiting that a number stands for.
pub(crate) fn waiting(number: u32) -> Result<Waiting, Failure> {
    match number {
        OMNIHEAP_WAITING_LAST_RESORT => Ok(Waiting::LastResort),
        OMNIHEAP_WAITING_THRIFT => Ok(Waiting::Thrift),
        other => {
            let message = format!("waiting is {other}; pass one of OMNIHEAP_WAITING_…");
            Err(Failure::invalid(message))
        }
    }
}

/// Reads the times at which live data is moved.
///
/// # Safety
///
/// `config.step` is null or a budget.
unsafe fn defragmentation(config: &OmniheapConfig) -> Result<Defragmentation, Failure> {
    match config.defragmentation {
        OMNIHEAP_DEFRAGMENTATION_ON_REQUEST => return Ok(Defragmentation::OnRequest),
        OMNIHEAP_DEFRAGMENTATION_OFF => return Ok(Defragmentation::Off),
        OMNIHEAP_DEFRAGMENTATION_BACKGROUND => {}
        other => {
            let message = format!(
                "config.defragmentation is {other}; pass one of OMNIHEAP_DEFRAGMENTATION_…"
            );
            return Err(Failure::invalid(message));
        }
    }
    let mut budget = omniheap_budget_default();
    if !config.step.is_null() {
        // SAFETY: the caller's promise.
        budget = unsafe { read_sized(config.step, budget) }?;
    }
    let usual = Background::new(limits(&budget));
    let percent = |set: u32, usual| if set == 0 { Some(usual) } else { u8::try_from(set).ok() };
    let begin = percent(config.begin_above, usual.begin_above).filter(|begin| *begin <= 100);
    let end = percent(config.end_below, usual.end_below);
    match (end, begin) {
        (Some(end), Some(begin)) if end <= begin => {
            Ok(Defragmentation::Background(usual.between(end, begin)))
        }
        _ => Err(Failure::invalid(format!(
            "config.begin_above is {} and config.end_below {}; pass percentages of which the first is not below the second, or 0",
            config.begin_above, config.end_below
        ))),
    }
}

/// Reads settings; none are the usual ones.
///
/// # Safety
///
/// `config` is null or points to settings.
pub(crate) unsafe fn settings(config: *const OmniheapConfig) -> Result<Settings, Failure> {
    let mut settings = ManagerConfig::default();
    if config.is_null() {
        return Ok(Settings { config: settings, trace: None });
    }
    // SAFETY: the caller's promise.
    let config = unsafe { read_sized(config, omniheap_config_default()) }?;
    settings.pool.waiting = waiting(config.waiting)?;
    let unit = Align::new(config.unit);
    settings.unit =
        unit.ok_or_else(|| Failure::invalid("config.unit is not a power of two; 256 is usual"))?;
    settings = if config.paged == 0 { settings.plain() } else { settings };
    // SAFETY: the caller's promise.
    settings.defragmentation = unsafe { defragmentation(&config) }?;
    settings = if config.guards == 0 { settings } else { settings.guarded() };
    if config.trace.is_null() {
        return Ok(Settings { config: settings, trace: None });
    }
    // SAFETY: the caller's promise.
    let path = unsafe { text(config.trace, "config.trace") }?;
    Ok(Settings { config: settings, trace: Some(path.to_owned()) })
}

/// Opens a device and gives it a handle.
///
/// # Safety
///
/// `manager` is null or may be written.
pub(crate) unsafe fn publish(
    open: impl FnOnce() -> Result<Arc<Holder>, Failure>,
    manager: *mut OmniheapManager,
) -> Result<(), Failure> {
    check(manager, "manager")?;
    let id = MANAGERS.insert(open()?)?;
    // SAFETY: the caller's promise.
    unsafe { put(manager, OmniheapManager { id }, "manager") }
}

fn kind(name: &str) -> Result<BackendKind, Failure> {
    let names = BackendKind::ALL.map(BackendKind::name).join(", ");
    name.parse().map_err(|_| {
        Failure::invalid(format!("there is no backend {name:?}; choose one of {names}"))
    })
}

fn open(backend: BackendKind, ordinal: u32, config: Settings) -> Result<Arc<Holder>, Failure> {
    let index = usize::try_from(ordinal).map_err(|_| ErrorKind::Unsupported)?;
    match backend {
        BackendKind::Cuda => Holder::cuda(Cuda::open(ordinal)?, config),
        BackendKind::Hip => Holder::hip(Hip::open(ordinal)?, config),
        BackendKind::Vulkan => Holder::vulkan(Vulkan::open(index)?, ordinal, config),
        BackendKind::Host if ordinal == 0 => Holder::host(config),
        other => Holder::new(omniheap::open(other, ordinal)?, Native::Other, ordinal, config),
    }
}

/// Every device of every backend as a JSON array, with the reason where a backend has none.
///
/// With a null `buffer` and zero `capacity`, only `length` is written.
///
/// # Safety
///
/// `buffer` is null or has `capacity` bytes; `length` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_devices_json(
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> OmniheapStatus {
    call(|| {
        let devices = omniheap::devices();
        let list: Vec<_> = devices
            .iter()
            .map(|found| match &found.device {
                Ok(device) => json!({
                    "backend": found.backend.name(),
                    "ordinal": found.ordinal,
                    "name": device.caps().device.name,
                    "driver": device.caps().device.driver,
                }),
                Err(error) => {
                    json!({ "backend": found.backend.name(), "error": error.to_string() })
                }
            })
            .collect();
        // SAFETY: the caller's promise.
        unsafe { put_text(&json!(list).to_string(), buffer, capacity, length) }
    })
}

/// Opens a device of a backend ("cuda", "hip", "vulkan", "wgpu", "host"); devices are numbered from 0.
///
/// # Safety
///
/// `backend` is null or a C string, `config` null or settings, `manager` null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_open(
    backend: *const c_char,
    ordinal: u32,
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let backend = kind(unsafe { text(backend, "backend") }?)?;
        // SAFETY: as above.
        let settings = unsafe { settings(config) }?;
        let opened =
            || open(backend, ordinal, settings).map_err(|failure| failure.of(backend.name()));
        // SAFETY: as above.
        unsafe { publish(opened, manager) }
    })
}

/// Opens the best device here; host memory where there is nothing else.
///
/// # Safety
///
/// `config` is null or settings, `manager` null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_open_best(
    config: *const OmniheapConfig,
    manager: *mut OmniheapManager,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let settings = unsafe { settings(config) }?;
        let best = || {
            let backend = omniheap::open_best()?;
            open(kind(backend.caps().device.backend)?, 0, settings)
        };
        // SAFETY: as above.
        unsafe { publish(best, manager) }
    })
}

/// Closes a manager, and finishes its trace. Once this has returned, nothing of the library uses the device, and no callback of the manager is
/// called.
///
/// Refused with `BUSY`, and nothing is changed, while allocations, pools, passes or attached memory of it have handles, and while another call of it
/// runs: on another thread, or around the callback that closes it. Waits for what the library does by itself: the piece that
/// `omniheap_sleep_prepare` is at in the background, and the answer to an arbiter's press, so a pressure callback does not wait for a thread that
/// closes.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_close(manager: OmniheapManager) -> OmniheapStatus {
    call(|| {
        let closing = take_manager(manager)?;
        let recorder = closing.recorder.clone();
        drop(closing);
        let finished = recorder.map_or(Ok(()), |recorder| recorder.finish());
        finished.map_err(|error| Failure::new(OmniheapStatus::File, format!("the trace: {error}")))
    })
}
