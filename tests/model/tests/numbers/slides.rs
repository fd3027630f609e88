//! Slides that cannot be finished: every byte is at one place, the old one or the new.
use super::before::{Asked, asked};
use super::{KIB, MIB};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Allocation, ErrorKind, HeapId, HeapKind, InsideBlock, Manager, ManagerConfig, PoolConfig,
    Request, TimelineId, UserPool,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex};

/// The bytes of a block of which a hole lies before what has to slide.
struct Stage {
    pool: UserPool<Asked>,
    slides: Vec<(u8, Allocation<Asked>)>,
    /// The number of the copy from which on all are refused.
    refused_from: Arc<AtomicU64>,
    copies: Arc<AtomicU64>,
    manager: Manager<Asked>,
}

/// Bytes that differ at any distance; cheap to make.
fn stamp(id: u8, size: u64) -> Vec<u8> {
    let mut bytes = vec![id; usize::try_from(size).expect("small")];
    for (number, few) in bytes.chunks_mut(512).enumerate() {
        few[..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

impl Stage {
    /// What slides does so by `distance`.
    fn new(distance: u64, sizes: &[u64], inside: InsideBlock) -> Self {
        let host = Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).inside_block(inside);
        let host = Arc::new(host.open().expect("a host device"));
        let [refused_from, copies] = [u64::MAX, 0].map(|value| Arc::new(AtomicU64::new(value)));
        let (from, count) = (Arc::clone(&refused_from), Arc::clone(&copies));
        let device = asked(&host, move |call| match call.kind {
            CallKind::Copy if count.fetch_add(1, Relaxed) >= from.load(Relaxed) => {
                Verdict::Refuse(ErrorKind::Driver.into())
            }
            _ => Verdict::Forward,
        });
        let manager = Manager::with_config(device, ManagerConfig::default().plain());
        let whole = 16 * MIB;
        let pool = PoolConfig::new().block(whole).maximum(whole).lanes(1);
        let pool = manager.create_pool(HeapId(0), pool).expect("valid");
        let ask = |size| pool.allocate(&Request::new(size)).expect("fits");
        let below = ask(distance);
        let slides: Vec<_> = (1..).zip(sizes.iter().map(|size| ask(*size))).collect();
        slides.iter().for_each(|(id, one)| one.write(0, &stamp(*id, one.size())).expect("fits"));
        drop(below);
        copies.store(0, Relaxed);
        Self { pool, slides, refused_from, copies, manager }
    }

    /// Asks for all that is free.
    fn ask_for_the_rest(&self) -> bool {
        let live: u64 = self.slides.iter().map(|(_, one)| one.size()).sum();
        self.pool.allocate(&Request::new(16 * MIB - live)).is_ok()
    }

    #[track_caller]
    fn is_intact(&self, when: &str) {
        for (id, one) in &self.slides {
            let mut seen = vec![0; usize::try_from(one.size()).expect("small")];
            one.read(0, &mut seen).expect("in range");
            assert!(seen == stamp(*id, one.size()), "{id} lost its bytes {when}");
        }
    }
}

/// From the first copy on, the device cannot be waited for as a whole, as during a capture. The timeline of the copies can.
#[test]
fn copies_are_waited_for_where_the_device_cannot_be() {
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let (holder, held) = (Arc::clone(&host), Mutex::new(None));
    let is_captured = AtomicBool::new(false);
    let device = asked(&host, move |call| {
        let mut held = held.lock().expect("nothing panics");
        match call.kind {
            CallKind::Copy if !is_captured.swap(true, Relaxed) => {
                *held = Some(holder.hold(TimelineId::MAIN).expect("open"));
            }
            CallKind::WaitIdle if is_captured.load(Relaxed) => {
                return Verdict::Refuse(ErrorKind::Busy.into());
            }
            CallKind::Wait => *held = None,
            _ => {}
        }
        Verdict::Forward
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    drop(manager.allocate(&Request::new(16 * MIB)).expect("one block"));
    let below = manager.allocate(&Request::new(4 * MIB)).expect("fits");
    let one = manager.allocate(&Request::new(6 * MIB)).expect("fits");
    one.write(0, &stamp(1, one.size())).expect("in range");
    drop(below);
    let rest = manager.allocate(&Request::new(10 * MIB)).expect("ten free MiB become one hole");
    let mut seen = stamp(0, one.size());
    one.read(0, &mut seen).expect("in range");
    assert!(seen == stamp(1, one.size()), "its bytes were still on the way");
    drop((rest, one));
    core::mem::forget(manager); // Nothing more can be waited for.
}

/// From one copy on, the driver makes none any more: what was moved in part goes back through the host.
#[test]
fn copies_that_never_work_again_lose_no_byte() {
    let shapes: [(u64, &[u64]); 3] =
        [(MIB, &[4 * MIB, 2 * MIB]), (4 * KIB, &[12 * MIB]), (MIB, &[MIB / 2, MIB / 2, 3 * MIB])];
    for (distance, sizes) in shapes {
        for inside in [InsideBlock::Allowed, InsideBlock::Forbidden] {
            let mut nth = 0;
            loop {
                let stage = Stage::new(distance, sizes, inside);
                stage.refused_from.store(nth, Relaxed);
                let served = stage.ask_for_the_rest();
                let when = format!("after {nth} copies of {sizes:?}, {inside:?}");
                assert_eq!(served, stage.copies.load(Relaxed) <= nth, "{when}");
                stage.is_intact(&when);
                stage.refused_from.store(u64::MAX, Relaxed);
                assert!(stage.ask_for_the_rest(), "it copies again {when}");
                stage.is_intact(&when);
                let costs = stage.manager.report().move_costs[0];
                assert!(costs.wait.is_some() && costs.per_copy.is_some(), "it is learnt {when}");
                if served {
                    break;
                }
                nth += 1;
            }
            assert!(nth > 1, "{nth} copies of {sizes:?}");
        }
    }
}
