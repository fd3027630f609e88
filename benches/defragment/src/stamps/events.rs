//! CUDA's time stamps: two events around work that waits behind other work, so that the host's part is over when it begins.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{MAIN, Watch};
use crate::Failure;
use core::ptr;
use core::time::Duration;
use cudarc::driver::sys::{self, CUevent};
use omniheap::cuda::{Block, CUstream, Cuda};
use omniheap::{
    Backend, HeapId,
    seam::{BlockOffset, Transfer},
};
use std::sync::Arc;

/// Bytes that are filled before what is timed, and how often: longer than the host takes to submit ten thousand moves.
const FRONT: u64 = 4 << 30;
const FILLS: u8 = 8;

pub(super) struct Events {
    cuda: Arc<Cuda>,
    stream: CUstream,
    front: Block,
    marks: [CUevent; 2],
}

/// Turns a driver code into a failure.
fn check(code: sys::CUresult) -> Result<(), Failure> {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(format!("the driver says {other:?}").into()),
    }
}

fn event() -> Result<CUevent, Failure> {
    let mut event = ptr::null_mut();
    // SAFETY: `event` may be written, and the device's context is current on this thread since `Events::create`.
    check(unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
    Ok(event)
}

impl Events {
    pub(super) fn create(cuda: Arc<Cuda>) -> Result<Self, Failure> {
        let (stream, front) = (cuda.stream(MAIN)?, cuda.allocate(HeapId(0), FRONT)?);
        // SAFETY: the context is alive as long as `cuda`.
        check(unsafe { sys::cuCtxSetCurrent(cuda.context()) })?;
        Ok(Self { stream, front, marks: [event()?, event()?], cuda })
    }

    fn record(&self, which: usize) -> Result<(), Failure> {
        // SAFETY: event and stream are alive as long as `self`.
        check(unsafe { sys::cuEventRecord(self.marks[which], self.stream) })
    }
}

impl Watch for Events {
    fn start(&self) -> Result<(), Failure> {
        for value in 0..FILLS {
            self.cuda.fill(MAIN, BlockOffset { block: &self.front, offset: 0 }, FRONT, value)?;
        }
        self.record(0)
    }

    fn stop(&self) -> Result<Duration, Failure> {
        self.record(1)?;
        self.cuda.wait_idle()?;
        let mut milliseconds = 0.0;
        // SAFETY: both were recorded and have happened.
        check(unsafe {
            sys::cuEventElapsedTime(&raw mut milliseconds, self.marks[0], self.marks[1])
        })?;
        Ok(Duration::from_secs_f32(milliseconds / 1e3))
    }
}
