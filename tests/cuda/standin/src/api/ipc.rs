//! Memory of other processes, by old-style handles.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_uint;

use crate::code::Code;
use crate::entry::export;
use crate::ffi::Out;
use crate::ipc;
use crate::space::{self, Kind};
use crate::{context, count, stream};

/// `CUipcMemHandle`, which is passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Handle(ipc::Bytes);

export! {
    fn cuIpcGetMemHandle(out: Out<ipc::Bytes>, address: u64) {
        out.wanted()?;
        context::current()?;
        out.set(ipc::export(address)?)
    }

    fn cuIpcOpenMemHandle_v2(out: Out<u64>, handle: Handle, flags: c_uint) {
        out.wanted()?;
        let context = context::current()?;
        if flags != 1 {
            return Err(Code::INVALID_VALUE);
        }
        out.set(ipc::open(handle.0, context, context::device_of(context)?)?)
    }

    fn cuIpcCloseMemHandle(address: u64) {
        let context = context::current()?;
        if space::at(address, |kind| kind == Kind::Opened).is_none() {
            count::broken(&format!("cuIpcCloseMemHandle of {address:#x}, which was not opened"));
            return Err(Code::INVALID_VALUE);
        }
        stream::drain(context);
        space::free(address);
        Ok(())
    }
}
