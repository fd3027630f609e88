//! The shared suite, on wgpu's stand-in device and on the first device that is here.
use omniheap_conformance::Rig;
use omniheap_core::Result;
use omniheap_wgpu::Wgpu;

/// A device that the suite may lose.
fn rig(backend: Wgpu) -> Rig<Wgpu> {
    let device = backend.device().clone();
    Rig::new(backend).with_loss(move || device.destroy())
}

fn noop() -> Result<Rig<Wgpu>> {
    Wgpu::open_noop().map(rig)
}

fn first() -> Result<Rig<Wgpu>> {
    Wgpu::open(0).map(rig)
}

/// The first device, on memory that the backend allocates itself.
fn own() -> Result<Rig<Wgpu>> {
    Wgpu::open(0)?.with_own_memory().map(rig)
}

omniheap_conformance::conformance! {
    wgpu_noop => noop,
    wgpu => first,
    wgpu_own => own,
}
