//! Blocks of a KV cache go to host memory and come back: one by one, and laid together on the device first.
//!
//! `cargo run --release --example 10_kv_blocks -- --backend auto|cuda|hip|vulkan|wgpu|host [--blocks 10000]`
use omniheap::placement::Keyword as _;
use omniheap::residency::{Piece, gather, scatter};
use omniheap::transfer::CopyRegion;
use omniheap::{Allocation, AnyBackend, Manager, Request, TimelineId, Usage};
use omniheap_examples::{Outcome, option, wait};
use std::time::Instant;

const ON: TimelineId = TimelineId::MAIN;
const BLOCK: u64 = 16 << 10;
const ROUNDS: usize = 7;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let count = count()?;
    let bytes = count * BLOCK;
    let cache = manager.allocate(&Request::new(2 * bytes).on(ON))?;
    let placed = cache.placed();
    println!("  cache: {} memory, because {}", placed.region.word(), placed.reason);
    let whole = manager.allocate(&Request::new(bytes).on(ON))?;
    let host = manager.allocate(&Request::new(bytes).usage(Usage::Readback).on(ON))?;
    let stretch = Piece { allocation: &host, offset: 0, size: bytes };
    // Every block has its own byte, and lies somewhere in a cache of twice the size.
    let place = |block: u64| (block * 7919 % count) * 2 * BLOCK;
    for block in 0..count {
        cache.fill(place(block), BLOCK, byte(block))?;
    }
    let blocks: Vec<_> = (0..count)
        .map(|block| Piece { allocation: &cache, offset: place(block), size: BLOCK })
        .collect();
    let alone: Vec<_> = (0..count)
        .zip(&blocks)
        .map(|(at, from)| region(from.allocation, from.offset, (&host, at * BLOCK), BLOCK))
        .collect();
    let down = [region(&whole, 0, (&host, 0), bytes)];
    let up = [region(&host, 0, (&whole, 0), bytes)];

    let rate = |run: &dyn Fn() -> Outcome| time(&manager, bytes, run);
    let most = [rate(&|| Ok(manager.copy(ON, &down)?))?, rate(&|| Ok(manager.copy(ON, &up)?))?];
    let each = rate(&|| Ok(manager.copy(ON, &alone)?))?;
    let out = rate(&|| Ok(gather(&manager, ON, &blocks, stretch)?))?;
    check(&host)?;
    let back = rate(&|| Ok(scatter(&manager, ON, stretch, &blocks)?))?;
    host.fill(0, bytes, 0)?;
    gather(&manager, ON, &blocks, stretch)?;
    check(&host)?;
    println!("  {count} blocks are as they should be");
    tell(&[
        ("one copy to the host", most[0], most[0]),
        ("one copy to the device", most[1], most[1]),
        ("block by block to the host", each, most[0]),
        ("gathered to the host", out, most[0]),
        ("scattered to the device", back, most[1]),
    ]);
    Ok(())
}

/// The number of blocks.
fn count() -> Outcome<u64> {
    let count = option("blocks").map_or(Ok(1000), |text| text.parse::<u32>());
    let count = count.ok().filter(|&count| count > 0);
    Ok(count.ok_or("pass a number from 1 on: --blocks 10000")?.into())
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

/// The byte that a block consists of.
fn byte(block: u64) -> u8 {
    u8::try_from(block % 251).unwrap_or(0)
}

/// Compares what arrived.
fn check(host: &Allocation<AnyBackend>) -> Outcome {
    let (mut bytes, size) = (vec![0; usize::try_from(host.size())?], usize::try_from(BLOCK)?);
    host.read(0, &mut bytes)?;
    let is_right = |(at, block): (u64, &[u8])| *block == vec![byte(at); size];
    let all_right = (0..).zip(bytes.chunks(size)).all(is_right);
    if all_right { Ok(()) } else { Err("a block has other bytes".into()) }
}

/// The best rate of some rounds, in GB/s.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn time(manager: &Manager<AnyBackend>, bytes: u64, run: impl Fn() -> Outcome) -> Outcome<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        wait(manager, ON)?;
        let begin = Instant::now();
        run()?;
        wait(manager, ON)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / best / 1e9)
}
