//! The settings of this process, and its devices, opened at first use. Nothing here is ever dropped.
use crate::device::{Device, Settings};
use crate::guard;
use crate::lock;
use core::ffi::c_int;
use omniheap::arbiter::Arbitrated;
use omniheap::cuda::Cuda;
use omniheap::hip::Hip;
use omniheap::host::Host;
use omniheap::{Attending, BackendKind, Error, ErrorKind};
use std::sync::{Arc, Mutex, OnceLock};

/// The most devices of one process.
const DEVICES: usize = 64;

/// A device of the chosen backend.
pub(crate) enum AnyDevice {
    Cuda(Device<Arbitrated<Cuda>>),
    Hip(Device<Arbitrated<Hip>>),
    Host(Device<Arbitrated<Host>>),
}

/// Runs the same expression on a device of any backend.
macro_rules! on {
    ($any:expr, $device:ident => $body:expr) => {
        match $any {
            $crate::state::AnyDevice::Cuda($device) => $body,
            $crate::state::AnyDevice::Hip($device) => $body,
            $crate::state::AnyDevice::Host($device) => $body,
        }
    };
}
pub(crate) use on;

/// Answers a C function with what `$body` did on a device, which is opened where it is not: 0, or -1 and a line.
macro_rules! answer {
    ($ordinal:expr, $doing:literal, $device:ident => $body:expr) => {
        $crate::guard::guarded(|| {
            let found = $crate::state::device($ordinal).map_err($crate::guard::failed($doing))?;
            $crate::state::on!(found, $device => $body)
        })
    };
}

pub(crate) use answer;

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static OPENED: [OnceLock<AnyDevice>; DEVICES] = [const { OnceLock::new() }; DEVICES];
static OPENING: Mutex<()> = Mutex::new(());
static ATTENDING: Mutex<Vec<Attending>> = Mutex::new(Vec::new());

/// Sets how devices are opened; the same settings again change nothing.
///
/// # Errors
///
/// `Busy` for other settings than those in use.
pub(crate) fn configure(settings: Settings) -> Result<(), Error> {
    if *SETTINGS.get_or_init(|| settings) != settings {
        return Err(ErrorKind::Busy.into());
    }
    guard::watch_forks();
    Ok(())
}

/// A device, opened now if it was not.
///
/// # Errors
///
/// `InvalidConfig` for a number that no device has or before [`configure`]; what opening says.
#[inline]
pub(crate) fn device(ordinal: c_int) -> Result<&'static AnyDevice, Error> {
    let slot = usize::try_from(ordinal).ok().and_then(|ordinal| OPENED.get(ordinal));
    let slot = slot.ok_or(ErrorKind::InvalidConfig)?;
    match slot.get() {
        Some(device) => Ok(device),
        None => open(slot, ordinal),
    }
}

#[cold]
fn open(slot: &'static OnceLock<AnyDevice>, ordinal: c_int) -> Result<&'static AnyDevice, Error> {
    let settings = SETTINGS.get().ok_or(ErrorKind::InvalidConfig)?;
    let _one_at_a_time = lock(&OPENING);
    if let Some(device) = slot.get() {
        return Ok(device);
    }
    let ordinal = u32::try_from(ordinal).map_err(|_| ErrorKind::InvalidConfig)?;
    let device = match settings.backend {
        BackendKind::Cuda => AnyDevice::Cuda(Device::open(ordinal, settings)?),
        BackendKind::Hip => AnyDevice::Hip(Device::open(ordinal, settings)?),
        BackendKind::Host => AnyDevice::Host(Device::open(ordinal, settings)?),
        _ => return Err(ErrorKind::Unsupported.into()),
    };
    let device = slot.get_or_init(|| device);
    attend(device, ordinal);
    Ok(device)
}

/// Lets a device answer the presses of its arbiter, for the life of the process. The device is open, so that an arbiter has accepted it.
fn attend(device: &'static AnyDevice, ordinal: u32) {
    let press = move |bytes| {
        // A lost device is reported by the calls that meet it, and a fork has no threads.
        let _ = on!(device, device => device.return_memory(bytes));
    };
    if let Ok(Some(attending)) = omniheap::on_press(ordinal, Arc::new(press)) {
        lock(&ATTENDING).push(attending);
    }
}

/// A device, if it was opened.
pub(crate) fn if_opened(ordinal: c_int) -> Option<&'static AnyDevice> {
    usize::try_from(ordinal).ok().and_then(|ordinal| OPENED.get(ordinal)?.get())
}

/// Every device that was opened.
pub(crate) fn opened() -> impl Iterator<Item = &'static AnyDevice> {
    OPENED.iter().filter_map(OnceLock::get)
}
