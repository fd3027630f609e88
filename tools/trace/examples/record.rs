//! Records a small program and draws its manager: `cargo run -p omniheap-trace --example record -- OUT.trace OUT.html`
//!
//! On host memory it loads a model, serves requests of several sizes, asks for more than there is, and makes room by
//! moving live data together.

use core::error::Error;
use omniheap_core::{
    Allocation, Budget, Defragmentation, Manager, ManagerConfig, PoolConfig, Request, Tag, UserPool,
};
use omniheap_host::Host;
use omniheap_trace::{Recorder, report};
use std::fs::File;

const MIB: u64 = 1 << 20;
const MODEL: Tag = Tag(1);
const REQUESTS: Tag = Tag(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(trace), Some(page)) = (arguments.next(), arguments.next()) else {
        return Err("usage: record OUT.trace OUT.html".into());
    };
    let recorder = Recorder::create(&trace)?;
    recorder.title("a small program");
    let mut config = ManagerConfig::default().plain().observed(recorder.clone());
    // So that the failure below is one that a pass would have prevented.
    config.defragmentation = Defragmentation::Off;
    let manager = Manager::with_config(Host::new(), config);
    let (heap, _) = manager.caps().heap_ids().next().ok_or("host memory has a heap")?;
    let limited = PoolConfig::new().block(16 * MIB).maximum(64 * MIB).lanes(1);
    let pool = manager.create_pool(heap, limited)?;
    let weights = load(&pool)?;
    let served = serve(&pool)?;
    draw(&manager, &pool, &page)?;
    drop((weights, served, pool, manager));
    recorder.finish()?;
    Ok(())
}

/// Weights that stay.
fn load(pool: &UserPool<Host>) -> Result<Vec<Allocation<Host>>, Box<dyn Error>> {
    let mut weights = Vec::new();
    for layer in 0..10 {
        let name = format!("layer {layer} weights");
        let request = Request::new(2 * MIB + layer * MIB / 8).tag(MODEL).name(&name);
        weights.push(pool.allocate(&request)?);
    }
    Ok(weights)
}

/// Requests come and go; every fourth stays, which leaves holes.
fn serve(pool: &UserPool<Host>) -> Result<Vec<Allocation<Host>>, Box<dyn Error>> {
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for (turn, name) in (0..110_u64).zip(["cache", "activations", "logits"].into_iter().cycle()) {
        let request = Request::new((turn * 7 % 9 + 1) * MIB / 8).tag(REQUESTS).name(name);
        let allocation = pool.allocate(&request)?;
        if turn % 4 == 0 {
            stay.push(allocation);
        } else {
            go.push(allocation);
        }
        if go.len() > 24 {
            drop(go.remove(0));
        }
    }
    Ok(stay)
}

/// Records a manager before and after a pass, and a request that fails in between.
fn draw(manager: &Manager<Host>, pool: &UserPool<Host>, page: &str) -> Result<(), Box<dyn Error>> {
    let mut before = report::from_manager(&manager.report(), manager.caps(), "before");
    let refused = pool.allocate(&Request::new(12 * MIB).name("large"));
    if let Some(shortage) = refused.as_ref().err().and_then(|error| error.shortage()) {
        before.add_failure(shortage);
    }
    manager.begin_defragment(&Budget::new())?.commit()?;
    let mut data = report::from_manager(&manager.report(), manager.caps(), "a small program");
    data.add_before(&before, "one pass");
    report::write_html(&data, File::create(page)?)?;
    Ok(())
}
