//! Taking memory and giving it back.
use crate::faults::scene::Scene;
use crate::world::{in_heap, pool_of};
use omniheap_core::{
    Access, Align, Allocation, Backend, Budget, ErrorKind, Layout, Limits, Manager, Pattern,
    PoolConfig, Relief, Request, Result, StrategyKind, Usage, UserPool, Writer,
};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;

pub(super) fn first<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    manager.allocate(&Request::new(5000))?.free();
    Ok(())
}

pub(super) fn grow<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let mut live = Vec::new();
    for size in [MIB, 3 * MIB, 9 * MIB] {
        live.push(scene.manager.allocate(&Request::new(size))?);
    }
    Ok(())
}

pub(super) fn aligned<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let heap = scene.world.device_heap();
    let most = scene.world.backend().caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?.align;
    let _one = scene.manager.allocate(&Request::new(2 * MIB + 1).align(most))?;
    let _two = scene.manager.allocate(&Request::new(2 * MIB + 1).align(Align::of(64)))?;
    Ok(())
}

pub(super) fn dedicated<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let _one = scene.manager.allocate(&Request::new(MIB).dedicated())?;
    scene.manager.allocate(&Request::new(100).dedicated())?.free();
    scene.manager.retire().map(|_| ())
}

pub(super) fn registrable<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if scene.world.backend().caps().heaps.iter().all(|heap| heap.registrable.is_none()) {
        return Ok(());
    }
    let _one = scene.manager.allocate(&Request::new(MIB).registrable())?;
    scene.manager.allocate(&Request::new(100).registrable())?.free();
    scene.manager.retire().map(|_| ())
}

pub(super) fn many_small<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let many: core::result::Result<Vec<_>, _> =
        (0..100).map(|n| scene.manager.allocate(&Request::new(30_000 + n))).collect();
    many?;
    Ok(())
}

pub(super) fn array<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let array = scene.manager.allocate_slice::<u64>(1000, Usage::Device)?;
    if scene.world.backend().as_transfer().is_none() {
        return Ok(());
    }
    array.write(10, &[1, 2, 3, 4])?;
    let mut found = [0; 4];
    array.read(10, &mut found)?;
    assert_eq!(found, [1, 2, 3, 4], "told as success");
    Ok(())
}

pub(super) fn named<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let one = scene.manager.allocate(&Request::new(6 * MIB).name("a name"))?;
    one.set_name("another");
    Ok(())
}

pub(super) fn ladder_with_callback<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let heap = scene.world.device_heap();
    let hoard: Arc<Mutex<Vec<Allocation<_>>>> = Arc::default();
    let reached = Arc::downgrade(&hoard);
    manager.on_pressure(move |_| {
        let Some(hoard) = reached.upgrade() else { return Relief::Nothing };
        let given = hoard.lock().map(|mut hoard| hoard.pop()).ok().flatten();
        if given.is_some() { Relief::Freed } else { Relief::Nothing }
    });
    let mut live = Vec::new();
    for round in 0..6 {
        let one = manager.allocate(&in_heap(heap, 10 * MIB))?;
        if round < 3 {
            hoard.lock().expect("no panic").push(one);
        } else {
            live.push(one);
        }
    }
    Ok(())
}

pub(super) fn next_heap<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let request = Request::new(2 * MIB).access(Access::Both);
    let Ok(told) = manager.explain(&request) else { return Ok(()) };
    if told.placement.heaps.as_slice().len() > 1 {
        manager.set_budget(told.placement.heaps.as_slice()[0], Limits::hard(3 * MIB))?;
    }
    let _live = [manager.allocate(&request)?, manager.allocate(&request)?];
    Ok(())
}

pub(super) fn constants<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let table = Request::new(4096).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    let _one = scene.manager.allocate(&table)?;
    let _two = scene.manager.allocate(&table.layout(Layout::new(MIB)))?;
    Ok(())
}

pub(super) fn no_grow<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    scene.manager.allocate(&Request::new(7 * MIB))?.free();
    let _one = scene.manager.allocate(&Request::new(512).no_grow())?;
    Ok(())
}

