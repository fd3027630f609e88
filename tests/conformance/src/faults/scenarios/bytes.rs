//! Moving bytes.
use crate::faults::scene::Scene;
use crate::world::in_heap;
use omniheap_core::{Allocation, Backend, CopyRegion, Request, Result, TimelineId, Usage};

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;

/// A fresh allocation for transfers, or nothing where the device moves no bytes.
fn target<B: Backend + 'static>(
    scene: &Scene<B>,
    request: &Request<'_>,
) -> Result<Option<Allocation<crate::Stack<B>>>> {
    if scene.world.backend().as_transfer().is_none() {
        return Ok(None);
    }
    Ok(Some(scene.manager.allocate(request)?))
}

pub(super) fn upload<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let Some(one) = target(scene, &Request::new(MIB))? else { return Ok(()) };
    one.write(0, &[1; 4096])?;
    one.write(4096, &[2; 4096])
}

pub(super) fn download<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let Some(one) = target(scene, &Request::new(8192))? else { return Ok(()) };
    one.write(0, &[7; 8192])?;
    let mut found = [0; 8192];
    one.read(0, &mut found)?;
    assert_eq!(found, [7; 8192], "told as success");
    Ok(())
}

pub(super) fn fill<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let Some(one) = target(scene, &Request::new(8192))? else { return Ok(()) };
    one.fill(0, 8192, 9)?;
    let mut found = [0; 64];
    one.read(4096, &mut found)?;
    assert_eq!(found, [9; 64], "told as success");
    Ok(())
}

pub(super) fn copy_batch<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let request = Request::new(4096).dedicated();
    let (Some(from), Some(to)) = (target(scene, &request)?, target(scene, &request)?) else {
        return Ok(());
    };
    from.fill(0, 4096, 3)?;
    let copy = |offset| CopyRegion {
        from: &from,
        from_offset: offset,
        to: &to,
        to_offset: offset,
        size: 1024,
    };
    scene.manager.copy(MAIN, &[copy(0), copy(1024), copy(2048), copy(3072)])?;
    let mut found = [0; 4096];
    to.read(0, &mut found)?;
    assert_eq!(found, [3; 4096], "told as success");
    Ok(())
}

pub(super) fn staging_to_device<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let Some(to) = target(scene, &Request::new(4096).dedicated())? else { return Ok(()) };
    let from = scene.manager.allocate(&Request::new(4096).usage(Usage::Upload))?;
    from.write(0, &[5; 4096])?;
    let copy = CopyRegion { from: &from, from_offset: 0, to: &to, to_offset: 0, size: 4096 };
    scene.manager.copy(MAIN, &[copy])?;
    let mut found = [0; 4096];
    to.read(0, &mut found)?;
    assert_eq!(found, [5; 4096], "told as success");
    Ok(())
}

pub(super) fn map<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let (Some(heap), Some(_)) = (scene.world.visible_heap(), scene.world.backend().as_map()) else {
        return Ok(());
    };
    let one = scene.manager.allocate(&in_heap(heap, 5000))?;
    let view = one.map()?;
    view.write(100, &[4; 64])?;
    let mut found = [0; 64];
    view.read(100, &mut found)?;
    assert_eq!(found, [4; 64], "told as success");
    Ok(())
}

pub(super) fn map_twice<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let (Some(heap), Some(_)) = (scene.world.visible_heap(), scene.world.backend().as_map()) else {
        return Ok(());
    };
    let live = [
        scene.manager.allocate(&in_heap(heap, 500))?,
        scene.manager.allocate(&in_heap(heap, 500))?,
    ];
    for one in live.iter().chain(&live) {
        one.map()?.flush(0, 500)?;
        one.map()?.invalidate(0, 500)?;
    }
    Ok(())
}
