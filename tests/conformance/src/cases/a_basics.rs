//! A: allocate and free.
use super::{assert_disjoint, kind, place_of, take};
use crate::case::{Case, Need};
use crate::world::{World, check_stamp, pool_of, write_stamp};
use omniheap_core::{Allocation, Backend, CopyRegion, ErrorKind, GiveBack, Request, TimelineId};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        every_byte_asked_for_can_be_written_and_read proves [1] needs [Transfer];
        live_allocations_share_no_byte proves [2] needs [];
        tiny_neighbours_keep_their_bytes proves [2] needs [Transfer];
        freeing_in_any_order_returns_to_empty proves [3] needs [];
        a_stranger_cannot_free proves [5] needs [];
        a_batch_is_served_whole_or_not_at_all proves [7] needs [];
        names_and_sizes_stay_until_the_free proves [8] needs [];
        hostile_names_break_nothing proves [9] needs [];
        the_same_work_a_thousand_times_needs_the_same_memory proves [10] needs [];
    }
}

fn every_byte_asked_for_can_be_written_and_read<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    for (id, size) in
        (0..).zip([1, 2, 7, 255, 256, 257, 4095, 4096, 65_537, 1 << 20, (5 << 20) + 3])
    {
        let one = take(&manager, &Request::new(world.whole(size)));
        assert!(one.size() >= size);
        write_stamp(&one, id);
        check_stamp(&one, id);
    }
}

fn live_allocations_share_no_byte<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let mut rng = world.rng();
    let mut live: Vec<_> = (0..64).map(|n| take(&manager, &Request::new(1 + n % 8))).collect();
    for _ in 0..400 {
        if rng.below(3) == 0 && !live.is_empty() {
            live.swap_remove(rng.index(live.len())).free();
        } else {
            live.push(take(&manager, &Request::new(rng.size(256 << 10))));
        }
    }
    assert_disjoint(&live);
}

fn tiny_neighbours_keep_their_bytes<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let sizes = (0..128u64).map(|n| (n, world.whole(1 + n % 8)));
    let live: Vec<_> = sizes.map(|(n, size)| (n, take(&manager, &Request::new(size)))).collect();
    live.iter().for_each(|(n, one)| write_stamp(one, *n));
    live.iter().rev().for_each(|(n, one)| check_stamp(one, *n));
}

fn freeing_in_any_order_returns_to_empty<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let mut rng = world.rng();
    for count in [1, 10, 100, 1000, 4000] {
        for order in 0..3 {
            let mut live: Vec<_> =
                (0..count).map(|n| take(&manager, &Request::new(64 + n % 512))).collect();
            match order {
                0 => live.drain(..).for_each(Allocation::free),
                1 => live.drain(..).rev().for_each(Allocation::free),
                _ => (0..count).for_each(|_| live.swap_remove(rng.index(live.len())).free()),
            }
            let totals = manager.totals();
            assert_eq!((totals.live, totals.live_bytes, totals.granted_bytes), (0, 0, 0));
        }
    }
}

