//! Plain memory that another process opens by a handle.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, check};
use crate::sys::CUipcMemHandle;
use core::ffi::c_char;
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{IpcDriver, StreamDriver};

/// Access of other devices is enabled when it is first needed; the only flag there is.
const LAZY_PEER_ACCESS: u32 = 0x1;

// SAFETY: each function is one driver call; the driver keeps opened memory mapped until it is closed.
unsafe impl IpcDriver for Driver {
    unsafe fn ipc_handle(&self, address: u64) -> Result<[u8; 64]> {
        let get = self.fns.ipc_handle.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `handle` is a valid out-pointer; the caller promises the address.
        check(unsafe { get(&raw mut handle, address) })?;
        Ok(handle.reserved.map(c_char::cast_unsigned))
    }

    fn open_ipc(&self, handle: [u8; 64]) -> Result<u64> {
        let open = self.fns.ipc_open.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let handle = CUipcMemHandle { reserved: handle.map(u8::cast_signed) };
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; any handle may be tried.
        check(unsafe { open(&raw mut address, handle, LAZY_PEER_ACCESS) })?;
        Ok(address)
    }

    unsafe fn close_ipc(&self, address: u64) -> Result<()> {
        let close = self.fns.ipc_close.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { close(address) })
    }
}
