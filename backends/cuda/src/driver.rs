//! One function per driver call, returning `Result`; `check` maps codes, and `enter` makes the context current.
#![expect(unsafe_code, reason = "calls the driver")]
mod check;
mod ipc;
mod memory;
mod module;
mod pages;
mod stream;
mod transfer;

use crate::sys::{Attribute, CUcontext, CUdevice, CUuuid, Code, Functions};
pub(crate) use check::check;
use check::{check_release, success};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::{ffi::c_int, fmt};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{Raw, StreamDriver};
pub(crate) use pages::Sharing;

/// The oldest driver this backend talks to: CUDA 12.0.
const OLDEST_DRIVER: i32 = 12_000;

/// The owner of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// The device's primary context, retained by us.
    Primary,
    /// The caller's; never released here.
    Borrowed,
}

/// One device's context, and the calls on it.
pub struct Driver {
    fns: &'static Functions,
    device: CUdevice,
    context: Raw<cudarc::driver::sys::CUctx_st>,
    ownership: Ownership,
    /// True once the context is gone.
    has_ended: AtomicBool,
}

/// Calls that would spoil the captures of others are let through: ours touch nothing of theirs.
const RELAXED: u32 = 2;

/// Guard that keeps the driver's context current on this thread, whose calls spoil no capture meanwhile; then all is as
/// before.
pub struct Current<'a> {
    fns: &'a Functions,
    pushed: bool,
    capture_mode: u32,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        // SAFETY: the mode is a valid in- and out-pointer; `enter` got it from the driver.
        let _ = unsafe { (self.fns.capture_mode)(&raw mut self.capture_mode) };
        if self.pushed {
            let mut popped = core::ptr::null_mut();
            // SAFETY: `popped` is a valid out-pointer; `enter` pushed one context, popped once here.
            let _ = unsafe { (self.fns.context_pop)(&raw mut popped) };
        }
    }
}

