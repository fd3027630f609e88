//! Per-frame uploads: a ring of staging memory, used again when the device has passed, never waited for while it is ahead.
//!
//! `cargo run --release --example 05_frame_ring -- --backend auto|cuda|hip|vulkan|wgpu|host`
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap::shaders::SCALE;
use omniheap::{
    AnyBackend, ErrorKind, HeapId, Manager, Request, TimelineId, Usage,
    placement::{Keyword as _, Lifetime, Writer},
    transfer::{CopyRegion, Staging},
};
use omniheap_examples::{Outcome, check, parameters, place, read};

const FRAMES: usize = 100;
const COUNT: usize = 4096;
const MAIN: TimelineId = TimelineId::MAIN;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;

    ask(&manager)?;

    // A ring for four frames. Where the host cannot map memory, uploads go through the backend's own staging.
    let ring = Staging::new(&manager, 4 * 4 * COUNT as u64).ok();
    println!(
        "  through {}",
        if ring.is_some() { "a mapped ring" } else { "the backend's staging" }
    );

    let frame = Request::new(0).writer(Writer::HostPerFrame).heap(device(&manager)?).on(MAIN);
    let (input, _) = place(&manager, "what kernels read", COUNT, &frame)?;
    // In a block of its own, because some devices copy between blocks only.
    let all = Request::new(0).on(MAIN).dedicated();
    let (output, _) = place(&manager, "what they write", COUNT * FRAMES, &all)?;
    let (part, _) = place(&manager, "one frame's result", COUNT, &Request::new(0).on(MAIN))?;
    let program = manager.load(&SCALE, 0)?;

    let words = parameters(&[u32::try_from(COUNT)?, 2f32.to_bits(), 1f32.to_bits()]);
    let groups = [u32::try_from(COUNT / 256)?, 1, 1];
    let arguments = [input.allocation(), part.allocation()];
    let before = manager.report().driver_calls;
    for number in 0..FRAMES {
        let values = data(number);
        match &ring {
            Some(ring) => {
                ring.upload(MAIN, input.allocation(), 0, bytemuck::cast_slice(&values))?;
            }
            None => input.write(0, &values)?,
        }
        // SAFETY: `COUNT` numbers in, `COUNT` numbers out, all on one timeline.
        unsafe { program.launch(MAIN, groups, &arguments, &words) }?;
        let to_offset = (4 * COUNT * number) as u64;
        let (from, to, size) = (part.allocation(), output.allocation(), 4 * COUNT as u64);
        manager.copy(MAIN, &[CopyRegion { from, from_offset: 0, to, to_offset, size }])?;
    }
    println!(
        "  {FRAMES} frames: {} driver calls for memory",
        manager.report().driver_calls - before
    );
    let wanted: Vec<f32> = (0..FRAMES).flat_map(data).map(|value| value * 2.0 + 1.0).collect();
    check(&read(&output)?, &wanted)
}

/// Asks where data goes that the host writes every frame, before anything is built around it.
fn ask(manager: &Manager<AnyBackend>) -> Outcome {
    let upload = Request::new(4 * COUNT as u64)
        .usage(Usage::Upload)
        .lifetime(Lifetime::Frame)
        .name("frame data");
    let placement = manager.explain(&upload)?.placement;
    println!("  frame data: {} memory, because {}", placement.region.word(), placement.reason);
    Ok(())
}

/// Returns the heap where kernels read fastest.
fn device(manager: &Manager<AnyBackend>) -> Outcome<HeapId> {
    let placement = manager.explain(&Request::new(4))?.placement;
    Ok(*placement.heaps.as_slice().first().ok_or(ErrorKind::NoSuchHeap)?)
}

/// Returns the host's data for a frame.
fn data(frame: usize) -> Vec<f32> {
    let first = u16::try_from(frame).unwrap_or(0);
    (0..COUNT).map(|at| f32::from(first) + f32::from(u16::try_from(at % 7).unwrap_or(0))).collect()
}
