//! Blocks of a KV cache go to host memory and come back: one by one, and laid together on the device first.
//!
//! `cargo run --release --example 10_kv_blocks -- --backend auto|cuda|hip|vulkan|wgpu|host`
use omniheap::residency::{Piece, gather, scatter};
use omniheap::transfer::CopyRegion;
use omniheap::{Allocation, AnyBackend, Manager, Request, TimelineId, Usage};
use omniheap_examples::{Outcome, wait};
use std::time::Instant;

const ON: TimelineId = TimelineId::MAIN;
const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 10_000;
const BYTES: u64 = BLOCK * BLOCKS;
const ROUNDS: usize = 7;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let cache = manager.allocate(&Request::new(2 * BYTES).on(ON))?;
    let whole = manager.allocate(&Request::new(BYTES).on(ON))?;
    let host = manager.allocate(&Request::new(BYTES).usage(Usage::Readback).on(ON))?;
    let stretch = Piece { allocation: &host, offset: 0, size: BYTES };
    // Every block has its own byte, and lies somewhere in a cache of twice the size.
    let place = |block: u64| (block * 7919 % BLOCKS) * 2 * BLOCK;
    let byte = |block: u64| u8::try_from(block % 251).unwrap_or(0);
    for block in 0..BLOCKS {
        cache.fill(place(block), BLOCK, byte(block))?;
    }
    let blocks: Vec<_> = (0..BLOCKS)
        .map(|block| Piece { allocation: &cache, offset: place(block), size: BLOCK })
        .collect();
    let alone: Vec<_> = (0..BLOCKS)
        .zip(&blocks)
        .map(|(at, from)| region(from.allocation, from.offset, (&host, at * BLOCK), BLOCK))
        .collect();
    let down = [region(&whole, 0, (&host, 0), BYTES)];
    let up = [region(&host, 0, (&whole, 0), BYTES)];

    let most = [
        time(&manager, || Ok(manager.copy(ON, &down)?))?,
        time(&manager, || Ok(manager.copy(ON, &up)?))?,
    ];
    let each = time(&manager, || Ok(manager.copy(ON, &alone)?))?;
    let out = time(&manager, || Ok(gather(&manager, ON, &blocks, stretch)?))?;
    check(&host, byte)?;
    let back = time(&manager, || Ok(scatter(&manager, ON, stretch, &blocks)?))?;
    host.fill(0, BYTES, 0)?;
    gather(&manager, ON, &blocks, stretch)?;
    check(&host, byte)?;
    tell(&[
        ("one copy to the host", most[0], most[0]),
        ("one copy to the device", most[1], most[1]),
        ("block by block to the host", each, most[0]),
        ("gathered to the host", out, most[0]),
        ("scattered to the device", back, most[1]),
    ]);
    Ok(())
}

fn region<'a>(
    from: &'a Allocation<AnyBackend>,
    from_offset: u64,
    (to, to_offset): (&'a Allocation<AnyBackend>, u64),
    size: u64,
) -> CopyRegion<'a, AnyBackend> {
    CopyRegion { from, from_offset, to, to_offset, size }
}

/// Prints rates, each beside that of one copy.
fn tell(rates: &[(&str, f64, f64)]) {
    for (name, rate, most) in rates {
        println!("  {name}: {rate:.1} GB/s, {:.2} of one copy", rate / most);
    }
}

/// Compares what arrived.
fn check(host: &Allocation<AnyBackend>, byte: impl Fn(u64) -> u8) -> Outcome {
    let (mut bytes, size) = (vec![0; usize::try_from(BYTES)?], usize::try_from(BLOCK)?);
    host.read(0, &mut bytes)?;
    let blocks = bytes.chunks(size);
    let is_right = |(at, block): (u64, &[u8])| *block == vec![byte(at); size];
    if (0..).zip(blocks).all(is_right) { Ok(()) } else { Err("a block has other bytes".into()) }
}

/// The best rate of some rounds, in GB/s.
fn time(manager: &Manager<AnyBackend>, run: impl Fn() -> Outcome) -> Outcome<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        wait(manager, ON)?;
        let begin = Instant::now();
        run()?;
        wait(manager, ON)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(f64::from(u32::try_from(BYTES)?) / best / 1e9)
}
