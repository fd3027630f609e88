//! K: the host's view.
use super::{kind, place_of, take};
use crate::case::{Case, Need};
use crate::rng::is_all;
use crate::world::{Stack, World, in_heap, pool_of};
use omniheap_core::{Allocation, Backend, CopyRegion, ErrorKind, Request, TimelineId, Writer};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        mapping_twice_gives_the_same_bytes proves [90, 91] needs [Map];
        neighbours_map_apart proves [90] needs [Map];
        hidden_memory_cannot_be_mapped proves [92] needs [Hidden];
        host_and_device_see_the_same_bytes proves [93, 94] needs [Map, Transfer];
        a_mapped_allocation_is_freed_cleanly proves [95] needs [Map];
        host_and_device_may_touch_different_bytes_at_once proves [96] needs [Map, Transfer];
        uploads_wait_for_their_earlier_readers proves [87] needs [Map, Transfer, Timelines, Hold];
    }
}

fn visible<B: Backend + 'static>(world: &World<B>, size: u64) -> Request<'static> {
    in_heap(world.visible_heap().expect("needed"), size)
}

fn mapping_twice_gives_the_same_bytes<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let one = take(&manager, &visible(world, 5000));
    let first = one.map().expect("visible").as_ptr();
    let _others: Vec<_> = (0..100).map(|_| take(&manager, &visible(world, 3000))).collect();
    {
        let (a, b) = (one.map().expect("visible"), one.map().expect("visible"));
        assert_eq!((a.as_ptr(), b.as_ptr()), (first, first), "constant until the free");
        a.write(10, b"through one").expect("inside");
        let mut found = [0; 11];
        b.read(10, &mut found).expect("inside");
        assert_eq!(&found, b"through one");
    }
    let again = one.map().expect("visible");
    let mut found = [0; 11];
    again.read(10, &mut found).expect("inside");
    assert_eq!(&found, b"through one", "and after the last unmap");
}

fn neighbours_map_apart<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = manager
        .create_pool(world.visible_heap().expect("needed"), pool_of(1 << 20))
        .expect("valid");
    let live: Vec<_> = (0..16).map(|_| pool.allocate(&Request::new(700)).expect("fits")).collect();
    let block = place_of(&live[0]).0;
    assert!(live.iter().all(|one| place_of(one).0 == block), "one block");
    let views: Vec<_> = live.iter().map(|one| one.map().expect("visible")).collect();
    let mut starts: Vec<_> = views.iter().map(|view| view.as_ptr().addr().get()).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 700));
    (0u8..).zip(&views).for_each(|(byte, view)| view.write(0, &[byte; 700]).expect("inside"));
    for (byte, view) in (0u8..).zip(&views) {
        let mut found = [0; 700];
        view.read(0, &mut found).expect("inside");
        assert_eq!(found, [byte; 700]);
    }
    drop(views);
    drop(live);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn hidden_memory_cannot_be_mapped<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let one = take(&manager, &in_heap(world.hidden_heap().expect("needed"), 4096));
    let before = (manager.totals(), stack.inner().live());
    for _ in 0..1000 {
        assert_eq!(kind(one.map().map(drop)), ErrorKind::NotMappable);
    }
    assert_eq!((manager.totals(), stack.inner().live()), before);
    if world.visible_heap().is_some() && world.backend().as_map().is_some() {
        take(&manager, &visible(world, 64)).map().expect("later maps work");
    }
}

fn host_and_device_see_the_same_bytes<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let unit = world.backend().caps().copy.align.get();
    let size = unit * 512;
    let one = take(&manager, &visible(world, size));
    let mut shadow = vec![0u8; usize::try_from(size).expect("small")];
    one.write(0, &shadow).expect("inside");
    let mut rng = world.rng();
    for step in 0..300u64 {
        let (offset, count) = (rng.below(400) * unit, (1 + rng.below(100)) * unit);
        let range = usize::try_from(offset).expect("small")
            ..usize::try_from(offset + count).expect("small");
        let byte = u8::try_from(step % 251).expect("below 251");
        world.backend().wait_idle().expect("alive");
        match rng.below(5) {
            0 => {
                shadow[range.clone()].fill(byte);
                one.map().expect("visible").write(offset, &shadow[range]).expect("inside");
            }
            1 => {
                shadow[range].fill(byte);
                one.fill(offset, count, byte).expect("inside");
            }
            2 => {
                shadow[range.clone()].fill(byte);
                one.write(offset, &shadow[range]).expect("inside");
            }
            3 => {
                let mut found = vec![0; range.len()];
                one.map().expect("visible").read(offset, &mut found).expect("inside");
                assert_eq!(found, shadow[range], "the host's view at step {step}");
            }
            _ => {
                let mut found = vec![0; range.len()];
                one.read(offset, &mut found).expect("inside");
                assert_eq!(found, shadow[range], "the device's view at step {step}");
            }
        }
    }
}

fn a_mapped_allocation_is_freed_cleanly<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    for _ in 0..20 {
        let one = take(&manager, &visible(world, 1 << 20).dedicated());
        one.map().expect("visible").write(0, &[1; 64]).expect("inside");
        one.free();
        manager.retire().expect("alive");
    }
    let calls = stack.inner().calls();
    assert_eq!(calls.of(CallKind::Allocate), calls.of(CallKind::Free));
}

fn host_and_device_may_touch_different_bytes_at_once<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    // Whole atoms each, so that no flush of one side covers bytes of the other.
    let half = world.backend().caps().atom.up(world.whole(64 << 10)).expect("small");
    let one: Allocation<Stack<B>> = take(&manager, &visible(world, 2 * half));
    one.fill(0, 2 * half, 0).expect("inside");
    world.backend().wait_idle().expect("alive");
    let length = usize::try_from(half).expect("small");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let view = one.map().expect("visible");
            (1..=50u8).for_each(|byte| view.write(0, &vec![byte; length]).expect("inside"));
        });
        scope.spawn(|| (101..=150).for_each(|byte| one.fill(half, half, byte).expect("inside")));
    });
    world.backend().wait_idle().expect("alive");
    let mut found = vec![0; 2 * length];
    one.read(0, &mut found).expect("inside");
    assert!(is_all(&found[..length], 50), "the host's half");
    assert!(is_all(&found[length..], 150), "the device's half");
}

/// The per-frame pattern: written by the host, copied by the device, freed in its order while it is far behind.
fn uploads_wait_for_their_earlier_readers<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let (main, size) = (TimelineId::MAIN, world.whole(4096));
    let upload = visible(world, size).writer(Writer::HostPerFrame).on(main);
    let sinks: Vec<_> =
        (0..3).map(|_| take(&manager, &Request::new(size).on(main).dedicated())).collect();
    // A driver may take no memory while a timeline is held.
    drop((0..4).map(|_| take(&manager, &upload)).collect::<Vec<_>>());
    world.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    let length = usize::try_from(size).expect("small");
    let held = world.hold(main);
    for (byte, to) in (1u8..).zip(&sinks) {
        let from = take(&manager, &upload);
        from.map().expect("visible").write(0, &vec![byte; length]).expect("inside");
        let copy = CopyRegion { from: &from, from_offset: 0, to, to_offset: 0, size };
        manager.copy(main, &[copy]).expect("queued");
    }
    drop(held);
    for (byte, sink) in (1u8..).zip(&sinks) {
        let mut found = vec![0; length];
        sink.read(0, &mut found).expect("inside");
        assert!(is_all(&found, byte), "frame {byte} was overwritten");
    }
}
