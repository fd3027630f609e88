//! Threads that spill, use and free, while another calls back, defragments and aborts: no byte is lost, on host memory.
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{
    Allocation, Backend, Budget, HeapId, HeapKind, Manager, ManagerConfig, Pass, Request,
    TimelineId,
};
use omniheap_host::{Host, heap};

const KIB: u64 = 1 << 10;
const NEAR: HeapId = HeapId(0);
const FAR: HeapId = HeapId(1);
/// Much less than the threads hold together.
const NEAR_ROOM: u64 = 4 << 20;
const FAR_ROOM: u64 = 64 << 20;

fn manager(paged: bool, with_guards: bool) -> Manager<Host> {
    let near = heap(HeapKind::Device, NEAR_ROOM);
    let far = heap(HeapKind::Staging, FAR_ROOM).physical(1);
    let host = Host::builder().heap(near).heap(far).open().expect("a host device");
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(2);
    let config = if with_guards { config.guarded() } else { config };
    Manager::with_config(host, if paged { config } else { config.plain() })
}

fn number(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *seed >> 33
}

#[track_caller]
fn check(one: &Allocation<Host>, byte: u8) {
    let mut found = vec![!byte; usize::try_from(one.size()).expect("small")];
    one.read(0, &mut found).expect("in range");
    assert!(found.iter().all(|found| *found == byte), "another's bytes");
}

type Live = Vec<(u8, Allocation<Host>)>;

fn work(manager: &Manager<Host>, thread: u64, operations: u64) -> Live {
    let (mut seed, mut live): (u64, Live) = (thread, Vec::new());
    for _ in 0..operations {
        let pick = number(&mut seed);
        let at = usize::try_from(number(&mut seed)).expect("small") % live.len().max(1);
        match pick % 8 {
            0..4 if live.len() < 60 => {
                let request = Request::new((1 + number(&mut seed) % 200) * KIB).may_spill();
                let request = if pick & 8 == 0 { request } else { request.on(TimelineId::MAIN) };
                let one = manager.allocate(&request).expect("the far heap has room");
                let byte = u8::try_from(number(&mut seed) % 251).expect("small");
                one.fill(0, one.size(), byte).expect("in range");
                live.push((byte, one));
            }
            4 if !live.is_empty() => {
                let byte = live[at].0.wrapping_add(1);
                live[at].1.fill(0, live[at].1.size(), byte).expect("in range");
                live[at].0 = byte;
            }
            5 if !live.is_empty() => live[at].1.set_name("renamed"),
            _ if !live.is_empty() => {
                let (byte, one) = live.swap_remove(at);
                check(&one, byte);
            }
            _ => {}
        }
    }
    live
}

/// Calls back, aborts and defragments until it is told to stop.
fn stir(manager: &Manager<Host>, stop: &AtomicBool) {
    for round in 0.. {
        if stop.load(Relaxed) {
            return;
        }
        let mut pass = manager.begin_recall(&Budget::new().moves(1 + round % 16)).expect("alive");
        match round % 4 {
            0 => drop(pass),
            1 => pass.start().expect("alive"),
            _ => drop(pass.commit().expect("alive")),
        }
        if round % 8 == 7 {
            manager.begin_defragment(&Budget::new()).and_then(Pass::commit).expect("alive");
        }
        manager.validate().expect("sound");
    }
}

#[test]
fn threads_work_on_while_what_spilled_is_called_back() {
    for (paged, guards) in [(false, false), (true, false), (true, true)] {
        let (manager, stop) = (manager(paged, guards), AtomicBool::new(false));
        let live: Live = std::thread::scope(|scope| {
            let mover = scope.spawn(|| stir(&manager, &stop));
            let start = |thread| {
                let manager = &manager;
                scope.spawn(move || work(manager, thread, 600))
            };
            let workers: Vec<_> = (1..=3).map(start).collect();
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Relaxed);
            mover.join().expect("no panic");
            ended.into_iter().flat_map(|worker| worker.expect("no panic")).collect()
        });
        settle(&manager, live);
    }
}

/// Frees what fills the near heap; then the rest comes back, and nothing is left in the end.
#[track_caller]
fn settle(manager: &Manager<Host>, mut live: Live) {
    live.iter().for_each(|(byte, one)| check(one, *byte));
    live.retain(|(_, one)| one.heap() == FAR);
    live.truncate(8);
    manager.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    manager.begin_recall(&Budget::new()).and_then(Pass::commit).expect("alive");
    assert!(live.iter().all(|(_, one)| one.heap() == NEAR), "there is room for all");
    live.iter().for_each(|(byte, one)| check(one, *byte));
    manager.validate().expect("sound");
    drop(live);
    manager.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    assert_eq!(manager.totals().live, 0);
    assert_eq!(manager.overwrites().unwrap_or_default(), []);
}
