//! One device over streams of somebody else: what a program may do with PyTorch's own allocator, it may do here.
#![expect(unsafe_code, reason = "allocates for streams")]
use super::scripted::Scripted;
use super::{Device, Held, Resident, Saved, UNIT, human, is_shortage};
use crate::device::Settings;
use crate::graph::{PoolId, Split, Stock, wait_for_all};
use crate::meter::SizeClass;
use crate::seats::PER_THREAD;
use crate::streams::Life;
use core::ffi::c_void;
use core::ptr;
use omniheap::{Allocation, Backend as _, BackendKind, ErrorKind, seam::Move};
use serde_json::{Value, json};

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn open(limit: Option<u64>) -> Device<Scripted> {
    let settings = Settings { backend: BackendKind::Host, limit, paged: true };
    Device::open(0, &settings).expect("host memory")
}

pub(super) fn with_streams(handles: impl IntoIterator<Item = usize>) -> Device<Scripted> {
    let device = open(None);
    handles.into_iter().for_each(|handle| device.manager.backend().create_stream(handle));
    device
}

/// Streams 1 and 2, of which the first is gone after a capture that nobody announced.
fn with_a_capture_of_a_stream_that_is_gone(capture: u64) -> Device<Scripted> {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    backend.begin_capture_of(1, capture);
    let inside = take(&device, MIB, 1);
    backend.end_capture_of(1);
    backend.destroy_stream(1);
    free(&device, inside);
    device
}

pub(super) fn stream(handle: usize) -> *mut c_void {
    ptr::without_provenance_mut(handle)
}

pub(super) fn take(device: &Device<Scripted>, size: u64, handle: usize) -> u64 {
    // SAFETY: the backend panics for a stream that is gone.
    unsafe { device.allocate(size, stream(handle), Life::Unknown) }.expect("there is enough")
}

pub(super) fn free(device: &Device<Scripted>, address: u64) {
    device.free(address, None).expect("it lives");
}

pub(super) fn reserved(device: &Device<Scripted>) -> u64 {
    device.manager.heap_use(device.heap).expect("it exists").reserved
}

/// Looks at the allocation behind an address.
pub(super) fn at<R>(
    device: &Device<Scripted>,
    address: u64,
    look: impl FnOnce(&Allocation<Scripted>) -> R,
) -> R {
    let found = device.live.with(address, |Resident { held, .. }| match held {
        Held::Plain(allocation, _) => look(allocation),
        Held::Kept(_) => panic!("it belongs to a capture"),
    });
    found.expect("it lives")
}

/// Has a stream fill an allocation, when it comes to it.
pub(super) fn fill(device: &Device<Scripted>, address: u64, handle: usize, value: u8) {
    let backend = device.manager.backend();
    at(device, address, |allocation| {
        let (binding, size) = (allocation.binding(), allocation.size());
        let place = binding.place(0, size).expect("inside");
        let transfer = backend.as_transfer().expect("it moves bytes");
        transfer.fill(backend.timeline(handle), place, size, value).expect("queued");
    });
}

/// Has a stream copy one allocation to another, when it comes to it.
fn copy(device: &Device<Scripted>, from: u64, to: u64, handle: usize) {
    let backend = device.manager.backend();
    let taken = [from, to].map(|address| device.live.remove(address).expect("it lives"));
    let allocations = taken.each_ref().map(|resident| match &resident.held {
        Held::Plain(allocation, _) => allocation,
        Held::Kept(_) => panic!("it belongs to a capture"),
    });
    let size = allocations[0].size().min(allocations[1].size());
    let bindings = allocations.map(Allocation::binding);
    let [source, target] = bindings.each_ref().map(|one| one.place(0, size).expect("inside"));
    let transfer = backend.as_transfer().expect("it moves bytes");
    let step = Move { from: source, to: target, size };
    transfer.copy(backend.timeline(handle), &[step]).expect("queued");
    drop(bindings);
    for (address, resident) in [from, to].into_iter().zip(taken) {
        assert!(device.live.insert(address, resident).is_none(), "nobody else has the address");
    }
}

/// Has one stream run after another.
fn run_after(device: &Device<Scripted>, later: usize, earlier: usize) {
    let backend = device.manager.backend();
    let lines = backend.host.as_timelines().expect("it has some");
    let timeline = backend.timeline(earlier);
    let point = omniheap::Point { timeline, epoch: lines.mark(timeline).expect("open") };
    lines.order(backend.timeline(later), point).expect("open");
}

pub(super) fn synchronize(device: &Device<Scripted>) {
    device.manager.backend().host.wait_idle().expect("it is there");
}

pub(super) fn holds(device: &Device<Scripted>, address: u64, value: u8) -> bool {
    let mut bytes = vec![0; 4096];
    at(device, address, |allocation| allocation.read(0, &mut bytes).expect("inside"));
    bytes.iter().all(|byte| *byte == value)
}

#[test]
fn what_another_stream_reads_late_is_nobody_elses_though_nobody_said_so() {
    for size in [MIB, 2 * MIB, 4 * MIB, 64 * MIB] {
        let device = with_streams([1, 2, 3]);
        let (x, sink) = (take(&device, size, 1), take(&device, size, 2));
        fill(&device, x, 1, 7);
        synchronize(&device);
        let backend = device.manager.backend();
        let late = backend.host.hold(backend.timeline(2)).expect("open");
        copy(&device, x, sink, 2);
        free(&device, x);
        let others: Vec<u64> = (0..4).map(|_| take(&device, size, 3)).collect();
        others.iter().for_each(|other| fill(&device, *other, 3, 0));
        drop(late);
        synchronize(&device);
        assert!(holds(&device, sink, 7), "{size} bytes were overwritten");
    }
}

