//! One function for each call, returning `Result`; `check` maps codes, and `enter` chooses the device.
//!
//! HIP trusts its callers: a pointer or handle that it does not know may end the process, and some calls answer
//! success for what did not happen. The functions here say what they need, and do what can be done at this level.

#![expect(unsafe_code, reason = "calls the runtime")]

mod check;
mod ipc;
mod memory;
mod module;
mod pages;
mod pool;
mod stream;
mod transfer;

use core::ffi::{c_int, c_void};
use core::ptr;

use check::{check, check_release, success};
pub use memory::Coherence;
use omniheap_seam::{Error, ErrorKind, Result};
pub use pages::{Reserved, Sharing};

use crate::sys::{
    Api, Core, Properties, hipDeviceAttribute_t, hipDeviceProp_tR0000, hipDeviceProp_tR0600,
    hipError_t, hipStreamCaptureMode, hipUUID,
};

/// One device, and the calls on it.
#[derive(Debug)]
pub struct Driver {
    api: &'static Api,
    device: c_int,
}

/// Guard that keeps the driver's device the thread's, whose calls spoil no capture meanwhile; then all is as before.
#[derive(Debug)]
pub struct Current {
    api: &'static Api,
    restore: Option<c_int>,
    capture_mode: hipStreamCaptureMode,
}

impl Current {
    /// Sets the thread's capture mode, and remembers the previous one.
    fn exchange_mode(&mut self) {
        if let Some(captures) = self.api.captures {
            let mode = &raw mut self.capture_mode;
            // SAFETY: a valid in- and out-pointer. A failure leaves the thread as it was.
            let _ = unsafe { (captures.hipThreadExchangeStreamCaptureMode)(mode) };
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        self.exchange_mode();
        if let Some(device) = self.restore {
            // SAFETY: the number came from `hipGetDevice` on this thread. A failure leaves nothing to do.
            let _ = unsafe { (self.api.device.hipSetDevice)(device) };
        }
    }
}

/// Returns an address as the runtime takes it.
fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(
        usize::try_from(address).expect("addresses come from this machine's runtime"),
    )
}

/// Returns an address as this project counts it.
fn address(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}

const NO_LIBRARY: Error = ErrorKind::Unsupported
    .because("there is no HIP runtime; install ROCm or name its library in OMNIHEAP_HIP_LIBRARY");

impl Driver {
    /// Counts the devices of this process's HIP library.
    ///
    /// # Errors
    /// `Unsupported` without a library or a device; otherwise the runtime's error.
    pub fn count() -> Result<u32> {
        let api = Api::get().map_err(|missing| {
            tracing::debug!(%missing, "no HIP runtime");
            NO_LIBRARY
        })?;
        Self::count_on(api)
    }

    fn count_on(api: &Api) -> Result<u32> {
        // Without a device, HIP 5 answers "invalid device" to both calls, later ones "no device".
        let absent = |code| match code {
            hipError_t::hipErrorInvalidDevice => hipError_t::hipErrorNoDevice,
            _ => code,
        };
        // SAFETY: zero is the only documented flag.
        check(absent(unsafe { (api.core.hipInit)(0) }))?;
        let mut count = 0;
        // SAFETY: `count` is a valid out-pointer.
        check(absent(unsafe { (api.device.hipGetDeviceCount)(&raw mut count) }))?;
        u32::try_from(count).map_err(|_| ErrorKind::Driver.into())
    }

    /// Opens a device of this process's HIP library.
    ///
    /// # Errors
    /// `Unsupported` without a library or a device, `InvalidConfig` for a number that no device has.
    pub fn open(ordinal: u32) -> Result<Self> {
        let api = Api::get().map_err(|_| NO_LIBRARY)?;
        Self::open_on(api, ordinal)
    }

    /// Opens a device of a HIP library that is loaded already.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(api: &'static Api, ordinal: u32) -> Result<Self> {
        let no_such = ErrorKind::InvalidConfig.because("no HIP device has this number");
        if Self::count_on(api)? <= ordinal {
            return Err(no_such);
        }
        let device = c_int::try_from(ordinal).map_err(|_| no_such)?;
        Ok(Self { api, device })
    }

    fn enter_code(&self) -> core::result::Result<Current, hipError_t> {
        let mut current = 0;
        // SAFETY: `current` is a valid out-pointer.
        success(unsafe { (self.api.device.hipGetDevice)(&raw mut current) })?;
        let restore = (current != self.device).then_some(current);
        if restore.is_some() {
            // SAFETY: `open_on` saw that the device exists.
            success(unsafe { (self.api.device.hipSetDevice)(self.device) })?;
        }
        // Calls that would spoil the captures of others are let through: ours touch nothing of theirs.
        let capture_mode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        let mut current = Current { api: self.api, restore, capture_mode };
        current.exchange_mode();
        Ok(current)
    }

    /// Runs a call that gives something back. A runtime that is already gone has nothing left to give back.
    fn release(&self, call: impl FnOnce(&Core) -> hipError_t) -> Result<()> {
        check_release(match self.enter_code() {
            Ok(_current) => call(&self.api.core),
            Err(code) => code,
        })
    }

    /// Returns the device's number.
    #[must_use]
    pub const fn ordinal(&self) -> i32 {
        self.device
    }

    /// Returns the functions this driver calls.
    #[must_use]
    pub const fn api(&self) -> &'static Api {
        self.api
    }

    /// Returns the runtime's version: major · 10⁷ + minor · 10⁵ + patch.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: `version` is a valid out-pointer.
        check(unsafe { (self.api.core.hipRuntimeGetVersion)(&raw mut version) })?;
        Ok(version)
    }

    /// Returns the device's name and the name of its architecture, features included.
    ///
    /// # Errors
    /// The runtime's error; `Unsupported` when it cannot tell.
    pub fn names(&self) -> Result<(String, String)> {
        let (mut new, mut old) = (hipDeviceProp_tR0600::ZERO, hipDeviceProp_tR0000::ZERO);
        match self.api.properties.ok_or(ErrorKind::Unsupported)? {
            Properties::R0600(ask) => {
                // SAFETY: the symbol of that name writes the structure that `new` is.
                check(unsafe { ask(&raw mut new, self.device) })?;
                Ok((text(&new.bytes), text(&new.bytes[hipDeviceProp_tR0600::gcnArchName..])))
            }
            Properties::R0000(ask) => {
                // SAFETY: the symbol of that name writes the structure that `old` is.
                check(unsafe { ask(&raw mut old, self.device) })?;
                Ok((text(&old.bytes), text(&old.bytes[hipDeviceProp_tR0000::gcnArchName..])))
            }
        }
    }

    /// Returns the device's identity.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = hipUUID { bytes: [0; 16] };
        // SAFETY: `uuid` is a valid out-pointer; `open_on` saw the device.
        check(unsafe { (self.api.device.hipDeviceGetUuid)(&raw mut uuid, self.device) })?;
        Ok(uuid.bytes)
    }

    /// Returns one attribute; an unknown one reads as zero.
    #[must_use]
    pub fn attribute(&self, attribute: hipDeviceAttribute_t) -> u64 {
        let mut value = 0;
        // SAFETY: `value` is a valid out-pointer; `open_on` saw the device.
        let code = unsafe {
            (self.api.device.hipDeviceGetAttribute)(&raw mut value, attribute, self.device)
        };
        if success(code).is_ok() { u64::try_from(value).unwrap_or(0) } else { 0 }
    }
}

/// Returns the text at the start of `bytes`, up to a zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
