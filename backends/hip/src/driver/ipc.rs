//! Plain memory that another process opens by a handle.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ptr;

use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{IpcDriver, StreamDriver};

use super::{Driver, address, check, pointer};
use crate::sys::{Peer, hipIpcMemHandle_t};

/// Access of other devices is enabled when it is first needed; the only flag there is.
const LAZY_PEER_ACCESS: u32 = 0x1;

impl Driver {
    fn sharing(&self) -> Result<Peer> {
        self.api.peer.ok_or_else(|| ErrorKind::Unsupported.into())
    }
}

// SAFETY: each function is one call of the runtime, which keeps opened memory mapped until it is closed.
unsafe impl IpcDriver for Driver {
    unsafe fn ipc_handle(&self, base: u64) -> Result<[u8; 64]> {
        let table = self.sharing()?;
        let _current = self.enter()?;
        let mut handle = hipIpcMemHandle_t { reserved: [0; 64] };
        // SAFETY: `handle` is a valid out-pointer; the caller promises the address.
        check(unsafe { (table.hipIpcGetMemHandle)(&raw mut handle, pointer(base)) })?;
        Ok(handle.reserved)
    }

    fn open_ipc(&self, handle: [u8; 64]) -> Result<u64> {
        let table = self.sharing()?;
        let _current = self.enter()?;
        let (mut memory, handle) = (ptr::null_mut(), hipIpcMemHandle_t { reserved: handle });
        // SAFETY: `memory` is a valid out-pointer; any handle may be tried.
        check(unsafe { (table.hipIpcOpenMemHandle)(&raw mut memory, handle, LAZY_PEER_ACCESS) })?;
        Ok(address(memory))
    }

    unsafe fn close_ipc(&self, base: u64) -> Result<()> {
        let table = self.sharing()?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipIpcCloseMemHandle)(pointer(base)) })
    }
}
