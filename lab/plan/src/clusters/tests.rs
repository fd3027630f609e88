//! Clusters fill rectangles, and expand to placements that are valid.
use super::{Clusters, MergeRule};
use crate::model::Model;
use crate::rng::Rng;
use crate::{Buffer, Problem, Region};
use alloc::vec::Vec;

const EXACT: MergeRule = MergeRule { noise: 0, rank_limit: 0, wheel_waste: 0, stacks: false };
const LOOSE: MergeRule = MergeRule { noise: 0, rank_limit: 1_000, wheel_waste: 10, stacks: false };
const STACKS: MergeRule = MergeRule { stacks: true, ..EXACT };

fn problem(buffers: &[Buffer]) -> Problem {
    let mut problem = Problem::new(Region::unbounded());
    problem.buffers = buffers.to_vec();
    problem
}

/// Merges, stacks the clusters on each other, and checks what that gives; returns the number of clusters and their sizes.
fn merged(problem: &Problem, target: u64, rule: MergeRule) -> (usize, u64) {
    let model = Model::new(problem, 0, |_| true);
    let clusters = Clusters::new(&model, target, rule, &mut Rng::new(1));
    let small = clusters.model(&model);
    let mut top = 0u64;
    let place = |i: usize| {
        let place = top.next_multiple_of(small.align[i]);
        top = place + small.size[i];
        place
    };
    let places: Vec<u64> = (0..small.len()).map(place).collect();
    let offsets = clusters.expand(&places);
    for a in 0..model.len() {
        assert!(offsets[a].is_multiple_of(model.align[a]), "item {a}");
        assert!(offsets[a] + model.size[a] <= top, "item {a}");
        for b in 0..a {
            assert!(!model.overlap((a, offsets[a]), (b, offsets[b])), "items {a} and {b}");
        }
    }
    (small.len(), top)
}

#[test]
fn a_rectangle_cut_straight_becomes_one_cluster() {
    // Cut at tick 4; the first part at byte 3, the second at byte 6 and its lower half at tick 7.
    let cuts = [
        Buffer::new(3, 0, 4),
        Buffer::new(7, 0, 4),
        Buffer::new(6, 4, 7),
        Buffer::new(6, 7, 9),
        Buffer::new(4, 4, 9),
    ];
    assert_eq!(merged(&problem(&cuts), 10, EXACT), (1, 10));
}

#[test]
fn a_stack_as_large_as_what_is_beside_it_is_merged_first() {
    // Any of the four fit together, but only 1 and 9 are as large as what comes before or after.
    for beside in [Buffer::new(10, 0, 4), Buffer::new(10, 8, 12)] {
        let mut cuts = [1, 2, 5, 9].map(|size| Buffer::new(size, 4, 8)).to_vec();
        cuts.push(beside);
        assert_eq!(merged(&problem(&cuts), 17, EXACT), (2, 27));
        assert_eq!(merged(&problem(&cuts), 17, STACKS), (2, 17));
    }
}

#[test]
fn a_pinwheel_becomes_one_cluster() {
    let mut cuts = alloc::vec![
        Buffer::new(2, 0, 6),
        Buffer::new(5, 6, 9),
        Buffer::new(3, 3, 6),
        Buffer::new(7, 0, 3),
        Buffer::new(4, 3, 9),
    ];
    assert_eq!(merged(&problem(&cuts), 9, EXACT), (1, 9));
    cuts[2].size -= 1;
    assert_eq!(merged(&problem(&cuts), 9, EXACT).0, 5, "the hub leaves a hole");
    assert_eq!(merged(&problem(&cuts), 9, LOOSE), (1, 9), "which is small");
    cuts[2] = Buffer::new(3, 3, 5);
    assert_eq!(merged(&problem(&cuts), 9, LOOSE), (1, 9), "starts and sizes agree");
}

#[test]
fn waste_needs_room_below_the_target() {
    let cuts = [Buffer::new(4, 0, 5), Buffer::new(3, 5, 9)];
    assert_eq!(merged(&problem(&cuts), 4, EXACT).0, 2);
    assert_eq!(merged(&problem(&cuts), 4, LOOSE), (1, 4));
    let full = [Buffer::new(4, 0, 5), Buffer::new(3, 5, 9), Buffer::new(1, 6, 7)];
    assert_eq!(merged(&problem(&full), 4, LOOSE), (3, 8));
}

#[test]
fn items_that_are_not_free_stay_as_they_are() {
    let pair = |second: Buffer| merged(&problem(&[Buffer::new(4, 0, 9), second]), 64, LOOSE).0;
    assert_eq!(pair(Buffer::new(4, 0, 9)), 1);
    assert_eq!(pair(Buffer::new(4, 0, 9).fixed(40)), 2);
    assert_eq!(pair(Buffer::new(4, 0, 9).gap(3, 5)), 2);
    let mut apart = problem(&[Buffer::new(4, 0, 5), Buffer::new(4, 5, 9)]);
    assert_eq!(merged(&apart, 64, LOOSE).0, 1);
    apart.separate = alloc::vec![(0, 1)];
    assert_eq!(merged(&apart, 64, LOOSE).0, 2);
}