/// Runs one thread's share: what one stream fills, another one copies while it is freed.
fn work(device: &Device<Scripted>, [own, other]: [usize; 2], rounds: u8) {
    let lines = device.manager.backend().host.as_timelines().expect("it has some");
    for round in 0..rounds {
        let size = 4096 << (round % 11);
        let (x, sink) = (take(device, size, own), take(device, size, other));
        fill(device, x, own, round);
        run_after(device, other, own);
        copy(device, x, sink, other);
        if round % 2 == 0 {
            device.use_on(x, stream(other)).expect("it lives").expect("known");
        }
        free(device, x);
        run_after(device, own, other);
        let timeline = device.manager.backend().timeline(other);
        let epoch = lines.mark(timeline).expect("open");
        lines.wait(omniheap::Point { timeline, epoch }).expect("open");
        assert!(holds(device, sink, round), "round {round} of streams {own} and {other}");
        free(device, sink);
    }
}

#[test]
fn threads_and_streams_do_not_see_each_others_bytes() {
    let device = with_streams(3..=18);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let device = &device;
            scope.spawn(move || {
                // Each thread has another one, with a number of its own.
                device.manager.backend().create_stream(PER_THREAD);
                work(device, [PER_THREAD, 2 * thread + 3], 100);
                work(device, [2 * thread + 3, 2 * thread + 4], 100);
            });
        }
    });
}

#[test]
fn bytes_that_another_thread_frees_wait_for_its_stream_too() {
    let device = with_streams([PER_THREAD, 3]);
    let backend = device.manager.backend();
    let (x, sink) = (take(&device, 4 * MIB, PER_THREAD), take(&device, 4 * MIB, 3));
    fill(&device, x, PER_THREAD, 3);
    synchronize(&device);
    let there = || {
        backend.create_stream(PER_THREAD);
        free(&device, take(&device, MIB, PER_THREAD));
        let late = backend.host.hold(backend.timeline(PER_THREAD)).expect("open");
        copy(&device, x, sink, PER_THREAD);
        device.free_on(x, stream(PER_THREAD)).expect("it lives");
        late
    };
    let late = std::thread::scope(|scope| scope.spawn(there).join());
    let other = take(&device, 4 * MIB, PER_THREAD);
    assert_ne!(other, x, "the other thread's copy is still to come");
    fill(&device, other, PER_THREAD, 0);
    device.free_on(other, stream(PER_THREAD)).expect("it lives");
    assert_eq!(take(&device, 4 * MIB, PER_THREAD), other, "its own stream has it again at once");
    drop(late);
    synchronize(&device);
    assert!(holds(&device, sink, 3));
}

#[test]
fn a_thread_that_runs_ends_no_capture_of_another_ones_stream() {
    let device = with_streams([PER_THREAD]);
    let backend = device.manager.backend();
    backend.begin_capture_of(PER_THREAD, 5);
    let inside = take(&device, MIB, PER_THREAD);
    let there = || {
        backend.create_stream(PER_THREAD);
        take(&device, MIB, PER_THREAD)
    };
    let beside = std::thread::scope(|scope| scope.spawn(there).join()).expect("no panic");
    let held = backend.held();
    backend.end_capture_of(PER_THREAD);
    [inside, beside].into_iter().for_each(|address| free(&device, address));
    assert_eq!(held, 1, "the capture was under way");
}

#[test]
fn a_handle_that_comes_back_is_another_stream() {
    let device = with_streams([1]);
    let backend = device.manager.backend();
    let x = take(&device, 4 * MIB, 1);
    let old = backend.timeline(1);
    let late = backend.host.hold(old).expect("open");
    fill(&device, x, 1, 9);
    free(&device, x);
    backend.destroy_stream(1);
    backend.create_stream(1);
    let y = take(&device, 4 * MIB, 1);
    assert_ne!(x, y, "the earlier stream still has to fill it");
    assert_ne!(backend.timeline(1), old);
    drop(late);
    synchronize(&device);
    free(&device, y);
}

#[test]
fn streams_that_come_and_go_leave_little_behind() {
    let device = with_streams([]);
    let backend = device.manager.backend();
    let mut kept = Vec::new();
    for round in 0..100_u8 {
        backend.create_stream(5);
        let x = take(&device, MIB, 5);
        fill(&device, x, 5, round);
        if round % 10 == 0 {
            kept.push((x, round));
        } else {
            free(&device, x);
        }
        backend.destroy_stream(5);
        synchronize(&device);
    }
    assert!(backend.opened() <= 2, "{} timelines", backend.opened());
    assert!(reserved(&device) <= 24 * MIB, "{} bytes", reserved(&device));
    assert!(kept.iter().all(|(x, round)| holds(&device, *x, *round)));
    kept.into_iter().for_each(|(x, _)| free(&device, x));
}

#[test]
fn what_another_stream_used_is_had_again_once_that_has_passed() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let result = take(&device, 16, 2);
    let used = take(&device, 16, 1);
    let late = backend.host.hold(backend.timeline(2)).expect("open");
    copy(&device, used, result, 2);
    device.use_on(used, stream(2)).expect("it lives").expect("known");
    free(&device, used);
    let other = take(&device, 16, 1);
    assert_ne!(other, used, "the copy is still to come");
    drop(late);
    assert!(wait_for_all(&device.manager));
    assert_eq!(take(&device, 16, 1), used, "PyTorch's allocator gives the same bytes");
}

