//! Times copies inside the device: the compaction kernel beside the driver's own copies.
//!
//! `cargo bench -p omniheap-vulkan --bench copies`. Device time is between two timestamps around batches that were all
//! queued before the first could run; host time is what one `copy` costs the calling thread.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
#[path = "support/stopwatch.rs"]
mod stopwatch;

use core::time::Duration;
use omniheap_core::{Backend, BlockOffset, HeapId, HeapKind, Move, TimelineId, Transfer, Use};
use omniheap_vulkan::{Block, Copies, Options, Vulkan};
use std::time::Instant;
use stopwatch::Stopwatch;

const MAIN: TimelineId = TimelineId::MAIN;
/// Batches between the two timestamps; their lists fit the kernel's ring together.
const BATCHES: u32 = 3;

fn main() {
    let device = Vulkan::devices().ok().and_then(|all| all.into_iter().next());
    let Some(device) = device else { return println!("no Vulkan device here") };
    println!("{}: GB copied per second of device time, best of 5", device.name);
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>14}",
        "moves", "bytes", "commands", "kernel", "kernel host µs"
    );
    let kib = 1u64 << 10;
    let many = [(10_000, 4 * kib), (10_000, 64 * kib), (1000, 1024 * kib)];
    let one = [4 * kib, 64 * kib, 256 * kib, 1024 * kib, 16 << 20, 1 << 30];
    for (count, size) in many.into_iter().chain(one.map(|size| (1, size))) {
        let [commands, kernel] = [Copies::Commands, Copies::Kernel].map(|copies| {
            let options = Options::default().copies(copies);
            Bench::open(options, count, size).map(|bench| bench.best())
        });
        let rate = |best: &Option<Best>| {
            let bytes = count * size * u64::from(BATCHES);
            // Tenths of a byte in a nanosecond.
            let tenths = best.as_ref().map(|best| bytes * 10 / best.device.max(1));
            tenths.map_or("-".into(), |tenths| format!("{}.{}", tenths / 10, tenths % 10))
        };
        let host = kernel.as_ref().map_or(0, |best| best.host.as_micros());
        println!("{count:>8} {size:>10} {:>10} {:>10} {host:>14}", rate(&commands), rate(&kernel));
    }
}

/// The least that was seen.
struct Best {
    /// Nanoseconds of all batches on the device.
    device: u64,
    /// One call of `copy`.
    host: Duration,
}

struct Bench {
    source: Block,
    target: Block,
    places: Vec<(u64, u64, u64)>,
    stopwatch: Stopwatch,
    vulkan: Vulkan,
}

impl Bench {
    /// Two blocks and moves between them in a scattered order; `None` where they do not fit.
    fn open(options: Options, count: u64, size: u64) -> Option<Self> {
        let vulkan = Vulkan::open_with(options).unwrap();
        let heap = device_heap(&vulkan);
        let bytes = count * size;
        let source = vulkan.allocate(heap, bytes).ok()?;
        let target = vulkan.allocate(heap, bytes).ok()?;
        vulkan.fill(MAIN, BlockOffset { block: &source, offset: 0 }, bytes, 1).unwrap();
        let place = |n: u64| (n * size, (n * 7919 % count) * size, size);
        let stopwatch = Stopwatch::create(&vulkan);
        Some(Self { source, target, places: (0..count).map(place).collect(), stopwatch, vulkan })
    }

    fn best(&self) -> Best {
        let moves: Vec<_> = self
            .places
            .iter()
            .map(|(from, to, size)| Move {
                from: BlockOffset { block: &self.source, offset: *from },
                to: BlockOffset { block: &self.target, offset: *to },
                size: *size,
            })
            .collect();
        let mut best = Best { device: u64::MAX, host: Duration::MAX };
        for _ in 0..5 {
            self.stopwatch.start(&self.vulkan);
            for _ in 0..BATCHES {
                let begun = Instant::now();
                self.vulkan.copy(MAIN, &moves).unwrap();
                best.host = best.host.min(begun.elapsed());
            }
            best.device = best.device.min(self.stopwatch.stop(&self.vulkan));
        }
        best
    }
}

fn device_heap(vulkan: &Vulkan) -> HeapId {
    let mut heaps = vulkan.caps().heap_ids().filter(|(_, heap)| heap.use_when == Use::Normal);
    let kind = |kind| move |(_, heap): &(HeapId, &omniheap_core::Heap)| heap.kind == kind;
    let found = heaps.find(kind(HeapKind::Device)).map(|(id, _)| id);
    found.unwrap_or_else(|| vulkan.caps().heap_ids().next().unwrap().0)
}
