//! B: alignment and granularity.
use super::{kind, place_of, take};
use crate::case::{Case, Need};
use crate::world::{Stack, World, in_heap, pool_of};
use omniheap_core::{
    Align, Allocation, Backend, Class, ErrorKind, HostAccess, Manager, ManagerConfig, PoolConfig,
    Request, TimelineId,
};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        every_size_is_aligned_to_the_unit proves [11] needs [];
        device_addresses_are_aligned_too proves [11, 12] needs [Address];
        every_power_of_two_is_honoured_on_every_route proves [12] needs [];
        too_much_alignment_is_refused_and_changes_nothing proves [13] needs [];
        the_strictest_alignment_wins proves [14] needs [];
        alignment_survives_splits_and_reuse proves [15] needs [];
        unlike_neighbours_stay_a_granule_apart proves [16] needs [];
        flushes_cover_whole_atoms_and_change_no_neighbour proves [17] needs [Map];
    }
}

fn offset<B: Backend + 'static>(allocation: &Allocation<Stack<B>>) -> u64 {
    place_of(allocation).1.offset
}

fn every_size_is_aligned_to_the_unit<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let unit = ManagerConfig::default().unit;
    let mut live = Vec::new();
    for size in (1..=1024).chain((1024..=65_536).step_by(771)) {
        let one = take(&manager, &Request::new(size));
        assert!(unit.divides(offset(&one)), "{size} bytes at {}", offset(&one));
        live.push(one);
        if live.len() > 200 {
            live.swap_remove(7).free();
        }
    }
}

fn device_addresses_are_aligned_too<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    for (heap, about) in world.backend().caps().heap_ids() {
        let dedicated = take(&manager, &in_heap(heap, 100).dedicated());
        let base = dedicated.binding().address().expect("the backend has addresses");
        assert!(about.align.divides(base), "heap {} promises {:?}", heap.0, about.align);
        for shift in 0..=about.align.get().ilog2().min(20) {
            let align = Align::of(1 << shift);
            let one = take(&manager, &in_heap(heap, 100).align(align));
            assert!(align.divides(one.binding().address().expect("has addresses")));
        }
    }
}

fn every_power_of_two_is_honoured_on_every_route<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heap = world.device_heap();
    let most = world.backend().caps().heap(heap).expect("exists").align.get().min(2 << 20);
    let pool = manager.create_pool(heap, pool_of(8 << 20)).expect("valid");
    let mut live = Vec::new();
    for shift in 0..=most.ilog2() {
        let align = Align::of(1 << shift);
        let request = Request::new(3000).align(align);
        let buffer = manager.allocate_slice::<u8>(3000, request).expect("fits").into_allocation();
        let routes = [
            take(&manager, &request),
            take(&manager, &request.dedicated()),
            take(&manager, &request.on(TimelineId::MAIN)),
            pool.allocate(&request).expect("fits"),
            buffer,
        ];
        routes.iter().for_each(|one| assert!(align.divides(offset(one)), "{align:?}"));
        live.extend(routes);
    }
    drop(live);
    world.backend().wait_idle().expect("alive");
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn too_much_alignment_is_refused_and_changes_nothing<B: Backend + 'static>(world: &World<B>) {
    assert!(Align::new(0).is_none() && Align::new(3).is_none(), "no such alignment exists");
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    for (heap, about) in world.backend().caps().heap_ids() {
        let too_much = Align::of(about.align.get() << 1);
        for request in [in_heap(heap, 64), in_heap(heap, 64).dedicated()] {
            let refused = manager.allocate(&request.align(too_much));
            assert_eq!(kind(refused), ErrorKind::InvalidAlignment);
        }
    }
    assert_eq!(stack.inner().calls().total(), 0, "refused before the driver");
    assert_eq!(manager.totals(), omniheap_core::Totals::default());
}

