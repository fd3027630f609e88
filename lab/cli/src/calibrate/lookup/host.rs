//! The lookups in Rust: one frame, and what each does with one item.
use bytemuck::{cast_slice, cast_slice_mut, pod_read_unaligned};
use omniheap::seam::HostLaunch;

fn word(launch: &HostLaunch<'_>, index: usize) -> u32 {
    pod_read_unaligned(&launch.parameters[4 * index..4 * index + 4])
}

fn index(value: u32) -> usize {
    usize::try_from(value).expect("an address has at least 32 bits")
}

type Row = [f32; 4];

/// Computes every item.
fn each(launch: &mut HostLaunch<'_>, value: impl Fn(&[Row], usize, f32) -> f32) {
    let count = index(word(launch, 0));
    let table: &[Row] = cast_slice(launch.reads[0]);
    let input: &[f32] = cast_slice(launch.reads[1]);
    let output: &mut [f32] = cast_slice_mut(launch.writes[0]);
    for (i, (to, x)) in output[..count].iter_mut().zip(&input[..count]).enumerate() {
        *to = value(table, i, *x);
    }
}

/// A number between zero and one as 24 bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between zero and one, scaled to 24 bits, as on the device"
)]
fn bits(x: f32) -> u32 {
    (x * 16_777_216.0) as u32
}

fn spread(h: u32) -> u32 {
    h.wrapping_mul(2_654_435_761)
}

pub(super) fn polynomial(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| table.iter().flatten().fold(0.0, |value, c| value * x + c));
}

pub(super) fn centroids(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let distance = |row: &Row| (x - row[0]).powi(2) + (0.5 - row[1]).powi(2);
        table.iter().map(distance).fold(1e30, f32::min)
    });
}

pub(super) fn bodies(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let pull = |row: &Row| {
            let (dx, dy, dz) = (row[0] - x, row[1] - 0.5, row[2] - 0.5);
            row[3] / (dx * dx + dy * dy + dz * dz + 0.01).sqrt()
        };
        table.iter().map(pull).sum()
    });
}

pub(super) fn segments(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let bend = |row: &Row| (x - row[0]).max(0.0) * row[1] + (x - row[2]).min(0.0) * row[3];
        table.iter().map(bend).sum()
    });
}

pub(super) fn material(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        table[i / 256 % table.len()].iter().fold(0.0, |value, c| value * x + c)
    });
}

pub(super) fn palette(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let row = table[index(spread(bits(x)) >> 8) % table.len()];
        row[0] + row[1] * x
    });
}

pub(super) fn substitute(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let mut h = bits(x);
        let mut next = || {
            h = spread(h).wrapping_add(12_345);
            table[index(h >> 8) % table.len()][0]
        };
        (0..16).map(|_| next()).sum()
    });
}

pub(super) fn chain(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let (mut h, mut value) = (bits(x), 0.0);
        for _ in 0..8 {
            let row = table[index(h >> 8) % table.len()];
            value += row[1];
            h = spread(h).wrapping_add(bits(row[3]) >> 8);
        }
        value
    });
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place inside the table, as on the device"
)]
pub(super) fn interpolate(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let place = x * (table.len() - 1) as f32;
        let below = (place as usize).min(table.len() - 2);
        let a = table[below][0];
        a + (table[below + 1][0] - a) * (place - below as f32)
    });
}

#[expect(clippy::cast_precision_loss, reason = "a place inside the table, as on the device")]
pub(super) fn search(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| table.partition_point(|row| row[0] < x) as f32);
}

pub(super) fn window(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        let row = table[i % table.len()];
        x * row[0] + row[1]
    });
}

pub(super) fn dither(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| (x * 16.0 + table[i & 15][3]).floor() * 0.0625);
}

pub(super) fn twiddle(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        let strides = (0..table.len().ilog2()).map(|power| i << power);
        strides.fold(0.0, |value, at| {
            let row = table[at % table.len()];
            value * row[0] + row[1] * x
        })
    });
}

pub(super) fn whole(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        table.iter().map(|row| (x - row[0]).abs() * row[1] + (x + row[2]) * row[3]).sum()
    });
}

pub(super) use whole as unrolled;

pub(super) fn busy(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let bump = |row: &Row| {
            let near = x * row[0] + row[1];
            row[2] * near / (1.0 + near * near) + near.abs().sqrt() * row[3]
        };
        table.iter().map(bump).sum()
    });
}

pub(super) fn walk(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        let start = i / 256 * 31;
        (start..start + 64).fold(0.0, |value, at| {
            let row = table[at % table.len()];
            (value * x + row[0]) * row[1] + row[2] * x + row[3]
        })
    });
}

pub(super) fn lanes(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        (0..4).fold(0.0, |value, k| {
            let row = table[(i + 32 * k) % table.len()];
            value * row[0] + row[1] * x
        })
    });
}

/// Places by value: `count` of them below `below`, one after another.
fn places(x: f32, count: usize, below: usize) -> impl Iterator<Item = usize> {
    let mut h = bits(x);
    core::iter::repeat_with(move || {
        h = spread(h).wrapping_add(12_345);
        index(h >> 8) % below
    })
    .take(count)
}