#[test]
fn bytes_of_no_stream_wait_for_all_of_them_and_are_out_of_use_on_each() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let unordered = || device.allocate_unordered(4 * MIB).expect("there is enough");
    let (x, sink) = (unordered(), take(&device, 4 * MIB, 2));
    fill(&device, x, 2, 3);
    synchronize(&device);
    let late = backend.host.hold(backend.timeline(2)).expect("open");
    copy(&device, x, sink, 2);
    free(&device, x);
    // Bytes that stream 1 freed may still be in use there, so requests without a stream do not get them.
    let own = take(&device, 4 * MIB, 1);
    fill(&device, own, 1, 9);
    free(&device, own);
    let others = [unordered(), unordered(), take(&device, 4 * MIB, 1)];
    assert!(!others.contains(&x) && !others[..2].contains(&own), "{x:x} {own:x} {others:x?}");
    others.iter().for_each(|other| fill(&device, *other, 1, 0));
    drop(late);
    synchronize(&device);
    assert!(holds(&device, sink, 3));
    others.into_iter().for_each(|other| free(&device, other));
    assert!(wait_for_all(&device.manager));
    let again = [unordered(), unordered(), unordered()];
    assert!(again.contains(&x), "{x:x} has passed: {again:x?}");
}

#[test]
fn bytes_that_one_stream_frees_wait_for_it_though_another_asked_for_them() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let (x, sink) = (take(&device, 4 * MIB, 1), take(&device, 4 * MIB, 2));
    fill(&device, x, 1, 3);
    synchronize(&device);
    let late = backend.host.hold(backend.timeline(2)).expect("open");
    copy(&device, x, sink, 2);
    device.free_on(x, stream(2)).expect("it lives");
    assert!(device.free_on(x, stream(2)).is_err_and(|line| line.contains("freed twice")));
    let other = take(&device, 4 * MIB, 1);
    assert_ne!(other, x, "the copy is still to come");
    device.free_on(other, stream(1)).expect("it lives");
    assert_eq!(take(&device, 4 * MIB, 1), other, "its own stream has it again at once");
    drop(late);
    synchronize(&device);
    assert!(holds(&device, sink, 3));
}

#[test]
fn a_shortage_of_those_who_name_no_stream_takes_what_graphs_that_are_gone_had() {
    let device = open(Some(24 * MIB));
    device.manager.backend().create_stream(1);
    let pool = PoolId { captured: 7, named: 0 };
    let inside = capture(&device, pool, 20 * MIB, 1);
    free(&device, inside);
    let full = device.allocate_unordered(20 * MIB).map_err(|error| error.kind());
    assert!(full.is_err_and(ErrorKind::is_out_of_memory), "the graph lives");
    device.release(pool);
    device.allocate_unordered(20 * MIB).expect("the graph is gone");
}

#[test]
fn what_outlives_its_stream_is_no_other_streams_order() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let (x, sink) = (take(&device, 4 * MIB, 1), take(&device, 4 * MIB, 2));
    fill(&device, x, 1, 3);
    synchronize(&device);
    for _ in 0..3 {
        backend.destroy_stream(1);
        backend.create_stream(1);
        free(&device, take(&device, MIB, 1));
    }
    let late = backend.host.hold(backend.timeline(2)).expect("open");
    copy(&device, x, sink, 2);
    free(&device, x);
    let other = take(&device, 4 * MIB, 1);
    assert_ne!(other, x, "the copy is still to come");
    fill(&device, other, 1, 0);
    drop(late);
    synchronize(&device);
    assert!(holds(&device, sink, 3));
}

#[test]
fn a_capture_that_nobody_announced_keeps_its_memory_while_its_graph_lives() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let outside = take(&device, MIB, 1);
    free(&device, outside);
    backend.begin_capture_of(1, 77);
    let inside = take(&device, MIB, 1);
    assert_ne!(inside, outside, "a graph has memory of its own");
    free(&device, inside);
    assert_eq!(take(&device, MIB, 1), inside, "in the capture's order it is free at once");
    assert_eq!(backend.held(), 1);
    // Marks and waits that would spoil the capture panic.
    let shared = take(&device, 64 * MIB, 2);
    device.use_on(shared, stream(1)).expect("it lives").expect("known");
    free(&device, shared);
    free(&device, take(&device, 64 * MIB, 2));
    device.trim().expect("it gives back what it can");
    backend.end_capture_of(1);
    free(&device, inside);
    let again = take(&device, MIB, 1);
    assert_ne!(again, inside, "the graph may run");
    assert_eq!(backend.held(), 0, "the stream runs again");
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 4 * MIB, "a page, and the graph's block");
    backend.destroy_graph(77);
    free(&device, again);
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 0);
}

#[test]
fn a_graph_that_is_gone_ends_its_capture_though_its_stream_never_comes_back() {
    let device = with_a_capture_of_a_stream_that_is_gone(5);
    let backend = device.manager.backend();
    free(&device, take(&device, MIB, 2));
    assert_eq!(backend.held(), 1, "nobody can know");
    backend.destroy_graph(5);
    free(&device, take(&device, MIB, 2));
    assert_eq!(backend.held(), 0);
}

/// Captures a graph that allocates; returns what lives in its pool.
fn capture(device: &Device<Scripted>, pool: PoolId, size: u64, handle: usize) -> u64 {
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    let inside = take(device, size, handle);
    device.end(pool);
    inside
}

