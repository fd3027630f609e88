//! The shared suite: host memory as it is, and acting a device that is strange in every way the seam allows.
use core::convert::Infallible;
use omniheap_conformance::{Account, Rig};
use omniheap_core::{Align, HeapKind, HostAccess, InsideBlock, Result};
use omniheap_host::{Host, heap, real_devices};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Everything a test can do to a host device.
fn rig(host: Host) -> Rig<Arc<Host>> {
    let host = Arc::new(host);
    let (held, lost) = (Arc::clone(&host), Arc::clone(&host));
    Rig::new(host)
        .with_hold(move |timeline| Ok(Box::new(held.hold(timeline)?)))
        .with_loss(move || lost.lose())
        .with_account(Account::Exact)
}

/// Few, small and incoherent heaps, coarse copies, wide granules.
fn strange() -> Result<Host> {
    let staging = heap(HeapKind::Staging, 512 * MIB).host(HostAccess::Incoherent).physical(1);
    Host::builder()
        .heap(heap(HeapKind::Device, 512 * MIB))
        .heap(staging)
        .max_blocks(1024)
        .copy_align(Align::of(4))
        .inside_block(InsideBlock::Forbidden)
        .neighbour_granularity(Align::of(1024))
        .atom(Align::of(128))
        .open()
}

/// Acts out one of the real devices.
fn real(name: &str) -> Result<Host> {
    let found = real_devices().into_iter().find(|caps| caps.device.name == name);
    Host::like(found.expect("it is among the real devices"))
}

omniheap_conformance::conformance! {
    host => || Ok::<_, Infallible>(rig(Host::new()).with_guards()),
    host_strange => || strange().map(rig),
    host_card => || real("Vulkan, card").map(rig),
    host_software => || real("Vulkan, software").map(rig),
    host_wgpu => || real("wgpu, card with resizable BAR").map(rig),
}
