//! Queues beside each other.
use crate::rig::{MAIN, Rig, at, first, pattern, read, transfer, write};
use omniheap_core::{Backend, Epoch, ErrorKind, Move, Point, TimelineId};
use omniheap_vulkan::Vulkan;

crate::cases! {
    order_holds_between_two_timelines if |_| true;
    marks_grow_and_are_reached if |_| true;
    a_closed_timeline_is_gone if |_| true;
    a_wait_outlives_the_timeline_it_waited_for if |_| true;
    an_unmarked_epoch_is_refused if |_| true;
    threads_use_their_own_timelines if |_| true;
    threads_share_one_timeline if |_| true;
    every_family_copies if |v| v.families().len() > 1;
    the_engine_submits_between_our_work if |_| true;
    a_mark_covers_what_its_timeline_was_ordered_after if |_| true;
    an_idle_device_has_passed_every_mark if |_| true;
}

fn point(vulkan: &Vulkan, timeline: TimelineId) -> Point {
    let epoch = vulkan.as_timelines().expect("always").mark(timeline).expect("an open timeline");
    Point { timeline, epoch }
}

fn order_holds_between_two_timelines(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let (a, b) = (times.open().unwrap(), times.open().unwrap());
    let heap = first(&vulkan);
    let (left, right) =
        (vulkan.allocate(heap, 65536).unwrap(), vulkan.allocate(heap, 65536).unwrap());
    for round in 0..100 {
        let bytes = pattern(round, 65536);
        transfer(&vulkan).write(a, at(&left, 0), &bytes).unwrap();
        times.order(b, point(&vulkan, a)).unwrap();
        let step = Move { from: at(&left, 0), to: at(&right, 0), size: 65536 };
        transfer(&vulkan).copy(b, &[step]).unwrap();
        times.order(a, point(&vulkan, b)).unwrap();
        let mut seen = vec![0; 65536];
        transfer(&vulkan).read(a, at(&right, 0), &mut seen).unwrap();
        assert!(seen == bytes, "round {round}");
        times.order(a, point(&vulkan, b)).unwrap();
    }
}

fn marks_grow_and_are_reached(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    assert!(times.reached(MAIN).unwrap() >= Epoch::START);
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    let mut last = times.mark(MAIN).unwrap();
    for n in 0..50 {
        write(&vulkan, &block, 0, &[n; 100]);
        let mark = times.mark(MAIN).unwrap();
        assert!(mark > last, "a write moves the mark");
        assert_eq!(times.mark(MAIN).unwrap(), mark, "nothing happened since");
        last = mark;
    }
    times.wait(Point { timeline: MAIN, epoch: last }).unwrap();
    assert!(times.reached(MAIN).unwrap() >= last);
}

fn a_closed_timeline_is_gone(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let extra = times.open().unwrap();
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    transfer(&vulkan).write(extra, at(&block, 0), b"last words").unwrap();
    let epoch = times.mark(extra).unwrap();
    times.close(extra).unwrap();
    assert_eq!(read(&vulkan, &block, 0, 10), b"last words", "closing waited");
    let gone = ErrorKind::NoSuchTimeline;
    assert_eq!(times.mark(extra).unwrap_err().kind(), gone);
    assert_eq!(times.reached(extra).unwrap_err().kind(), gone);
    assert_eq!(times.wait(Point { timeline: extra, epoch }).unwrap_err().kind(), gone);
    assert_eq!(times.close(extra).unwrap_err().kind(), gone);
    assert_eq!(transfer(&vulkan).write(extra, at(&block, 0), b"x").unwrap_err().kind(), gone);
    assert_eq!(times.close(MAIN).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_ne!(times.open().unwrap(), extra, "ids are not used again");
}

fn a_wait_outlives_the_timeline_it_waited_for(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let extra = times.open().unwrap();
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    transfer(&vulkan).write(extra, at(&block, 0), &[3; 64]).unwrap();
    times.order(MAIN, point(&vulkan, extra)).unwrap();
    times.close(extra).unwrap();
    assert_eq!(read(&vulkan, &block, 0, 64), [3; 64]);
}

fn an_unmarked_epoch_is_refused(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let never = Point { timeline: MAIN, epoch: Epoch(u64::MAX) };
    assert_eq!(times.wait(never).unwrap_err().kind(), ErrorKind::NoSuchTimeline);
    let extra = times.open().unwrap();
    assert_eq!(times.order(extra, never).unwrap_err().kind(), ErrorKind::NoSuchTimeline);
}

fn threads_use_their_own_timelines(rig: &Rig) {
    let vulkan = rig.open();
    std::thread::scope(|scope| {
        for thread in 0u64..4 {
            let vulkan = &vulkan;
            scope.spawn(move || {
                let line = vulkan.as_timelines().expect("always").open().unwrap();
                for round in 0..50 {
                    let block = vulkan.allocate(first(vulkan), 10_000).unwrap();
                    let bytes = pattern(thread * 1000 + round, 10_000);
                    transfer(vulkan).write(line, at(&block, 0), &bytes).unwrap();
                    let mut seen = vec![0; 10_000];
                    transfer(vulkan).read(line, at(&block, 0), &mut seen).unwrap();
                    assert!(seen == bytes);
                }
            });
        }
    });
}

fn threads_share_one_timeline(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 4 * 100_000).unwrap();
    std::thread::scope(|scope| {
        for thread in 0u64..4 {
            let (vulkan, block) = (&vulkan, &block);
            scope.spawn(move || {
                for round in 0..20 {
                    let bytes = pattern(thread * 31 + round, 100_000);
                    write(vulkan, block, thread * 100_000, &bytes);
                    assert!(read(vulkan, block, thread * 100_000, 100_000) == bytes);
                }
            });
        }
    });
}