/// The addresses that live in a pool; nothing where there is no such pool.
fn in_pool(device: &Device<Scripted>, pool: PoolId) -> Option<Vec<u64>> {
    device.checkpoint(pool).map(|saved| saved.iter().map(Saved::address).collect())
}

#[test]
fn memory_of_a_graph_goes_back_when_it_is_gone_and_its_replays_have_passed() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let pool = PoolId { captured: 1, named: 0 };
    device.hold(PoolId { captured: 0, named: 9 }, Split::Allowed); // Nothing was captured with it.
    free(&device, take(&device, MIB, 1));
    free(&device, take(&device, MIB, 2));
    let before = reserved(&device);
    let result = capture(&device, pool, 12 * MIB, 1);
    let replay = backend.host.hold(backend.timeline(2)).expect("open");
    device.release(pool);
    free(&device, result);
    free(&device, take(&device, MIB, 1));
    assert_eq!(reserved(&device), before + 12 * MIB, "a replay still runs");
    drop(replay);
    for _ in 0..8 {
        synchronize(&device); // Marks that a request sets are reached when the next one looks.
        free(&device, take(&device, MIB, 1));
    }
    assert_eq!(reserved(&device), before, "nobody asked for it");
}

#[test]
fn captures_that_follow_each_other_hold_the_memory_of_one() {
    let device = with_streams([1, 2]);
    free(&device, take(&device, MIB, 2));
    for round in 1..100 {
        let pool = PoolId { captured: round, named: 0 };
        let result = capture(&device, pool, 12 * MIB, 1);
        device.release(pool);
        free(&device, result);
        synchronize(&device);
        free(&device, take(&device, MIB, 2));
    }
    assert!(reserved(&device) <= 64 * MIB, "{} bytes", reserved(&device));
}

#[test]
fn memory_of_a_watched_graph_goes_back_once_the_driver_says_that_it_is_gone() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    free(&device, take(&device, MIB, 2));
    let before = reserved(&device);
    backend.begin_capture_of(1, 5);
    free(&device, take(&device, 12 * MIB, 1));
    backend.end_capture_of(1);
    device.end_capture(stream(1));
    let request = || free(&device, take(&device, MIB, 2));
    (0..200).for_each(|_| request());
    assert_eq!(reserved(&device), before + 12 * MIB, "the graph may run");
    backend.destroy_graph(5);
    synchronize(&device);
    (0..200).for_each(|_| request());
    assert_eq!(reserved(&device), before);
}

#[test]
fn a_capture_that_failed_holds_up_nobody() {
    let device = with_streams([1, 2]);
    let pool = PoolId { captured: 1, named: 0 };
    free(&device, take(&device, MIB, 1));
    let before = reserved(&device);
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    let inside = take(&device, 12 * MIB, 1);
    assert_eq!(device.users(pool), 1);
    std::thread::scope(|scope| scope.spawn(|| device.fail()).join().expect("no panic"));
    assert_eq!(device.users(pool), 1, "another thread began it");
    device.fail();
    device.fail();
    free(&device, inside);
    synchronize(&device);
    // Memory that another stream used comes back, and so does what was captured.
    for _ in 0..100 {
        let shared = take(&device, MIB, 1);
        device.use_on(shared, stream(2)).expect("it lives").expect("open");
        free(&device, shared);
        synchronize(&device);
    }
    assert!(reserved(&device) <= before + 4 * MIB, "{} bytes", reserved(&device));
}

#[test]
fn a_pool_goes_back_to_what_lived_in_it() {
    let device = with_streams([1, 2]);
    let pool = PoolId { captured: 1, named: 0 };
    let [first, second, large] = [700, 4096, 12 * MIB].map(|size| capture(&device, pool, size, 1));
    device.use_on(second, stream(2)).expect("it lives").expect("open");
    let other = capture(&device, PoolId { captured: 2, named: 0 }, 4096, 1);
    let trunk = device.checkpoint(pool).expect("it is there");
    let before = (device.segments(), device.stats().expect("figures")["live_bytes"].clone());
    free(&device, second);
    free(&device, first);
    let branch = capture(&device, pool, 9 * MIB, 1);
    assert_eq!(capture(&device, pool, 512, 1), first, "the graph's bytes are used again");
    let mut branches = vec![first, large, branch];
    branches.sort_unstable();
    assert_eq!(device.go_back(pool, &trunk).expect("all of it is there"), branches);
    assert_eq!(
        in_pool(&device, pool),
        Some({
            let mut lived = vec![first, second, large];
            lived.sort_unstable();
            lived
        })
    );
    let after = (device.segments(), device.stats().expect("figures")["live_bytes"].clone());
    assert_eq!(after.1, before.1);
    for segment in before.0.as_array().expect("a list") {
        let same = |other: &&Value| other["address"] == segment["address"];
        let found = after.0.as_array().expect("a list").iter().find(same).expect("it stays");
        assert_eq!(blocks_of(found), blocks_of(segment));
    }
    assert_eq!(capture(&device, pool, 9 * MIB, 1), branch, "a branch has the other one's bytes");
    let new = capture(&device, pool, 4096, 1);
    assert!(![first, second, large].contains(&new), "what lives again is nobody else's");
    [branch, new].into_iter().for_each(|address| free(&device, address));
    (0..device.users(pool)).for_each(|_| device.release(pool));
    assert_eq!(in_pool(&device, pool).map(|live| live.len()), Some(3), "what lives keeps its pool");
    [first, second, large, other].into_iter().for_each(|address| free(&device, address));
}

