//! O: threads.
use super::{assert_disjoint, take};
use crate::case::Case;
use crate::rng::Rng;
use crate::run::PATIENCE;
use crate::world::{Stack, World, check_stamp, write_stamp};
use core::time::Duration;
use omniheap_core::{Allocation, Backend, Binding, Buffer, Manager, Mapped, Request, UserPool};
use omniheap_layers::{CallKind, Plan};
use std::sync::mpsc;
use std::thread;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        many_threads_keep_their_bytes proves [118] needs [Transfer];
        one_thread_frees_what_another_allocated proves [119] needs [];
        a_slow_free_corrupts_nothing proves [120] needs [];
        no_lock_is_held_over_a_driver_call proves [121] needs [];
        a_callback_may_come_back_in proves [121] needs [];
        thousands_of_short_threads_leave_nothing proves [122] needs [];
        what_crosses_threads_may_and_what_borrows_does proves [123] needs [];
    }
}

fn many<B: Backend + 'static>(world: &World<B>) -> (Stack<B>, Manager<Stack<B>>) {
    let stack = world.stack();
    let mut config = world.config();
    config.pool.lanes = Some(8);
    let manager = world.manager_with(&stack, config);
    (stack, manager)
}

fn many_threads_keep_their_bytes<B: Backend + 'static>(world: &World<B>) {
    let (_, manager) = many(world);
    let work = |id: u64| {
        let mut rng = Rng::new(id);
        let mut live: Vec<(u64, Allocation<Stack<B>>)> = Vec::new();
        for step in 0..40 {
            let stamp = id << 32 | step;
            let request = Request::new(world.whole(rng.size(20_000)));
            let one = take(&manager, &if step % 16 == 0 { request.dedicated() } else { request });
            write_stamp(&one, stamp);
            live.push((stamp, one));
            if rng.below(3) == 0 {
                let (stamp, one) = live.swap_remove(rng.index(live.len()));
                check_stamp(&one, stamp);
            }
            if step % 20 == 19 {
                manager.trim().expect("alive");
                manager.validate().expect("sound");
            }
        }
        live.iter().for_each(|(stamp, one)| check_stamp(one, *stamp));
    };
    let threads = if cfg!(debug_assertions) { 8 } else { 32 };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|id| scope.spawn(move || work(id))).collect();
        running.into_iter().for_each(|one| one.join().expect("no panic"));
    });
}

fn one_thread_frees_what_another_allocated<B: Backend + 'static>(world: &World<B>) {
    let (_, manager) = many(world);
    let pairs = if cfg!(debug_assertions) { 5_000 } else { 25_000 };
    thread::scope(|scope| {
        for lane in 0..4u64 {
            let (send, receive) = mpsc::sync_channel(64);
            let manager = &manager;
            scope.spawn(move || {
                for n in 0..pairs {
                    send.send(take(manager, &Request::new(1 + (n * 37 + lane) % 5000)))
                        .expect("listening");
                }
            });
            scope.spawn(move || receive.into_iter().for_each(Allocation::free));
        }
    });
    let totals = manager.totals();
    assert_eq!((totals.live, totals.allocated, totals.freed), (0, 4 * pairs, 4 * pairs));
}

fn a_slow_free_corrupts_nothing<B: Backend + 'static>(world: &World<B>) {
    let (stack, manager) = many(world);
    stack.inject(Plan::Delay(CallKind::Free, Duration::from_millis(2)), 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..15 {
                    drop(take(&manager, &Request::new(100_000).dedicated()));
                }
            });
        }
    });
    stack.inject(Plan::Never, 0);
    let calls = stack.inner().calls();
    assert_eq!((calls.of(CallKind::Allocate), calls.of(CallKind::Free)), (60, 60));
    assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (0, 0));
}

fn no_lock_is_held_over_a_driver_call<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let first = take(&manager, &Request::new(1 << 20));
    let _room = take(&manager, &Request::new(4096));
    first.free();
    let stopped = stack.inner().inner().inner().hooks().stop(CallKind::Allocate);
    thread::scope(|scope| {
        let slow = scope.spawn(|| take(&manager, &Request::new(4096).dedicated()));
        stopped.arrived();
        let (done, told) = mpsc::channel();
        let manager = &manager;
        let others = scope.spawn(move || {
            let held: Vec<_> = (0..50).map(|_| take(manager, &Request::new(512))).collect();
            assert_disjoint(&held);
            drop(held);
            let _seen = (manager.report(), manager.totals(), manager.retire(), manager.validate());
            done.send(()).expect("listening");
        });
        let answer = told.recv_timeout(PATIENCE);
        drop(stopped);
        others.join().expect("no panic");
        drop(slow.join().expect("no panic"));
        answer.expect("everything else went on while the driver was slow");
    });
}

fn a_callback_may_come_back_in<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(8 << 20, u64::MAX);
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let (live, full) = super::fill_up(&manager, &Request::new(1 << 20).heap(heap));
    assert!(full.is_out_of_memory(), "it fills up and does not fail: {full:?}");
    let (tell, told) = mpsc::channel();
    let weak = {
        let manager = manager.clone();
        std::sync::Mutex::new(Some(manager))
    };
    manager.on_pressure(move |_| {
        // Taken out, so that the manager does not keep itself alive.
        let Some(manager) = weak.lock().expect("no panic").take() else {
            return omniheap_core::Relief::Nothing;
        };
        let inside = (manager.report().totals.live, manager.trim().is_ok(), manager.validate());
        let nested = manager.allocate(&Request::new(256)).is_ok();
        tell.send((inside, nested)).expect("listening");
        omniheap_core::Relief::Nothing
    });
    let why = super::kind(manager.allocate(&Request::new(6 << 20).heap(heap)));
    assert!(why.is_out_of_memory());
    let ((live_inside, trimmed, sound), _) = told.try_recv().expect("called before it failed");
    assert_eq!((live_inside, trimmed, sound), (live.len() as u64, true, Ok(())));
}

fn thousands_of_short_threads_leave_nothing<B: Backend + 'static>(world: &World<B>) {
    let (stack, manager) = many(world);
    let rounds = if cfg!(debug_assertions) { 100 } else { 500 };
    for _ in 0..rounds {
        thread::scope(|scope| {
            for n in 0..20 {
                let manager = &manager;
                scope.spawn(move || drop(take(manager, &Request::new(1000 + n))));
            }
        });
        // At most a small block for each thread that lived at the same time, however many there were in all.
        assert!(stack.inner().live().bytes() <= 20 * (4 << 20), "{:?}", stack.inner().live());
    }
    assert_eq!(manager.totals().live, 0);
}

/// Ownership that does not hold does not compile; these are the other half, which must.
///
/// ```compile_fail
/// // A binding cannot outlive its allocation.
/// fn keep<B: omniheap_core::Backend>(one: omniheap_core::Allocation<B>) {
///     let binding = one.binding();
///     one.free();
///     let _ = binding.span();
/// }
/// ```
fn what_crosses_threads_may_and_what_borrows_does<B: Backend + 'static>(_: &World<B>) {
    fn send_and_sync<T: Send + Sync>() {}
    fn send<T: Send>() {}
    send_and_sync::<Manager<Stack<B>>>();
    send_and_sync::<Allocation<Stack<B>>>();
    send_and_sync::<Buffer<f32, Stack<B>>>();
    send_and_sync::<UserPool<Stack<B>>>();
    send_and_sync::<Binding<'static, Stack<B>>>();
    send::<Mapped<'static, Stack<B>>>();
}
