//! Plain, pinned and managed memory, and what is known of pointers.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_int, c_uint};
use core::ptr;

use crate::code::Code;
use crate::cuda::{Cuda, Pointer, Source};
use crate::device::set;
use crate::export::{cu, export, forward};

/// `CU_MEMHOSTALLOC_WRITECOMBINED`, which HIP gives the same number.
const WRITE_COMBINED: c_uint = 4;
/// Bytes of an element of rows, which CUDA wants to know.
const ELEMENT: c_uint = 4;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: what HIP's host memory always is.
const EVERYWHERE: c_uint = 3;
/// The advice about coarse and fine grain, which only AMD has.
const GRAIN: core::ops::RangeInclusive<c_uint> = 100..=101;

fn allocate(cuda: &Cuda, out: *mut u64, size: usize) -> Result<(), Code> {
    if size == 0 { set(out, 0) } else { cu!(cuda, cuMemAlloc_v2(out, size)) }
}

export! {
    fn hipMalloc(out: *mut u64, size: usize) |cuda| allocate(cuda, out, size);

    fn hipExtMallocWithFlags(out: *mut u64, size: usize, _flags: c_uint) |cuda| allocate(cuda, out, size);

    fn hipMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize) |cuda| {
        cu!(cuda, cuMemAllocPitch_v2(out, pitch, width, height, ELEMENT))
    };

    fn hipFree(pointer: u64) |cuda| {
        if pointer == 0 { Ok(()) } else { cu!(cuda, cuMemFree_v2(pointer)) }
    };

    fn hipHostMalloc(out: *mut Pointer, size: usize, flags: c_uint) |cuda| {
        if size == 0 {
            return set(out, ptr::null_mut());
        }
        // Coherent or not: pinned memory of CUDA is always coherent.
        cu!(cuda, cuMemHostAlloc(out, size, flags & WRITE_COMBINED | EVERYWHERE))
    };

    fn hipHostFree(pointer: Pointer) |cuda| {
        if pointer.is_null() { Ok(()) } else { cu!(cuda, cuMemFreeHost(pointer)) }
    };

    fn hipMemAdvise(pointer: u64, size: usize, advice: c_uint, device: c_int) |cuda| {
        if GRAIN.contains(&advice) { Ok(()) } else { cu!(cuda, cuMemAdvise(pointer, size, advice, device)) }
    };

    fn hipMemGetAddressRange(base: *mut u64, size: *mut usize, pointer: u64) |cuda| {
        let (start, length) = range(cuda, pointer)?;
        set(base, start)?;
        set(size, length)
    };

    fn hipPointerGetAttributes(out: *mut PointerAttribute, pointer: u64) |cuda| {
        set(out, describe(cuda, pointer)?)
    };
}

forward! {
    hipPointerGetAttribute => cuPointerGetAttribute(value: Pointer, attribute: c_uint, pointer: u64);
    hipDrvPointerGetAttributes => cuPointerGetAttributes(
        count: c_uint, attributes: *const c_uint, values: *mut Pointer, pointer: u64);
    hipMemGetInfo => cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    hipMallocManaged => cuMemAllocManaged(out: *mut u64, size: usize, flags: c_uint);
    hipHostRegister => cuMemHostRegister_v2(pointer: Pointer, size: usize, flags: c_uint);
    hipHostUnregister => cuMemHostUnregister(pointer: Pointer);
    hipHostGetDevicePointer => cuMemHostGetDevicePointer_v2(out: *mut u64, pointer: Pointer, flags: c_uint);
    hipMemPrefetchAsync => cuMemPrefetchAsync(pointer: u64, size: usize, device: c_int, stream: Pointer);
    hipMemRangeGetAttribute => cuMemRangeGetAttribute(
        out: Pointer, length: usize, attribute: c_uint, pointer: u64, size: usize);
}

/// Returns the start and the size of the memory that a pointer lies in. As HIP does, it knows mapped pages too, which
/// CUDA's function of this purpose may not, and refuses reserved addresses with nothing behind them.
fn range(cuda: &Cuda, pointer: u64) -> Result<(u64, usize), Code> {
    let (mut start, mut length, mut mapped) = (0_u64, 0_usize, 0_u32);
    // CUDA's start of the range, its size, and whether memory is behind the pointer.
    let wanted = [11, 12, 13];
    let mut places: [Pointer; 3] =
        [(&raw mut start).cast(), (&raw mut length).cast(), (&raw mut mapped).cast()];
    cu!(cuda, cuPointerGetAttributes(3, wanted.as_ptr(), places.as_mut_ptr(), pointer))?;
    let is_known = mapped & 0xff != 0 && length > 0;
    if is_known { Ok((start, length)) } else { Err(Code::INVALID_VALUE) }
}

/// `hipPointerAttribute_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PointerAttribute {
    kind: u32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
    is_managed: i32,
    flags: u32,
}

/// Answers as HIP 6 and 7 do: a pointer that CUDA does not know is memory of no device.
fn describe(cuda: &Cuda, pointer: u64) -> Result<PointerAttribute, Code> {
    let (mut kind, mut managed, mut device) = (0_u32, 0_u32, -2_i32);
    let (mut device_pointer, mut host_pointer) = (0_u64, 0_u64);
    // CUDA's memory type, device pointer, host pointer, managed, device ordinal.
    let wanted = [2, 3, 4, 8, 9];
    let mut places: [Pointer; 5] = [
        (&raw mut kind).cast(),
        (&raw mut device_pointer).cast(),
        (&raw mut host_pointer).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
    ];
    cu!(cuda, cuPointerGetAttributes(5, wanted.as_ptr(), places.as_mut_ptr(), pointer))?;
    let is_managed = i32::from(managed & 0xff != 0);
    let kind = if is_managed == 1 { 3 } else { kind };
    if kind == 0 {
        return Ok(PointerAttribute {
            kind,
            device: -2,
            device_pointer: 0,
            host_pointer: 0,
            is_managed,
            flags: 0,
        });
    }
    Ok(PointerAttribute { kind, device, device_pointer, host_pointer, is_managed, flags: 0 })
}

/// Says whether CUDA takes a pointer for one of a device.
pub(crate) fn is_device(cuda: &Cuda, pointer: Source) -> Result<bool, Code> {
    let found = describe(cuda, pointer.expose_provenance() as u64)?;
    Ok(found.kind == 2 || found.kind == 3)
}
