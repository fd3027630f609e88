//! Holes made whole by mapping their pages elsewhere: no byte is copied; time over that of the bare driver calls.
#![expect(unsafe_code, reason = "measures the driver's own calls")]
use crate::Failure;
use core::time::Duration;
use omniheap::{AnyBackend, Backend, HeapId, Manager, ManagerConfig, Remap, Request};
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
    Ok(())
}

fn heap_of(device: &AnyBackend) -> Result<(HeapId, u64), Failure> {
    let mut heaps = device.caps().heap_ids();
    let paged = heaps.find_map(|(id, heap)| Some((id, heap.page?.get())));
    paged.ok_or_else(|| "no heap has pages".into())
}

/// Fills a limited heap, frees every other allocation, and asks for all holes as one.
fn ours(device: &AnyBackend, holes: u64) -> Result<(Duration, u64), Failure> {
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    let limits = vec![holes * 2; device.caps().heaps.len()];
    let limited = omniheap::layer::Limit::new(AnyBackend::clone(device), &limits, u64::MAX);
    let manager = Manager::with_config(limited, config);
    let (heap, _) = heap_of(device)?;
    let request = Request::new(PIECE).heap(heap);
    let mut all = Vec::new();
    for _ in 0..holes * 2 / PIECE {
        all.push(manager.allocate(&request)?);
    }
    let kept: Vec<_> = all.into_iter().enumerate().filter(|(n, _)| n % 2 == 0).collect();
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