fn every_family_copies(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    for (n, family) in (1u8..).zip(vulkan.families()) {
        let line = vulkan.open_timeline_on(*family).expect("the family is in use");
        transfer(&vulkan).write(line, at(&block, 0), &[n; 100]).unwrap();
        transfer(&vulkan).fill(line, at(&block, 1), 9, !n).unwrap();
        vulkan.as_timelines().expect("always").order(MAIN, point(&vulkan, line)).unwrap();
        let seen = read(&vulkan, &block, 0, 100);
        assert_eq!((seen[0], seen[1], seen[9], seen[10]), (n, !n, !n, n));
    }
}

#[expect(unsafe_code, reason = "submits to a queue, as an engine does")]
fn the_engine_submits_between_our_work(rig: &Rig) {
    use omniheap_vulkan::ash::vk;
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let before = times.mark(MAIN).unwrap();
    let submitted = vulkan.with_queue(MAIN, |queue, _family| {
        let nothing = [vk::SubmitInfo::default()];
        // SAFETY: an empty batch on the queue that `with_queue` holds for us.
        unsafe { vulkan.ash_device().queue_submit(queue, &nothing, vk::Fence::null()) }
    });
    submitted.unwrap().unwrap();
    let after = times.mark(MAIN).unwrap();
    assert!(after > before, "the mark covers the engine's batch");
    times.wait(Point { timeline: MAIN, epoch: after }).unwrap();
    let gone = vulkan.with_queue(TimelineId(77), |_, _| ()).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NoSuchTimeline);
}

/// Enough work that it is not done when the host looks.
fn busy(vulkan: &Vulkan, on: TimelineId) -> Point {
    let (heap, size) = (first(vulkan), 16 << 20);
    let (left, right) =
        (vulkan.allocate(heap, size).unwrap(), vulkan.allocate(heap, size).unwrap());
    for _ in 0..4 {
        let step = Move { from: at(&left, 0), to: at(&right, 0), size };
        transfer(vulkan).copy(on, &[step]).unwrap();
    }
    // Dropping the blocks would wait for the device.
    core::mem::forget((left, right));
    point(vulkan, on)
}

fn a_mark_covers_what_its_timeline_was_ordered_after(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let lines = [MAIN, times.open().unwrap(), times.open().unwrap(), times.open().unwrap()];
    for (a, b) in lines.iter().flat_map(|a| lines.map(|b| (*a, b))).filter(|(a, b)| a != b) {
        let work = busy(&vulkan, a);
        times.order(b, work).unwrap();
        let after = point(&vulkan, b);
        times.wait(after).unwrap();
        assert!(times.reached(a).unwrap() >= work.epoch, "{b:?} went past {a:?}");
    }
}

fn an_idle_device_has_passed_every_mark(rig: &Rig) {
    let vulkan = rig.open();
    let times = vulkan.as_timelines().expect("always");
    let lines = [MAIN, times.open().unwrap(), times.open().unwrap()];
    for _ in 0..3 {
        let work = lines.map(|line| busy(&vulkan, line));
        vulkan.wait_idle().unwrap();
        let passed = |work: Point| times.reached(work.timeline).unwrap() >= work.epoch;
        assert!(work.into_iter().all(passed));
        vulkan.wait_idle().unwrap();
    }
}
