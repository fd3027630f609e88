//! After random work that leaves half of the memory in holes: what one full defragmentation gains.
use crate::Failure;
use crate::random::Random;
use omniheap::layers::Limit;
use omniheap::{
    Allocation, AnyBackend, Backend, HeapId, Manager, ManagerConfig, PoolConfig, Request, UserPool,
    defrag::Defragmentation, report::Totals,
};
use std::time::Instant;

type Device = Limit<AnyBackend>;

/// The largest allocation.
const LARGEST: u64 = 2 << 20;

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    println!(
        "    pools  reserved/live before  after  95 % of the free bytes before  after  moved/live   ms   MB compared"
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

/// Kind of pools.
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
        let mut config = PoolConfig::new().maximum(capacity).lanes(1);
        config.block = (self == Self::OneBlock).then_some(capacity);
        config.paged = self == Self::Paged;
        config
    }
}

/// Returns the heap that a plain request goes to.
fn usual_heap<B: Backend>(manager: &Manager<B>) -> Result<HeapId, Failure> {
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    Ok(*heaps.as_slice().first().ok_or("no heap")?)
}

/// Measures with the given size of every heap.
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
    mark(&live)?;
    manager.backend().wait_idle()?;
    let began = Instant::now();
    manager.defragment()?;
    let took = began.elapsed();
    let after = manager.totals();
    let served = pool.allocate(&Request::new(wanted)).map(drop);
    let moved = manager.report().defragmentation;
    let compared = compare(&live)?;
    println!(
        "{:>9}  {:>20.3}  {:>5.3}  {:>29}  {:>5}  {:>10.3}  {:>4}  {:>12}",
        format!("{pools:?}"),
        ratio(&before),
        ratio(&after),
        if asked.is_ok() { "fits" } else { "fails" },
        if served.is_ok() { "fits" } else { "fails" },
        share(moved.bytes, after.live_bytes),
        took.as_millis(),
        compared / 1_000_000,
    );
    manager.validate()?;
    drop(live);
    Ok(())
}

/// Returns the fill byte of an allocation, and its first bytes.
fn contents(number: u64) -> (u8, [u8; 8]) {
    ((number % 251).to_le_bytes()[0], number.to_le_bytes())
}

fn mark(live: &[Allocation<Device>]) -> Result<(), Failure> {
    for (number, one) in (0..).zip(live) {
        let (byte, begin) = contents(number);
        one.fill(0, one.size(), byte)?;
        one.write(0, &begin)?;
    }
    Ok(())
}

/// Reads everything back; how many bytes were as they should be.
fn compare(live: &[Allocation<Device>]) -> Result<u64, Failure> {
    let mut compared = 0;
    for (number, one) in (0..).zip(live) {
        let (byte, begin) = contents(number);
        let mut found = vec![0; usize::try_from(one.size())?];
        one.read(0, &mut found)?;
        let (first, rest) = found.split_at(begin.len());
        if first != begin || rest.iter().any(|found| *found != byte) {
            return Err(format!("allocation {number} lost its bytes").into());
        }
        compared += one.size();
    }
    Ok(compared)
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
