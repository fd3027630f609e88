//! Allocate, write, read, free, and look at what it cost.
//!
//! `cargo run --example 01_allocate [host|cuda|hip|vulkan|wgpu]`
use omniheap::{Align, BackendKind, Manager, Request, Writer, open};

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let backend: BackendKind = std::env::args().nth(1).as_deref().unwrap_or("host").parse()?;
    let manager = Manager::new(open(backend, 0)?);
    println!("{}", manager.caps().device.name);

    // A request says what the data is for. What would happen, and why?
    let request = Request::new(1 << 20).align(Align::of(256)).writer(Writer::HostOnce).name("mesh");
    let plan = manager.plan(&request)?;
    println!("{:?}: {} bytes new from the driver", plan.source, plan.new_bytes);
    println!("because {}", manager.explain(&request)?.placement.reason);

    // An allocation owns its bytes until it is dropped.
    let mesh = manager.allocate(&request)?;
    mesh.write(0, &[7; 4096])?;
    let mut bytes = [0; 4096];
    mesh.read(0, &mut bytes)?;
    assert_eq!(bytes, [7; 4096]);

    // Typed arrays are allocations too.
    let numbers = manager.buffer::<u32>(4, &Request::new(0))?;
    numbers.write(0, &[1, 2, 3, 4])?;
    let mut values = [0; 4];
    numbers.read(0, &mut values)?;
    assert_eq!(values, [1, 2, 3, 4]);

    // What is freed is used again, and the driver is not asked.
    drop(mesh);
    let before = manager.report().driver_calls;
    for _ in 0..1000 {
        drop(manager.allocate(&request)?);
    }
    println!("1000 more allocations: {} driver calls", manager.report().driver_calls - before);

    // Nothing that is held is lost: what nobody uses goes back.
    drop(numbers);
    manager.trim()?;
    println!("{} bytes are held at the end", manager.report().totals.reserved_bytes);
    Ok(())
}
