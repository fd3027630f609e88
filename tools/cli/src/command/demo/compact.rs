//! Third act: a full pool with a hole at every other place, and a request that fits none of them.
use super::super::{Failure, output};
use super::map;
use super::place::{self, Stamped};
use omniheap::{
    AnyBackend, Error, ErrorKind, Manager, ManagerConfig, PoolConfig, Request, UserPool,
    report::{BlockReport, Report},
    seam::HeapKind,
};
use serde::Serialize;

/// More than any hole, less than all holes together.
const LARGE: u64 = 12 << 20;

/// Parameters of this part of the demo.
#[derive(Clone, Copy, Debug)]
struct Stage {
    pools: &'static str,
    config: PoolConfig,
    /// Allocations are one to twenty times this.
    unit: u64,
}

/// Result of the request.
#[derive(Debug, Serialize)]
pub(super) struct Compaction {
    /// `plain` or `paged`.
    pub(super) pools: &'static str,
    pub(super) capacity_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) largest_hole_bytes: u64,
    pub(super) largest_hole_after_bytes: u64,
    pub(super) requested_bytes: u64,
    /// Reason why the request was not served, where it was not.
    pub(super) refused_because: Option<String>,
    pub(super) moves: u64,
    pub(super) moved_bytes: u64,
    /// Bytes that went back to the driver, where nothing was asked for.
    pub(super) returned_bytes: u64,
    pub(super) verified_bytes: u64,
    #[serde(skip)]
    pub(super) before: Report,
    #[serde(skip)]
    pub(super) after: Report,
}

/// Plays it with blocks, and with pages where the device has them.
pub(super) fn run(
    device: &AnyBackend,
    config: &ManagerConfig,
    played: impl Fn(),
) -> Result<Vec<Compaction>, Failure> {
    let heap = device.caps().heap_ids().find(|(_, heap)| heap.kind == HeapKind::Device);
    let pages = device.as_remap().is_some() && heap.is_some_and(|(_, heap)| heap.page.is_some());
    let pool = PoolConfig::new().lanes(1);
    let plain = pool.block(64 << 20).maximum(64 << 20);
    let plain = Stage { pools: "plain", config: plain, unit: 32 << 10 };
    let mut compactions = vec![one(device, config, plain, LARGE)?];
    played();
    for block in [64 << 20, 4 << 20] {
        let blocks = pool.block(block).maximum(64 << 20);
        let stage = Stage { pools: "plain", config: blocks, unit: 32 << 10 };
        compactions.push(one(device, config, stage, 0)?);
    }
    if pages {
        // Holes of a page or more, because pages are what can be mapped elsewhere.
        let paged = pool.paged().maximum(128 << 20);
        let paged = Stage { pools: "paged", config: paged, unit: 256 << 10 };
        compactions.push(one(device, config, paged, LARGE)?);
    }
    played();
    Ok(compactions)
}

/// Fragments a pool, then requests `wanted` bytes; where that is zero, defragments it instead.
fn one(
    device: &AnyBackend,
    config: &ManagerConfig,
    stage: Stage,
    wanted: u64,
) -> Result<Compaction, Failure> {
    let manager = Manager::with_config(AnyBackend::clone(device), config.clone());
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    let heap = *heaps.as_slice().first().ok_or(Error::new(ErrorKind::NoSuchHeap))?;
    let pool = manager.create_pool(heap, stage.config)?;
    let live = fragment(&manager, &pool, stage)?;
    let before = manager.report();
    let totals = before.totals;
    let served = match wanted {
        0 => manager.defragment().map(|_| None)?,
        _ => Some(pool.allocate(&Request::new(wanted).name("large"))),
    };
    let refused = served.as_ref().and_then(|served| served.as_ref().err());
    if let Some(error) = refused
        && !error.kind().is_out_of_memory()
    {
        return Err(Failure::failed(error.to_string()));
    }
    let verified_bytes = place::verify(&live)?;
    manager.validate().map_err(|why| Failure::failed(format!("accounts are wrong: {why}")))?;
    let after = manager.report();
    let moved = &after.defragmentation;
    Ok(Compaction {
        pools: stage.pools,
        capacity_bytes: stage.config.maximum,
        free_bytes: totals.free_bytes,
        largest_hole_bytes: totals.largest_hole,
        largest_hole_after_bytes: after.totals.largest_hole,
        requested_bytes: wanted,
        refused_because: refused.map(ToString::to_string),
        moves: moved.moves,
        moved_bytes: moved.bytes,
        returned_bytes: match wanted {
            0 => moved.returned_bytes.saturating_sub(moved.taken_bytes),
            _ => 0,
        },
        verified_bytes,
        before,
        after,
    })
}

/// Fills the pool, then frees every other allocation; returns the others with their stamps.
fn fragment(
    manager: &Manager<AnyBackend>,
    pool: &UserPool<AnyBackend>,
    stage: Stage,
) -> Result<Vec<Stamped>, Failure> {
    let mut all = Vec::new();
    for seed in 1.. {
        // Sizes that look random and are the same on every run.
        let size = (1 + seed * 7 % 20) * stage.unit;
        if !fits(manager, stage, size) {
            break;
        }
        let name = if seed % 2 == 0 { "kept" } else { "freed" };
        all.push((pool.allocate(&Request::new(size).name(name))?, seed));
    }
    let kept: Vec<_> = all.into_iter().filter(|(_, seed)| seed % 2 == 0).collect();
    for (allocation, seed) in &kept {
        allocation.write(0, &place::stamp(allocation.size(), *seed))?;
    }
    Ok(kept)
}

/// Returns whether a hole is large enough, or the pool may still grow by as much.
fn fits(manager: &Manager<AnyBackend>, stage: Stage, size: u64) -> bool {
    let totals = manager.totals();
    size <= totals.largest_hole || totals.reserved_bytes + size <= stage.config.maximum
}

fn blocks(report: &Report) -> Vec<BlockReport> {
    report.pools.iter().flat_map(|pool| &pool.blocks).cloned().collect()
}

/// Returns the maps and what happened between them.
pub(super) fn text(one: &Compaction) -> String {
    let bytes = output::bytes;
    let asked = match one.requested_bytes {
        0 => "then it is defragmented".into(),
        wanted => format!("then {} are asked for", bytes(wanted)),
    };
    let outcome = match &one.refused_because {
        Some(why) => format!("refused: {why}"),
        None if one.requested_bytes == 0 => shrunk(one),
        None if one.moved_bytes > 0 => {
            format!("served after moving {} of live data", bytes(one.moved_bytes))
        }
        None => "served by mapping free pages side by side; no byte was copied".into(),
    };
    format!(
        "  {} pool of {}: {} free, the largest hole {}; {asked}\n{}\n  {outcome}\n{}\n",
        one.pools,
        bytes(one.capacity_bytes),
        bytes(one.free_bytes),
        bytes(one.largest_hole_bytes),
        map::draw("before", &blocks(&one.before)),
        map::draw("after", &blocks(&one.after)),
    )
}

/// Describes the gain of a full defragmentation.
fn shrunk(one: &Compaction) -> String {
    let gained = match one.returned_bytes {
        0 => format!("the largest hole is {}", output::bytes(one.largest_hole_after_bytes)),
        returned => format!("{} went back to the driver", output::bytes(returned)),
    };
    format!("{} moves carried {}, and {gained}", one.moves, output::bytes(one.moved_bytes))
}