fn a_stranger_cannot_free<B: Backend + 'static>(world: &World<B>) {
    let (owner, stranger) = (world.manager(), world.manager());
    let one = take(&owner, &Request::new(4096));
    let before = (owner.totals(), stranger.totals());
    let refused = stranger.free(one).expect_err("not its own");
    assert_eq!(refused.error.kind(), ErrorKind::Foreign);
    assert_eq!((owner.totals(), stranger.totals()), before);
    assert_eq!(kind(stranger.check(refused.given.id())), ErrorKind::Foreign);
    let other = take(&stranger, &Request::new(4096));
    let copy =
        CopyRegion { from: &refused.given, from_offset: 0, to: &other, to_offset: 0, size: 16 };
    let answer = kind(stranger.copy(TimelineId::MAIN, &[copy]));
    assert!(matches!(answer, ErrorKind::Foreign | ErrorKind::Unsupported), "{answer:?}");
    owner.free(refused.given).expect("its own");
    assert_eq!(owner.totals().live, 0);
    let pool = owner.create_pool(world.device_heap(), pool_of(1 << 20)).expect("valid");
    let GiveBack { given: pool, error } = stranger.destroy_pool(pool).expect_err("not its own");
    assert_eq!(error.kind(), ErrorKind::Foreign);
    owner.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn names_and_sizes_stay_until_the_free<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let mut name = String::from("weights");
    let one = take(&manager, &Request::new(1000).name(&name));
    let (id, place) = (one.id(), place_of(&one));
    name.clear();
    let _others: Vec<_> = (0..50).map(|n| take(&manager, &Request::new(100 + n))).collect();
    assert_eq!((one.id(), place_of(&one), one.size()), (id, place, 1000));
    assert_eq!(manager.check(id), Ok(1000));
    assert_eq!(named(&manager.report(), "weights"), 1, "the name was copied");
    one.set_name("biases");
    assert_eq!((named(&manager.report(), "weights"), named(&manager.report(), "biases")), (0, 1));
    one.free();
    assert_eq!(named(&manager.report(), "biases"), 0);
    let again = take(&manager, &Request::new(1000).name("again"));
    assert_eq!(named(&manager.report(), "again"), 1, "a held hole serves a named request too");
    drop(again);
}

fn named(report: &omniheap_core::Report, name: &str) -> usize {
    let live = report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
    live.filter(|known| known.name.as_deref() == Some(name)).count()
}

fn hostile_names_break_nothing<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let long = "ä".repeat(32 << 10);
    let names = ["", "\"}]", "a\nb\r", "nul\0nul", "\u{202e}x\u{7f}", "<b>&amp;", &long];
    let live: Vec<_> =
        names.iter().map(|name| take(&manager, &Request::new(64).name(name))).collect();
    let report = manager.report();
    assert_eq!(report.totals.live, names.len() as u64);
    for name in &names[..names.len() - 1] {
        assert_eq!(named(&report, name), 1, "{name:?} is kept as it is");
    }
    let shown = format!("{manager:?}");
    assert!(shown.len() < 1 << 20, "a name of 64 KiB is cut");
    drop(live);
}

fn the_same_work_a_thousand_times_needs_the_same_memory<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let round = || {
        let live: Vec<_> = [1 << 20, 3 << 20, 100, 5 << 19, 77_777, 2 << 20]
            .map(|size| take(&manager, &Request::new(size)))
            .into();
        let [a, b, c, d, e, f] = <[_; 6]>::try_from(live).expect("six");
        drop((b, d));
        let _g = take(&manager, &Request::new(3 << 20));
        drop((a, c, e, f));
    };
    // The pool learns its high-water mark first.
    (0..10).for_each(|_| round());
    let peak = stack.inner().peak_bytes();
    (0..1000).for_each(|_| round());
    assert_eq!(stack.inner().peak_bytes(), peak);
}

/// A batch is requests whose answers are collected: what the first ones got goes back where a later one fails.
fn a_batch_is_served_whole_or_not_at_all<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let batch = |requests: [Request<'_>; 3]| {
        let answers = requests.iter().map(|request| manager.allocate(request));
        answers.collect::<Result<Vec<_>, _>>()
    };
    let fits = [Request::new(1000), Request::new(70_000).name("second"), Request::new(1)];
    let all = batch(fits).expect("they fit");
    assert_eq!(all.iter().map(Allocation::size).collect::<Vec<_>>(), [1000, 70_000, 1]);
    assert_disjoint(&all);
    let before = manager.totals();
    let fails = [Request::new(1000), Request::new(2000), Request::new(u64::MAX / 4)];
    assert_eq!(kind(batch(fails)), ErrorKind::ExceedsLimit);
    let after = manager.totals();
    assert_eq!((after.live, after.live_bytes), (before.live, before.live_bytes));
    assert_eq!(after.granted_bytes, before.granted_bytes);
}
