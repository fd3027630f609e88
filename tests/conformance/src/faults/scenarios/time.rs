//! Timelines.
use crate::faults::scene::{LIMIT, Scene};
use crate::world::in_heap;
use omniheap_core::{Backend, CopyRegion, ErrorKind, Point, Request, Result, TimelineId};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;

/// Runs with a timeline of its own, which is closed whatever happens.
fn with_line<B: Backend + 'static>(
    scene: &mut Scene<B>,
    run: impl FnOnce(&mut Scene<B>, TimelineId) -> Result<()>,
) -> Result<()> {
    let stack = Arc::clone(&scene.stack);
    let Some(lines) = stack.as_timelines().filter(|_| stack.as_transfer().is_some()) else {
        return Ok(());
    };
    let line = lines.open()?;
    let ran = run(scene, line);
    lines.close(line).and(ran)
}

pub(super) fn cross_timeline<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_line(scene, |scene, line| {
        let manager = scene.world.loose_manager(&scene.stack);
        let heap = scene.world.device_heap();
        let one = manager.allocate(&in_heap(heap, 30 * MIB).on(line))?;
        one.fill(0, 4096, 1)?;
        one.free();
        scene.world.backend().wait_idle()?;
        let two = manager.allocate(&in_heap(heap, 30 * MIB).on(MAIN))?;
        two.fill(0, 4096, 2)
    })
}

pub(super) fn used_elsewhere<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if scene.world.extras().hold.is_none() {
        return Ok(());
    }
    with_line(scene, |scene, line| {
        let source = scene.manager.allocate(&Request::new(MIB).dedicated())?;
        source.fill(0, MIB, 0xee)?;
        let one = scene.manager.allocate(&Request::new(MIB).on(MAIN))?;
        one.use_on(line)?;
        scene.world.backend().wait_idle()?;
        let held = scene.world.hold(line);
        let copy = CopyRegion { from: &source, from_offset: 0, to: &one, to_offset: 0, size: MIB };
        let queued = scene.manager.copy(line, &[copy]);
        // Early reuse would let the copy, which is still to come, overwrite the next one. After a fault the free and the
        // next request may wait for the held timeline, and then it is let go.
        let look = scene.stack.inner().inner().inner().hooks();
        look.hold_until_waited_for(held);
        one.free();
        let next = scene.manager.allocate(&Request::new(MIB).on(MAIN));
        let written = next.as_ref().ok().map(|next| next.write(0, &[1; 4096]));
        look.let_go();
        scene.world.backend().wait_idle()?;
        queued?;
        let next = next?;
        written.transpose()?;
        let mut found = [0; 4096];
        next.read(0, &mut found)?;
        assert_eq!(found, [1; 4096], "reused while another timeline still used it");
        Ok(())
    })
}

pub(super) fn free_after<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_line(scene, |scene, line| {
        let one = scene.manager.allocate(&Request::new(MIB))?;
        let epoch = scene.stack.as_timelines().ok_or(ErrorKind::Unsupported)?.mark(line)?;
        one.free_after(Point { timeline: line, epoch });
        scene.world.backend().wait_idle()?;
        scene.manager.retire().map(|_| ())
    })
}

pub(super) fn collect<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_line(scene, |scene, line| {
        for _ in 0..4 {
            let one = scene.manager.allocate(&Request::new(100_000).on(MAIN))?;
            one.use_on(line)?;
        }
        scene.world.backend().wait_idle()?;
        scene.manager.retire()?;
        scene.manager.trim().map(|_| ())
    })
}

pub(super) fn shortage_waits<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_line(scene, |scene, line| {
        let manager = scene.world.loose_manager(&scene.stack);
        let heap = scene.world.device_heap();
        for _ in 0..4 {
            let one = manager.allocate(&in_heap(heap, LIMIT / 3).on(MAIN))?;
            one.use_on(line)?;
            scene.world.backend().wait_idle()?;
        }
        Ok(())
    })
}

pub(super) fn closed_timeline<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    with_line(scene, |_, line| {
        let one = manager.allocate(&Request::new(3 * MIB).on(line))?;
        let two = manager.allocate(&Request::new(3 * MIB).on(MAIN))?;
        one.fill(0, 64, 1)?;
        two.use_on(line)
    })?;
    manager.retire()?;
    manager.trim().map(|_| ())
}

pub(super) fn ordered<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_line(scene, |scene, line| {
        let lines = scene.stack.as_timelines().ok_or(ErrorKind::Unsupported)?;
        let one = scene.manager.allocate(&Request::new(4096).on(MAIN))?;
        one.use_on(line)?;
        one.fill(0, 4096, 1)?;
        let epoch = lines.mark(MAIN)?;
        lines.order(line, Point { timeline: MAIN, epoch })?;
        lines.wait(Point { timeline: MAIN, epoch })
    })
}