#[test]
fn a_pool_goes_back_whole_or_not_at_all() {
    let device = with_streams([1, 2]);
    let pools = [1, 2].map(|captured| PoolId { captured, named: 0 });
    let [first, second, third] = [MIB, MIB, 4096].map(|size| capture(&device, pools[0], size, 1));
    device.use_on(second, stream(2)).expect("it lives").expect("open");
    let other = capture(&device, pools[1], 12 * MIB, 1);
    let foreign = device.checkpoint(pools[1]).expect("it is there");
    let trunk = device.checkpoint(pools[0]).expect("it is there");
    free(&device, first);
    let lives = in_pool(&device, pools[0]);
    let figures =
        |device: &Device<Scripted>| device.stats().expect("figures")["live_bytes"].clone();
    let before = figures(&device);
    assert!(device.go_back(pools[0], &foreign).is_err(), "these bytes are another pool's");
    assert_eq!((in_pool(&device, pools[0]), figures(&device)), (lives, before));
    assert_eq!(capture(&device, pools[0], MIB, 1), first, "nothing was taken");
    // No graph uses the pool any more: what lives in it keeps it, and its empty blocks are gone.
    (0..device.users(pools[0])).for_each(|_| device.release(pools[0]));
    assert_eq!(device.go_back(pools[0], &trunk).expect("all is there").len(), 3);
    free(&device, third);
    let lives = in_pool(&device, pools[0]);
    assert!(device.go_back(pools[0], &trunk).is_err(), "the block of the third one is gone");
    assert_eq!(in_pool(&device, pools[0]), lives);
    [first, second].into_iter().for_each(|address| free(&device, address));
    assert!(device.go_back(pools[0], &trunk).is_err(), "the pool is gone");
    assert!(device.checkpoint(pools[0]).is_none());
    free(&device, other);
}

#[test]
fn empty_blocks_of_a_graph_that_is_gone_go_back_though_its_result_lives() {
    let device = with_streams([1, 2]);
    let pool = PoolId { captured: 1, named: 0 };
    [1, 2].into_iter().for_each(|handle| free(&device, take(&device, MIB, handle)));
    let before = reserved(&device);
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    let [work, result] = [12, 14].map(|size| take(&device, size * MIB, 1));
    device.end(pool);
    free(&device, work);
    let backend = device.manager.backend();
    let replay = backend.host.hold(backend.timeline(2)).expect("open");
    device.release(pool);
    let requests = || (0..8).for_each(|_| free(&device, take(&device, MIB, 1)));
    requests();
    assert_eq!(reserved(&device), before + 26 * MIB, "a replay still runs");
    drop(replay);
    synchronize(&device);
    requests();
    assert_eq!(reserved(&device), before + 14 * MIB);
    free(&device, result);
}

#[test]
fn a_graph_that_is_captured_in_turns_may_write_until_the_last_one_ends() {
    let device = with_streams([1]);
    let [graph, other] = [1, 2].map(|captured| PoolId { captured, named: 0 });
    free(&device, take(&device, MIB, 1));
    let before = reserved(&device);
    for _ in 0..2 {
        // SAFETY: without a filter, every stream belongs to the capture.
        unsafe { device.begin(graph, ptr::null_mut()) };
    }
    device.end(graph);
    let inside = capture(&device, other, 14 * MIB, 1);
    device.end(graph);
    free(&device, inside);
    device.release(other);
    let requests = || {
        synchronize(&device);
        (0..8).for_each(|_| free(&device, take(&device, MIB, 1)));
    };
    requests();
    assert_eq!(reserved(&device), before + 14 * MIB, "the graph was captured beside it");
    (0..2).for_each(|_| device.release(graph));
    requests();
    assert_eq!(reserved(&device), before);
}

#[test]
fn streams_join_a_capture_that_nobody_announced_and_end_it() {
    let device = with_streams([1, 2, 3]);
    let backend = device.manager.backend();
    [1, 2].into_iter().for_each(|handle| backend.begin_capture_of(handle, 7));
    let inside = [1, 2].map(|handle| take(&device, MIB, handle));
    assert_eq!(backend.held(), 1, "it is one capture");
    [1, 2].into_iter().for_each(|handle| backend.end_capture_of(handle));
    free(&device, take(&device, MIB, 3));
    assert_eq!(backend.held(), 1, "a stream that took no part says nothing");
    free(&device, take(&device, MIB, 2));
    assert_eq!(backend.held(), 0, "the one that joined runs again");
    // A capture that begins where another one was not seen to end.
    for id in [8, 9] {
        backend.begin_capture_of(1, id);
        free(&device, take(&device, MIB, 1));
        // Waits for a mark, which the capture holds back, and which would spoil the next one.
        let shared = take(&device, MIB, 2);
        device.use_on(shared, stream(3)).expect("it lives").expect("known");
        free(&device, shared);
        assert_eq!(backend.held(), 1);
        backend.end_capture_of(1);
    }
    inside.into_iter().for_each(|one| free(&device, one));
}

#[test]
fn a_trim_ends_a_capture_whose_graph_is_gone() {
    let device = with_a_capture_of_a_stream_that_is_gone(5);
    let backend = device.manager.backend();
    backend.destroy_graph(5);
    device.trim().expect("idle");
    assert_eq!((reserved(&device), backend.held()), (0, 0));
}

