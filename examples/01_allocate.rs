//! Allocate, write, read, free, and look at what it cost.
//!
//! `cargo run --example 01_allocate -- --backend auto|cuda|hip|vulkan|wgpu|host`
use omniheap::{
    Align, Request, Usage,
    placement::{Keyword as _, Writer},
};
use omniheap_examples::{Outcome, check, noise};

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;

    // A request says what the data is for. What would happen, and why?
    let request = Request::new(1 << 20).align(Align::of(16)).writer(Writer::HostOnce).name("mesh");
    let plan = manager.plan(&request)?;
    println!("  {:?}: {} bytes new from the driver", plan.source, plan.new_bytes);

    // An allocation owns its bytes until it is dropped.
    let mesh = manager.allocate(&request)?;
    let placed = mesh.placed();
    println!("  mesh: {} memory, because {}", placed.region.word(), placed.reason);
    mesh.write(0, &[7; 4096])?;
    let mut bytes = [0; 4096];
    mesh.read(0, &mut bytes)?;
    assert_eq!(bytes, [7; 4096]);

    // Typed arrays are allocations too.
    let numbers = manager.allocate_slice::<f32>(1000, Usage::Device)?;
    numbers.write(0, &noise(1000))?;
    let mut values = vec![0.0; 1000];
    numbers.read(0, &mut values)?;
    check(&values, &noise(1000))?;

    // Freed memory is used again, and the driver is not asked.
    drop(mesh);
    let before = manager.report().driver_calls;
    for _ in 0..1000 {
        drop(manager.allocate(&request)?);
    }
    println!("  1000 more allocations: {} driver calls", manager.report().driver_calls - before);

    // Nothing that is held is lost: what nobody uses goes back.
    drop(numbers);
    manager.trim()?;
    println!("  {} bytes are held at the end", manager.report().totals.reserved_bytes);
    Ok(())
}