#[test]
fn clusters_are_valid_whatever_they_are_made_of() {
    let mut rng = Rng::new(3);
    for round in 0..60 {
        let mut problem = Problem::new(Region { align: 1 + rng.below(3), ..Region::unbounded() });
        for _ in 0..30 {
            let start = rng.below(9);
            let align = [1, 1, 2, 4, 6][rng.index(5)];
            let size = 1 + rng.below(8);
            problem.push(Buffer::new(size, start, start + 1 + rng.below(5)).align(align));
        }
        let most = Model::new(&problem, 0, |_| true).load.into_iter().max().unwrap_or(0);
        merged(&problem, most + most / 4, MergeRule::nth(round, 30));
    }
}

/// Its area times a hundred passes the end of 128 bits.
#[test]
fn a_huge_pinwheel_becomes_one_cluster() {
    let unit = 1 << 60;
    let mut cuts = [(2, 0, 6), (5, 6, 9), (3, 3, 6), (7, 0, 3), (4, 3, 9)]
        .map(|(size, from, to)| Buffer::new(size * unit, from * unit, to * unit));
    cuts[2].size -= 1; // The hub leaves a hole, so that the waste is compared.
    assert_eq!(merged(&problem(&cuts), 9 * unit, LOOSE), (1, 9 * unit));
}

/// Sums of sizes that never live together pass the end of 64 bits.
#[test]
fn sizes_near_the_end_of_numbers_are_merged_without_overflow() {
    let mut rng = Rng::new(5);
    for round in 0..200 {
        let mut problem = Problem::new(Region::unbounded());
        let last = if round % 2 == 0 { 12 } else { u64::MAX / 2 };
        for slot in 0..3 {
            // One large buffer at a time, and small ones beside it.
            let (from, to) = (last / 3 * slot, last / 3 * (slot + 1));
            problem.push(Buffer::new(u64::MAX / 2 - rng.below(4), from, to));
            problem.push(Buffer::new(1 + rng.below(4), from, last));
        }
        let model = Model::new(&problem, 0, |_| true);
        let clusters = Clusters::new(&model, u64::MAX, MergeRule::nth(round, 6), &mut rng);
        let merged = clusters.model(&model);
        assert!(merged.load.iter().zip(&model.load).all(|(merged, own)| merged >= own));
    }
}

/// Checks the clusters that every rule makes of rectangles with holes, and their sizes. A rule that is broken still
/// gives valid clusters, only others; here that shows.
#[test]
fn rules_have_their_numbers() {
    let mut sums = [0; 2];
    for seed in 1..=4 {
        let mut rng = Rng::new(seed);
        let mut cuts = alloc::vec![(0, 64, 0, 512)];
        while cuts.len() < 60 {
            let at = rng.index(cuts.len());
            let (t0, t1, b0, b1) = cuts.swap_remove(at);
            if t1 - t0 > 3 && b1 - b0 > 3 && rng.below(4) == 0 {
                let (ta, ba) = (t0 + 1 + rng.below(t1 - t0 - 2), b0 + 1 + rng.below(b1 - b0 - 2));
                let (tb, bb) = (ta + 1 + rng.below(t1 - ta - 1), ba + 1 + rng.below(b1 - ba - 1));
                cuts.extend([
                    (t0, tb, b0, ba),
                    (tb, t1, b0, bb),
                    (ta, t1, bb, b1),
                    (t0, ta, ba, b1),
                ]);
                cuts.push((ta, tb, ba, bb));
            } else if t1 - t0 > 1 && rng.below(2) == 0 {
                let t = t0 + 1 + rng.below(t1 - t0 - 1);
                cuts.extend([(t0, t, b0, b1), (t, t1, b0, b1)]);
            } else if b1 - b0 > 1 {
                let b = b0 + 1 + rng.below(b1 - b0 - 1);
                cuts.extend([(t0, t1, b0, b), (t0, t1, b, b1)]);
            } else {
                cuts.push((t0, t1, b0, b1));
            }
        }
        let buffer = |&(t0, t1, b0, b1): &(u64, u64, u64, u64)| Buffer::new(b1 - b0, t0, t1);
        let mut buffers: Vec<Buffer> = cuts.iter().map(buffer).collect();
        buffers.truncate(56);
        if seed == 4 {
            buffers.iter_mut().step_by(3).for_each(|b| b.align = 4);
        }
        for round in 0..12 {
            let (count, size) = merged(&problem(&buffers), 540, MergeRule::nth(round, 56));
            sums[0] += count as u64;
            sums[1] += size;
        }
    }
    assert_eq!(sums, [914, 50_426]);
}
