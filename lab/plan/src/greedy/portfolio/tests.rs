use super::*;
use crate::bound::lower_bound;
use crate::model::peak_of;
use crate::{Buffer, Problem, Region};

/// Buffers of many sizes and lives; with `extras` some are aligned, have gaps, are fixed or kept apart.
fn model(count: u64, extras: bool) -> Model {
    let mut rng = Rng::new(count);
    let mut problem = Problem::new(Region::unbounded());
    for at in 0..count {
        let start = rng.below(count / 4);
        let (longest, largest) = (2 << rng.below(8), 4 << rng.below(8));
        let (life, size) = (3 + rng.below(longest), 1 + rng.below(largest));
        let buffer = Buffer::new(size, start, start + life);
        problem.push(match rng.below(8) {
            0 | 1 if extras => buffer.align(1 << rng.below(5)),
            2 if extras => buffer.gap(start + 1, start + 2),
            3 if extras && at < 40 => buffer.fixed(rng.below(3_000)),
            _ => buffer,
        });
    }
    if extras {
        problem.separate.extend([(41, 45), (50, 47), (60, 61)]);
    }
    Model::new(&problem, 0, |_| true)
}

/// The peak of each way, three with chance at the end, and how high items end in all of them together.
fn made(model: &Model) -> ([u64; WAYS.len() + 3], u64) {
    let mut portfolio = Portfolio::new(1, lower_bound(model));
    let mut heights = 0;
    let peaks = core::array::from_fn(|_| {
        let offsets = portfolio.next(model, &Stop::new(&|| false)).expect("nobody stops it");
        heights += offsets.iter().zip(&model.size).map(|(o, s)| o + s).sum::<u64>();
        peak_of(model, &offsets)
    });
    (peaks, heights)
}

/// A way that is broken still gives valid plans, and another way hides that it is worse. Lower is better.
#[test]
fn every_way_has_its_peak() {
    let peaks = [
        9113, 8415, 9233, 8207, 8322, 8326, 8348, 8229, 8142, 8170, 8222, 8269, 8253, 8223, 8276,
        8115, 8183, 8309, 8183,
    ];
    assert_eq!(made(&model(400, false)), (peaks, 22_730_034));
    let peaks = [
        7210, 6749, 7024, 5749, 5769, 6336, 6925, 6315, 6230, 6468, 6388, 6364, 6670, 6620, 6212,
        6230, 6467, 6559, 6453,
    ];
    assert_eq!(made(&model(300, true)), (peaks, 11_808_070));
}
