use super::{Draft, Turns, hand_over};
use crate::model::Model;
use crate::rng::Rng;
use crate::stop::Stop;
use crate::{Buffer, Problem, Region};
use alloc::vec::Vec;

fn model(buffers: Vec<Buffer>) -> Model {
    let mut problem = Problem::new(Region::unbounded());
    problem.buffers = buffers;
    Model::new(&problem, 0, |_| true)
}

/// Hands the bytes of a problem over, once; whatever is found is checked.
fn handed(buffers: Vec<Buffer>, capacity: u64, width: usize) -> Option<Vec<u64>> {
    let model = model(buffers);
    let turns = Turns::new(&model)?;
    let (found, _) =
        hand_over((&model, &turns), capacity, width, &mut Rng::new(1), &Stop::new(&|| false));
    if let Some(offsets) = &found {
        for a in 0..model.len() {
            assert!(offsets[a] + model.size[a] <= capacity, "{a} ends above the capacity");
            let ends = model.hull[a].1;
            for b in (a + 1..model.len()).take_while(|&b| model.hull[b].0 < ends) {
                assert!(!model.overlap((a, offsets[a]), (b, offsets[b])), "{a} and {b} overlap");
            }
        }
    }
    found
}

/// Each ends when the next but one starts, and gives it its bytes.
fn in_turns(count: u64) -> Vec<Buffer> {
    let size = |i: u64| if i.is_multiple_of(2) { 3 } else { 5 };
    (0..count).map(|i| Buffer::new(size(i), i, i + 2)).collect()
}

#[test]
fn items_take_over_the_bytes_of_those_that_ended() {
    assert!(handed(in_turns(12), 8, 1).is_some());
    assert!(handed(in_turns(12), 7, 4).is_none());
    // Two that lie beside each other in some orders only: both that come next need that.
    let split = [(2, 0, 2), (3, 0, 1), (4, 0, 1), (7, 1, 3), (2, 2, 3)];
    let split = split.map(|(size, start, end)| Buffer::new(size, start, end)).to_vec();
    assert!(handed(split, 9, 4).is_some());
}

/// Each leaves its bytes to one that is smaller by one byte, and to a byte that stays: orders inside of orders.
fn ever_deeper(count: u64) -> Vec<Buffer> {
    let pair = |i| [Buffer::new(count - i, i, i + 1), Buffer::new(1, i + 1, count + 1)];
    (0..count).flat_map(pair).collect()
}

#[test]
fn as_many_items_as_are_handed_over_need_no_deep_stack() {
    let on_small_stack = |buffers: fn(u64) -> Vec<Buffer>, count, capacity| {
        let small = std::thread::Builder::new().stack_size(512 << 10);
        let run = move || handed(buffers(count), capacity, 2).is_some();
        small.spawn(run).expect("a thread").join().expect("no overflow")
    };
    assert!(on_small_stack(in_turns, 10_000, 8));
    assert!(on_small_stack(ever_deeper, 100, 100));
    assert!(!on_small_stack(ever_deeper, 5_000, 5_000), "too deep");
}

#[test]
fn what_has_gaps_or_a_fixed_place_or_odd_bytes_is_left_to_others() {
    let mut gap = in_turns(3);
    gap[1].live.end = 9;
    gap[1].gaps.push(crate::Interval::new(4, 6));
    assert!(handed(gap, 64, 1).is_none());
    let mut fixed = in_turns(3);
    fixed[2].fixed = Some(0);
    assert!(handed(fixed, 64, 1).is_none());
    let mut odd = in_turns(3);
    odd[0].align = 2;
    assert!(handed(odd, 64, 1).is_none());
}

#[test]
fn more_items_start_at_once_than_a_set_has_bits() {
    let size = |i: u64| 1 + i % 5;
    let at = |start: u64| (0..100).map(move |i| Buffer::new(size(i), start, start + 2));
    let capacity = (0..100).map(size).sum();
    assert!(handed(at(0).chain(at(2)).collect(), capacity, 1).is_some());
}

#[test]
fn sets_of_ranges_with_a_sum_are_found_the_smallest_first() {
    let mut rng = Rng::new(7);
    for count in 1..=12 {
        let sizes: Vec<u64> = (0..count).map(|_| 1 + rng.below(12)).collect();
        let buffers = sizes.iter().map(|&size| Buffer::new(size, 0, 1)).collect();
        let draft = Draft::new(&model(buffers), 99, 1);
        let pool: Vec<u32> = (0..count).collect();
        let sum_of = |set: u64| {
            let inside = pool.iter().filter(|&&range| set >> range & 1 == 1);
            inside.map(|&range| draft.bytes(range)).sum::<u64>()
        };
        for sum in 1..40 {
            let found = draft.exact(&pool, sum);
            assert!(found.iter().all(|&set| sum_of(set) == sum));
            let sets = (1..1u64 << count).filter(|&set| sum_of(set) == sum);
            let fewest = sets.map(u64::count_ones).min();
            assert_eq!(found.first().map(|set| set.count_ones()), fewest, "{sum} of {sizes:?}");
        }
        let mut sums = draft.all_sums(&pool, 3);
        sums.sort_unstable();
        let few = (0..1u64 << count).filter(|set| set.count_ones() <= 3);
        let mut all: Vec<(u64, u64)> = few.map(|set| (sum_of(set), set)).collect();
        all.sort_unstable();
        assert_eq!(sums, all);
    }
}

#[test]
fn items_that_no_few_ranges_fit_get_many_that_fit_to_the_byte() {
    let sizes = [1, 1, 1, 1, 1, 1, 1, 1, 10, 5];
    let draft = Draft::new(
        &model(sizes.map(|size| Buffer::new(size, 0, 1)).to_vec()),
        sizes.iter().sum(),
        1,
    );
    let pool: Vec<u32> = (0..9).collect();
    let groups = draft.groups(&pool, &[9], (0.0, 1.0), &mut Rng::new(1));
    let of = |count: u32| groups.iter().find(|group| group.old.count_ones() == count);
    assert_eq!(of(1).map(|group| group.waste), Some(5), "the one that is large enough");
    assert_eq!(of(5).map(|group| (group.waste, group.new)), Some((0, 1)), "five small ones");
}
