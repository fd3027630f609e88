//! Holes made whole by mapping their pages elsewhere: no byte is copied; time over that of the bare driver calls.
#![expect(unsafe_code, reason = "measures the driver's own calls")]
use crate::Failure;
use core::time::Duration;
use omniheap::{
    Allocation, AnyBackend, Backend, HeapId, Manager, ManagerConfig, Request, defrag::Remapping,
    seam::Remap,
};
use std::time::Instant;

/// Bytes of one allocation, and of one hole.
const PIECE: u64 = 64 << 20;

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    let host = device.caps().device.backend == "host";
    let holes: u64 = if host { 1 << 30 } else { 10 << 30 };
    let remap = device.as_remap().ok_or("this device has no pages")?;
    println!("holes GiB  copied bytes  ours ms  bare calls ms  ratio");
    for _ in 0..2 {
        let (ours, copied) = ours(device, holes)?;
        let bare = bare(device, remap, holes)?;
        println!(
            "{:>9}  {copied:>12}  {:>7.2}  {:>13.2}  {:>5.2}",
            holes >> 30,
            ours.as_secs_f64() * 1e3,
            bare.as_secs_f64() * 1e3,
            ours.as_secs_f64() / bare.as_secs_f64()
        );
    }
    chosen(device, holes.min(4 << 30))
}

/// Live data with holes between, as a full heap has it.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    live: u64,
    hole: u64,
}

/// Cost of requests for half of the holes.
struct Served {
    copied: u64,
    took: Duration,
}

/// With copies and remaps measured, whether the cheaper of them serves the next request.
fn chosen(device: &AnyBackend, holes: u64) -> Result<(), Failure> {
    println!("     live      hole   always remapped ms   where cheaper ms  copied bytes  ratio");
    for pattern in [
        Pattern { live: PIECE, hole: PIECE },
        Pattern { live: 2 << 20, hole: PIECE },
        Pattern { live: 64 << 10, hole: PIECE - (64 << 10) },
        Pattern { live: 64 << 10, hole: (4 << 20) - (64 << 10) },
    ] {
        let always = served(device, holes, pattern, Remapping::Always)?;
        let cheaper = served(device, holes, pattern, Remapping::WhereCheaper)?;
        println!(
            "{:>9}  {:>8}  {:>19.2}  {:>17.2}  {:>12}  {:>5.2}",
            pattern.live,
            pattern.hole,
            always.took.as_secs_f64() * 1e3,
            cheaper.took.as_secs_f64() * 1e3,
            cheaper.copied,
            cheaper.took.as_secs_f64() / always.took.as_secs_f64(),
        );
    }
    Ok(())
}

/// Two requests for a quarter of the holes, after both ways were measured.
fn served(
    device: &AnyBackend,
    holes: u64,
    pattern: Pattern,
    remapping: Remapping,
) -> Result<Served, Failure> {
    let (heap, page) = heap_of(device)?;
    let manager = limited(device, holes, remapping);
    let small = Request::new(page / 4).heap(heap);
    for _ in 0..12 {
        let all = (0..256).map(|_| manager.allocate(&small)).collect::<Result<Vec<_>, _>>()?;
        let small: Vec<_> = all.into_iter().step_by(4).collect();
        // Pages that small allocations hold open are cleared by copies: that measures them.
        manager.defragment()?;
        drop(small);
        manager.trim()?;
    }
    let all = filled(&manager, heap, pattern, holes)?;
    // Memory that was never written may be no memory yet.
    all.iter().try_for_each(|one| one.fill(0, one.size(), 1))?;
    let kept: Vec<_> = all.into_iter().step_by(2).collect();
    device.wait_idle()?;
    let free = manager.totals().free_bytes;
    let (began, before) = (Instant::now(), manager.report().moved_bytes);
    let large = (0..2).map(|_| manager.allocate(&Request::new(free / 4).heap(heap)));
    let large = large.collect::<Result<Vec<_>, _>>()?;
    let (took, copied) = (began.elapsed(), manager.report().moved_bytes - before);
    if remapping == Remapping::WhereCheaper {
        let costs = manager.report().move_costs;
        println!("{:?}", costs.iter().find(|cost| cost.heap == heap));
    }
    drop((large, kept));
    Ok(Served { copied, took })
}

