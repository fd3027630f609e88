//! Devices, pools and requests with any values in their public fields: refused with an error, or they work. Nothing panics.
use omniheap_core::{
    Access, Align, Budget, Caps, Class, Coherence, ConstantCaps, Contents, CopyCaps, Dependence,
    DeviceInfo, ErrorKind, Grow, Heap, HeapId, HeapKind, HostAccess, InsideBlock, KernelAccess,
    Layout, Lifetime, Limits, Manager, Mapper, Mobility, Pass, Pattern, PoolConfig, Privacy,
    Registration, Request, Sharing, Spill, StrategyKind, Substitution, Tag, TimelineId, Use, Uses,
    Waiting, Work, Writer,
};
use omniheap_host::Host;
use omniheap_null::Null;
use proptest::prelude::*;
use proptest::sample::select;

/// Sizes of every magnitude but those whose bytes a test could not touch.
fn size() -> impl Strategy<Value = u64> {
    let ends = vec![0, 1, 255, 4096, 65_537, 1 << 20, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX];
    prop_oneof![0..1_u64 << 21, select(ends)]
}

/// Alignments that are small, or larger than any device.
fn align() -> impl Strategy<Value = Align> {
    prop_oneof![4 => 0..22_u32, 1 => 40..64_u32].prop_map(|power| Align::of(1 << power))
}

/// Alignments that a device may well have.
fn step() -> impl Strategy<Value = Align> {
    prop_oneof![15 => (12..22_u32).prop_map(|power| Align::of(1 << power)), 1 => align()]
}

fn heap() -> impl Strategy<Value = Heap> {
    use HeapKind::{Constant, Device, Staging, Unified};
    use HostAccess::{Cached, Combined, Incoherent, None};
    use KernelAccess::{ReadOnly, ReadWrite};
    let bytes = prop_oneof![0..1_u64 << 24, size()];
    let places = (select(vec![Device, Constant, Staging, Unified]), bytes, size(), 0..4_u8);
    let steps = (step(), step(), proptest::option::of(step()), proptest::option::of(align()));
    let uses = (
        select(vec![None, Combined, Cached, Incoherent]),
        select(vec![ReadWrite, ReadOnly, KernelAccess::None]),
        select(vec![Use::Normal, Use::OnRequest]),
        select(vec![Mapper::Host, Mapper::Queue]),
    );
    (places, steps, uses).prop_map(|(places, steps, uses)| {
        Heap::new(places.0, places.1)
            .max_block(places.2)
            .physical(places.3)
            .align(steps.0)
            .granule(steps.1)
            .page(steps.2)
            .registrable(steps.3)
            .host(uses.0)
            .kernels(uses.1)
            .use_when(uses.2)
            .mapper(uses.3)
    })
}

fn caps() -> impl Strategy<Value = Caps> {
    let constant = (size(), align(), size(), size());
    let constant = constant.prop_map(|(bank, align, max_bind, push)| ConstantCaps {
        bank,
        align,
        max_bind,
        push,
    });
    let inside = select(vec![InsideBlock::Allowed, InsideBlock::Forbidden]);
    let copy = (align(), inside).prop_map(|(align, inside_block)| CopyCaps { align, inside_block });
    let heaps = proptest::collection::vec(heap(), 1..4);
    let device = DeviceInfo { backend: "host", ..DeviceInfo::default() };
    (heaps, size(), copy, align(), align(), proptest::option::of(constant)).prop_map(
        move |(heaps, blocks, copy, neighbours, atom, constant)| {
            Caps::new(device.clone(), heaps)
                .max_blocks(blocks)
                .copy(copy)
                .neighbour_granularity(neighbours)
                .atom(atom)
                .constant(constant)
        },
    )
}

