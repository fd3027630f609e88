//! A filter in constant memory: every thread reads the same tap at the same time.
//!
//! `cargo run --release --example 02_convolution -- --backend auto|cuda|hip|vulkan|wgpu|host`
#![expect(unsafe_code, reason = "launches a kernel")]
use omniheap::shaders::CONVOLUTION;
use omniheap::{
    Request, TimelineId,
    placement::{Pattern, Writer},
};
use omniheap_examples::{Outcome, check, noise, parameters, place, read};

const WIDTH: usize = 640;
const HEIGHT: usize = 480;
const RADIUS: usize = 2;
const SIDE: usize = 2 * RADIUS + 1;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;

    // Say what the data is; the policy says where it goes.
    let rows = usize::try_from(CONVOLUTION.rows)?;
    let table = Request::new(0).writer(Writer::HostOnce).pattern(Pattern::Broadcast).name("filter");
    let (filter, placement) = place(&manager, "filter", 4 * rows, &table)?;
    let image = Request::new(0).writer(Writer::HostOnce).name("image");
    let (input, _) = place(&manager, "image", WIDTH * HEIGHT, &image)?;
    let (output, _) = place(&manager, "result", WIDTH * HEIGHT, &Request::new(0).name("result"))?;

    let mut taps = vec![0.0; 4 * rows];
    taps[..SIDE * SIDE].fill(1.0 / (SIDE * SIDE) as f32);
    taps[SIDE * SIDE / 2] += 0.25;
    let pixels = noise(WIDTH * HEIGHT);
    filter.write(0, &taps)?;
    input.write(0, &pixels)?;

    // The same kernel exists for every place that the table may have.
    let program = manager.load(CONVOLUTION.in_region(placement.region), 0)?;
    let size = [WIDTH, HEIGHT, RADIUS].map(|n| u32::try_from(n).unwrap_or(0));
    let groups = [size[0].div_ceil(16), size[1].div_ceil(16), 1];
    let arguments = [filter.allocation(), input.allocation(), output.allocation()];
    // SAFETY: images and filter are as large as the parameters say, and all work is on one timeline.
    unsafe { program.launch(TimelineId::MAIN, groups, &arguments, &parameters(&size)) }?;

    check(&read(&output)?, &reference(&pixels, &taps))
}

/// Computes the same on the CPU.
fn reference(pixels: &[f32], taps: &[f32]) -> Vec<f32> {
    let at = |x: usize, y: usize, dx: usize, dy: usize| {
        let x = (x + dx).saturating_sub(RADIUS).min(WIDTH - 1);
        let y = (y + dy).saturating_sub(RADIUS).min(HEIGHT - 1);
        pixels[y * WIDTH + x]
    };
    let pixel = |(x, y)| {
        let around = (0..SIDE).flat_map(|dy| (0..SIDE).map(move |dx| (dx, dy)));
        around.zip(taps).map(|((dx, dy), tap)| tap * at(x, y, dx, dy)).sum()
    };
    (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y))).map(pixel).collect()
}
