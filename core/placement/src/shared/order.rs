//! The order in which arrays are laid out, and how low that gets them. Pure.
use super::SharedArray;
use alloc::vec::Vec;
use omniheap_seam::Span;

/// With this many arrays or fewer, every order is tried, so the layout is the smallest there is.
const EXACT: usize = 7;

/// Returns the most that arrays of one phase take together. Phases that matter are those in which an array starts.
pub(super) fn lower_bound(arrays: &[SharedArray<'_>], sizes: &[(u64, u64)]) -> u64 {
    let live = |phase: u32| {
        let here = arrays.iter().zip(sizes);
        let here = here.filter(|(array, _)| array.phases.0 <= phase && phase <= array.phases.1);
        here.fold(0u64, |sum, (_, size)| sum.saturating_add(size.0))
    };
    arrays.iter().map(|array| live(array.phases.0)).max().unwrap_or(0)
}

/// Places every array in turn as low as possible; returns the top and the places, by array.
fn stack(order: &[usize], arrays: &[SharedArray<'_>], sizes: &[(u64, u64)]) -> (u64, Vec<u64>) {
    let mut offsets = alloc::vec![u64::MAX; arrays.len()];
    let mut done: Vec<usize> = Vec::with_capacity(order.len());
    let mut top = 0;
    for &this in order {
        let mut taken: Vec<Span> = done
            .iter()
            .filter(|&&other| arrays[this].meets(&arrays[other]))
            .map(|&other| Span { offset: offsets[other], size: sizes[other].0 })
            .collect();
        taken.sort_unstable_by_key(|span| span.offset);
        let mut at = 0u64;
        for span in taken {
            if at.saturating_add(sizes[this].0) <= span.offset {
                break;
            }
            let end = span.offset.saturating_add(span.size).max(at);
            at = arrays[this].start().up(end).unwrap_or(u64::MAX);
        }
        offsets[this] = at;
        top = top.max(at.saturating_add(sizes[this].0));
        done.push(this);
    }
    (top, offsets)
}

/// Returns the best layout found: of all orders if they are few, else of the most promising ones.
pub(super) fn place(arrays: &[SharedArray<'_>], sizes: &[(u64, u64)]) -> (u64, Vec<u64>) {
    let mut order: Vec<usize> = (0..arrays.len()).collect();
    let mut best = stack(&order, arrays, sizes);
    let mut consider = |order: &[usize]| {
        let found = stack(order, arrays, sizes);
        if found.0 < best.0 {
            best = found;
        }
    };
    if arrays.len() <= EXACT {
        permute(&mut order, 0, &mut consider);
        return best;
    }
    let length = |index: usize| arrays[index].phases.1 - arrays[index].phases.0;
    order.sort_by_key(|&index| core::cmp::Reverse((sizes[index].0, length(index))));
    consider(&order);
    order.sort_by_key(|&index| core::cmp::Reverse((length(index), sizes[index].0)));
    consider(&order);
    order.sort_by_key(|&index| (arrays[index].phases.0, core::cmp::Reverse(sizes[index].0)));
    consider(&order);
    best
}

/// Calls `visit` with every order of `order[from..]`. In the order of a best layout's places, each array finds its own or
/// a lower one, so some order gives a best layout.
fn permute(order: &mut [usize], from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for other in from..order.len() {
        order.swap(from, other);
        permute(order, from + 1, visit);
        order.swap(from, other);
    }
}

#[cfg(test)]
mod tests {
    use super::{permute, place, stack};
    use crate::SharedArray;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    fn every_order_is_visited_once() {
        let (mut seen, mut visits) = (BTreeSet::new(), 0);
        permute(&mut [0, 1, 2, 3], 0, &mut |order| {
            visits += 1;
            seen.insert(order.to_vec());
        });
        assert_eq!((visits, seen.len()), (24, 24));
    }

    #[test]
    fn of_seven_arrays_the_layout_is_the_smallest_of_all_orders() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for _ in 0..12 {
            let mut array = || {
                let first = u32::try_from(below(6)).expect("small");
                let last = first + u32::try_from(below(4)).expect("small");
                (
                    SharedArray { phases: (first, last), ..SharedArray::new("it", 1, 1) },
                    (1 + below(20), 1),
                )
            };
            let (arrays, sizes): (Vec<_>, Vec<_>) = (0..7).map(|_| array()).unzip();
            let mut least = u64::MAX;
            permute(&mut [0, 1, 2, 3, 4, 5, 6], 0, &mut |order| {
                least = least.min(stack(order, &arrays, &sizes).0);
            });
            assert_eq!(place(&arrays, &sizes).0, least);
        }
    }
}
