//! H: the strategies, which need no device, and what a device sees of them.
use super::{kind, place_of, take};
use crate::case::{Case, Need};
use crate::first_fit::FirstFit;
use crate::rng::Rng;
use crate::world::{Stack, World, check_stamp, pool_of, write_stamp};
use omniheap_core::strategy::{
    BlockId, Buddy, Bump, Grant, Key, Piece, PieceState, Ring, Slab, Stack as Lifo, Strategy, Tlsf,
    Usage,
};
use omniheap_core::{Align, Backend, Class, ErrorKind, Layout, Request, UserPool};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        pieces_tile_the_blocks_at_every_step proves [54] needs [];
        freeing_everything_leaves_one_hole proves [55] needs [];
        the_largest_hole_can_be_taken proves [56] needs [];
        a_block_of_the_right_size_holds_what_it_was_made_for proves [57] needs [];
        buddies_are_powers_of_two_and_merge_again proves [58] needs [];
        linear_strategies_keep_their_order proves [59] needs [];
        slots_are_unique_and_come_back proves [60] needs [];
        bookkeeping_touches_no_device_memory proves [62] needs [Unguarded];
        offsets_are_those_of_the_strategy_alone proves [63] needs [Unguarded];
        grants_that_leave_their_block_are_refused proves [63] needs [Transfer];
    }
}

const BLOCK: u64 = 1 << 20;

fn strategies() -> Vec<(&'static str, Box<dyn Strategy>)> {
    let slot = Layout::new(1000).align(Align::of(8));
    vec![
        ("tlsf", Box::new(Tlsf::new(Align::ONE))),
        ("tlsf with granules", Box::new(Tlsf::new(Align::of(1024)))),
        ("buddy", Box::new(Buddy::new(Align::of(64), Align::ONE))),
        ("slab", Box::new(Slab::new(slot, Align::ONE).expect("a sound slot"))),
        ("stack", Box::new(Lifo::new(Align::ONE))),
        ("ring", Box::new(Ring::new(Align::ONE))),
        ("bump", Box::new(Bump::new(Align::ONE))),
        ("first fit", Box::new(FirstFit::new(Align::ONE))),
        ("first fit with granules", Box::new(FirstFit::new(Align::of(1024)))),
    ]
}

/// Returns the index of the live span that a strategy lets go first.
fn turn(name: &str, rng: &mut Rng, live: &[Grant]) -> usize {
    match name {
        "stack" => live.len() - 1,
        "ring" => 0,
        _ => rng.index(live.len()),
    }
}

fn tiles(name: &str, strategy: &dyn Strategy, live: &[Grant]) {
    let (mut end, mut free, mut used, mut spans) = (0, 0, 0, 0);
    let mut last_was_hole = false;
    strategy.for_each(&mut |piece| {
        assert_eq!(piece.span.offset, end, "{name}: a gap or an overlap");
        end = piece.span.end();
        let is_hole = piece.state == PieceState::Hole;
        let merges = name.starts_with("tlsf") || name.starts_with("first fit");
        assert!(!(merges && is_hole && last_was_hole), "{name}: two holes side by side");
        last_was_hole = is_hole;
        match piece.state {
            PieceState::Live(_) => (used, spans) = (used + piece.span.size, spans + 1),
            PieceState::Hole => free += piece.span.size,
            PieceState::Padding => {}
        }
    });
    let usage = strategy.usage();
    assert_eq!((usage.used, usage.free, usage.live), (used, free, spans), "{name}");
    assert_eq!((end, spans), (usage.total, live.len() as u64), "{name}");
    strategy.validate().expect(name);
}

fn pieces_tile_the_blocks_at_every_step<B: Backend + 'static>(world: &World<B>) {
    for (name, mut strategy) in strategies() {
        strategy.add_block(BLOCK).expect("a fine size");
        let (mut rng, mut live) = (world.rng(), Vec::new());
        for _ in 0..400 {
            let layout = Layout::new(rng.within(1, 1000)).align(Align::of(1 << rng.below(4)));
            if rng.below(5) < 3 {
                live.extend(strategy.allocate(layout, Class::Linear));
            } else if !live.is_empty() {
                let at = turn(name, &mut rng, &live);
                let grant = live.remove(at);
                strategy.free(grant.key).expect(name);
                assert_eq!(strategy.free(grant.key).map(drop), Err(ErrorKind::Stale), "{name}");
            }
            tiles(name, strategy.as_ref(), &live);
        }
    }
}

