//! After random work that leaves half of the memory in holes: what one full defragmentation gains.
use crate::Failure;
use crate::random::Random;
use omniheap::layer::Limit;
use omniheap::{
    Allocation, AnyBackend, Backend, Defragmentation, HeapId, Manager, ManagerConfig, PoolConfig,
    Request, Totals, UserPool,
};
use std::time::Instant;

type Device = Limit<AnyBackend>;

/// The largest allocation.
const LARGEST: u64 = 2 << 20;

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    println!(
        "    pools  reserved/live before  after  95 % of the free bytes before  after  moved/live   ms"
    );
    let host = device.caps().device.backend == "host";
    let capacity = if host { 1 << 30 } else { 4 << 30 };
    let heap =
        usual_heap(&Manager::with_config(AnyBackend::clone(device), ManagerConfig::default()))?;
    let about = device.caps().heap(heap).ok_or("no heap")?;
    // The largest block that the device has, and that the pool can ask for in whole granules.
    let block = about.granule.down(about.max_block.min(capacity));
    one(device, Pools::Plain, capacity)?;
    one(device, Pools::Paged, capacity)?;
    one(device, Pools::OneBlock, block)
}

/// What the memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pools {
    /// Blocks as the manager likes them.
    Plain,
    /// Pages.
    Paged,
    /// One block, which no empty block can replace.
    OneBlock,
}

impl Pools {
    fn config(self, capacity: u64) -> PoolConfig {
        PoolConfig {
            block: (self == Self::OneBlock).then_some(capacity),
            maximum: capacity,
            paged: self == Self::Paged,
            lanes: Some(1),
            ..PoolConfig::new()
        }
    }
}

/// The heap that a plain request goes to.
fn usual_heap<B: Backend>(manager: &Manager<B>) -> Result<HeapId, Failure> {
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    Ok(*heaps.as_slice().first().ok_or("no heap")?)
}

/// Measures with so many bytes in every heap.
fn one(device: &AnyBackend, pools: Pools, capacity: u64) -> Result<(), Failure> {
    let limits = vec![capacity; device.caps().heaps.len()];
    let mut config = ManagerConfig::default();
    config.defragmentation = Defragmentation::Off;
    let device = Limit::new(AnyBackend::clone(device), &limits, u64::MAX);
    let manager = Manager::with_config(device, config);
    let pool = manager.create_pool(usual_heap(&manager)?, pools.config(capacity))?;
    let live = churn(&pool, &mut Random(7));
    let before = manager.totals();
    let wanted = (capacity - before.granted_bytes) / 100 * 95;
    let asked = pool.allocate(&Request::new(wanted)).map(drop);
    let began = Instant::now();
    manager.defragment()?;
    let took = began.elapsed();
    let after = manager.totals();
    let served = pool.allocate(&Request::new(wanted)).map(drop);
    let moved = manager.report().defragmentation;
    println!(
        "{:>9}  {:>20.3}  {:>5.3}  {:>29}  {:>5}  {:>10.3}  {:>4}",
        format!("{pools:?}"),
        ratio(&before),
        ratio(&after),
        if asked.is_ok() { "fits" } else { "fails" },
        if served.is_ok() { "fits" } else { "fails" },
        share(moved.bytes, after.live_bytes),
        took.as_millis(),
    );
    manager.validate()?;
    drop(live);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn ratio(totals: &Totals) -> f64 {
    share(totals.reserved_bytes, totals.live_bytes)
}

/// Allocates until nothing fits, frees and allocates at random for a while, and then frees half of it.
fn churn(pool: &UserPool<Device>, random: &mut Random) -> Vec<Allocation<Device>> {
    let mut live = Vec::new();
    for round in 0..4 {
        while let Ok(one) = pool.allocate(&Request::new(random.size(LARGEST))) {
            live.push(one);
        }
        let keep = if round == 3 { live.len() / 2 } else { live.len() * 7 / 8 };
        while live.len() > keep {
            live.swap_remove(random.index(live.len())).free();
        }
    }
    live
}
