//! Tests of one full defragmentation of pools of pages: holes that add up to a page are gained, whatever the sizes.
use omniheap_core::{Align, Allocation, Backend, HeapKind, Manager, ManagerConfig, Request};
use omniheap_host::{Host, heap};
use omniheap_layers::{Fault, Plan};
use omniheap_model::Random;

const PAGE: u64 = 64 << 10;

type Device = Fault<Host>;
type Live = Vec<(u64, Allocation<Device>)>;

/// From a sixty-fourth of `most` to `most`, each doubling as often as every other.
const fn size_up_to(random: &mut Random, most: u64) -> u64 {
    let base = most >> (1 + random.below(6));
    base + random.below(base)
}

fn manager(capacity: u64) -> Manager<Device> {
    let mut device = heap(HeapKind::Device, capacity);
    device.page = device.page.map(|_| Align::of(PAGE));
    let host = Host::builder().heap(device).open().expect("a device");
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    Manager::with_config(Fault::new(host), config)
}

/// Some are aligned more strictly than others.
const fn align_of(id: u64) -> Align {
    Align::of(if id.is_multiple_of(16) { 4096 } else { 1 })
}

fn stamp(id: u64, size: u64) -> Vec<u8> {
    // A few hundred words again and again: they tell allocations apart, and places at any distance of whole pages.
    let words = (0..331).map(|at| id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at);
    let some: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let size = usize::try_from(size).expect("small");
    let mut bytes = some.repeat(size.div_ceil(some.len()));
    bytes.truncate(size);
    bytes
}

/// Fills most of the memory and frees all but one in `keep`, at random; what is left is stamped.
fn scattered(manager: &Manager<Device>, seed: u64, fill: u64, most: u64, keep: u64) -> Live {
    let (mut random, mut live) = (Random(seed), Live::new());
    while manager.totals().live_bytes < fill {
        let id = live.len() as u64;
        let request = Request::new(size_up_to(&mut random, most)).align(align_of(id));
        live.push((id, manager.allocate(&request).expect("fits")));
    }
    live.retain(|_| random.below(keep) == 0);
    for (id, one) in &live {
        one.write(0, &stamp(*id, one.size())).expect("in range");
    }
    live
}

#[track_caller]
fn sound(manager: &Manager<Device>, live: &Live) {
    manager.validate().expect("sound");
    for (id, one) in live {
        let offset = one.binding().span().offset;
        assert!(offset.is_multiple_of(align_of(*id).get()), "allocation {id} is at {offset}");
        let mut found = vec![0; usize::try_from(one.size()).expect("small")];
        one.read(0, &mut found).expect("in range");
        assert!(found == stamp(*id, one.size()), "allocation {id} lost its bytes");
    }
}

/// Bytes held that nobody asked for: at most two in a hundred, and the page that cannot be full.
#[track_caller]
fn is_packed(manager: &Manager<Device>, what: &str) {
    let totals = manager.totals();
    let most = totals.live_bytes + totals.live_bytes / 50 + PAGE;
    assert!(totals.reserved_bytes <= most, "{what}: {totals:?}");
}

#[test]
fn two_in_a_hundred_are_left_whatever_the_sizes_are() {
    for (fill, most) in [(2, 1), (12, 1), (12, 2), (16, 4), (16, 16)] {
        for seed in 0..2 {
            let manager = manager(64 << 20);
            let live = scattered(&manager, seed, fill << 20, most * PAGE, 2);
            let before = manager.totals().reserved_bytes;
            let returned = manager.defragment().expect("alive");
            assert_eq!(
                before - manager.totals().reserved_bytes,
                returned,
                "it says what it gained"
            );
            is_packed(&manager, &format!("{fill} MiB of up to {most} pages, seed {seed}"));
            sound(&manager, &live);
        }
    }
}