fn the_strictest_alignment_wins<B: Backend + 'static>(world: &World<B>) {
    let heap = world.backend().caps().heap(world.device_heap()).expect("exists");
    for unit in [64, 256, 1024].map(Align::of) {
        let mut config = world.config();
        config.unit = unit;
        let manager = world.manager_with(&world.stack(), config);
        let _odd = take(&manager, &Request::new(1));
        for align in [1, 128, 512, 4096].map(Align::of).into_iter().filter(|a| *a <= heap.align) {
            let one = take(&manager, &Request::new(10).align(align));
            assert!(unit.max(align).divides(offset(&one)), "{unit:?} and {align:?}");
            let many =
                manager.allocate_slice::<u64>(3, Request::new(0).align(align)).expect("fits");
            assert!(unit.max(align).divides(offset(many.allocation())));
        }
    }
}

fn alignment_survives_splits_and_reuse<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let mut rng = world.rng();
    let most = world.backend().caps().heap(world.device_heap()).expect("exists").align.get();
    let mut live: Vec<(Align, Allocation<Stack<B>>)> = Vec::new();
    for _ in 0..1500 {
        if live.len() > 60 || (rng.below(2) == 0 && !live.is_empty()) {
            live.swap_remove(rng.index(live.len())).1.free();
        } else {
            let align = Align::of(1 << rng.below(u64::from(most.ilog2()) + 1));
            let one = take(&manager, &Request::new(rng.size(100_000)).align(align));
            assert!(align.divides(offset(&one)));
            live.push((align, one));
        }
    }
    live.iter().for_each(|(align, one)| assert!(align.divides(offset(one))));
}

fn unlike_neighbours_stay_a_granule_apart<B: Backend + 'static>(world: &World<B>) {
    let granule = 4096;
    let stack = world.stack_with(64 << 20, u64::MAX, |caps| {
        caps.neighbour_granularity = caps.neighbour_granularity.max(Align::of(granule));
    });
    let manager = world.manager_over(&stack);
    let mut rng = world.rng();
    let mut live: Vec<(Class, Allocation<Stack<B>>)> = Vec::new();
    for _ in 0..1000 {
        if live.len() > 150 || (rng.below(5) < 2 && !live.is_empty()) {
            live.swap_remove(rng.index(live.len())).1.free();
        } else {
            let class = if rng.below(2) == 0 { Class::Linear } else { Class::Tiled };
            let request = Request::new(rng.size(20_000)).class(class);
            live.push((class, take(&manager, &request)));
        }
    }
    let mut places: Vec<_> = live.iter().map(|(class, one)| (place_of(one), *class)).collect();
    places.sort_unstable_by_key(|((block, span), _)| (*block, span.offset));
    for pair in places.windows(2) {
        let [((block, before), class), ((next, after), other)] = [pair[0], pair[1]];
        let apart = (before.end() - 1) / granule < after.offset / granule;
        assert!(block != next || class == other || apart, "{before:?} and {after:?}");
    }
}

fn flushes_cover_whole_atoms_and_change_no_neighbour<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let heap = world.visible_heap().expect("needed");
    let manager: Manager<Stack<B>> = world.manager_over(&stack);
    let config = PoolConfig::new().lanes(1);
    let pool = manager.create_pool(heap, config).expect("valid");
    let live: Vec<_> = (0..9).map(|_| pool.allocate(&Request::new(100)).expect("fits")).collect();
    let fill = |byte: u8, one: &Allocation<Stack<B>>| {
        one.map().expect("visible").write(0, &[byte; 100]).expect("inside");
    };
    (0..).zip(&live).for_each(|(byte, one)| fill(byte, one));
    for at in [1, 4, 7] {
        live[at].map().expect("visible").write(33, &[200; 3]).expect("inside");
    }
    for (byte, one) in (0u8..).zip(&live) {
        let mut found = [0; 100];
        one.map().expect("visible").read(0, &mut found).expect("inside");
        let mut wanted = [byte; 100];
        if [1, 4, 7].contains(&byte) {
            wanted[33..36].fill(200);
        }
        assert_eq!(found, wanted, "allocation {byte}");
    }
    let flushes = stack.inner().calls().of(CallKind::Flush);
    let host = world.backend().caps().heap(heap).expect("exists").host;
    assert_eq!(
        flushes > 0,
        host == HostAccess::Incoherent,
        "a flush costs a call only where needed"
    );
    drop(live);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}
