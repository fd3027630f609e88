//! The shared suite, on wgpu's stand-in device and on the first device that is here.
use omniheap_conformance::{Lease, Rig, Spares};
use omniheap_core::Result;
use omniheap_wgpu::Wgpu;
use std::sync::Arc;

/// Returns a device that the suite may lose.
fn rig(lease: Lease<Wgpu>) -> Rig<Arc<Wgpu>> {
    Rig::new(Arc::clone(lease.device())).with_loss(move || {
        lease.lose();
        lease.device().device().destroy();
    })
}

fn noop() -> Result<Rig<Arc<Wgpu>>> {
    static SPARES: Spares<Wgpu> = Spares::new();
    SPARES.take(Wgpu::open_noop).map(rig)
}

// Real devices have one case at a time: wgpu asks for the validation layer in such builds, and older ones crash where
// threads open and close devices (Vulkan-ValidationLayers#4391).
fn first() -> Result<Rig<Arc<Wgpu>>> {
    static SPARES: Spares<Wgpu> = Spares::new();
    SPARES.take(|| Wgpu::open(0)).map(rig).map(Rig::one_at_a_time)
}

/// Returns the first device, on memory that the backend allocates itself.
fn own() -> Result<Rig<Arc<Wgpu>>> {
    static SPARES: Spares<Wgpu> = Spares::new();
    SPARES.take(|| Wgpu::open(0)?.with_own_memory()).map(rig).map(Rig::one_at_a_time)
}

omniheap_conformance::conformance! {
    wgpu_noop => noop,
    wgpu => first,
    wgpu_own => own,
}
