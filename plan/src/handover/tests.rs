use super::{Turns, hand_over};
use crate::model::Model;
use crate::problem::{Buffer, Problem, Region};
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;

/// Hands the bytes of a problem over, once; whatever is found is checked.
fn handed(buffers: Vec<Buffer>, capacity: u64, width: usize) -> Option<Vec<u64>> {
    let mut problem = Problem::new(Region::bounded(capacity));
    problem.buffers = buffers;
    let model = Model::new(&problem, 0, |_| true);
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
    gap[1].gaps.push(crate::problem::Interval::new(4, 6));
    assert!(handed(gap, 64, 1).is_none());
    let mut fixed = in_turns(3);
    fixed[2].fixed = Some(0);
    assert!(handed(fixed, 64, 1).is_none());
    let mut odd = in_turns(3);
    odd[0].align = 2;
    assert!(handed(odd, 64, 1).is_none());
}
