//! The shared suite, on whatever CUDA device is here.
use omniheap_conformance::{LONGEST_HOLD, Rig};
use omniheap_core::Result;
use omniheap_cuda::Cuda;
use std::sync::Arc;

fn rig() -> Result<Rig<Arc<Cuda>>> {
    Ok(Rig::new(Arc::new(Cuda::open(0)?)).with_gates(LONGEST_HOLD))
}

omniheap_conformance::conformance! { cuda => rig }
