//! Copies and fills.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_int, c_uint};
use core::ptr;

use crate::code::Code;
use crate::cuda::{Copy2d, Cuda, Pointer, Side2d, Source};
use crate::export::{cu, export};
use crate::memory::is_device;

/// Directions that HIP knows: 0 to 4, and copies inside a device without its compute units.
fn direction(kind: c_uint) -> Result<c_uint, Code> {
    match kind {
        0..=4 => Ok(kind),
        1024 => Ok(3),
        _ => Err(Code(21)),
    }
}

fn side(cuda: &Cuda, pointer: Source, pitch: usize, device: Option<bool>) -> Result<Side2d, Code> {
    let is_device = device.map_or_else(|| is_device(cuda, pointer), Ok)?;
    let address = pointer.expose_provenance() as u64;
    let (host, device, kind) = if is_device { (0, address, 2) } else { (address, 0, 1) };
    Ok(Side2d { x: 0, y: 0, kind, host, device, array: 0, pitch })
}

/// Takes the low bits of a value as C does.
fn byte(value: c_int) -> u8 {
    value.to_le_bytes()[0]
}

export! {
    fn hipMemcpy(to: u64, from: u64, size: usize, kind: c_uint) |cuda| {
        direction(kind)?;
        // The addresses say which sides are the host's.
        if size == 0 { Ok(()) } else { cu!(cuda, cuMemcpy(to, from, size)) }
    };

    fn hipMemcpyAsync(to: u64, from: u64, size: usize, kind: c_uint, stream: Pointer) |cuda| {
        direction(kind)?;
        if size == 0 { Ok(()) } else { cu!(cuda, cuMemcpyAsync(to, from, size, stream)) }
    };

    fn hipMemcpy2DAsync(
        to: Source, to_pitch: usize, from: Source, from_pitch: usize, width: usize, height: usize, kind: c_uint,
        stream: Pointer,
    ) |cuda| {
        let kind = direction(kind)?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let (to_device, from_device) = if kind == 4 { (None, None) } else { (Some(kind & 1 == 1), Some(kind & 2 == 2)) };
        let from = side(cuda, from, from_pitch, from_device)?;
        let to = side(cuda, to, to_pitch, to_device)?;
        let copy = Copy2d { from, to, width, height };
        cu!(cuda, cuMemcpy2DAsync_v2(&raw const copy, stream))
    };

    fn hipMemset(to: u64, value: c_int, size: usize) |cuda| {
        if size == 0 { Ok(()) } else { cu!(cuda, cuMemsetD8_v2(to, byte(value), size)) }
    };

    fn hipMemsetAsync(to: u64, value: c_int, size: usize, stream: Pointer) |cuda| {
        if size == 0 { Ok(()) } else { cu!(cuda, cuMemsetD8Async(to, byte(value), size, stream)) }
    };

    fn hipMemsetD32Async(to: u64, value: c_int, count: usize, stream: Pointer) |cuda| {
        if count == 0 { Ok(()) } else { cu!(cuda, cuMemsetD32Async(to, value.cast_unsigned(), count, stream)) }
    };

    fn hipMemcpy2D(
        to: Source, to_pitch: usize, from: Source, from_pitch: usize, width: usize, height: usize, kind: c_uint,
    ) |cuda| {
        hipMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, ptr::null_mut()).check()?;
        cu!(cuda, cuStreamSynchronize(ptr::null_mut()))
    };
}
