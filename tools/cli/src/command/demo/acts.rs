//! What the demo does: each act has a manager of its own, and its figures are those of that manager.
use super::super::{Failure, selftest};
use omniheap::placement::{Access, Keyword as _, Pattern, Writer};
use omniheap::seam::HeapKind;
use omniheap::{
    Allocation, AnyBackend, Error, ErrorKind, Manager, ManagerConfig, PoolConfig, Request,
    TimelineId, report::Report,
};
use serde::Serialize;
use std::time::Instant;

const ROUNDS: u32 = 500;
/// Bytes of an allocation of a round.
pub(super) const ROUND: u64 = 256 << 10;
/// More than any hole of the third act, less than all holes together.
const LARGE: u64 = 12 << 20;

/// Placement of one request.
#[derive(Debug, Serialize)]
pub(super) struct Placed {
    pub(super) what: String,
    pub(super) size: u64,
    pub(super) region: &'static str,
    pub(super) reason: String,
}

/// Cost of the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Reuse {
    pub(super) timelines: usize,
    pub(super) rounds: u32,
    pub(super) driver_calls_first_round: u64,
    pub(super) driver_calls_later: u64,
    ns_per_round: u128,
}

/// A pool with a hole at every other place, and what became of a request that fits none of them.
#[derive(Debug, Serialize)]
pub(super) struct Compaction {
    /// `plain` or `paged`.
    pub(super) pools: &'static str,
    pub(super) capacity_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) largest_hole_bytes: u64,
    pub(super) requested_bytes: u64,
    /// Why the request was not served, where it was not.
    pub(super) refused_because: Option<String>,
    pub(super) moves: u64,
    pub(super) moved_bytes: u64,
    verified_bytes: u64,
    #[serde(skip)]
    pub(super) before: Report,
    #[serde(skip)]
    pub(super) after: Report,
}

impl Compaction {
    pub(super) const fn verified_bytes(&self) -> u64 {
        self.verified_bytes
    }
}

/// A pool to fragment.
pub(super) struct Stage {
    pools: &'static str,
    config: PoolConfig,
    /// Allocations are one to twenty times this.
    unit: u64,
}

/// An allocation, and the seed of the bytes that it is given.
type Stamped = (Allocation<AnyBackend>, u64);

fn manager(device: &AnyBackend, config: &ManagerConfig) -> Manager<AnyBackend> {
    Manager::with_config(AnyBackend::clone(device), config.clone())
}

/// First act: what a renderer or a model would ask for, uploaded and read back. Also says how many bytes were compared.
pub(super) fn place(
    device: &AnyBackend,
    config: &ManagerConfig,
) -> Result<(Vec<Placed>, u64), Failure> {
    let manager = manager(device, config);
    let requests = [
        Request::new(8 << 20).writer(Writer::HostOnce).name("weights"),
        Request::new(16 << 20).name("activations"),
        Request::new(4096).writer(Writer::HostOnce).pattern(Pattern::Broadcast).name("table"),
        Request::new(64 << 10).writer(Writer::HostPerFrame).name("uniforms"),
        Request::new(1 << 20).access(Access::Host).name("results"),
    ];
    let (mut placed, mut live) = (Vec::new(), Vec::new());
    for (seed, request) in (1..).zip(&requests) {
        let allocation = manager.allocate(request)?;
        let (size, at) = (allocation.size(), allocation.placed());
        let (what, reason) = (request.name.unwrap_or_default().into(), at.reason.to_string());
        placed.push(Placed { what, size, region: at.region.word(), reason });
        live.push((allocation, seed));
    }
    stamp(&live)?;
    Ok((placed, verify(&live)?))
}

