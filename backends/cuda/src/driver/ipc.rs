//! Plain memory that another process opens by a handle.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, check};
use crate::sys::{CUdeviceptr, CUipcMemHandle};
use core::ffi::c_char;
use omniheap_core::{ErrorKind, Result};

/// Access of other devices is enabled when it is first needed; the only flag there is.
const LAZY_PEER_ACCESS: u32 = 0x1;

impl Driver {
    /// The handle of a block's memory.
    ///
    /// # Safety
    ///
    /// `address` came from [`allocate`](Self::allocate) and is not yet freed.
    pub(crate) unsafe fn ipc_handle(&self, address: CUdeviceptr) -> Result<[u8; 64]> {
        let get = self.fns.ipc_handle.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `handle` is a valid out-pointer; the caller promises the address.
        check(unsafe { get(&raw mut handle, address) })?;
        Ok(handle.reserved.map(c_char::cast_unsigned))
    }

    /// Opens another process's memory. The driver checks the handle.
    pub(crate) fn open_ipc(&self, handle: [u8; 64]) -> Result<CUdeviceptr> {
        let open = self.fns.ipc_open.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let handle = CUipcMemHandle { reserved: handle.map(u8::cast_signed) };
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; any handle may be tried.
        check(unsafe { open(&raw mut address, handle, LAZY_PEER_ACCESS) })?;
        Ok(address)
    }

    /// # Safety
    ///
    /// `address` came from [`open_ipc`](Self::open_ipc), is not yet closed, and no device work uses it.
    pub(crate) unsafe fn close_ipc(&self, address: CUdeviceptr) -> Result<()> {
        let close = self.fns.ipc_close.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { close(address) })
    }
}
