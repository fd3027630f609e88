//! The kernels in Rust: what every other language is compared with, and what host memory runs.
use bytemuck::{cast_slice, cast_slice_mut, pod_read_unaligned};
use omniheap_seam::HostLaunch;

fn word(launch: &HostLaunch<'_>, index: usize) -> u32 {
    pod_read_unaligned(&launch.parameters[4 * index..4 * index + 4])
}

fn number(launch: &HostLaunch<'_>, index: usize) -> f32 {
    f32::from_bits(word(launch, index))
}

fn index(value: u32) -> usize {
    usize::try_from(value).expect("an address has at least 32 bits")
}

pub(crate) fn scale(launch: &mut HostLaunch<'_>) {
    let (count, factor, term) = (index(word(launch, 0)), number(launch, 1), number(launch, 2));
    let input: &[f32] = cast_slice(launch.reads[0]);
    let output: &mut [f32] = cast_slice_mut(launch.writes[0]);
    for (to, from) in output[..count].iter_mut().zip(&input[..count]) {
        *to = from * factor + term;
    }
}

/// The host's shared memory is made for each launch: nothing is left in it.
pub(crate) fn residue(launch: &mut HostLaunch<'_>) {
    let count = index(word(launch, 0)) * index(launch.groups[0]);
    let output: &mut [u32] = cast_slice_mut(launch.writes[0]);
    output[..count].fill(0);
}

/// Filters every pixel of an image with the square of its neighbours, edges repeated.
fn over_image(
    launch: &mut HostLaunch<'_>,
    pixel: impl Fn(&[f32], f32, &mut dyn Iterator<Item = f32>) -> f32,
) {
    let (width, height) = (index(word(launch, 0)), index(word(launch, 1)));
    let radius = index(word(launch, 2));
    let table: &[f32] = cast_slice(launch.reads[0]);
    let input: &[f32] = cast_slice(launch.reads[1]);
    let output: &mut [f32] = cast_slice_mut(launch.writes[0]);
    let near =
        |at: usize, step: usize, length: usize| (at + step).saturating_sub(radius).min(length - 1);
    for y in 0..height {
        for x in 0..width {
            let mut around = (0..=2 * radius).flat_map(|dy| {
                let row = near(y, dy, height) * width;
                (0..=2 * radius).map(move |dx| input[row + near(x, dx, width)])
            });
            output[y * width + x] = pixel(table, input[y * width + x], &mut around);
        }
    }
}

pub(crate) fn convolution(launch: &mut HostLaunch<'_>) {
    over_image(launch, |filter, _, around| {
        around.zip(filter).map(|(value, weight)| weight * value).sum()
    });
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a difference of at most 255 becomes an index, as on the device"
)]
pub(crate) fn bilateral(launch: &mut HostLaunch<'_>) {
    let side = 2 * index(word(launch, 2)) + 1;
    over_image(launch, |table, center, around| {
        let (near, alike) = table.split_at(side * side);
        let (mut sum, mut weight) = (0.0, 0.0);
        for (value, near) in around.zip(near) {
            let w = near * alike[(((value - center).abs() * 255.0) as usize).min(255)];
            sum += w * value;
            weight += w;
        }
        sum / weight
    });
}

pub(crate) fn matmul(launch: &mut HostLaunch<'_>) {
    let (rows, inner, columns) =
        (index(word(launch, 0)), index(word(launch, 1)), index(word(launch, 2)));
    let a: &[f32] = cast_slice(launch.reads[0]);
    let b: &[f32] = cast_slice(launch.reads[1]);
    let c: &mut [f32] = cast_slice_mut(launch.writes[0]);
    for row in 0..rows {
        for column in 0..columns {
            let products = (0..inner).map(|k| a[row * inner + k] * b[k * columns + column]);
            c[row * columns + column] = products.sum();
        }
    }
}

pub(crate) fn reduction(launch: &mut HostLaunch<'_>) {
    let (count, groups) = (index(word(launch, 0)), index(word(launch, 1)));
    let input: &[f32] = cast_slice(launch.reads[0]);
    let output: &mut [f32] = cast_slice_mut(launch.writes[0]);
    for (group, sum) in output[..groups].iter_mut().enumerate() {
        let mine = input[..count].chunks(256).skip(group).step_by(groups);
        *sum = mine.flatten().sum();
    }
}
