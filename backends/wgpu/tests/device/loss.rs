//! A lost device: every call says so, and nothing hangs or panics.
#![expect(unsafe_code, reason = "frees blocks")]
use crate::{
    Check, Target,
    blocks::{DEVICE, HEAPS, kind},
    bytes::{MAIN, at},
};
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap_core::{Backend, Epoch, ErrorKind, Move, Point, Timelines, Transfer};
use omniheap_wgpu::Wgpu;
use std::sync::Arc;

pub(crate) const CASES: &[(&str, Check)] = &[
    ("a_lost_device_is_said_to_be_lost", a_lost_device_is_said_to_be_lost),
    ("every_call_notices_the_loss_itself", every_call_notices_the_loss_itself),
    ("a_busy_device_can_be_lost", a_busy_device_can_be_lost),
    ("an_engine_hears_of_the_loss", an_engine_hears_of_the_loss),
];

const LOST: Option<ErrorKind> = Some(ErrorKind::DeviceLost);

/// Every call, by name.
type Call = (&'static str, fn(&Wgpu, &[omniheap_wgpu::Block]) -> Option<ErrorKind>);

const CALLS: &[Call] = &[
    ("allocate", |b, _| kind(b.allocate(DEVICE, 64))),
    ("allocate staging", |b, _| kind(b.allocate(HEAPS[2], 64))),
    ("wait_idle", |b, _| kind(b.wait_idle())),
    ("write", |b, blocks| kind(b.write(MAIN, at(&blocks[0], 0), &[1; 64]))),
    ("write upload", |b, blocks| kind(b.write(MAIN, at(&blocks[2], 0), &[1; 64]))),
    ("read", |b, blocks| kind(b.read(MAIN, at(&blocks[0], 0), &mut [1; 64]))),
    ("read back", |b, blocks| kind(b.read(MAIN, at(&blocks[3], 0), &mut [1; 64]))),
    ("clear", |b, blocks| kind(b.fill(MAIN, at(&blocks[0], 0), 64, 0))),
    ("fill", |b, blocks| kind(b.fill(MAIN, at(&blocks[0], 0), 64, 9))),
    ("copy", |b, blocks| {
        let one = Move { from: at(&blocks[0], 0), to: at(&blocks[1], 0), size: 64 };
        kind(b.copy(MAIN, &[one]))
    }),
    ("mark", |b, _| kind(b.mark(MAIN))),
    ("reached", |b, _| kind(b.reached(MAIN))),
];

/// Calls that need not ask the device, once something else has noticed.
const QUIET: &[Call] = &[
    ("open", |b, _| kind(b.open())),
    ("wait", |b, _| kind(b.wait(Point { timeline: MAIN, epoch: Epoch::START }))),
    ("order", |b, _| kind(b.order(MAIN, Point { timeline: MAIN, epoch: Epoch::START }))),
];

fn blocks(backend: &Wgpu) -> Vec<omniheap_wgpu::Block> {
    HEAPS.iter().map(|&heap| backend.allocate(heap, 64).expect("small")).collect()
}

fn a_lost_device_is_said_to_be_lost(target: &Target) {
    let backend = (target.open)();
    let blocks = blocks(&backend);
    backend.write(MAIN, at(&blocks[0], 0), &[1; 64]).expect("there");
    backend.device().destroy();
    for (name, call) in CALLS.iter().chain(QUIET) {
        assert_eq!(call(&backend, &blocks), LOST, "{name}");
    }
    for block in blocks {
        // SAFETY: the block came from this backend, and its work died with the device.
        assert_eq!(kind(unsafe { backend.free(block) }), LOST);
    }
}

/// On an engine's device, where no callback of ours is installed.
fn every_call_notices_the_loss_itself(target: &Target) {
    for (name, call) in CALLS {
        let opened = (target.open)();
        let backend = Wgpu::wrap(opened.device().clone(), opened.queue().clone());
        let blocks = blocks(&backend);
        backend.device().destroy();
        assert_eq!(call(&backend, &blocks), LOST, "{name}");
    }
}

fn a_busy_device_can_be_lost(target: &Target) {
    let backend = (target.open)();
    let size = 32 << 20;
    let block = backend.allocate(DEVICE, size).expect("fits");
    for value in 1..20 {
        backend.fill(MAIN, at(&block, 0), size, value).expect("in range");
    }
    let epoch = backend.mark(MAIN).expect("there");
    backend.device().destroy();
    assert_eq!(kind(backend.allocate(DEVICE, 64)), LOST);
    assert_eq!(kind(backend.wait(Point { timeline: MAIN, epoch })), LOST);
    assert_eq!(kind(backend.wait_idle()), LOST);
}

fn an_engine_hears_of_the_loss(target: &Target) {
    let opened = (target.open)();
    let heard = Arc::new(AtomicBool::new(false));
    let hear = Arc::clone(&heard);
    opened.device().set_device_lost_callback(move |_, _| hear.store(true, Ordering::SeqCst));
    let backend = Wgpu::wrap(opened.device().clone(), opened.queue().clone());
    backend.device().destroy();
    assert_eq!(kind(backend.wait_idle()), LOST);
    assert!(heard.load(Ordering::SeqCst));
}
