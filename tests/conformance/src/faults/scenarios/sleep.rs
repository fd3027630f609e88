//! Pools that sleep.
use crate::faults::scene::Scene;
use crate::kept::Kept;
use crate::world::Stack;
use omniheap_core::{
    Backend, ErrorKind, Limits, PoolConfig, Request, Result, Sleep, UserPool, Wake,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

pub(super) fn sleep_and_wake<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let heap = scene.world.device_heap();
    let has_pages = scene.world.backend().caps().heap(heap).is_some_and(|heap| heap.page.is_some());
    let backend = scene.world.backend();
    if !has_pages || backend.as_remap().is_none() || backend.as_transfer().is_none() {
        return Ok(());
    }
    let (store, manager) = (Kept::new(), &scene.manager);
    let pool = manager.create_pool(heap, PoolConfig::new().sleepable())?;
    let all = [
        pool.allocate(&Request::new(MIB))?,
        pool.allocate(&Request::new(3 * MIB))?,
        pool.allocate(&Request::new(4096))?,
    ];
    for one in &all {
        one.write(0, &[7; 4096])?;
    }
    // Bytes that can be read are as they were, whatever failed.
    let check = || {
        all.iter().try_for_each(|one| {
            let mut found = [0; 4096];
            one.read(0, &mut found)?;
            assert_eq!(found, [7; 4096], "told as success");
            Ok(())
        })
    };
    if let Err(error) = pool.sleep(&Sleep::to(store.clone())) {
        assert!(!pool.residence().asleep, "a sleep that failed leaves the pool awake");
        assert_eq!(store.count(), 0, "and nothing in the store");
        let _ = check();
        return Err(error.into());
    }
    if let Err(error) = pool.wake(&Wake::all()) {
        assert!(pool.residence().asleep, "a wake that failed leaves the pool asleep");
        assert_eq!(store.count(), all.len(), "with all its bytes");
        if pool.wake(&Wake::all()).is_ok() {
            let _ = check();
        }
        return Err(error.into());
    }
    check().and_then(|()| wake_on_host(scene, &pool, &store))?;
    check()
}

/// Sleeps and wakes where the device has no room, with host memory in its place where that can be.
fn wake_on_host<B: Backend + 'static>(
    scene: &Scene<B>,
    pool: &UserPool<Stack<B>>,
    store: &Arc<Kept>,
) -> Result<()> {
    pool.sleep(&Sleep::to(store.clone()))?;
    let (heap, kept) = (scene.world.device_heap(), store.count());
    scene.manager.set_budget(heap, Limits::hard(MIB))?;
    let woken = pool.wake(&Wake::all().host_mapped(u64::MAX));
    scene.manager.set_budget(heap, Limits::NONE)?;
    let Err(error) = woken else { return Ok(()) };
    assert!(pool.residence().asleep, "a wake that failed leaves the pool asleep");
    assert_eq!(store.count(), kept, "with all its bytes");
    // All that a device says which maps no host memory.
    if error.kind() != ErrorKind::OverBudget {
        return Err(error.into());
    }
    Ok(pool.wake(&Wake::all())?)
}
