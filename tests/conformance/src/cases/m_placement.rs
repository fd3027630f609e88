//! M: placement.
use super::{kind, take};
use crate::case::{Case, Need};
use crate::rng::Rng;
use crate::world::{World, check_stamp, in_heap, write_stamp};
use omniheap_core::{
    Access, Align, Backend, Caps, CopyRegion, DefaultPolicy, ErrorKind, HeapId, HeapKind, Lifetime,
    Limits, OptIn, Pattern, Placement, Policy, Ranking, Reason, Region, Request, Rung, SharedArray,
    SharedError, SharedLayout, TimelineId, Usage, Writer,
};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        a_placement_depends_on_its_inputs_only proves [102] needs [];
        constants_that_do_not_fit_go_to_device_memory proves [103] needs [Constant];
        what_a_request_needs_always_holds proves [105] needs [];
        every_heap_is_chosen_or_rejected_with_a_reason proves [106] needs [];
        a_policy_that_fails_gives_way_to_the_default_rules proves [110] needs [];
        a_missing_region_has_a_reported_substitute proves [109] needs [];
        shared_memory_is_laid_out_within_the_devices_limits proves [104] needs [Shared];
        pressure_never_flips_a_placement proves [108] needs [];
        what_is_published_is_final proves [107] needs [Transfer];
    }
}

fn random(rng: &mut Rng, most: u64) -> Request<'static> {
    let pick = |rng: &mut Rng| rng.below(3);
    let request = Request::new(rng.size(most)).align(Align::of(1 << rng.below(14)));
    let request = request
        .writer([Writer::Device, Writer::HostOnce, Writer::HostPerFrame][rng.index(3)])
        .access([Access::Device, Access::Host, Access::Both][rng.index(3)])
        .pattern(
            [Pattern::Coalesced, Pattern::Broadcast, Pattern::Gathered, Pattern::Tiled]
                [rng.index(4)],
        )
        .lifetime([Lifetime::Persistent, Lifetime::Frame, Lifetime::Kernel][rng.index(3)]);
    if pick(rng) == 0 { request.dedicated() } else { request }
}

fn a_placement_depends_on_its_inputs_only<B: Backend + 'static>(world: &World<B>) {
    let (manager, mut rng) = (world.manager(), world.rng());
    let caps = world.backend().caps();
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    for _ in 0..rounds {
        let request = random(&mut rng, 1 << 40);
        let once = DefaultPolicy.place(&request, caps);
        assert_eq!(once, DefaultPolicy.place(&request, caps), "{request:?}");
    }
    for _ in 0..100 {
        let request = random(&mut rng, 1 << 20);
        let empty = manager.explain(&request);
        let _held = manager.allocate(&request);
        assert_eq!(manager.explain(&request), empty, "what is held does not matter");
    }
}

fn constants_that_do_not_fit_go_to_device_memory<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heaps = &manager.caps().heaps;
    let bank =
        heaps.iter().filter(|heap| heap.kind == HeapKind::Constant).map(|heap| heap.max_block);
    let bank = bank.max().expect("needed");
    let table = |size| Request::new(size).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    let small = manager.explain(&table(256)).expect("served").placement;
    assert_eq!((small.region, small.reason), (Region::Constant, Reason::Broadcast));
    let elsewhere =
        heaps.iter().filter(|heap| heap.kind != HeapKind::Constant).map(|heap| heap.max_block);
    if elsewhere.max().is_none_or(|largest| largest <= bank) {
        // With no block larger than the bank, there is nowhere to go: refused, not cut.
        let refused = manager.explain(&table(bank + 1)).expect_err("larger than every block");
        assert_eq!(refused.kind(), ErrorKind::ExceedsLimit);
        return;
    }
    let large = manager.explain(&table(bank + 1)).expect("served").placement;
    assert_ne!(large.region, Region::Constant);
    assert_eq!(large.reason, Reason::TooLargeFor(Region::Constant), "and it says so");
    let whole = take(&manager, &table(bank + 1));
    assert_eq!(whole.size(), bank + 1, "never truncated");
    let count = bank.min(1 << 20) / 4096 + 4;
    let live: Vec<_> = (0..count).map(|_| take(&manager, &table(4096))).collect();
    if bank <= 1 << 20 {
        assert!(
            manager.report().rungs[Rung::NextHeap as usize] > 0,
            "the bank is full, and it is counted"
        );
    }
    drop(live);
}

