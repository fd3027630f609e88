//! The shared suite, on whatever CUDA device is here.
#[path = "../../stream/tests/device/hold.rs"]
mod hold;
mod own {
    pub(crate) use omniheap_cuda::{Argument, Block, Cuda as Device, Kernel, Launch};
}

use core::time::Duration;
use omniheap_conformance::Rig;
use omniheap_core::Result;
use omniheap_cuda::Cuda;
use std::sync::Arc;

/// Longer than any case holds a timeline.
const HOLD: Duration = Duration::from_secs(60);

fn rig() -> Result<Rig<Arc<Cuda>>> {
    hold::rig(HOLD)
}

omniheap_conformance::conformance! { cuda => rig }
