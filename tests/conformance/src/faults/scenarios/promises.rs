//! Promises of a manager about bytes: secrets, zeros, contents that survive, places that were planned, kernels.
use crate::faults::raw;
use crate::faults::scene::Scene;
use crate::rng::is_all;
use crate::world::{Stack, in_heap};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Allocation, Backend, Background, Budget, Defragmentation, HostAccess, Manager, Request, Result,
    Span, TimelineId,
};
use omniheap_extras::Installed;
use omniheap_schedule::{Schedule, ScheduledRegion, ScheduledSpan};
use omniheap_shaders::SCALE;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;
const SECRET: u8 = 0x5e;

/// Returns true if the device moves bytes, without which nothing here can be seen.
fn is_seen<B: Backend + 'static>(scene: &Scene<B>) -> bool {
    scene.world.backend().as_transfer().is_some()
}

/// Asserts what an allocation begins with.
fn holds<B: Backend>(one: &Allocation<B>, size: u64, byte: u8, why: &str) -> Result<()> {
    let mut found = vec![!byte; usize::try_from(size).expect("scenarios use small sizes")];
    one.read(0, &mut found)?;
    assert!(is_all(&found, byte), "{why}");
    Ok(())
}

/// Leaves a secret, and asserts that whoever gets its memory next does not see it.
fn leave<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    secret: Allocation<Stack<B>>,
    next: &Request<'_>,
) -> Result<()> {
    // Fresh memory may hold anything, also what an earlier world left: no two secrets are the same.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let stamp = NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
    let size = usize::try_from(secret.size()).expect("scenarios use small sizes");
    secret.write(0, &stamp.iter().copied().cycle().take(size).collect::<Vec<_>>())?;
    drop(secret);
    let (next, mut found) = (manager.allocate(next)?, vec![0; size]);
    next.read(0, &mut found)?;
    assert!(!found.chunks_exact(8).any(|part| part == stamp), "a secret is seen by the next owner");
    Ok(())
}

pub(super) fn secret<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let manager = scene.loose_manager();
    let size = scene.world.whole(300_000);
    for request in [Request::new(size), Request::new(size).dedicated(), Request::new(size).on(MAIN)]
    {
        let one = manager.allocate(&request.secret())?;
        leave(&manager, one, &request)?;
    }
    Ok(())
}

pub(super) fn zeroed<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let size = scene.world.whole(200_000);
    let dirty = scene.manager.allocate(&Request::new(size))?;
    dirty.fill(0, size, 9)?;
    drop(dirty);
    for request in [Request::new(size), Request::new(size).on(MAIN)] {
        holds(&scene.manager.allocate(&request.zeroed())?, size, 0, "zeroed bytes are not zero")?;
    }
    Ok(())
}

pub(super) fn resize<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let [small, size, large] = [1000, 100_000, 250_000].map(|size| scene.world.whole(size));
    let one = scene.manager.allocate(&Request::new(size))?;
    one.fill(0, size, 7)?;
    let one = scene.manager.resize(one, large).map_err(|refused| refused.error)?;
    holds(&one, size, 7, "lost while it grew")?;
    let one = scene.manager.resize(one, small).map_err(|refused| refused.error)?;
    holds(&one, small, 7, "lost while it shrank")
}

pub(super) fn resize_secret<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let manager = scene.loose_manager();
    let size = scene.world.whole(100_000);
    let one = manager.allocate(&Request::new(size).secret())?;
    one.fill(0, size, SECRET)?;
    let one = manager.resize(one, 2 * size).map_err(|refused| refused.error)?;
    holds(&one, size, SECRET, "lost while it grew")?;
    leave(&manager, one, &Request::new(2 * size))
}

pub(super) fn domain<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let manager = scene.world.loose_manager(&scene.stack);
    let other = manager.domain(scene.world.config())?;
    let one = manager.allocate(&Request::new(4 * MIB))?;
    one.fill(0, 4 * MIB, SECRET)?;
    drop(one);
    manager.trim()?;
    let next = other.allocate(&Request::new(4 * MIB))?;
    holds(&next, 4 * MIB, 0, "a domain sees another's bytes")
}

pub(super) fn install<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let manager = scene.world.loose_manager(&scene.stack);
    let size = 65_536;
    let at = |offset, start, end| {
        let span = Span { offset, size };
        ScheduledSpan { region: 0, span, start, end }
    };
    let spans = vec![at(0, 0, 2), at(size, 1, 3), at(0, 2, 4)];
    let region = ScheduledRegion { heap: Some(scene.world.device_heap()), size: MIB };
    let schedule = Schedule::new(vec![region], spans).expect("no two overlap");
    let installed = Installed::new(&manager, schedule, None)?;
    let used = (|| {
        let one = installed.allocate(&Request::new(size).zeroed())?;
        holds(&one, size, 0, "zeroed bytes are not zero")?;
        let two = installed.allocate(&Request::new(size))?;
        two.fill(0, size, 2)?;
        drop(one);
        let three = installed.allocate(&Request::new(size))?;
        three.fill(0, size, 3)?;
        holds(&two, size, 2, "a neighbour was written over")
    })();
    let gone = installed.uninstall().map_err(|(_, error)| error);
    used.and(gone)
}

pub(super) fn steps<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) {
        return Ok(());
    }
    let mut config = scene.world.config();
    config.defragmentation =
        Defragmentation::Background(Background::new(Budget::new()).between(1, 2));
    let manager = Manager::with_config(Arc::clone(&scene.stack), config);
    let (heap, mut live) = (scene.world.device_heap(), Vec::new());
    for id in 0..12_u8 {
        let one = manager.allocate(&in_heap(heap, MIB))?;
        one.fill(0, MIB, id)?;
        live.push((id, one));
    }
    live.retain(|(id, _)| id % 4 == 1);
    let mut ended = Ok(());
    for _ in 0..16 {
        ended = ended.and(manager.step().map(drop));
        scene.world.backend().wait_idle()?;
    }
    for (id, one) in &live {
        holds(one, MIB, *id, "a step lost bytes")?;
    }
    ended
}

pub(super) fn kernel<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if !is_seen(scene) || scene.world.backend().as_launch().is_none() {
        return Ok(());
    }
    let bytes =
        |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let request = Request::new(256).on(MAIN);
    let (from, to) = (scene.manager.allocate(&request)?, scene.manager.allocate(&request)?);
    from.write(0, &bytes(&[3f32.to_bits(); 64]))?;
    let program = scene.manager.load(&SCALE, 0)?;
    raw::scale(&program, [&from, &to], &bytes(&[64, 2f32.to_bits(), 0]))?;
    let mut found = [0; 256];
    to.read(0, &mut found)?;
    assert_eq!(found[..], bytes(&[6f32.to_bits(); 64])[..], "told as success");
    Ok(())
}

/// Checks that a failed flush or invalidation is told where the host's view and the device's memory are two.
pub(super) fn incoherent<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let mut heaps = scene.world.backend().caps().heap_ids();
    let found = heaps.find(|(_, heap)| heap.host == HostAccess::Incoherent);
    let (Some((heap, _)), true) = (found, is_seen(scene)) else { return Ok(()) };
    let one = scene.manager.allocate(&in_heap(heap, 70_000))?;
    let view = one.map()?;
    view.write(0, &[3; 5000])?;
    let mut seen = [0; 5000];
    view.read(0, &mut seen)?;
    assert_eq!(seen, [3; 5000], "told as success");
    holds(&one, 4096, 3, "flushed bytes did not arrive")
}