fn freeing_everything_leaves_one_hole<B: Backend + 'static>(world: &World<B>) {
    for (name, mut strategy) in strategies() {
        let block = strategy.add_block(BLOCK).expect("a fine size");
        let whole = strategy.usage().largest_hole;
        let (mut rng, mut live) = (world.rng(), Vec::new());
        while let Ok(grant) = strategy.allocate(Layout::new(rng.within(1, 1000)), Class::Linear) {
            live.push(grant);
        }
        while !live.is_empty() {
            let at = turn(name, &mut rng, &live);
            strategy.free(live.remove(at).key).expect(name);
        }
        let usage = strategy.usage();
        assert_eq!((usage.used, usage.live, usage.largest_hole), (0, 0, whole), "{name}");
        assert!(strategy.is_empty(block), "{name}");
        if name != "slab" {
            let all = strategy.allocate(Layout::new(whole), Class::Linear).expect(name);
            strategy.free(all.key).expect(name);
        }
        strategy.remove_block(block).expect(name);
    }
}

fn the_largest_hole_can_be_taken<B: Backend + 'static>(world: &World<B>) {
    let mut tlsf = Tlsf::new(Align::ONE);
    tlsf.add_block(BLOCK).expect("a fine size");
    let (mut rng, mut live) = (world.rng(), Vec::new());
    for _ in 0..500 {
        live.extend(tlsf.allocate(Layout::new(rng.size(30_000)), Class::Linear));
        if rng.below(2) == 0 {
            tlsf.free(live.swap_remove(rng.index(live.len())).key).expect("live");
        }
        let largest = tlsf.usage().largest_hole;
        if largest > 0 {
            let grant = tlsf.allocate(Layout::new(largest), Class::Linear);
            tlsf.free(grant.expect("the whole hole fits").key).expect("live");
        }
    }
}

fn a_block_of_the_right_size_holds_what_it_was_made_for<B: Backend + 'static>(world: &World<B>) {
    let mut rng = world.rng();
    for _ in 0..300 {
        let (size, align) = (rng.size(1 << 40), Align::of(1 << rng.below(20)));
        let mut tlsf = Tlsf::new(Align::ONE);
        tlsf.add_block(size).expect("a fine size");
        let grant = tlsf.allocate(Layout::new(size).align(align), Class::Linear);
        let grant = grant.expect("a block's base is aligned");
        assert_eq!((grant.span.offset, grant.span.size), (0, size));
        let more = tlsf.allocate(Layout::new(1), Class::Linear);
        assert!(more.is_err_and(ErrorKind::is_out_of_memory));
    }
}

fn buddies_are_powers_of_two_and_merge_again<B: Backend + 'static>(world: &World<B>) {
    let mut buddy = Buddy::new(Align::of(64), Align::ONE);
    buddy.add_block(BLOCK).expect("a fine size");
    let (mut rng, mut live) = (world.rng(), Vec::new());
    for _ in 0..500 {
        if let Ok(grant) = buddy.allocate(Layout::new(rng.size(50_000)), Class::Linear) {
            assert!(grant.span.size.is_power_of_two() && grant.span.size >= 64);
            assert!(grant.span.offset.is_multiple_of(grant.span.size));
            live.push(grant);
        }
        if rng.below(3) == 0 {
            buddy.free(live.swap_remove(rng.index(live.len())).key).expect("live");
        }
    }
    for grant in live {
        buddy.free(grant.key).expect("live");
    }
    assert_eq!((buddy.usage().holes, buddy.usage().largest_hole), (1, BLOCK));
}

fn linear_strategies_keep_their_order<B: Backend + 'static>(_: &World<B>) {
    let ask = Layout::new(300);
    let take = |strategy: &mut dyn Strategy| strategy.allocate(ask, Class::Linear);
    let mut stack = Lifo::new(Align::ONE);
    stack.add_block(1000).expect("a fine size");
    let [a, b, c] = [(); 3].map(|()| take(&mut stack).expect("fits"));
    assert!(a.span.end() <= b.span.offset && b.span.end() <= c.span.offset, "offsets rise");
    assert!(take(&mut stack).is_err(), "full");
    stack.free(a.key).expect("live");
    assert!(take(&mut stack).is_err(), "its bytes wait for those above");
    stack.free(c.key).expect("live");
    let again = take(&mut stack).expect("the last comes back first");
    assert_eq!(again.span, c.span);
    for grant in [again, b] {
        stack.free(grant.key).expect("live");
    }
    assert_eq!(stack.usage().largest_hole, 1000, "all of it came back");
    let mut ring = Ring::new(Align::ONE);
    ring.add_block(1000).expect("a fine size");
    let [a, b, c] = [(); 3].map(|()| take(&mut ring).expect("fits"));
    assert!(take(&mut ring).is_err(), "the ends meet");
    ring.free(a.key).expect("the oldest");
    let wrapped = take(&mut ring).expect("round the end");
    assert_eq!(wrapped.span.offset, 0);
    assert!(take(&mut ring).is_err(), "the ends meet again");
    for grant in [b, c, wrapped] {
        ring.free(grant.key).expect("the oldest");
    }
    let mut bump = Bump::new(Align::ONE);
    bump.add_block(1000).expect("a fine size");
    let [a, b, c] = [(); 3].map(|()| take(&mut bump).expect("fits"));
    for grant in [b, a] {
        bump.free(grant.key).expect("live");
    }
    assert!(take(&mut bump).is_err(), "nothing comes back while one is live");
    bump.free(c.key).expect("live");
    assert_eq!(take(&mut bump).expect("all came back").span.offset, 0);
}

