//! Virtual memory: addresses, physical memory, mappings, and handles for other processes.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};
use std::os::fd::IntoRawFd;

use super::pool::{AccessOf, Location};
use crate::code::{Answer, Code};
use crate::count;
use crate::entry::export;
use crate::ffi::{In, Out, Word};
use crate::physical;
use crate::space::{self, Access, GRANULE, Kind};

/// A file descriptor.
const DESCRIPTOR: c_uint = 1;

/// Place of the flag for memory that network cards reach.
const RDMA: usize = 1;

/// `CUmemAllocationProp`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Properties {
    kind: c_uint,
    handles: c_uint,
    location: Location,
    win32: u64,
    flags: [u8; 8],
}

const _: () = assert!(size_of::<Properties>() == 32);

impl Properties {
    /// Checks the properties; returns the device, or none for memory of the host.
    fn device(&self) -> Answer<Option<u32>> {
        if self.kind != 1 || self.handles > 1 {
            return Err(Code::INVALID_VALUE);
        }
        match self.location.kind {
            1 => self.location.device().map(Some),
            2..=4 => Ok(None),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

export! {
    fn cuMemGetAllocationGranularity(out: Out<u64>, properties: In<Properties>, option: c_uint) {
        properties.get()?.device()?;
        if option > 1 {
            return Err(Code::INVALID_VALUE);
        }
        out.set(GRANULE)
    }

    fn cuMemAddressReserve(out: Out<u64>, size: u64, align: u64, wanted: u64, flags: u64) {
        out.wanted()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        out.set(physical::reserve(size, align, wanted)?)
    }

    fn cuMemAddressFree(address: u64, size: u64) {
        physical::unreserve(address, size)
    }

    fn cuMemCreate(out: Out<u64>, size: u64, properties: In<Properties>, flags: u64) {
        out.wanted()?;
        let properties = properties.get()?;
        let device = properties.device()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if properties.flags[RDMA] == 1 {
            count::call("cuMemCreate.rdma");
        }
        out.set(physical::create(size, device, properties.handles == DESCRIPTOR)?)
    }

    fn cuMemRelease(handle: u64) {
        physical::release(handle)
    }

    fn cuMemMap(address: u64, size: u64, offset: u64, handle: u64, flags: u64) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        physical::map(address, size, offset, handle)
    }

    fn cuMemUnmap(address: u64, size: u64) {
        physical::unmap(address, size)
    }

    fn cuMemSetAccess(address: u64, size: u64, list: In<AccessOf>, count: usize) {
        for one in list.list(count)? {
            one.location.device()?;
            let access = match one.rights {
                0 => Access::None,
                1 => Access::Read,
                3 => Access::ReadWrite,
                _ => return Err(Code::INVALID_VALUE),
            };
            physical::allow(address, size, access)?;
        }
        Ok(())
    }

    fn cuMemGetAccess(out: Out<u64>, location: In<Location>, address: u64) {
        location.get()?.device()?;
        let found = space::find(address).filter(|(_, range)| matches!(range.kind, Kind::Mapped(_)));
        let (_, range) = found.ok_or(Code::INVALID_VALUE)?;
        out.set(match range.access {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 3,
        })
    }

    fn cuMemExportToShareableHandle(out: Out<c_int>, handle: u64, kind: c_uint, _flags: u64) {
        out.wanted()?;
        if kind != DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        out.set(physical::export(handle)?.into_raw_fd())
    }

    fn cuMemImportFromShareableHandle(out: Out<u64>, handle: Word, kind: c_uint) {
        out.wanted()?;
        let descriptor = c_int::try_from(handle.number()).map_err(|_| Code::INVALID_VALUE)?;
        if kind != DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        out.set(physical::import(descriptor)?)
    }

    fn cuMemRetainAllocationHandle(out: Out<u64>, address: Word) {
        out.wanted()?;
        out.set(physical::retain(address.number())?)
    }
}
