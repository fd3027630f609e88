//! Tiles in shared memory: a layout of the launch, planned from what the kernel says of its arrays.
//!
//! `cargo run --release --example 03_matmul -- --backend auto|cuda|hip|vulkan|wgpu|host`
#![expect(unsafe_code, reason = "launches a kernel")]
use omniheap::shaders::MATMUL;
use omniheap::{
    ErrorKind, Request, TimelineId,
    placement::{SharedArray, SharedLayout, Walk, Writer},
};
use omniheap_examples::{Outcome, check, noise, parameters, place, read};

const ROWS: usize = 200;
const INNER: usize = 120;
const COLUMNS: usize = 168;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;

    // Two tiles of 16 × 16 numbers. Threads walk the columns of one and the rows of both, so rows are padded.
    let limits = manager.caps().shared.ok_or(ErrorKind::Unsupported)?;
    let tile = |name| SharedArray::new(name, 4, 16).rows(16).walk(Walk::Columns);
    let layout = SharedLayout::plan(&[tile("left"), tile("right")], 0, &limits)?;
    let (pitch, second) = (layout.arrays[0].pitch, layout.arrays[1].span.offset);
    println!(
        "  tiles: {} bytes of shared memory, {pitch} bytes from row to row, {} groups on a multiprocessor",
        layout.bytes,
        layout.resident_groups.unwrap_or(0)
    );

    let matrix = Request::new(0).writer(Writer::HostOnce).name("matrix");
    let (a, _) = place(&manager, "left matrix", ROWS * INNER, &matrix)?;
    let (b, _) = place(&manager, "right matrix", INNER * COLUMNS, &matrix)?;
    let (c, _) = place(&manager, "product", ROWS * COLUMNS, &Request::new(0).name("product"))?;
    let (left, right) = (noise(ROWS * INNER), noise(INNER * COLUMNS));
    a.write(0, &left)?;
    b.write(0, &right)?;

    let program = manager.load(&MATMUL, layout.bytes)?;
    let size = [ROWS, INNER, COLUMNS].map(|n| u32::try_from(n).unwrap_or(0));
    let words = [u32::try_from(pitch / 4)?, u32::try_from(second / 4)?];
    let groups = [size[2].div_ceil(16), size[0].div_ceil(16), 1];
    let arguments = [a.allocation(), b.allocation(), c.allocation()];
    let parameters = parameters(&[size.as_slice(), &words].concat());
    // SAFETY: the matrices are as large as the parameters say, and the tiles lie inside the layout's bytes.
    unsafe { program.launch(TimelineId::MAIN, groups, &arguments, &parameters) }?;

    check(&read(&c)?, &reference(&left, &right))
}

/// Computes the same on the CPU.
fn reference(a: &[f32], b: &[f32]) -> Vec<f32> {
    let number = |(row, column): (usize, usize)| {
        (0..INNER).map(|k| a[row * INNER + k] * b[k * COLUMNS + column]).sum()
    };
    (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))).map(number).collect()
}
