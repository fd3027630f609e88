//! Everything else: threads, reports, endings, hand-over.
use crate::case::tells_budget;
use crate::faults::scene::Scene;
use crate::world::in_heap;
use omniheap_core::{Backend, ErrorKind, Manager, Request, Result};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

pub(super) fn threads<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let mut config = scene.world.config();
    config.pool.lanes = Some(4);
    let manager = Manager::with_config(Arc::clone(&scene.stack), config);
    let heap = scene.world.device_heap();
    let one_after_the_other = |size: u64| {
        std::thread::scope(|scope| {
            scope
                .spawn(|| manager.allocate(&in_heap(heap, size)).map(drop))
                .join()
                .expect("no panic")
        })
    };
    for size in [30 * MIB, 20 * MIB, 30 * MIB] {
        one_after_the_other(size)?;
    }
    Ok(())
}

pub(super) fn budget_query<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    // Backends without a driver that tells have limits from outside alone.
    let Some(budget) = scene.stack.as_budget().filter(|_| tells_budget(scene.world.backend()))
    else {
        return Ok(());
    };
    for (heap, _) in scene.world.backend().caps().heap_ids() {
        budget.budget(heap)?;
    }
    Ok(())
}

pub(super) fn report<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let _one = scene.manager.allocate(&Request::new(11 * MIB))?;
    let report = scene.manager.report();
    assert_eq!(report.totals, scene.manager.totals());
    Ok(())
}

pub(super) fn explain<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let request = Request::new(12 * MIB);
    let (plan, _told) = (scene.manager.plan(&request)?, scene.manager.explain(&request)?);
    let before = scene.manager.heap_use(plan.heap)?.reserved;
    let _one = scene.manager.allocate(&request)?;
    assert!(scene.manager.heap_use(plan.heap)?.reserved <= before + plan.new_bytes, "as planned");
    Ok(())
}

pub(super) fn teardown<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let one = manager.allocate(&Request::new(5 * MIB))?;
    let two = manager.allocate(&Request::new(MIB).dedicated())?;
    drop(manager);
    drop(one);
    drop(two);
    Ok(())
}

pub(super) fn two_managers<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let other = scene.world.loose_manager(&scene.stack);
    let one = other.allocate(&Request::new(scene.world.whole(5000)))?;
    if scene.world.backend().as_transfer().is_some() {
        let mut byte = vec![0; usize::try_from(scene.world.whole(1)).expect("small")];
        one.write(0, &byte)?;
        one.read(0, &mut byte)?;
    }
    let refused = scene.manager.free(one).expect_err("not its own");
    assert_eq!(refused.error.kind(), ErrorKind::Foreign);
    other.free(refused.given).map_err(|refused| refused.error)
}

pub(super) fn export<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let Some(share) = scene.stack.as_export() else { return Ok(()) };
    let heap = scene.world.device_heap();
    let block = share.allocate_exportable(heap, MIB)?;
    let told = share.export(&block).and_then(|exported| share.import(heap, &exported));
    let freed = crate::faults::raw::free(&scene.stack, block);
    told.and_then(|imported| crate::faults::raw::free(&scene.stack, imported)).and(freed)
}
