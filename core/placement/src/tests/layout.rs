//! Shared layouts: nothing that meets overlaps, nothing is larger than it must be.
use super::devices::shared;
use super::random;
use crate::{Clear, OptIn, SharedArray, SharedError, SharedLayout, Walk};
use core::cmp::Reverse;
use omniheap_seam::{Align, Span};

const KIB: u64 = 1 << 10;

#[test]
fn columns_are_padded_out_of_each_others_banks() {
    let caps = shared(48 * KIB, 48 * KIB, 96 * KIB);
    // Element bytes, columns, and the pitch: odd in words for single words, two words apart for doubles.
    let rows = [
        (4, 16, 68),
        (4, 17, 68),
        (4, 32, 132),
        (8, 16, 136),
        (16, 8, 144),
        (2, 32, 68),
        (1, 64, 68),
    ];
    for (element, columns, pitch) in rows {
        let array = SharedArray::new("tile", element, columns).rows(16).walk(Walk::Columns);
        let layout = SharedLayout::plan(&[array], 0, &caps).expect("fits");
        assert_eq!(layout.arrays[0].pitch, pitch, "{columns} elements of {element} bytes");
        let banks: Vec<u64> =
            (0..16).map(|row| row * pitch / 4 % 32 / (element / 4).max(1)).collect();
        let mut distinct = banks.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let ways = (32 / (element / 4).max(1)).min(16);
        assert_eq!(
            distinct.len() as u64,
            ways,
            "a column touches as many banks as it can: {banks:?}"
        );
        let plain = SharedArray::new("rows", element, columns).rows(16);
        let layout = SharedLayout::plan(&[plain], 0, &caps).expect("fits");
        assert_eq!(layout.arrays[0].pitch, element * columns);
    }
}

#[test]
fn one_row_or_one_bank_needs_no_padding() {
    let caps = shared(48 * KIB, 48 * KIB, 96 * KIB);
    let one = omniheap_seam::SharedCaps { banks: 1, ..caps };
    let tile = SharedArray::new("tile", 4, 32).walk(Walk::Columns);
    let pitch = |array: SharedArray<'_>, caps| {
        SharedLayout::plan(&[array], 0, caps).expect("fits").arrays[0].pitch
    };
    assert_eq!((pitch(tile, &caps), pitch(tile.rows(2), &caps)), (128, 132));
    assert_eq!(pitch(SharedArray::new("odd", 2, 33).rows(2).walk(Walk::Columns), &one), 66);
}

#[test]
fn limits_opting_in_and_occupancy_are_told() {
    let caps = shared(48 * KIB, 227 * KIB, 228 * KIB);
    let plan =
        |kib: u64, fixed| SharedLayout::plan(&[SharedArray::new("a", KIB, kib)], fixed, &caps);
    let small = plan(40, 0).expect("fits");
    assert_eq!((small.opt_in, small.resident_groups), (OptIn::NotNeeded, Some(5)));
    let large = plan(40, 16 * KIB).expect("fits");
    assert_eq!(
        (large.opt_in, large.resident_groups),
        (OptIn::Needed, Some(4)),
        "static bytes count"
    );
    assert_eq!(plan(227, 0).map(|layout| layout.bytes), Ok(227 * KIB), "all that a group may have");
    assert_eq!(plan(228, 0), Err(SharedError::TooLarge { bytes: 228 * KIB, limit: 227 * KIB }));
    let text = plan(228, 0).expect_err("too large").to_string();
    assert!(text.contains("233472") && text.contains("232448"), "{text}");
    let nothing = SharedLayout::plan(&[], 0, &caps).expect("nothing");
    assert_eq!((nothing.resident_groups, nothing.lower_bound), (None, 0));
    let array = SharedArray::new("a", 4, 4);
    let wrong = SharedLayout::plan(&[array, array.phases(2, 1)], 0, &caps);
    assert_eq!(wrong, Err(SharedError::Phases { array: 1, phases: (2, 1) }));
    assert_eq!(
        SharedLayout::plan(&[array.rows(0)], 0, &caps),
        Err(SharedError::Empty { array: 0 })
    );
    for empty in [SharedArray::new("a", 0, 4), SharedArray::new("a", 4, 0)] {
        let refused = SharedLayout::plan(&[empty.rows(2)], 0, &caps);
        assert_eq!(refused, Err(SharedError::Empty { array: 0 }));
    }
    let endless = SharedLayout::plan(&[array.rows(u64::MAX)], 0, &caps);
    assert_eq!(endless, Err(SharedError::Overflow { array: 0 }));
}