pub(super) fn codes(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        places(x, 16, words.len()).map(|at| words[at]).sum()
    });
}

pub(super) fn hops(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let (mut h, mut value) = (bits(x), 0.0);
        for _ in 0..8 {
            let word = words[index(h >> 8) % words.len()];
            value += word;
            h = spread(h).wrapping_add(bits(word.abs()) >> 8);
        }
        value
    });
}

pub(super) fn records(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let rows = places(x, 8, table.len()).map(|at| table[at]);
        rows.map(|row| row[0] * row[1] + row[2] * row[3]).sum()
    });
}

pub(super) fn curve(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let h = spread(bits(x));
        let at = index(h >> 8) % (words.len() - 3);
        let t = f32::from(u8::try_from(h & 255).unwrap_or(0)) / 256.0;
        let [a, b, c, d] = [words[at], words[at + 1], words[at + 2], words[at + 3]];
        let bend = 2.0 * a - 5.0 * b + 4.0 * c - d + t * (3.0 * (b - c) + d - a);
        b + 0.5 * t * (c - a + t * bend)
    });
}

pub(super) fn joints(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let h = spread(bits(x));
        let matrix = |h: u32| {
            let first = index(h) % (table.len() / 3) * 3;
            let rows = table[first..first + 3].iter();
            rows.map(|row| row[0] * x + row[1] + row[2] + row[3]).sum::<f32>()
        };
        matrix(h >> 8) * 0.75 + matrix(h >> 12) * 0.25
    });
}

pub(super) fn lights(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        table.iter().map(|row| (x * row[0] - row[1]).max(0.0) * (row[2] + row[3])).sum()
    });
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sixteen bits of a number, as on the device"
)]
pub(super) fn checksum(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let h = bits(x);
        let sum = (0..4).fold(65_535u32, |sum, k| {
            let at = index(spread(sum ^ (h >> (6 * k))) >> 8) % words.len();
            sum.wrapping_mul(31).wrapping_add((words[at].abs() * 65536.0) as u32)
        });
        (sum & 65_535) as f32 / 65536.0
    });
}

pub(super) fn gain(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        let words = table.as_flattened();
        x * words[i % words.len()]
    });
}

pub(super) fn codebook(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let rows = places(x, 8, 16).map(|at| table[at]);
        rows.map(|row| row[0] * x + row[1] + row[2] + row[3]).sum()
    });
}

pub(super) fn blend(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let others = places(x, 16, words.len() - 16).map(|at| words[16 + at]);
        words.iter().zip(others).map(|(weight, other)| weight * other).sum()
    });
}

pub(super) fn rules(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        let rows = (0..32).map(|k| table[(i / 256 * 5 + k) % table.len()]);
        rows.map(|row| if x < row[0] { row[2] } else { row[1] } * row[3]).sum()
    });
}

pub(super) fn density(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let bell = |row: &Row| row[3] * (-((x - row[0]) * row[2]).powi(2)).exp() + row[1];
        table.iter().map(bell).sum()
    });
}

pub(super) fn tree(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let mut node = 0;
        (0..8).fold(0.0, |value, _| {
            let row = table[node];
            node = (2 * node + if x > row[3] { 2 } else { 1 }) % table.len();
            value + row[1] * row[2]
        })
    });
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "places inside the table, as on the device"
)]
pub(super) fn tone(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let first = ((x * words.len() as f32) as usize).min(words.len() - 1);
        let step = words[first];
        let second = (first + 1 + (step.abs() * 65536.0) as usize) % words.len();
        step + words[second] * x
    });
}

pub(super) fn bands(launch: &mut HostLaunch<'_>) {
    each(launch, |table, i, x| {
        (0..8).fold(0.0, |value, k| {
            let row = table[(i / 256 * 8 + k) % table.len()];
            value * row[0] + x.max(row[1]).min(row[2]) * row[3]
        })
    });
}

pub(super) fn envelope(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let line = |value: f32, row: &Row| (value * row[0] + row[1]).max(x * row[2] + row[3]);
        table.iter().fold(0.0, line)
    });
}

pub(super) fn steps(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let step = |row: &Row| {
            let t = (x * row[0] + row[1]).clamp(0.0, 1.0);
            t * t * (3.0 - 2.0 * t) * row[2] + row[3]
        };
        table.iter().map(step).sum()
    });
}

pub(super) fn pairs(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let mut h = bits(x);
        let mut next = || {
            h = h.wrapping_mul(2_246_822_519).wrapping_add(374_761_393);
            let at = index(h >> 7) % (words.len() - 1);
            words[at] * words[at + 1]
        };
        (0..6).map(|_| next()).sum()
    });
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sixteen bits of a number, as on the device"
)]
pub(super) fn automaton(launch: &mut HostLaunch<'_>) {
    each(launch, |table, _, x| {
        let words = table.as_flattened();
        let mut at = (x * 65536.0) as usize % words.len();
        (0..12).fold(0.0, |value, _| {
            let word = words[at];
            at = (5 * at + (word.abs() * 65536.0) as usize + 1) % words.len();
            value + word
        })
    });
}
