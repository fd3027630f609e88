//! Against all permutations.
use super::Orders;
use crate::rng::Rng;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

const RANGES: u32 = 6;

/// All ways to put lists behind each other, one of each kind, in this order of kinds.
fn joined(kinds: &[&BTreeSet<Vec<u32>>]) -> BTreeSet<Vec<u32>> {
    let Some((first, rest)) = kinds.split_first() else { return BTreeSet::from([Vec::new()]) };
    let rest = joined(rest);
    first.iter().flat_map(|f| rest.iter().map(|r| [&f[..], &r[..]].concat())).collect()
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return alloc::vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1) {
        for at in 0..count {
            let mut longer = shorter.clone();
            longer.insert(at, count - 1);
            all.push(longer);
        }
    }
    all
}

/// Everything that a tree stands for.
fn all(orders: &Orders) -> BTreeSet<Vec<u32>> {
    let inner: Vec<_> = orders.parts().iter().map(all).collect();
    let kinds: Vec<_> = inner.iter().collect();
    match orders {
        Orders::One(range) => BTreeSet::from([alloc::vec![*range]]),
        Orders::Any(_) => {
            let permuted = |p: Vec<usize>| joined(&p.iter().map(|&i| kinds[i]).collect::<Vec<_>>());
            permutations(kinds.len()).into_iter().flat_map(permuted).collect()
        }
        Orders::Row(_) => {
            let back: Vec<_> = kinds.iter().rev().copied().collect();
            joined(&kinds).into_iter().chain(joined(&back)).collect()
        }
    }
}

fn is_contiguous(order: &[u32], marked: &[u32]) -> bool {
    let places = order.iter().enumerate().filter(|(_, range)| marked.contains(range));
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    places.last().zip(places.first()).is_none_or(|(last, first)| last - first < places.len())
}

#[test]
fn what_is_gathered_is_contiguous_and_nothing_else_is_decided() {
    let mut rng = Rng::new(5);
    for round in 0..150 {
        let mut orders = Orders::any((0..RANGES).map(Orders::One).collect());
        let mut left = all(&orders);
        for _ in 0..4 {
            let set = rng.below(1 << RANGES);
            let marked: Vec<u32> = (0..RANGES).filter(|bit| set >> bit & 1 == 1).collect();
            left.retain(|order| is_contiguous(order, &marked));
            let Some(gathered) = orders.gather(&|range| marked.contains(&range)) else {
                assert!(left.is_empty(), "round {round}: {marked:?} can be contiguous");
                break;
            };
            assert_eq!(all(&gathered), left, "round {round}: {marked:?} gives {gathered:?}");
            orders = gathered;
        }
    }
}

#[test]
fn what_replaces_a_part_of_a_row_stays_in_its_place() {
    let one = Orders::One;
    let mut orders = Orders::Row([0, 1, 2, 3].map(one).to_vec());
    orders.replace(&|range| range == 1 || range == 2, &[7, 8]);
    let pair = Orders::Any(alloc::vec![one(7), one(8)]);
    assert_eq!(orders, Orders::Row(alloc::vec![one(0), pair, one(3)]));
    assert_eq!(orders.run(&|range| range != 0), Some(alloc::vec![7, 8, 3]));
    assert_eq!(orders.run(&|range| range != 8), None);
    let place = |range: u32| [9, 0, 0, 1, 0, 0, 0, 5, 4][range as usize];
    assert_eq!(orders.arrange(&place), 1);
    assert_eq!(orders.list(), [3, 8, 7, 0]);
    orders.replace(&|range| range > 3, &[5]);
    orders.replace(&|range| range == 3 || range == 5, &[6]);
    assert_eq!(orders, Orders::Any(alloc::vec![one(6), one(0)]), "two parts have no order");
}