#[test]
fn what_is_pinned_stays_and_the_rest_is_packed_around_it() {
    let manager = manager(64 << 20);
    let live = scattered(&manager, 7, 12 << 20, PAGE, 2);
    let pins: Vec<_> = live.iter().step_by(100).map(|(_, one)| one.pin()).collect();
    let places =
        || live.iter().step_by(100).map(|(_, one)| one.binding().span()).collect::<Vec<_>>();
    let before = places();
    manager.defragment().expect("alive");
    assert_eq!(places(), before);
    let totals = manager.totals();
    let pinned = 2 * PAGE * pins.len() as u64;
    let most = totals.live_bytes + totals.live_bytes / 50 + PAGE + pinned;
    assert!(totals.reserved_bytes <= most, "{totals:?}");
    sound(&manager, &live);
}

#[test]
fn without_memory_for_fresh_pages_everything_stays_as_it_is() {
    let manager = manager(4 << 20);
    let mut random = Random(5);
    let mut live = Live::new();
    // Sizes of more than a third of a page that fill no page, until the device is full.
    while let Ok(one) = manager.allocate(&Request::new(PAGE * 2 / 5 + random.below(256) * 8)) {
        live.push((live.len() as u64 * 16 + 1, one));
    }
    for (id, one) in &live {
        one.write(0, &stamp(*id, one.size())).expect("in range");
    }
    manager.defragment().expect("alive");
    assert!(manager.totals().reserved_bytes <= 4 << 20);
    sound(&manager, &live);
}

#[test]
fn a_call_that_fails_at_any_point_loses_nothing() {
    for nth in 0.. {
        let manager = manager(16 << 20);
        let live = scattered(&manager, 3, 3 << 19, PAGE, 2);
        manager.backend().wait_idle().expect("alive");
        manager.backend().inject(Plan::Nth(nth), 0);
        let outcome = manager.defragment();
        let failed = manager.backend().injected() > 0;
        manager.backend().inject(Plan::Never, 0);
        assert!(failed || outcome.is_ok());
        sound(&manager, &live);
        manager.defragment().expect("well again");
        sound(&manager, &live);
        if !failed {
            assert!(nth > 20, "{nth} calls were seen");
            is_packed(&manager, "after every fault");
            return;
        }
    }
}

#[test]
fn a_request_gets_the_pages_that_many_small_holes_add_up_to() {
    // The remaining allocations divide the memory into eight stretches. In each, five holes add up to more than two
    // pages, and none is long enough for anything that could move there.
    let (moves, hole) = (28 << 10, 27 << 10);
    let manager = manager(35 * PAGE);
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let (mut live, mut holes, mut stays) = (Live::new(), Vec::new(), Vec::new());
    for _ in 0..8 {
        for _ in 0..5 {
            let id = live.len() as u64;
            live.push((id, ask(moves)));
            live[live.len() - 1].1.write(0, &stamp(id, moves)).expect("in range");
            holes.push(ask(hole));
        }
        stays.push(manager.allocate(&Request::new(2 << 10).pinned()).expect("fits"));
    }
    holes.clear();
    let large = manager.allocate(&Request::new(7 * PAGE)).expect("eight pages can be had");
    large.fill(0, 7 * PAGE, 0xee).expect("in range");
    manager.validate().expect("sound");
    for (id, one) in &live {
        let mut found = vec![0; usize::try_from(moves).expect("small")];
        one.read(0, &mut found).expect("in range");
        assert!(found == stamp(*id, moves), "allocation {id} lost its bytes");
    }
}

/// Each is a little longer than its alignment, so the bytes between two of them are lost wherever they lie.
#[test]
fn bytes_that_alignment_loses_are_not_packed_again_and_again() {
    for (size, align) in [(4352, 4096), (2304, 2048), (12_544, 4096)] {
        let manager = manager(64 << 20);
        let request = Request::new(size).align(Align::of(align));
        let live: Vec<_> = (0..1000).map(|_| manager.allocate(&request).expect("fits")).collect();
        manager.defragment().expect("alive");
        let before = manager.totals().reserved_bytes;
        let moves = || manager.report().defragmentation.moves;
        let first = moves();
        assert_eq!(manager.defragment().expect("alive"), 0, "{size}");
        let last = (moves(), manager.totals().reserved_bytes);
        assert_eq!(last, (first, before), "{size} bytes at {align}");
        drop(live);
    }
}