fn request() -> impl Strategy<Value = Request<'static>> {
    let readers = (
        select(vec![Writer::Device, Writer::HostOnce, Writer::HostPerFrame]),
        select(vec![Access::Device, Access::Host, Access::Both]),
        select(vec![Pattern::Coalesced, Pattern::Broadcast, Pattern::Uniform, Pattern::Gathered]),
        select(vec![Work::Any, Work::Light]),
        select(vec![Dependence::Any, Dependence::Independent, Dependence::Chained]),
        any::<u32>(),
        proptest::option::of(size()),
    );
    let rules = (
        select(vec![Coherence::Any, Coherence::Needed]),
        select(vec![Substitution::Allowed, Substitution::Forbidden]),
        select(vec![Spill::Forbidden, Spill::Allowed]),
        select(vec![Sharing::Shared, Sharing::Dedicated]),
        select(vec![Registration::Any, Registration::Needed]),
        select(vec![Mobility::Movable, Mobility::OnConsent, Mobility::Pinned]),
        select(vec![Grow::Allowed, Grow::Never]),
    );
    let rest = (
        select(vec![Contents::Any, Contents::Zero]),
        select(vec![Privacy::Open, Privacy::Secret]),
        select(vec![Lifetime::Persistent, Lifetime::Frame, Lifetime::Kernel]),
        select(vec![Class::Linear, Class::Tiled]),
        proptest::option::of(prop_oneof![0..4_u8, any::<u8>()].prop_map(HeapId)),
        proptest::option::of(prop_oneof![0..2_u32, any::<u32>()].prop_map(TimelineId)),
        proptest::option::of(any::<u16>().prop_map(Tag)),
    );
    (size(), align(), readers, rules, rest).prop_map(|(size, align, readers, rules, rest)| {
        let mut request = Request::new(size).align(align);
        (request.writer, request.access, request.pattern) = (readers.0, readers.1, readers.2);
        (request.work, request.dependence) = (readers.3, readers.4);
        (request.reuse, request.touches) = (readers.5, readers.6);
        (request.coherence, request.substitution, request.spill) = (rules.0, rules.1, rules.2);
        (request.sharing, request.registration) = (rules.3, rules.4);
        (request.mobility, request.grow) = (rules.5, rules.6);
        (request.contents, request.privacy, request.lifetime) = (rest.0, rest.1, rest.2);
        (request.class, request.heap, request.timeline) = (rest.3, rest.4, rest.5);
        request.tag = rest.6;
        request
    })
}

fn pool() -> impl Strategy<Value = PoolConfig> {
    let strategy = prop_oneof![
        Just(StrategyKind::General),
        size().prop_map(StrategyKind::Buddy),
        (size(), align()).prop_map(|(size, align)| StrategyKind::Slab(Layout { size, align })),
        Just(StrategyKind::Stack),
        Just(StrategyKind::Ring),
        Just(StrategyKind::Bump),
    ];
    // More lanes take more memory of the host, and nothing else.
    let lanes = proptest::option::of(0..100_u32);
    let sizes = (size(), size(), proptest::option::of(size()));
    (strategy, sizes, lanes, any::<[bool; 5]>()).prop_map(|(strategy, sizes, lanes, flags)| {
        let mut config = PoolConfig::new();
        (config.strategy, config.lanes) = (strategy, lanes);
        (config.minimum, config.maximum, config.block) = sizes;
        config.uses = if flags[0] { Uses::Declared } else { Uses::Undeclared };
        config.waiting = if flags[1] { Waiting::LastResort } else { Waiting::Thrift };
        (config.paged, config.sleepable, config.wakes_on_request) = (flags[2], flags[3], flags[4]);
        config
    })
}

/// Everything that is done with one device.
#[derive(Clone, Debug)]
struct Given {
    caps: Caps,
    requests: Vec<Request<'static>>,
    heap: HeapId,
    pool: PoolConfig,
    limits: Limits,
    budget: Budget,
}

fn given() -> impl Strategy<Value = Given> {
    let limits = (size(), size()).prop_map(|(soft, hard)| Limits { soft, hard });
    let requests = proptest::collection::vec(request(), 1..6);
    let budget = (size(), size(), any::<core::time::Duration>());
    let budget =
        budget.prop_map(|(bytes, moves, time)| Budget::new().bytes(bytes).moves(moves).time(time));
    (caps(), requests, (0..5_u8).prop_map(HeapId), pool(), limits, budget).prop_map(
        |(caps, requests, heap, pool, limits, budget)| Given {
            caps,
            requests,
            heap,
            pool,
            limits,
            budget,
        },
    )
}

fn ask<B: omniheap_core::Backend>(device: B, given: &Given) {
    let manager = Manager::new(device);
    let ask_all = || {
        let mut live = Vec::new();
        for request in &given.requests {
            drop(manager.explain(request));
            if let Ok(one) = manager.allocate(request) {
                assert_eq!(one.size(), request.layout.size);
                live.push(one);
            }
        }
        // Holes for the pass.
        live = live.into_iter().step_by(2).collect();
        drop(manager.begin_defragment(&given.budget).and_then(Pass::commit));
        drop(manager.begin_recall(&given.budget).and_then(Pass::commit));
        manager.validate().expect("sound");
        drop(live);
    };
    ask_all();
    let is_set = manager.set_budget(given.heap, given.limits).is_ok();
    assert!(!is_set || given.limits.soft <= given.limits.hard);
    ask_all();
    if let Ok(pool) = manager.create_pool(given.heap, given.pool) {
        for request in &given.requests {
            drop(pool.allocate(request));
        }
        let _ = manager.retire();
        if let Err(kept) = manager.destroy_pool(pool) {
            // Nobody can tell when a secret may be zeroed where uses are undeclared, and all work cannot be followed at once.
            assert_eq!(kept.error.kind(), ErrorKind::Busy);
        }
    }
    manager.validate().expect("sound");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_given_is_refused_or_works(given in given()) {
        let Ok(host) = Host::like(given.caps.clone()) else { return Ok(()) };
        ask(host, &given);
        ask(Null::new(given.caps.clone()), &given);
    }
}