fn slots_are_unique_and_come_back<B: Backend + 'static>(world: &World<B>) {
    let slot = Layout::new(96).align(Align::of(32));
    let mut slab = Slab::new(slot, Align::ONE).expect("a sound slot");
    for _ in 0..3 {
        slab.add_block(96 * 100).expect("a fine size");
    }
    let mut rng = world.rng();
    for _ in 0..4 {
        let mut live = Vec::new();
        while let Ok(grant) = slab.allocate(Layout::new(rng.within(1, 96)), Class::Linear) {
            live.push(grant);
        }
        let mut places: Vec<_> =
            live.iter().map(|grant| (grant.block, grant.span.offset)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((places.len(), live.len()), (300, 300), "every slot once");
        while !live.is_empty() {
            slab.free(live.swap_remove(rng.index(live.len())).key).expect("live");
        }
    }
}

fn bookkeeping_touches_no_device_memory<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let mut rng = world.rng();
    let mut live = Vec::new();
    for _ in 0..500 {
        live.push(take(&manager, &Request::new(rng.size(500_000))));
        if rng.below(2) == 0 {
            live.swap_remove(rng.index(live.len())).free();
        }
    }
    let calls = stack.inner().calls();
    for touching in [CallKind::Write, CallKind::Read, CallKind::Fill, CallKind::Copy, CallKind::Map]
    {
        assert_eq!(calls.of(touching), 0, "{touching:?}");
    }
}

fn offsets_are_those_of_the_strategy_alone<B: Backend + 'static>(world: &World<B>) {
    let (manager, heap, config) = (world.manager(), world.device_heap(), pool_of(8 << 20));
    let granularity = world.backend().caps().neighbour_granularity;
    let general = manager.create_pool(heap, config).expect("valid");
    follow(world, &general, &mut Tlsf::new(granularity));
    let make = |granularity| Box::new(FirstFit::new(granularity)) as Box<dyn Strategy>;
    let own = manager.create_pool_with(heap, config, make).expect("valid");
    follow(world, &own, &mut FirstFit::new(granularity));
    manager.validate().expect("sound");
    for pool in [general, own] {
        manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
    }
}

/// Asks a pool and a strategy without a device for the same.
fn follow<B: Backend + 'static>(
    world: &World<B>,
    pool: &UserPool<Stack<B>>,
    alone: &mut dyn Strategy,
) {
    let unit = omniheap_core::ManagerConfig::default().unit;
    alone.add_block(8 << 20).expect("a fine size");
    let (mut rng, mut live) = (world.rng(), Vec::new());
    for _ in 0..300 {
        let size = rng.size(100_000);
        let layout = Layout::new(unit.up(size).expect("small")).align(unit);
        let both = (pool.allocate(&Request::new(size)), alone.allocate(layout, Class::Linear));
        let (Ok(here), Ok(there)) = both else { panic!("8 MiB are enough for both") };
        assert_eq!(place_of(&here).1.offset, there.span.offset, "{size} bytes");
        live.push((here, there));
        if live.len() > 40 {
            let (here, there) = live.swap_remove(rng.index(live.len()));
            here.free();
            alone.free(there.key).expect("live");
        }
    }
    drop(live);
    assert_eq!(kind(pool.allocate(&Request::new(9 << 20))), ErrorKind::ExceedsLimit);
}

/// A strategy from outside whose second span leaves its block by one byte.
#[derive(Debug)]
struct Stray {
    inner: FirstFit,
    block: u64,
}

impl Strategy for Stray {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        self.block = size;
        self.inner.add_block(size)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        self.inner.remove_block(block)
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        let mut grant = self.inner.allocate(layout, class)?;
        if grant.span.offset > 0 {
            grant.span.size = self.block - grant.span.offset + 1;
        }
        Ok(grant)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        self.inner.free(key)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.inner.grant(key)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.inner.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.inner.for_each(visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        self.inner.validate()
    }
}

fn grants_that_leave_their_block_are_refused<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let make = |granularity| {
        Box::new(Stray { inner: FirstFit::new(granularity), block: 0 }) as Box<dyn Strategy>
    };
    let pool = manager.create_pool_with(world.device_heap(), pool_of(BLOCK), make).expect("valid");
    let first = pool.allocate(&Request::new(4096)).expect("it lies inside");
    write_stamp(&first, 1);
    let before = manager.totals();
    for _ in 0..3 {
        assert_eq!(kind(pool.allocate(&Request::new(4096))), ErrorKind::BadStrategy);
    }
    assert_eq!(manager.totals(), before, "what was refused is free again");
    check_stamp(&first, 1);
    first.free();
    manager.validate().expect("sound");
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}
