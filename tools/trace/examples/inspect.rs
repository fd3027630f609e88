//! Prints what a trace holds and how fast it was read: `cargo run --release -p omniheap-trace --example inspect -- FILE…`

use omniheap_trace::{Trace, binary, model};
use std::time::Instant;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let trace = Trace::open(&path)?;
        let seconds = start.elapsed().as_secs_f64();
        let summary = trace.summary();
        println!(
            "{path}: read in {seconds:.3} s, {:.1} M events/s",
            summary.events as f64 / seconds / 1e6
        );
        println!("  {summary:?}");
        let start = Instant::now();
        let outcome = model::pytorch(&trace);
        println!(
            "  PyTorch's default policy: {:.3} in {:.3} s, {outcome:?}",
            outcome.ratio(),
            start.elapsed().as_secs_f64()
        );
        let start = Instant::now();
        binary::write(&trace, std::io::sink())?;
        let each = start.elapsed().as_secs_f64() * 1e9 / summary.events.max(1) as f64;
        println!("  recorded anew: {each:.1} ns per event");
    }
    Ok(())
}
