//! Devices, and the primary context of each.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::context;
use crate::entry::export;
use crate::ffi::{InText, Out, Word, set_text};
use crate::knobs::knobs;
use crate::teardown;

/// The attribute that says whether network cards reach virtual memory.
const RDMA: c_uint = 110;

/// Attributes of every device, by number; others are zero.
const ATTRIBUTES: [(c_uint, c_int); 38] = [
    (1, 1024),         // threads of a group
    (2, 1024),         // along x
    (3, 1024),         // along y
    (4, 64),           // along z
    (5, 0x7FFF_FFFF),  // groups along x
    (6, 65_535),       // along y
    (7, 65_535),       // along z
    (8, 48 << 10),     // shared memory of a group
    (9, 64 << 10),     // constant memory
    (10, 32),          // threads of a warp
    (11, 0x7FFF_FFFF), // pitch
    (12, 65_536),      // registers of a group
    (13, 1_980_000),   // clock
    (14, 512),         // alignment of textures
    (15, 1),           // copies beside kernels
    (16, 132),         // multiprocessors
    (19, 1),           // host memory can be mapped
    (31, 1),           // kernels beside each other
    (36, 2_619_000),   // clock of the memory
    (37, 5120),        // bits of its bus
    (38, 50 << 20),    // second-level cache
    (39, 2048),        // threads of a multiprocessor
    (40, 3),           // copy engines
    (41, 1),           // one address space
    (75, 9),           // compute capability, major
    (76, 0),           // and minor
    (78, 1),           // priorities of streams
    (81, 228 << 10),   // shared memory of a multiprocessor
    (82, 65_536),      // its registers
    (83, 1),           // managed memory
    (89, 1),           // concurrent managed access
    (91, 1),           // pinned memory has one address
    (97, 227 << 10),   // shared memory of a group that asks for it
    (102, 1),          // virtual memory
    (103, 1),          // as file descriptors
    (115, 1),          // pools
    (119, 1),          // handles of pools
    (131, 1),          // old-style handles between processes
];

export! {
    fn cuDeviceGetCount(count: Out<c_int>) {
        count.set(c_int::try_from(knobs().devices).unwrap_or(0))
    }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        context::device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<u8>, size: c_int, device: c_int) {
        name.wanted()?;
        context::device(device)?;
        let size = usize::try_from(size).map_err(|_| Code::INVALID_VALUE)?;
        set_text(name, "stand-in for a CUDA device", size)
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) {
        uuid.set(self::uuid(context::device(device)?))
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) {
        uuid.set(self::uuid(context::device(device)?))
    }

    fn cuDeviceGetPCIBusId(name: Out<u8>, size: c_int, device: c_int) {
        name.wanted()?;
        let number = context::device(device)?;
        let size = usize::try_from(size).map_err(|_| Code::INVALID_VALUE)?;
        set_text(name, &format!("0000:{:02X}:00.0", 0x10 + number), size)
    }

    fn cuDeviceGetByPCIBusId(device: Out<c_int>, name: InText) {
        let name = name.get()?;
        let number = name.strip_prefix("0000:").and_then(|rest| rest.strip_suffix(":00.0"));
        let number = number.and_then(|number| i32::from_str_radix(number, 16).ok());
        let number = number.ok_or(Code::INVALID_VALUE)? - 0x10;
        context::device(number)?;
        device.set(number)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: c_int) {
        context::device(device)?;
        bytes.set(knobs().memory)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) {
        value.wanted()?;
        context::device(device)?;
        if attribute == 0 || attribute > 160 {
            return Err(Code::INVALID_VALUE);
        }
        if attribute == RDMA {
            return value.set(c_int::from(knobs().has_rdma));
        }
        let known = ATTRIBUTES.iter().find(|(number, _)| *number == attribute);
        value.set(known.map_or(0, |(_, value)| *value))
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        let (device, peer) = (context::device(device)?, context::device(peer)?);
        can.set(c_int::from(device != peer))
    }

    fn cuDevicePrimaryCtxRetain(out: Out<Word>, device: c_int) {
        out.wanted()?;
        out.set(Word::new(context::retain(context::device(device)?)))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        teardown::release(context::device(device)?)
    }

    fn cuDevicePrimaryCtxRelease(device: c_int) {
        teardown::release(context::device(device)?)
    }

    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        reset(device)
    }

    fn cuDevicePrimaryCtxReset(device: c_int) {
        reset(device)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) {
        context::set_flags(context::device(device)?, flags);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let primary = context::primary(context::device(device)?);
        flags.set(primary.flags)?;
        active.set(c_int::from(primary.is_active))
    }
}

fn reset(device: c_int) -> Answer {
    if let Some(context) = context::primary(context::device(device)?).active() {
        teardown::destroy(context);
    }
    Ok(())
}

fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = *b"omniheap standin";
    uuid[15] = b'0' + device.to_le_bytes()[0];
    uuid
}
