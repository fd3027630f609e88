//! A run uses what earlier runs learnt.
use super::{Search, Verdict};
use crate::exact::{Detail, Frame, Tactic};
use crate::model::Model;
use crate::rng::Rng;
use crate::stop::Stop;
use crate::{Buffer, Problem, Region};

/// Random buffers with odd alignments, whose bound is seldom reached.
fn model(seed: u64) -> Model {
    let mut rng = Rng::new(seed);
    let mut problem = Problem::new(Region::unbounded());
    for _ in 0..11 {
        let (size, start, life) = (1 + rng.below(12), rng.below(12), 1 + rng.below(9));
        problem.push(Buffer::new(size, start, start + life).align(1 + rng.below(4)));
    }
    Model::new(&problem, 0, |_| true)
}

#[test]
fn a_failed_search_is_not_repeated() {
    let ask = || false;
    let stop = Stop::new(&ask);
    let mut failed = 0;
    for seed in 1..=30 {
        let model = model(seed);
        let capacity = model.load.iter().copied().max().unwrap_or(0);
        let frame = Frame::new(&model, Detail::All);
        let mut search = Search::new(&frame, capacity, &stop);
        let mut rng = Rng::new(seed);
        if search.run(Tactic::nth(0), 20_000, &mut rng) != Verdict::Fail || search.nodes() < 40 {
            continue;
        }
        failed += 1;
        for tactic in 0..4 {
            assert_eq!(search.run(Tactic::nth(tactic), 20_000, &mut rng), Verdict::Fail);
            assert!(
                search.nodes() <= model.len() as u64,
                "seed {seed}: {} states once more",
                search.nodes()
            );
        }
    }
    assert!(failed >= 3, "only {failed} searches failed");
}

#[test]
fn a_search_that_was_cut_short_learns_nothing_false() {
    let ask = || false;
    let stop = Stop::new(&ask);
    for seed in 1..=30 {
        let model = model(seed);
        let capacity = model.load.iter().copied().max().unwrap_or(0) + 4;
        let frame = Frame::new(&model, Detail::All);
        let mut rng = Rng::new(seed);
        let whole =
            Search::new(&frame, capacity, &stop).run(Tactic::nth(0), 50_000, &mut Rng::new(seed));
        let mut search = Search::new(&frame, capacity, &stop);
        for limit in [3, 9, 27, 81] {
            search.run(Tactic::nth(1), limit, &mut rng);
        }
        let after = search.run(Tactic::nth(0), 50_000, &mut rng);
        if whole != Verdict::Limit && after != Verdict::Limit {
            assert_eq!(after, whole, "seed {seed}");
        }
    }
}
