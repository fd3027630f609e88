//! Two timelines beside each other: one waits for the other on the device, and freed bytes are used again in order.
//!
//! `cargo run --release --example 06_streams -- --backend auto|cuda|hip|vulkan|wgpu|host`
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap::shaders::SCALE;
use omniheap::{AnyBackend, ErrorKind, Manager, Point, Request, TimelineId, placement::Writer};
use omniheap_examples::{Outcome, check, noise, parameters, place, read, wait};

const COUNT: usize = 1 << 16;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let timelines = manager.backend().as_timelines().ok_or(ErrorKind::Unsupported)?;
    let (produce, consume) = (TimelineId::MAIN, timelines.open()?);
    let program = manager.load(&SCALE, 0)?;
    let groups = [u32::try_from(COUNT / 256)?, 1, 1];
    let step = |factor: f32, term: f32| {
        parameters(&[u32::try_from(COUNT).unwrap_or(0), factor.to_bits(), term.to_bits()])
    };

    let numbers = noise(COUNT);
    let (input, _) =
        place(&manager, "input", COUNT, &Request::new(0).writer(Writer::HostOnce).on(produce))?;
    let (output, _) = place(&manager, "output", COUNT, &Request::new(0).on(consume))?;
    input.write(0, &numbers)?;

    for _ in 0..10 {
        let between = manager.allocate_slice::<f32>(COUNT as u64, Request::new(0).on(produce))?;
        let first = [input.allocation(), between.allocation()];
        let second = [between.allocation(), output.allocation()];
        // SAFETY: `COUNT` numbers in and out; the order below keeps the two timelines apart.
        unsafe { program.launch(produce, groups, &first, &step(2.0, 0.0)) }?;
        // The other timeline waits for this one on the device; the host goes on.
        let epoch = timelines.mark(produce)?;
        timelines.order(consume, Point { timeline: produce, epoch })?;
        // SAFETY: as above.
        unsafe { program.launch(consume, groups, &second, &step(1.0, 1.0)) }?;
        // Freed while both may still run. The launch said that `consume` uses the bytes too, so they wait for it.
        drop(between);
    }
    wait(&manager, consume)?;

    reuse(&manager, produce)?;
    let wanted: Vec<f32> = numbers.iter().map(|value| value * 2.0 + 1.0).collect();
    check(&read(&output)?, &wanted)?;
    drop(output);
    manager.retire()?;
    Ok(timelines.close(consume)?)
}

/// On one timeline no wait is needed at all: what is freed is the next allocation's, at the same place.
fn reuse(manager: &Manager<AnyBackend>, on: TimelineId) -> Outcome {
    let request = Request::new(4 * COUNT as u64).on(on);
    let first = manager.allocate(&request)?;
    let place = first.binding().span();
    drop(first);
    let again = manager.allocate(&request)?;
    println!("  freed and used again at once: {}", again.binding().span() == place);
    Ok(())
}
