//! Code shared by all examples: opens the device from the command line, and prints where each buffer went.
use core::error::Error;
mod image;
mod times;

pub use image::Image;
pub use times::Times;

use omniheap::{
    AnyBackend, BackendKind, Buffer, HeapId, Manager, Point, Request, TimelineId, open, open_best,
    placement::{Keyword as _, config_for},
    report::Placed,
};

/// Result of an example.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Returns the word after `--NAME` on the command line.
#[must_use]
pub fn option(name: &str) -> Option<String> {
    let mut words = std::env::args().skip_while(|word| word.strip_prefix("--") != Some(name));
    words.nth(1)
}

/// Opens the device of `--backend auto|cuda|hip|vulkan|wgpu|host`.
///
/// # Errors
///
/// Fails when there is no such backend or device.
pub fn manager() -> Outcome<Manager<AnyBackend>> {
    let device = match option("backend").as_deref() {
        None | Some("auto") => open_best()?,
        Some(name) => open(name.parse::<BackendKind>()?, 0)?,
    };
    println!("{}: {}", device.caps().device.backend, device.caps().device.name);
    let (config, rules) = config_for(device.caps());
    println!("  rules: {rules}");
    Ok(Manager::with_config(device, config))
}

/// Numbers in memory, placed by the policy, which says why.
///
/// # Errors
///
/// Those of the manager.
pub fn place(
    manager: &Manager<AnyBackend>,
    name: &str,
    count: usize,
    request: &Request<'_>,
) -> Outcome<(Buffer<f32, AnyBackend>, Placed)> {
    let request = request.layout(omniheap::seam::Layout::new(4 * count as u64));
    let buffer = manager.allocate_slice(count as u64, request)?;
    let placed = buffer.allocation().placed();
    println!("  {name}: {} memory, because {}", placed.region.word(), placed.reason);
    Ok((buffer, placed))
}

/// Returns the heap for so many bytes, whose pools can sleep.
///
/// # Errors
///
/// Fails when its memory has no pages; otherwise the errors of the manager.
pub fn paged_heap(manager: &Manager<AnyBackend>, size: u64) -> Outcome<HeapId> {
    let heap = manager.explain(&Request::new(size))?.placement.heaps.as_slice()[0];
    if manager.caps().heap_ids().any(|(id, about)| id == heap && about.page.is_none()) {
        return Err("no pool can sleep here: this memory has no pages; try --backend host".into());
    }
    Ok(heap)
}

/// Reads everything back.
///
/// # Errors
///
/// Those of the manager.
pub fn read(buffer: &Buffer<f32, AnyBackend>) -> Outcome<Vec<f32>> {
    let mut values = vec![0.0; usize::try_from(buffer.count())?];
    buffer.read(0, &mut values)?;
    Ok(values)
}

/// Waits for everything on a timeline.
///
/// # Errors
///
/// Those of the device.
pub fn wait(manager: &Manager<AnyBackend>, timeline: TimelineId) -> Outcome {
    let Some(timelines) = manager.backend().as_timelines() else { return Ok(()) };
    Ok(timelines.wait(Point { timeline, epoch: timelines.mark(timeline)? })?)
}

/// Compares with a reference that the processor computed; roundings may differ.
///
/// # Errors
///
/// The first number that differs.
pub fn check(got: &[f32], want: &[f32]) -> Outcome {
    let differs = |(a, b): &(&f32, &f32)| (*a - *b).abs() > 1e-4 * b.abs().max(1.0);
    match got.iter().zip(want).position(|pair| differs(&pair)) {
        None if got.len() == want.len() => {
            println!("  {} numbers are as they should be", got.len());
            Ok(())
        }
        None => Err(format!("{} numbers instead of {}", got.len(), want.len()).into()),
        Some(at) => Err(format!("number {at} is {} instead of {}", got[at], want[at]).into()),
    }
}

/// Numbers between zero and one, the same on every run.
#[must_use]
pub fn noise(count: usize) -> Vec<f32> {
    let mut state = 7u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap_or(0)) / 65536.0
    };
    core::iter::repeat_with(next).take(count).collect()
}

/// Words as a kernel's parameters.
#[must_use]
pub fn parameters(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
