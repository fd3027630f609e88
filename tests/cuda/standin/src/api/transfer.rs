//! Copies.
//!
//! Bytes of pageable memory are taken when the call is made, and pageable memory has its bytes when the call returns: that is
//! how the driver stages them.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_uint;
use std::sync::Arc;

use crate::code::{Answer, Code};
use crate::entry::export;
use crate::ffi::{In, Word};
use crate::marker::Marker;
use crate::op::{Op, Rows};
use crate::stream::{self, admit_unsafe};
use crate::{context, pages, space};

/// Half of a `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Side {
    x: usize,
    y: usize,
    kind: c_uint,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy2d {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

impl Side {
    /// Returns the first byte: 1 is host memory, 2 the device's, 4 either.
    fn start(&self) -> Answer<u64> {
        let base = match self.kind {
            1 => self.host,
            2 | 4 => self.device,
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(base + (self.y * self.pitch + self.x) as u64)
    }
}

impl Copy2d {
    fn op(&self) -> Answer<Op> {
        let pitch = |side: &Side| if side.pitch == 0 { self.width } else { side.pitch };
        let (to_pitch, from_pitch) = (pitch(&self.to), pitch(&self.from));
        if self.width > to_pitch || self.width > from_pitch {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Op::Rows(Rows {
            to: self.to.start()?,
            to_pitch: to_pitch as u64,
            from: self.from.start()?,
            from_pitch: from_pitch as u64,
            width: self.width as u64,
            height: self.height as u64,
        }))
    }
}

/// Returns whether the driver must stage an address.
fn is_pageable(address: u64) -> bool {
    !pages::addresses().contains(&address) && space::find(address).is_none()
}

/// Queues a copy; returns its end, and whether the caller must wait for it.
fn queue(op: Op, stream: Word) -> Answer<(Arc<Marker>, bool)> {
    let stream = stream::resolve(stream, context::current()?)?;
    let is_captured = stream::standing(stream)?.is_some();
    let (op, must_wait) = match op {
        Op::Copy { to, from, size } if !is_captured && is_pageable(from) && !is_pageable(to) => {
            let size = usize::try_from(size).map_err(|_| Code::INVALID_VALUE)?;
            (Op::Write { to, bytes: pages::read(from, size).into() }, false)
        }
        Op::Copy { to, .. } => (op, is_pageable(to) && !is_captured),
        Op::Rows(rows) => (op, (is_pageable(rows.to) || is_pageable(rows.from)) && !is_captured),
        _ => (op, false),
    };
    Ok((stream::submit(stream, op)?, must_wait))
}

/// Copies in the order of a stream.
fn later(op: Op, stream: Word) -> Answer {
    let (end, must_wait) = queue(op, stream)?;
    if must_wait {
        end.wait();
        context::current()?;
    }
    Ok(())
}

/// Copies, and waits until it is done.
fn now(op: Op) -> Answer {
    context::current()?;
    admit_unsafe()?;
    queue(op, Word::new(0))?.0.wait();
    context::current().map(drop)
}

/// Checks addresses as the driver does before it queues a copy: those of the device must be known.
fn copy(to: u64, from: u64, size: u64) -> Answer<Op> {
    let is_strange =
        |address| pages::addresses().contains(&address) && space::find(address).is_none();
    if size > 0 && (to == 0 || from == 0 || is_strange(to) || is_strange(from)) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(Op::Copy { to, from, size })
}

export! {
    fn cuMemcpy / cuMemcpy_ptds(to: u64, from: u64, size: u64) {
        now(copy(to, from, size)?)
    }

    fn cuMemcpyAsync / cuMemcpyAsync_ptsz(to: u64, from: u64, size: u64, stream: Word) {
        later(copy(to, from, size)?, stream)
    }

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: u64, from: u64, size: u64) {
        now(copy(to, from, size)?)
    }

    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(
        to: u64, from: u64, size: u64, stream: Word,
    ) {
        later(copy(to, from, size)?, stream)
    }

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: u64, from: u64, size: u64) {
        now(copy(to, from, size)?)
    }

    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(
        to: u64, from: u64, size: u64, stream: Word,
    ) {
        later(copy(to, from, size)?, stream)
    }

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: u64, from: u64, size: u64) {
        now(copy(to, from, size)?)
    }

    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(
        to: u64, from: u64, size: u64, stream: Word,
    ) {
        later(copy(to, from, size)?, stream)
    }

    fn cuMemcpyPeer / cuMemcpyPeer_ptds(
        to: u64, _to_context: Word, from: u64, _from_context: Word, size: u64,
    ) {
        now(copy(to, from, size)?)
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        to: u64, _to_context: Word, from: u64, _from_context: Word, size: u64, stream: Word,
    ) {
        later(copy(to, from, size)?, stream)
    }

    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(rows: In<Copy2d>) {
        now(rows.get()?.op()?)
    }

    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(rows: In<Copy2d>) {
        now(rows.get()?.op()?)
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(rows: In<Copy2d>, stream: Word) {
        later(rows.get()?.op()?, stream)
    }
}

const _: () = assert!(size_of::<Copy2d>() == 128);