fn heap_of(device: &AnyBackend) -> Result<(HeapId, u64), Failure> {
    let mut heaps = device.caps().heap_ids();
    let paged = heaps.find_map(|(id, heap)| Some((id, heap.page?.get())));
    paged.ok_or_else(|| "no heap has pages".into())
}

type Device = omniheap::layers::Limit<AnyBackend>;

/// Returns a manager with paged pools and the given size of every heap.
fn limited(device: &AnyBackend, bytes: u64, remapping: Remapping) -> Manager<Device> {
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    config.remapping = remapping;
    let limits = vec![bytes; device.caps().heaps.len()];
    let limited = Device::new(AnyBackend::clone(device), &limits, u64::MAX);
    Manager::with_config(limited, config)
}

/// Fills a limited heap with a pattern: live data, a future hole, and so on.
fn filled(
    manager: &Manager<Device>,
    heap: HeapId,
    pattern: Pattern,
    bytes: u64,
) -> Result<Vec<Allocation<Device>>, Failure> {
    let sizes = [pattern.live, pattern.hole].into_iter().cycle();
    let count = bytes / (pattern.live + pattern.hole) * 2;
    let all = sizes
        .take(usize::try_from(count)?)
        .map(|size| manager.allocate(&Request::new(size).heap(heap)));
    Ok(all.collect::<Result<Vec<_>, _>>()?)
}

/// Requests all holes of a full heap at once.
fn ours(device: &AnyBackend, holes: u64) -> Result<(Duration, u64), Failure> {
    let manager = limited(device, holes * 2, Remapping::Always);
    let (heap, _) = heap_of(device)?;
    let pattern = Pattern { live: PIECE, hole: PIECE };
    let all = filled(&manager, heap, pattern, holes * 2)?;
    let kept: Vec<_> = all.into_iter().step_by(2).collect();
    device.wait_idle()?;
    let began = Instant::now();
    let large = manager.allocate(&Request::new(holes).heap(heap))?;
    let took = began.elapsed();
    drop((large, kept));
    Ok((took, manager.report().moved_bytes))
}

/// Times the minimal driver calls: unmap each hole, map all pages in one place.
fn bare(
    device: &AnyBackend,
    remap: &dyn Remap<Block = omniheap::seam::AnyBlock>,
    holes: u64,
) -> Result<Duration, Failure> {
    let (heap, page) = heap_of(device)?;
    let (count, each) = (holes / page, PIECE / page);
    let block = remap.reserve(heap, holes * 3)?;
    let mut pages = Vec::new();
    for _ in 0..holes / PIECE {
        remap.create(heap, each, &mut pages)?;
    }
    let firsts = (0..holes / PIECE).map(|n| n * each * 2);
    for (first, pages) in firsts.clone().zip(pages.chunks(usize::try_from(each)?)) {
        // SAFETY: the block was reserved and the pages created just above; none is mapped.
        unsafe { remap.map_pages(&block, first, pages) }?;
    }
    let began = Instant::now();
    for first in firsts {
        // SAFETY: mapped just above, and no work was submitted.
        unsafe { remap.unmap_pages(&block, first, each) }?;
    }
    // SAFETY: all were unmapped just above.
    unsafe { remap.map_pages(&block, count * 2, &pages) }?;
    let took = began.elapsed();
    // SAFETY: mapped just above, and no work was submitted.
    unsafe { remap.unmap_pages(&block, count * 2, count) }?;
    // SAFETY: created above, and not mapped any more.
    unsafe { remap.destroy(heap, &pages) }?;
    // SAFETY: reserved above; nothing is mapped in it.
    unsafe { device.free(block) }?;
    Ok(took)
}