#[test]
fn a_shortage_forgets_a_capture_unless_it_is_the_captures_own() {
    let device = open(Some(16 * MIB));
    let backend = device.manager.backend();
    [1, 2, 3].into_iter().for_each(|handle| backend.create_stream(handle));
    backend.begin_capture_of(1, 5);
    free(&device, take(&device, MIB, 1));
    // SAFETY: the stream lives.
    let short = unsafe { device.allocate(64 * MIB, stream(1), Life::Unknown) };
    assert!(short.is_err());
    assert_eq!(backend.held(), 1, "it goes on");
    backend.end_capture_of(1);
    backend.destroy_stream(1);
    let shared = take(&device, 12 * MIB, 2);
    device.use_on(shared, stream(3)).expect("it lives").expect("known");
    free(&device, shared);
    free(&device, take(&device, 12 * MIB, 3));
    assert_eq!(backend.held(), 0, "bytes that wait for all streams cannot wait for a capture");
}

#[test]
fn a_timeline_that_has_another_stream_is_that_streams_own() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    free(&device, take(&device, MIB, 2));
    for _ in 0..3 {
        free(&device, take(&device, MIB, 1));
        synchronize(&device);
        backend.destroy_stream(1);
        backend.create_stream(1);
    }
    let (first, second) = (take(&device, 4096, 1), take(&device, 4096, 1));
    assert!(backend.opened() <= 3, "timelines are used again");
    let _late = backend.host.hold(backend.timeline(2)).expect("open");
    free(&device, second);
    assert_eq!(take(&device, 4096, 1), second, "its own order is enough");
    device.use_on(first, stream(1)).expect("it lives").expect("known");
    free(&device, first);
    assert_eq!(take(&device, 4096, 1), first, "its own use is in that order");
}

#[test]
fn a_device_without_pages_has_blocks() {
    let settings = Settings { backend: BackendKind::Host, limit: Some(64 * MIB), paged: false };
    let device = Device::<Scripted>::open(0, &settings).expect("host memory");
    let is_paged = |device: &Device<Scripted>| device.stats().expect("figures")["paged"].clone();
    assert_eq!((is_paged(&device), is_paged(&open(None))), (json!(false), json!(true)));
    device.manager.backend().create_stream(1);
    let held = [24, 8].map(|size| take(&device, size * MIB, 1));
    let rest = 64 * MIB - reserved(&device);
    let hole = device.stats().expect("figures")["largest_hole"].as_u64();
    assert_eq!(Some(device.largest()), hole.map(|hole| hole.max(rest)), "one or the other");
    held.into_iter().for_each(|one| free(&device, one));
}

#[test]
fn memory_of_a_graph_that_is_gone_stays_while_a_graph_may_write_into_it() {
    let device = with_streams([1]);
    let (first, second) = (PoolId { captured: 1, named: 0 }, PoolId { captured: 2, named: 0 });
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(first, ptr::null_mut()) };
    let b = take(&device, MIB, 1);
    device.end(first);
    device.release(first);
    // The second capture writes into what the first one left, and lets it go.
    // SAFETY: as above.
    unsafe { device.begin(second, ptr::null_mut()) };
    free(&device, b);
    let own = take(&device, MIB, 1);
    device.end(second);
    let with_both = reserved(&device);
    free(&device, take(&device, MIB, 1));
    assert!(reserved(&device) >= with_both, "a replay of the second would write into nothing");
    device.trim().expect("idle");
    assert!(reserved(&device) < with_both, "now it was asked for");
    free(&device, own);
    device.release(second);
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 0);
}

#[test]
fn memory_that_a_second_graph_wrote_into_goes_back_with_it() {
    let device = with_streams([1]);
    let [first, second, third] = [1, 2, 3].map(|captured| PoolId { captured, named: 0 });
    free(&device, take(&device, MIB, 1));
    let before = reserved(&device);
    let inside = [(first, 12), (second, 14), (third, 16)]
        .map(|(pool, size)| capture(&device, pool, size * MIB, 1));
    device.release(first);
    inside.into_iter().for_each(|one| free(&device, one));
    let requests = || (0..8).for_each(|_| free(&device, take(&device, MIB, 1)));
    requests();
    assert_eq!(reserved(&device), before + 42 * MIB, "two graphs may write into it");
    device.release(second);
    requests();
    assert_eq!(reserved(&device), before + 42 * MIB, "one may, and into the second one's too");
    device.release(third);
    synchronize(&device);
    requests();
    assert_eq!(reserved(&device), before);
}

#[test]
fn a_shortage_takes_what_graphs_that_are_gone_had() {
    let device = open(Some(16 * MIB));
    device.manager.backend().create_stream(1);
    let pool = PoolId { captured: 1, named: 0 };
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    let inside = take(&device, 12 * MIB, 1);
    device.end(pool);
    free(&device, inside);
    device.release(pool);
    free(&device, take(&device, 14 * MIB, 1));
    assert_eq!(device.meter.failures.load(core::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn blocks_of_a_graph_that_is_gone_go_back_though_something_lives_in_another() {
    let device = with_streams([1]);
    let pool = PoolId { captured: 1, named: 0 };
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    let [a, b, c] = [1, 2, 3].map(|_| take(&device, MIB, 1));
    let large = take(&device, 3 * MIB, 1);
    device.end(pool);
    let held = |class| {
        let Stock { blocks, bytes, used } = device.graphs.held(class);
        (blocks, bytes, used)
    };
    assert_eq!(held(SizeClass::Small), (2, 4 * MIB, 3 * MIB), "PyTorch's segments");
    assert_eq!(held(SizeClass::Large), (1, 20 * MIB, 3 * MIB));
    [a, b, large].into_iter().for_each(|one| free(&device, one));
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 24 * MIB, "the graph may run");
    device.release(pool);
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 2 * MIB);
    let pools = &device.stats().expect("it is there")["pools"];
    let figures = |pool: &str, name: &str| pools[pool][name].as_u64();
    assert_eq!(figures("small_pool", "segments"), Some(1));
    assert_eq!(figures("small_pool", "reserved_bytes"), Some(2 * MIB));
    assert_eq!(figures("small_pool", "live"), Some(1));
    assert_eq!((figures("large_pool", "live"), figures("large_pool", "freed")), (Some(0), Some(1)));
    assert_eq!(figures("large_pool", "reserved_bytes"), Some(0));
    free(&device, c);
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 0);
}

