//! Measures loads into host memory beside `cat`: `cargo run --release -p omniheap-weights --example speed -- FILE…`.
use core::error::Error;
use omniheap_core::{Heap, HeapKind, Manager, PoolConfig};
use omniheap_host::Host;
use omniheap_weights::{Load, LoadWeights, WeightsFile};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    let manager = Manager::new(Host::new());
    // Files are read straight into host-visible memory; the device heap is filled by copies, as on other devices.
    let mut heaps = manager.caps().heap_ids();
    let is_straight = |heap: &Heap| heap.kind == HeapKind::Staging;
    let (heap, _) = heaps.find(|(_, heap)| is_straight(heap)).ok_or("no such heap")?;
    let pool = manager.create_pool(heap, PoolConfig::new())?;
    let mut rates = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let file = WeightsFile::open(&paths)?;
        let loaded = manager.load_weights(&file, &Load::new().into(&pool))?;
        let bytes: u64 = loaded.iter().map(|one| one.tensor().size).sum();
        let rate = |start: Instant| bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
        rates.0.push(rate(start));
        drop(loaded);
        let start = Instant::now();
        let mut cat = Command::new("cat").args(&paths).stdout(Stdio::piped()).spawn()?;
        let from = cat.stdout.take().ok_or("no pipe")?;
        Command::new("cat").stdin(from).stdout(Stdio::null()).status()?;
        cat.wait()?;
        rates.1.push(rate(start));
    }
    // The first load includes the page faults of fresh memory.
    println!("first load {:.2} GB/s, cat beside it {:.2}", rates.0[0], rates.1[0]);
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (load, cat) = (median(&mut rates.0), median(&mut rates.1));
    println!(
        "load {load:.2} GB/s, cat {cat:.2} GB/s, ratio {:.2} (medians of {ROUNDS})",
        load / cat
    );
    Ok(())
}