pub(super) fn over_budget<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let heap = scene.world.device_heap();
    manager.set_budget(heap, Limits::hard(8 * MIB))?;
    let _one = manager.allocate(&in_heap(heap, 5 * MIB))?;
    match manager.allocate(&in_heap(heap, 5 * MIB)) {
        Ok(_) => panic!("the budget forbids it"),
        Err(error) if error.kind().is_out_of_memory() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn trim<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let live = [
        scene.manager.allocate(&Request::new(6 * MIB))?,
        scene.manager.allocate(&Request::new(10 * MIB))?,
    ];
    drop(live);
    scene.manager.trim().map(|_| ())
}

pub(super) fn trim_and_grow<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let heap = scene.world.device_heap();
    let keep = manager.allocate(&in_heap(heap, 6 * MIB))?;
    for size in [12, 8, 14, 20] {
        manager.allocate(&in_heap(heap, size * MIB))?.free();
    }
    drop(keep);
    let _all = manager.allocate(&in_heap(heap, 30 * MIB))?;
    Ok(())
}

fn end<B: Backend>(manager: &Manager<B>, pool: UserPool<B>) -> Result<()> {
    // A pool that comes back goes with its manager.
    manager.destroy_pool(pool).map_err(|refused| refused.error)
}

fn with_pool<B: Backend + 'static>(
    scene: &Scene<B>,
    config: PoolConfig,
    size: u64,
    count: usize,
) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let pool = manager.create_pool(scene.world.device_heap(), config)?;
    let live: core::result::Result<Vec<_>, _> =
        (0..count).map(|_| pool.allocate(&Request::new(size))).collect();
    live?.drain(..).for_each(drop);
    pool.trim()?;
    end(&manager, pool)
}

pub(super) fn pool<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_pool(scene, pool_of(4 * MIB), MIB, 9)
}

pub(super) fn pool_with_minimum<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_pool(scene, pool_of(4 * MIB).minimum(8 * MIB), 3 * MIB, 3)
}

pub(super) fn pool_to_its_maximum<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let config = pool_of(4 * MIB).maximum(8 * MIB);
    let pool = manager.create_pool(scene.world.device_heap(), config)?;
    let full = [pool.allocate(&Request::new(4 * MIB))?, pool.allocate(&Request::new(4 * MIB))?];
    let refused = pool.allocate(&Request::new(4 * MIB)).map(drop);
    drop(full);
    match refused {
        Err(error) if !error.kind().is_out_of_memory() => return Err(error.into()),
        other => assert!(other.is_err(), "the maximum holds"),
    }
    end(&manager, pool)
}

pub(super) fn slab_pool<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let strategy = StrategyKind::Slab(Layout::new(4096).align(Align::of(256)));
    with_pool(scene, pool_of(64 << 10).strategy(strategy), 4000, 40)
}

pub(super) fn ring_pool<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_pool(scene, pool_of(MIB).strategy(StrategyKind::Ring), 4000, 40)
}

pub(super) fn buddy_pool<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    with_pool(scene, pool_of(MIB).strategy(StrategyKind::Buddy(256)), 100_000, 12)
}

pub(super) fn defragment<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    let manager = scene.world.loose_manager(&scene.stack);
    let heap = scene.world.device_heap();
    let all: core::result::Result<Vec<_>, _> =
        (0..12).map(|_| manager.allocate(&in_heap(heap, MIB))).collect();
    let mut all = all?;
    let mut at = 0;
    all.retain(|_| {
        at += 1;
        at % 4 == 1
    });
    manager.defragment().map(|_| ())
}

pub(super) fn recall<B: Backend + 'static>(scene: &mut Scene<B>) -> Result<()> {
    if scene.world.spill_heap().is_none() || scene.world.backend().as_transfer().is_none() {
        return Ok(());
    }
    let manager = scene.world.loose_manager(&scene.stack);
    let heap = scene.world.device_heap();
    manager.set_budget(heap, Limits::hard(0))?;
    let request = Request::new(MIB).may_spill();
    let spilled = [manager.allocate(&request)?, manager.allocate(&request)?];
    manager.set_budget(heap, Limits::hard(u64::MAX))?;
    let moved = manager.begin_recall(&Budget::new())?.commit()?.moved;
    assert!(moved.moves == 0 || spilled.iter().any(|one| one.heap() == heap), "told as success");
    Ok(())
}