#[test]
fn zeroed_and_secret_arrays_are_cleared_at_their_ends() {
    let caps = shared(48 * KIB, 48 * KIB, 96 * KIB);
    let key = SharedArray::new("key", 4, 8).phases(1, 2).secret();
    let sums = SharedArray::new("sums", 4, 8).phases(0, 3).zeroed();
    let layout = SharedLayout::plan(&[key, sums], 0, &caps).expect("fits");
    let spans = [layout.arrays[0].span, layout.arrays[1].span];
    assert_eq!(layout.clears, [(Clear::After(2), spans[0]), (Clear::Before(0), spans[1])]);
}

fn overlap(a: Span, b: Span) -> bool {
    a.offset < b.offset + b.size && b.offset < a.offset + a.size
}

#[test]
fn arrays_that_meet_never_overlap_and_few_arrays_are_laid_out_best() {
    let caps = shared(u64::MAX, u64::MAX, u64::MAX);
    let mut next = random(9);
    for round in 0..200 {
        let count = if round % 4 == 0 { 12 } else { 4 };
        let mut array = |_| {
            let first = u32::try_from(next(4)).expect("small");
            let last = first + u32::try_from(next(3)).expect("small");
            SharedArray::new("a", 4, 1 + next(64))
                .align(Align::of(4 << next(4)))
                .phases(first, last)
        };
        let arrays: Vec<_> = (0..count).map(&mut array).collect();
        let layout = SharedLayout::plan(&arrays, 0, &caps).expect("no limit");
        assert!(layout.bytes >= layout.lower_bound);
        for (i, a) in arrays.iter().enumerate() {
            let span = layout.arrays[i].span;
            assert!(a.align.divides(span.offset) && span.end() <= layout.bytes);
            for (j, b) in arrays.iter().enumerate().skip(i + 1) {
                let meets = a.phases.0 <= b.phases.1 && b.phases.0 <= a.phases.1;
                assert!(!meets || !overlap(span, layout.arrays[j].span), "{arrays:?}");
            }
        }
        let single = arrays.iter().all(|a| a.phases == arrays[0].phases);
        assert!(!single || count > 7 || layout.bytes < layout.lower_bound + 32 * 12);
    }
}

/// More arrays than are tried in every order: in each order that is tried, one has to fit exactly between two others.
#[test]
fn a_gap_of_just_the_size_is_filled() {
    let caps = shared(48 * KIB, 48 * KIB, 96 * KIB);
    let array = |words, first, last| SharedArray::new("a", 4, words).phases(first, last);
    let mut arrays = vec![array(16, 0, 3), array(15, 0, 4), array(8, 4, 9), array(8, 4, 9)];
    arrays.extend((0..4).map(|_| array(1, 20, 20)));
    let layout = SharedLayout::plan(&arrays, 0, &caps).expect("fits");
    assert_eq!((layout.bytes, layout.lower_bound), (124, 124));
}

#[test]
fn phases_that_do_not_meet_overlay() {
    let caps = shared(48 * KIB, 48 * KIB, 96 * KIB);
    let array = |size, first, last| SharedArray::new("a", 4, size).phases(first, last);
    // A tower that stacking in the order given would make 300 words high.
    let arrays =
        [array(100, 0, 0), array(50, 0, 1), array(100, 1, 1), array(50, 1, 2), array(150, 2, 2)];
    let layout = SharedLayout::plan(&arrays, 0, &caps).expect("fits");
    assert_eq!((layout.bytes, layout.lower_bound), (800, 800));
}

