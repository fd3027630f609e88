//! Holes made whole by mapping their pages elsewhere: no byte is copied; time over that of the bare driver calls.
#![expect(unsafe_code, reason = "measures the driver's own calls")]
use crate::Failure;
use core::time::Duration;
use omniheap::{
    Allocation, AnyBackend, Backend, HeapId, Manager, ManagerConfig, Remap, Remapping, Request,
};
use std::time::Instant;

/// Bytes of one allocation, and of one hole.
const PIECE: u64 = 64 << 20;

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    let host = device.caps().device.backend == "host";
    let holes: u64 = if host { 1 << 30 } else { 10 << 30 };
    let remap = device.as_remap().ok_or("this device has no pages")?;
    println!("holes GiB  copied bytes  ours ms  bare calls ms  ratio");
    for _ in 0..3 {
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
    chosen(device, holes)
}

/// With copies and remaps measured, which of them serves the next request.
fn chosen(device: &AnyBackend, holes: u64) -> Result<(), Failure> {
    let (heap, page) = heap_of(device)?;
    let manager = limited(device, holes * 2);
    let small = Request::new(page / 4).heap(heap);
    for _ in 0..12 {
        let all = (0..256).map(|_| manager.allocate(&small)).collect::<Result<Vec<_>, _>>()?;
        let small: Vec<_> = all.into_iter().step_by(4).collect();
        // Pages that small allocations hold open are cleared by copies: that measures them.
        manager.defragment()?;
        drop(small);
        manager.trim()?;
    }
    let kept = scattered(&manager, heap, holes)?;
    println!(
        "half of the holes  copied bytes       ms   (the cheaper of what was measured before)"
    );
    let mut large = Vec::new();
    for _ in 0..2 {
        device.wait_idle()?;
        let (began, before) = (Instant::now(), manager.report().moved_bytes);
        large.push(manager.allocate(&Request::new(holes / 2).heap(heap))?);
        let (took, copied) = (began.elapsed(), manager.report().moved_bytes - before);
        println!("{:>17}  {copied:>12}  {:>7.2}", holes / 2, took.as_secs_f64() * 1e3);
    }
    let costs = manager.report().move_costs;
    println!("{:?}", costs.iter().find(|cost| cost.heap == heap));
    drop((large, kept));
    Ok(())
}

fn heap_of(device: &AnyBackend) -> Result<(HeapId, u64), Failure> {
    let mut heaps = device.caps().heap_ids();
    let paged = heaps.find_map(|(id, heap)| Some((id, heap.page?.get())));
    paged.ok_or_else(|| "no heap has pages".into())
}

type Device = omniheap::layer::Limit<AnyBackend>;

/// A manager of pages with so many bytes in every heap.
fn limited(device: &AnyBackend, bytes: u64) -> Manager<Device> {
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    config.remapping = Remapping::WhereCheaper;
    let limits = vec![bytes; device.caps().heaps.len()];
    let limited = Device::new(AnyBackend::clone(device), &limits, u64::MAX);
    Manager::with_config(limited, config)
}

/// Fills a limited heap, and frees every other allocation.
fn scattered(
    manager: &Manager<Device>,
    heap: HeapId,
    holes: u64,
) -> Result<Vec<Allocation<Device>>, Failure> {
    let request = Request::new(PIECE).heap(heap);
    let all = (0..holes * 2 / PIECE).map(|_| manager.allocate(&request));
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().step_by(2).collect())
}

/// Asks for all holes of a full heap as one.
fn ours(device: &AnyBackend, holes: u64) -> Result<(Duration, u64), Failure> {
    let manager = limited(device, holes * 2);
    let (heap, _) = heap_of(device)?;
    let kept = scattered(&manager, heap, holes)?;
    device.wait_idle()?;
    let began = Instant::now();
    let large = manager.allocate(&Request::new(holes).heap(heap))?;
    let took = began.elapsed();
    drop((large, kept));
    Ok((took, manager.report().moved_bytes))
}

/// The driver calls that this takes at least: unmap each hole, map all pages in one place.
fn bare(
    device: &AnyBackend,
    remap: &dyn Remap<Block = omniheap::AnyBlock>,
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
