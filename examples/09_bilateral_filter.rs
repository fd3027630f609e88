//! A bilateral filter over an image: smooths, and keeps edges. Its table of weights is timed in every place it may lie.
//!
//! `cargo run --release --example 09_bilateral_filter -- [--backend B] [--input IN.png] [--output OUT.png]`
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap::shaders::BILATERAL;
use omniheap::{
    AnyBackend, Buffer, Manager, Request, TimelineId,
    placement::{Keyword as _, Pattern, Region, Writer},
    seam::{HeapKind, Kernel},
};
use omniheap_examples::{Image, Outcome, check, noise, option, parameters, place, read, wait};
use std::time::Instant;

const RADIUS: usize = 4;
const SIDE: usize = 2 * RADIUS + 1;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let noisy = Image { width: 256, height: 192, pixels: noise(256 * 192) };
    let mut image = option("input").map_or(Ok(noisy), |path| Image::read(&path))?;
    let count = image.pixels.len();
    let (input, _) = place(&manager, "image", count, &Request::new(0).writer(Writer::HostOnce))?;
    let (output, _) = place(&manager, "result", count, &Request::new(0))?;
    input.write(0, &image.pixels)?;

    // Each of 256 threads reads two weights for every neighbour.
    let weights = weights(4 * usize::try_from(BILATERAL.rows)?);
    let reuse = u32::try_from(256 * 2 * SIDE * SIDE / weights.len())?;
    let wanted = Request::new(BILATERAL.bytes()).writer(Writer::HostOnce).name("weights");
    let wanted = wanted.pattern(Pattern::Gathered).reuse(reuse);
    let chosen = manager.explain(&wanted)?.placement;
    println!("  weights: {} memory, because {}", chosen.region.word(), chosen.reason);

    let expected = reference(&image, &weights);
    let variants = [
        (Region::Constant, Some(BILATERAL.constant)),
        (Region::Device, Some(BILATERAL.device)),
        (Region::Shared, BILATERAL.shared),
    ];
    for (region, kernel) in variants {
        let Some(kernel) = kernel else { continue };
        let kind = if region == Region::Constant { HeapKind::Constant } else { HeapKind::Device };
        let heap = manager.caps().heap_ids().find(|(_, heap)| heap.kind == kind);
        let request = heap.map_or(wanted, |(id, _)| wanted.heap(id));
        let table = manager.allocate_slice::<f32>(weights.len() as u64, request)?;
        table.write(0, &weights)?;
        let fastest = time(&manager, &kernel, [&table, &input, &output], &image)?;
        let mark = if region == chosen.region { "  <- the policy's choice" } else { "" };
        println!("  {:8} {fastest:9.1} µs{mark}", region.word());
        image.pixels = read(&output)?;
        check(&image.pixels, &expected)?;
    }
    let spare = std::env::temp_dir().join("bilateral.png").display().to_string();
    let path = option("output").unwrap_or(spare);
    image.write(&path)?;
    println!("  written to {path}");
    Ok(())
}

/// The fastest of five runs, in microseconds.
fn time(
    manager: &Manager<AnyBackend>,
    kernel: &Kernel,
    buffers: [&Buffer<f32, AnyBackend>; 3],
    image: &Image,
) -> Outcome<f64> {
    let program = manager.load(kernel, 0)?;
    let size = [image.width, image.height, RADIUS].map(|n| u32::try_from(n).unwrap_or(0));
    let groups = [size[0].div_ceil(16), size[1].div_ceil(16), 1];
    let arguments = buffers.map(Buffer::allocation);
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        // SAFETY: images and table are as large as the parameters say, and all work is on one timeline.
        unsafe { program.launch(TimelineId::MAIN, groups, &arguments, &parameters(&size)) }?;
        wait(manager, TimelineId::MAIN)?;
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(fastest)
}

/// Weights by distance, then weights by difference.
fn weights(count: usize) -> Vec<f32> {
    let square = |n: usize| (n as f32 - RADIUS as f32).powi(2);
    let near = |n: usize| (-(square(n % SIDE) + square(n / SIDE)) / 12.0).exp();
    let alike = |n: usize| (-(n as f32 / 255.0).powi(2) / 0.02).exp();
    let mut weights: Vec<f32> = (0..SIDE * SIDE).map(near).chain((0..256).map(alike)).collect();
    weights.resize(count, 0.0);
    weights
}

/// Computes the same on the CPU.
fn reference(image: &Image, weights: &[f32]) -> Vec<f32> {
    let Image { width, height, ref pixels } = *image;
    let near = |at: usize, step: usize, end: usize| (at + step).saturating_sub(RADIUS).min(end - 1);
    let pixel = |(x, y): (usize, usize)| {
        let (mut sum, mut total) = (0.0, 0.0);
        for tap in 0..SIDE * SIDE {
            let value = pixels[near(y, tap / SIDE, height) * width + near(x, tap % SIDE, width)];
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
            let differs = ((value - pixels[y * width + x]).abs() * 255.0) as usize;
            let weight = weights[tap] * weights[SIDE * SIDE + differs.min(255)];
            sum += weight * value;
            total += weight;
        }
        sum / total
    };
    (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(pixel).collect()
}