fn what_a_request_needs_always_holds<B: Backend + 'static>(world: &World<B>) {
    let (manager, mut rng) = (world.manager(), world.rng());
    let caps = manager.caps().clone();
    for _ in 0..300 {
        let request = random(&mut rng, 1 << 20);
        let Ok(told) = manager.explain(&request) else { continue };
        for heap in told.placement.heaps.as_slice() {
            let about = caps.heap(*heap).expect("exists");
            assert!(request.layout.size <= about.max_block && request.layout.align <= about.align);
            // With nothing that can be mapped, the host reads by transfers, and any staging memory serves it.
            let by_map = request.access != Access::Device && manager.backend().as_map().is_some();
            assert!(!by_map || about.host.is_visible(), "the host cannot read {about:?}");
        }
        let one = take(&manager, &request);
        let heap = one.binding().block().origin().heap.expect("made for a heap");
        assert!(told.placement.heaps.as_slice().contains(&heap), "never outside the permitted");
        drop(one);
        for (named, about) in caps.heap_ids().filter(|(_, heap)| request.layout.align <= heap.align)
        {
            if request.layout.size <= about.max_block {
                let one = take(&manager, &request.heap(named));
                assert_eq!(
                    one.binding().block().origin().heap,
                    Some(named),
                    "exactly the named heap"
                );
            }
        }
    }
}

fn every_heap_is_chosen_or_rejected_with_a_reason<B: Backend + 'static>(world: &World<B>) {
    let (manager, mut rng) = (world.manager(), world.rng());
    for _ in 0..300 {
        let Ok(told) = manager.explain(&random(&mut rng, 1 << 24)) else { continue };
        assert_eq!(told.verdicts.len(), manager.caps().heaps.len());
        for verdict in &told.verdicts {
            let chosen = told.placement.heaps.as_slice().contains(&verdict.heap);
            assert_eq!(chosen, verdict.rejected.is_none());
            let reason = verdict.rejected.map(|why| why.to_string());
            assert!(reason.is_none_or(|text| text.len() > 5), "in words");
        }
        assert!(told.placement.reason.to_string().len() > 5, "in words");
    }
}

fn a_missing_region_has_a_reported_substitute<B: Backend + 'static>(world: &World<B>) {
    let without = |kind: HeapKind| {
        let mut caps: Caps = world.backend().caps().clone();
        caps.heaps.retain(|heap| heap.kind != kind);
        if kind == HeapKind::Constant {
            caps.constant = None;
        }
        caps
    };
    let table = Request::new(256).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    let both = Request::new(256).access(Access::Both);
    let asks = [
        (HeapKind::Constant, Region::Constant, table),
        (HeapKind::Unified, Region::Unified, both),
        (HeapKind::Staging, Region::Staging, Request::new(256).usage(Usage::Upload)),
        (HeapKind::Device, Region::Device, Request::new(256)),
    ];
    for (kind, region, request) in asks {
        // A device may have a better place than the usual one: then nothing is missing.
        let usual = DefaultPolicy.place(&request, world.backend().caps());
        let better = |p: &Placement| p.region != region && p.reason != Reason::Substitute(region);
        if usual.is_ok_and(|placement| better(&placement)) {
            continue;
        }
        match DefaultPolicy.place(&request, &without(kind)) {
            Ok(placement) => {
                assert_ne!(placement.region, region);
                assert_eq!(placement.reason, Reason::Substitute(region));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSuchHeap),
        }
    }
}

fn shared_memory_is_laid_out_within_the_devices_limits<B: Backend + 'static>(world: &World<B>) {
    let caps = world.backend().caps().shared.expect("needed");
    let limit = caps.per_group.max(caps.per_group_opt_in);
    let array = |bytes: u64| SharedArray::new("all", 4, bytes / 4);
    for fixed in [0, 256] {
        let all = SharedLayout::plan(&[array(limit - fixed)], fixed, &caps).expect("exactly all");
        let opts_in = limit > caps.per_group;
        assert_eq!(all.opt_in, if opts_in { OptIn::Needed } else { OptIn::NotNeeded });
        let usual = SharedLayout::plan(&[array(caps.per_group - fixed)], fixed, &caps);
        assert_eq!(usual.expect("every group has it").opt_in, OptIn::NotNeeded);
        let more = SharedLayout::plan(&[array(limit - fixed + 4)], fixed, &caps);
        assert_eq!(more, Err(SharedError::TooLarge { bytes: limit + 4, limit }), "names the limit");
    }
    // Arrays that never meet share bytes; arrays that do, do not.
    let half = array(limit / 2 + 64);
    assert!(SharedLayout::plan(&[half.phases(0, 0), half.phases(1, 1)], 0, &caps).is_ok());
    assert!(SharedLayout::plan(&[half.phases(0, 1), half.phases(1, 1)], 0, &caps).is_err());
}