#[test]
fn a_graph_is_content_with_less_where_memory_is_short() {
    let device = open(Some(8 * MIB));
    device.manager.backend().create_stream(1);
    let pool = PoolId { captured: 1, named: 0 };
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    take(&device, 3 * MIB, 1);
    device.end(pool);
    assert_eq!(device.graphs.held(SizeClass::Large).bytes, 4 * MIB);
}

#[test]
fn requests_of_a_pool_that_is_never_split_have_blocks_of_their_own() {
    let device = with_streams([1]);
    let pools = [(1, Split::Allowed, 1), (2, Split::Never, 2)];
    for (named, split, blocks) in pools {
        let pool = PoolId { captured: 0, named };
        device.hold(pool, split);
        // SAFETY: without a filter, every stream belongs to the capture.
        unsafe { device.begin(pool, ptr::null_mut()) };
        assert_eq!(device.users(pool), 2);
        let held = [4 * MIB, 5 * MIB].map(|size| take(&device, size, 1));
        device.end(pool);
        device.release(pool);
        assert_eq!(device.users(pool), 1);
        assert_eq!(device.graphs.held(SizeClass::Large).blocks, blocks);
        let shown = device.segments();
        let of_pool = |one: &&Value| one["segment_pool_id"] == json!([0, named]);
        let segments: Vec<_> = shown.as_array().expect("a list").iter().filter(of_pool).collect();
        assert_eq!(segments.len() as u64, blocks);
        let whole = segments.iter().all(|segment| blocks_of(segment).len() == 1);
        assert_eq!(whole, split == Split::Never, "{shown}");
        held.into_iter().for_each(|one| free(&device, one));
        device.release(pool);
        assert_eq!(device.users(pool), 0);
        device.trim().expect("idle");
    }
}

#[test]
fn small_requests_count_for_the_pages_that_they_fill() {
    let device = with_streams([1]);
    let reserved_by = |pool: &str| {
        let stats = device.stats().expect("it is there");
        stats["pools"][pool]["reserved_bytes"].as_u64().expect("a number")
    };
    let large = take(&device, 10 * MIB, 1);
    assert_eq!((reserved_by("small_pool"), reserved_by("large_pool")), (0, 10 * MIB));
    let small = take(&device, 77, 1);
    assert_eq!((reserved_by("small_pool"), reserved_by("large_pool")), (2 * MIB, 10 * MIB));
    [large, small].into_iter().for_each(|one| free(&device, one));
}

/// Addresses, sizes and states of the blocks of a segment.
fn blocks_of(segment: &Value) -> Vec<(u64, u64, &str)> {
    let number = |block: &Value, key: &str| block[key].as_u64().expect("a number");
    let blocks = segment["blocks"].as_array().expect("a list").iter();
    let shown = |block: &'_ Value| (number(block, "address"), number(block, "size"));
    let states = blocks.clone().map(|block| block["state"].as_str().expect("a text"));
    blocks.map(shown).zip(states).map(|((address, size), state)| (address, size, state)).collect()
}

#[test]
fn a_snapshot_shows_the_pools_of_captures_and_what_lies_in_them() {
    let device = with_streams([1, 2]);
    let outside = take(&device, MIB, 2);
    let pool = PoolId { captured: 7, named: 8 };
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { device.begin(pool, ptr::null_mut()) };
    let [first, second, third] = [100, 200, 300].map(|size| take(&device, size, 1));
    device.end(pool);
    free(&device, second);
    let shown = device.segments();
    let segments = shown.as_array().expect("a list");
    let total: u64 = segments.iter().filter_map(|one| one["total_size"].as_u64()).sum();
    assert_eq!(total, reserved(&device));
    let of = |pool: [u64; 2]| segments.iter().find(|one| one["segment_pool_id"] == json!(pool));
    let captured = of([7, 8]).expect("the capture has memory");
    let (live, free_state) = ("active_allocated", "inactive");
    let rest = third + UNIT;
    let expected = [
        (first, UNIT, live),
        (second, UNIT, free_state),
        (third, UNIT, live),
        (rest, first + 2 * MIB - rest, free_state),
    ];
    assert_eq!(blocks_of(captured), expected);
    assert_eq!(captured["requested_size"], 400);
    let plain = of([0, 0]).expect("others have memory");
    assert!(blocks_of(plain).contains(&(outside, MIB, live)));
    assert_eq!(plain["stream"], 2);
    // Memory of a graph that is gone is nobody's.
    [first, third].into_iter().for_each(|one| free(&device, one));
    device.release(pool);
    let shown = device.segments();
    let owned = |one: &Value| one["segment_pool_id"] == json!([7, 8]);
    assert!(!shown.as_array().expect("a list").iter().any(owned));
}