/// The height of a layout whose arrays are placed one after the other, each as low as it can be.
fn height(arrays: &[SharedArray<'_>], order: &[usize]) -> u64 {
    let size = |one: usize| arrays[one].element * arrays[one].columns;
    let mut placed: Vec<(usize, Span)> = Vec::new();
    for &one in order {
        let meets = |other: usize| {
            let (a, b) = (arrays[one].phases, arrays[other].phases);
            a.0 <= b.1 && b.0 <= a.1
        };
        let is_free = |offset: &u64| {
            let span = Span { offset: *offset, size: size(one) };
            placed.iter().all(|(other, taken)| !meets(*other) || !overlap(span, *taken))
        };
        let step = usize::try_from(arrays[one].align.get()).expect("small");
        let offset = (0..).step_by(step).find(is_free).expect("there is no end");
        placed.push((one, Span { offset, size: size(one) }));
    }
    placed.iter().map(|(_, span)| span.end()).max().unwrap_or(0)
}

/// The least height over every order of some arrays.
fn least(arrays: &[SharedArray<'_>], order: &mut Vec<usize>) -> u64 {
    let left: Vec<_> = (0..arrays.len()).filter(|one| !order.contains(one)).collect();
    if left.is_empty() {
        return height(arrays, order);
    }
    let heights = left.into_iter().map(|one| {
        order.push(one);
        let height = least(arrays, order);
        order.pop();
        height
    });
    heights.min().expect("one is left")
}

#[test]
fn no_order_of_few_arrays_is_lower() {
    let caps = shared(u64::MAX, u64::MAX, u64::MAX);
    let mut next = random(5);
    for round in 0..120 {
        let mut array = |_| {
            let first = u32::try_from(next(5)).expect("small");
            let last = first + u32::try_from(next(3)).expect("small");
            SharedArray::new("a", 4, 1 + next(12)).align(Align::of(4)).phases(first, last)
        };
        let arrays: Vec<_> = (0..5 + round % 2).map(&mut array).collect();
        let layout = SharedLayout::plan(&arrays, 0, &caps).expect("no limit");
        assert_eq!(layout.bytes, least(&arrays, &mut Vec::new()), "{arrays:?}");
    }
}

#[test]
fn many_arrays_are_no_higher_than_in_any_order_that_is_tried() {
    let caps = shared(u64::MAX, u64::MAX, u64::MAX);
    let mut next = random(6);
    for _ in 0..200 {
        let mut array = |_| {
            let first = u32::try_from(next(6)).expect("small");
            let last = first + u32::try_from(next(4)).expect("small");
            SharedArray::new("a", 4, 1 + next(12)).align(Align::of(4)).phases(first, last)
        };
        let arrays: Vec<_> = (0..10).map(&mut array).collect();
        let length = |one: &usize| arrays[*one].phases.1 - arrays[*one].phases.0;
        let size = |one: &usize| arrays[*one].columns;
        let given: Vec<usize> = (0..arrays.len()).collect();
        let mut orders = [given.clone(), given.clone(), given.clone(), given];
        orders[1].sort_by_key(|one| Reverse((size(one), length(one))));
        orders[2] = orders[1].clone();
        orders[2].sort_by_key(|one| Reverse((length(one), size(one))));
        orders[3] = orders[2].clone();
        orders[3].sort_by_key(|one| (arrays[*one].phases.0, Reverse(size(one))));
        let least = orders.iter().map(|order| height(&arrays, order)).min();
        let layout = SharedLayout::plan(&arrays, 0, &caps).expect("no limit");
        assert_eq!(Some(layout.bytes), least, "{arrays:?}");
    }
}