fn pressure_never_flips_a_placement<B: Backend + 'static>(world: &World<B>) {
    let heap = world.device_heap();
    let stack = world.limited(8 << 20, u64::MAX);
    let manager = world.manager_over(&stack);
    let request = Request::new(world.whole(64 << 10));
    let calm = manager.explain(&request).expect("served");
    let (mut held, _) = super::fill_up(&manager, &in_heap(heap, 1 << 20));
    for round in 0..1000 {
        // The last piece comes and goes: the heap is full, then it is not.
        if round % 2 == 0 {
            held.pop();
        } else if let Ok(one) = manager.allocate(&in_heap(heap, 1 << 20)) {
            held.push(one);
        }
        assert_eq!(manager.explain(&request).as_ref(), Ok(&calm), "round {round}");
    }
}

/// A policy that is of no use.
#[derive(Debug)]
enum Broken {
    Refuses,
    Panics,
    NamesNoHeap,
}

impl Policy for Broken {
    fn place(&self, request: &Request<'_>, caps: &Caps) -> omniheap_core::Result<Placement> {
        match self {
            Self::Refuses => Err(ErrorKind::Driver.into()),
            Self::Panics => panic!("a policy's own bug"),
            Self::NamesNoHeap => {
                let mut placement = DefaultPolicy.place(request, caps)?;
                placement.heaps = Ranking::new();
                placement.heaps.push(HeapId(250));
                Ok(placement)
            }
        }
    }
}

fn a_policy_that_fails_gives_way_to_the_default_rules<B: Backend + 'static>(world: &World<B>) {
    for broken in [Broken::Refuses, Broken::Panics, Broken::NamesNoHeap] {
        let mut config = world.config();
        config.policy = std::sync::Arc::new(broken);
        let manager = world.manager_with(&world.stack(), config);
        let request = Request::new(4096).name("placed by default");
        let explained = manager.explain(&request).expect("the default rules place it");
        let wanted = DefaultPolicy.place(&request, world.backend().caps()).expect("it fits");
        assert_eq!(explained.placement, wanted);
        let heap = wanted.heaps.as_slice()[0];
        manager.set_budget(heap, Limits::hard(0)).expect("a heap");
        let short = manager.allocate(&request.heap(heap)).expect_err("no policy lifts a budget");
        assert_eq!(short.kind(), ErrorKind::OverBudget);
        manager.set_budget(heap, Limits::hard(u64::MAX)).expect("a heap");
        drop(take(&manager, &request));
    }
}

fn what_is_published_is_final<B: Backend + 'static>(world: &World<B>) {
    let (manager, size) = (world.manager(), world.whole(256));
    let request = Request::new(size).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    for request in [request, Request::new(size).on(TimelineId::MAIN)] {
        let (table, other) = (take(&manager, &request), take(&manager, &request));
        write_stamp(&table, 1);
        write_stamp(&other, 2);
        assert!(!table.is_published());
        table.publish().expect("written");
        assert!(table.is_published() && !other.is_published());
        let bytes = vec![0; usize::try_from(size).expect("small")];
        assert_eq!(kind(table.write(0, &bytes)), ErrorKind::Published);
        assert_eq!(kind(table.fill(0, size, 0)), ErrorKind::Published);
        let copy = |from, to| CopyRegion { from, from_offset: 0, to, to_offset: 0, size };
        let copied = manager.copy(TimelineId::MAIN, &[copy(&other, &table)]);
        assert_eq!(kind(copied), ErrorKind::Published);
        assert!(table.map().is_err(), "a view could change what is final");
        check_stamp(&table, 1);
        drop(table);
        let next = take(&manager, &request);
        write_stamp(&next, 3);
        assert!(!next.is_published(), "the next owner writes");
    }
}
