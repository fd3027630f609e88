//! Measures the cost of recording: `cargo run --release -p omniheap-trace --example record_cost [-- FILE]`
//!
//! Allocates and frees in one lane of host memory, without an observer, with a recorder, and with named requests. The
//! least of many short rounds is shown: others use this machine too.

use core::fmt::Debug;
use omniheap_core::{Manager, ManagerConfig, Request};
use omniheap_host::Host;
use omniheap_trace::Recorder;
use std::path::PathBuf;
use std::time::Instant;

const ROUNDS: u32 = 400;
const PAIRS: u32 = 2_000;

/// Returns the least time for one allocation and its free, in nanoseconds.
fn measure(config: ManagerConfig, name: Option<&str>) -> Result<f64, impl Debug> {
    let manager = Manager::with_config(Host::new(), config);
    let mut least = f64::INFINITY;
    let mut live = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for pair in 0..PAIRS {
            let mut request = Request::new(256 + u64::from(pair * 7919 % 20_000));
            request.name = name;
            live.push(manager.allocate(&request)?);
            if live.len() > 64 {
                drop(live.swap_remove(pair as usize % 64));
            }
        }
        least = least.min(begun.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS));
    }
    Ok::<_, omniheap_core::AllocateError>(least)
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("omniheap-record-cost.trace"), PathBuf::from);
    for (what, name) in [("without a name", None), ("with a name", Some("activations"))] {
        let failed = |error| format!("{error:?}");
        let off = measure(ManagerConfig::default(), name).map_err(failed)?;
        let recorder = Recorder::create(&path)?;
        let on =
            measure(ManagerConfig::default().observed(recorder.clone()), name).map_err(failed)?;
        recorder.finish()?;
        println!(
            "{what}: {off:.1} ns a pair off, {on:.1} ns on, {:.1} ns an event",
            (on - off) / 2.0
        );
    }
    println!("{} bytes", std::fs::metadata(&path)?.len());
    std::fs::remove_file(&path)?;
    Ok(())
}