/// Second act: two timelines that allocate, fill and free, each in its own order.
pub(super) fn reuse(device: &AnyBackend, config: &ManagerConfig) -> Result<Reuse, Failure> {
    let manager = manager(device, config);
    let other = device.as_timelines().and_then(|lines| lines.open().ok());
    let main = device.as_timelines().map(|_| TimelineId::MAIN);
    let users = if other.is_some() { vec![main, other] } else { vec![main] };
    let round = || -> Result<(), Failure> {
        for timeline in &users {
            let mut request = Request::new(ROUND);
            request.timeline = *timeline;
            manager.allocate(&request)?.fill(0, ROUND, 7)?;
        }
        Ok(())
    };
    round()?;
    let first = manager.report().driver_calls;
    let start = Instant::now();
    (1..ROUNDS).try_for_each(|_| round())?;
    let time = start.elapsed();
    device.wait_idle()?;
    let later = manager.report().driver_calls - first;
    if let (Some(lines), Some(other)) = (device.as_timelines(), other) {
        lines.close(other)?;
    }
    Ok(Reuse {
        timelines: users.len(),
        rounds: ROUNDS,
        driver_calls_first_round: first,
        driver_calls_later: later,
        ns_per_round: (time / (ROUNDS - 1)).as_nanos(),
    })
}

/// Lists the pools of the third act: of blocks, and of pages where the device has them.
pub(super) fn stages(device: &AnyBackend) -> Vec<Stage> {
    let pool = PoolConfig::new().lanes(1);
    let plain = pool.block(64 << 20).maximum(64 << 20);
    let mut stages = vec![Stage { pools: "plain", config: plain, unit: 128 << 10 }];
    let mut heaps = device.caps().heap_ids();
    if device.as_remap().is_some()
        && heaps.any(|(_, heap)| heap.kind == HeapKind::Device && heap.page.is_some())
    {
        // Holes of a page or more, because pages are what can be mapped elsewhere.
        let config = pool.paged().maximum(128 << 20);
        stages.push(Stage { pools: "paged", config, unit: 256 << 10 });
    }
    stages
}

/// Third act: fragments a pool, then asks for more than any hole has.
pub(super) fn compact(
    device: &AnyBackend,
    config: &ManagerConfig,
    stage: &Stage,
) -> Result<Compaction, Failure> {
    let manager = manager(device, config);
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    let heap = *heaps.as_slice().first().ok_or(Error::new(ErrorKind::NoSuchHeap))?;
    let pool = manager.create_pool(heap, stage.config)?;
    let mut all = Vec::new();
    for seed in 1.. {
        // Sizes that look random and are the same on every run.
        let (size, now) = ((1 + seed * 7 % 20) * stage.unit, manager.totals());
        if size > now.largest_hole && now.reserved_bytes + size > stage.config.maximum {
            break;
        }
        all.push((pool.allocate(&Request::new(size).name("scene"))?, seed));
    }
    all.retain(|(_, seed)| seed % 2 == 0);
    stamp(&all)?;
    let before = manager.report();
    let served = pool.allocate(&Request::new(LARGE).name("large"));
    let refused = served.as_ref().err();
    if let Some(error) = refused
        && !error.kind().is_out_of_memory()
    {
        return Err(Failure::failed(error.to_string()));
    }
    let verified_bytes = verify(&all)?;
    manager.validate().map_err(|why| Failure::failed(format!("accounts are wrong: {why}")))?;
    let after = manager.report();
    Ok(Compaction {
        pools: stage.pools,
        capacity_bytes: stage.config.maximum,
        free_bytes: before.totals.free_bytes,
        largest_hole_bytes: before.totals.largest_hole,
        requested_bytes: LARGE,
        refused_because: refused.map(ToString::to_string),
        moves: after.defragmentation.moves,
        moved_bytes: after.defragmentation.bytes,
        verified_bytes,
        before,
        after,
    })
}

/// Writes to every allocation the bytes that belong to its seed.
fn stamp(live: &[Stamped]) -> Result<(), Failure> {
    live.iter().try_for_each(|one| Ok(one.0.write(0, &bytes_of(one))?))
}

fn bytes_of((allocation, seed): &Stamped) -> Vec<u8> {
    let size = usize::try_from(allocation.size()).expect("the demo's sizes are small");
    selftest::pattern(size, *seed)
}

/// Reads every allocation back and compares; says how many bytes that were.
fn verify(live: &[Stamped]) -> Result<u64, Failure> {
    let mut bytes = 0;
    for one @ (allocation, seed) in live {
        let written = bytes_of(one);
        let mut read = vec![0; written.len()];
        allocation.read(0, &mut read)?;
        if read != written {
            let line = format!("allocation {seed} lost its bytes: this is a bug, report it");
            return Err(Failure::failed(line));
        }
        bytes += allocation.size();
    }
    Ok(bytes)
}