#[test]
fn blocks_that_are_empty_are_shown_where_they_were_seen_before() {
    let device = with_streams([1]);
    let held = take(&device, MIB, 1);
    let before = device.segments();
    free(&device, held);
    synchronize(&device);
    device.manager.retire().expect("idle");
    let after = device.segments();
    assert_eq!(before[0]["address"], after[0]["address"]);
    assert_eq!((&before[0]["allocated_size"], &after[0]["active_size"]), (&json!(MIB), &json!(0)));
}

#[test]
fn pieces_of_a_segment_lie_side_by_side_where_the_program_has_them() {
    let device = with_streams([1]);
    let held = [300, MIB, 5000, 3 * MIB, 700].map(|size| take(&device, size, 1));
    [held[1], held[3]].into_iter().for_each(|one| free(&device, one));
    synchronize(&device);
    device.manager.retire().expect("idle");
    let shown = device.segments();
    let mut found = Vec::new();
    for segment in shown.as_array().expect("a list") {
        let number = |key: &str| segment[key].as_u64().expect("a number");
        let mut at = number("address");
        for (address, size, state) in blocks_of(segment) {
            assert_eq!(address, at, "{segment}");
            at += size;
            found.extend((state == "active_allocated").then_some((address, size)));
        }
        assert_eq!(at, number("address") + number("total_size"));
    }
    found.sort_unstable();
    let mut expected = vec![(held[0], UNIT), (held[2], 10 * UNIT), (held[4], 2 * UNIT)];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn a_block_is_found_by_one_allocation_of_any_size() {
    for (handle, size) in [(1, 1), (2, 511), (3, 777 * 333 * 4), (4, 5 * MIB + 1)] {
        let device = with_streams([handle]);
        let held = take(&device, size, handle);
        let shown = device.segments();
        let expected = (held, size.next_multiple_of(UNIT), "active_allocated");
        assert!(blocks_of(&shown[0]).contains(&expected), "{size}: {shown}");
        free(&device, held);
    }
}

#[test]
fn a_workspace_may_have_what_is_free_here_and_what_may_be_taken() {
    let device = open(Some(16 * MIB));
    device.manager.backend().create_stream(1);
    assert_eq!(device.largest(), 16 * MIB);
    let held = [2, 4, 2].map(|size| take(&device, size * MIB, 1));
    assert_eq!(device.largest(), 8 * MIB);
    free(&device, held[1]);
    assert_eq!(device.largest(), 12 * MIB, "free pages are mapped beside new ones");
    let workspace = take(&device, 12 * MIB, 1);
    assert_eq!(device.largest(), 0);
    [held[0], held[2], workspace].into_iter().for_each(|one| free(&device, one));
}

#[test]
fn nobody_notices_a_write_a_little_behind_the_end() {
    let device = with_streams([1]);
    let held: Vec<u64> = (1..300).map(|size| take(&device, size, 1)).collect();
    let mut units: Vec<u64> = held.iter().map(|address| address / UNIT).collect();
    assert!(held.iter().all(|address| address.is_multiple_of(UNIT)));
    units.sort_unstable();
    units.dedup();
    assert_eq!(units.len(), held.len());
}

#[test]
fn a_capture_that_cupy_announces_holds_marks_until_it_says_that_it_ended() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    device.begin_capture(stream(1));
    backend.begin_capture_of(1, 3);
    assert_eq!(backend.held(), 1, "before anything is allocated in it");
    let shared = take(&device, 64 * MIB, 2);
    device.use_on(shared, stream(1)).expect("it lives").expect("known");
    free(&device, shared);
    free(&device, take(&device, MIB, 1));
    assert_eq!(backend.held(), 1, "it is the one that was announced");
    backend.end_capture_of(1);
    device.end_capture(stream(1));
    device.end_capture(stream(1));
    assert_eq!(backend.held(), 0);
}

#[test]
fn requests_are_served_beside_a_long_capture() {
    let device = with_streams([1, 2, 3]);
    let backend = device.manager.backend();
    // The most that lives at a time, so that holding much more would be waste.
    free(&device, take(&device, 32 * MIB, 2));
    device.begin_capture(stream(1));
    backend.begin_capture_of(1, 3);
    for round in 0..40_u64 {
        let shared = take(&device, (round % 7 + 1) * 4 * MIB, 2);
        device.use_on(shared, stream(3)).expect("it lives").expect("known");
        free(&device, shared);
    }
    backend.end_capture_of(1);
    device.end_capture(stream(1));
    device.trim().expect("idle");
    assert_eq!(reserved(&device), 0);
}

#[test]
fn bytes_are_written_as_pytorch_writes_them() {
    let table = [
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (20 * MIB, "20.00 MiB"),
        (1 << 30, "1024.00 MiB"),
        (5 << 29, "2.50 GiB"),
    ];
    for (bytes, shown) in table {
        assert_eq!(human(bytes), shown);
    }
}

#[test]
fn only_what_less_would_help_is_out_of_memory() {
    let device = open(None);
    for kind in ErrorKind::ALL {
        let line = device.explain(4096, &kind.into());
        let is_short = matches!(
            kind,
            ErrorKind::OutOfDeviceMemory
                | ErrorKind::Fragmented
                | ErrorKind::OverBudget
                | ErrorKind::ExceedsLimit
                | ErrorKind::SizeOverflow
        );
        let begin =
            if is_short { "scripted out of memory. Tried" } else { "omniheap: scripted device 0" };
        assert!(line.starts_with(begin), "{kind:?}: {line}");
        assert!(line.contains(kind.sentence()), "{kind:?}: {line}");
        assert_eq!(is_shortage(kind), is_short, "{kind:?}");
    }
}