impl Driver {
    /// Initialises the driver.
    fn functions() -> Result<&'static Functions> {
        let fns = Functions::get().ok_or(
            ErrorKind::Unsupported.because("there is no CUDA driver; install NVIDIA's (libcuda)"),
        )?;
        // SAFETY: zero is the only documented flag.
        check(unsafe { (fns.init)(0) })?;
        let mut version = 0;
        // SAFETY: `version` is a valid out-pointer.
        check(unsafe { (fns.driver_version)(&raw mut version) })?;
        if version < OLDEST_DRIVER {
            let error = ErrorKind::Unsupported.because("the CUDA driver is older than 12.0");
            return Err(error.with_native(i64::from(version)));
        }
        Ok(fns)
    }

    /// Returns the number of devices.
    pub(crate) fn count() -> Result<u32> {
        let fns = Self::functions()?;
        let mut count = 0;
        // SAFETY: `count` is a valid out-pointer.
        check(unsafe { (fns.device_count)(&raw mut count) })?;
        u32::try_from(count).map_err(|_| ErrorKind::Driver.into())
    }

    /// Retains the primary context of a device.
    pub(crate) fn open(ordinal: u32) -> Result<Self> {
        let count = Self::count()?;
        if count == 0 {
            return Err(ErrorKind::Unsupported.because("the CUDA driver has no device"));
        }
        let no_such = ErrorKind::InvalidConfig.because("no CUDA device has this number");
        let ordinal = c_int::try_from(ordinal).map_err(|_| no_such)?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(no_such);
        }
        let fns = Self::functions()?;
        let mut device = 0;
        // SAFETY: `device` is a valid out-pointer.
        check(unsafe { (fns.device_get)(&raw mut device, ordinal) })?;
        let mut context = core::ptr::null_mut();
        // SAFETY: `device` came from the call above; `context` is a valid out-pointer.
        check(unsafe { (fns.primary_retain)(&raw mut context, device) })?;
        let (context, ownership) = (Raw(context), Ownership::Primary);
        Ok(Self { fns, device, context, ownership, has_ended: AtomicBool::new(false) })
    }

    /// Uses a context that the caller keeps alive.
    ///
    /// # Safety
    ///
    /// `context` is a live context for as long as the result lives.
    pub(crate) unsafe fn wrap(context: CUcontext) -> Result<Self> {
        if context.is_null() {
            return Err(ErrorKind::InvalidConfig.because("the context is null"));
        }
        let fns = Self::functions()?;
        let (context, ownership) = (Raw(context), Ownership::Borrowed);
        let has_ended = AtomicBool::new(false);
        let mut this = Self { fns, device: 0, context, ownership, has_ended };
        this.device = this.current_device()?;
        Ok(this)
    }

    /// Returns the device's number in this process: handles of devices are their ordinals.
    pub(crate) fn ordinal(&self) -> u32 {
        u32::try_from(self.device).unwrap_or(0)
    }

    /// Notes that the context is gone, and its events and plain memory with it: the driver must not be asked about these any more.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    fn enter_code(&self) -> core::result::Result<Current<'_>, Code> {
        let mut current = core::ptr::null_mut();
        // SAFETY: `current` is a valid out-pointer.
        success(unsafe { (self.fns.context_current)(&raw mut current) })?;
        let pushed = current != self.context.0;
        if pushed {
            // SAFETY: the context lives as long as `self`: retained by `open`, promised to `wrap`.
            success(unsafe { (self.fns.context_push)(self.context.0) })?;
        }
        let mut capture_mode = RELAXED;
        // SAFETY: the mode is a valid in- and out-pointer. A thread without a mode of its own gets the relaxed one.
        let _ = unsafe { (self.fns.capture_mode)(&raw mut capture_mode) };
        Ok(Current { fns: self.fns, pushed, capture_mode })
    }

    /// Runs a call that gives something back. A driver that is already gone has nothing left to give back.
    fn release(&self, call: impl FnOnce(&Functions) -> Code) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        check_release(match self.enter_code() {
            Ok(_current) => call(self.fns),
            Err(code) => code,
        })
    }

    /// As [`release`](Self::release), for pages and their addresses, which outlive every context.
    fn release_anywhere(&self, call: impl FnOnce() -> Code) -> Result<()> {
        let _current = self.enter_code();
        check_release(call())
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.context.0
    }

    fn current_device(&self) -> Result<CUdevice> {
        let _current = self.enter()?;
        let mut device = 0;
        // SAFETY: `device` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.context_device)(&raw mut device) })?;
        Ok(device)
    }

    pub(crate) fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: `version` is a valid out-pointer.
        check(unsafe { (self.fns.driver_version)(&raw mut version) })?;
        Ok(version)
    }

    pub(crate) fn name(&self) -> Result<String> {
        let mut bytes = [0u8; 256];
        // SAFETY: the buffer has the length that is passed; `device` is a device.
        check(unsafe { (self.fns.device_name)(bytes.as_mut_ptr().cast(), 256, self.device) })?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    pub(crate) fn uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is a valid out-pointer; `device` is a device.
        check(unsafe { (self.fns.device_uuid)(&raw mut uuid, self.device) })?;
        Ok(uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())))
    }

    pub(crate) fn total_memory(&self) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: `bytes` is a valid out-pointer; `device` is a device.
        check(unsafe { (self.fns.device_total)(&raw mut bytes, self.device) })?;
        Ok(bytes as u64)
    }

    /// One device attribute; an unknown one reads as zero.
    pub(crate) fn attribute(&self, attribute: Attribute) -> u64 {
        self.numbered_attribute(attribute as u32)
    }

    /// As [`attribute`](Self::attribute), for one that is younger than our bindings.
    fn numbered_attribute(&self, attribute: u32) -> u64 {
        let mut value = 0;
        // SAFETY: `value` is a valid out-pointer; `device` is a device.
        let code = unsafe { (self.fns.device_attribute)(&raw mut value, attribute, self.device) };
        if success(code).is_ok() { u64::try_from(value).unwrap_or(0) } else { 0 }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.ownership == Ownership::Primary {
            // SAFETY: retained once in `open`, released once here. A failure leaves nothing to do.
            let _ = unsafe { (self.fns.primary_release)(self.device) };
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("context", &self.context).finish_non_exhaustive()
    }
}

impl fmt::Debug for Current<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("pushed", &self.pushed).finish_non_exhaustive()
    }
}
