//! Bytes: they arrive, all of them and no others.
use crate::{
    Check, Target,
    blocks::{CONSTANT, DEVICE, HEAPS, READ_BACK, UPLOAD, free, kind},
};
use core::sync::atomic::{AtomicU32, Ordering};
use omniheap_core::{Backend, BlockOffset, ErrorKind, Move, TimelineId, Transfer};
use omniheap_wgpu::{Block, Wgpu};
use std::sync::Arc;

pub(crate) const CASES: &[(&str, Check)] = &[
    ("bytes_survive_a_round_trip_in_every_heap", bytes_survive_a_round_trip_in_every_heap),
    ("long_transfers_go_in_chunks", long_transfers_go_in_chunks),
    ("fresh_blocks_are_zero", fresh_blocks_are_zero),
    ("fills_touch_only_their_range", fills_touch_only_their_range),
    ("copies_work_between_all_heaps", copies_work_between_all_heaps),
    ("a_batch_copies_across_many_blocks", a_batch_copies_across_many_blocks),
    ("bad_ranges_are_refused_before_wgpu", bad_ranges_are_refused_before_wgpu),
    ("a_refused_batch_moves_nothing", a_refused_batch_moves_nothing),
    ("foreign_blocks_are_refused", foreign_blocks_are_refused),
    ("threads_share_staging_blocks", threads_share_staging_blocks),
    ("staging_is_bounded", staging_is_bounded),
    ("an_engines_handlers_stay", an_engines_handlers_stay),
];

pub(crate) const MAIN: TimelineId = TimelineId::MAIN;

pub(crate) fn at(block: &Block, offset: u64) -> BlockOffset<'_, Block> {
    BlockOffset { block, offset }
}

pub(crate) fn bytes_of(backend: &Wgpu, block: &Block) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::try_from(block.size()).expect("small")];
    backend.read(MAIN, at(block, 0), &mut bytes).expect("in range");
    bytes
}

fn pattern(size: usize, seed: u8) -> Vec<u8> {
    (0..size).map(|i| (i * 31 + i / 251) as u8 ^ seed).collect()
}

fn bytes_survive_a_round_trip_in_every_heap(target: &Target) {
    let backend = (target.open)();
    for heap in HEAPS {
        let block = backend.allocate(heap, 4096).expect("small");
        let mut expected = vec![0; 4096];
        // Offsets that are multiples of four but not of eight, at the start, inside, at the end.
        for (offset, size) in [(0, 4), (4, 4), (12, 100), (1020, 2048), (4092, 4)] {
            let bytes = pattern(size, offset as u8);
            backend.write(MAIN, at(&block, offset as u64), &bytes).expect("in range");
            expected[offset..offset + size].copy_from_slice(&bytes);
            let mut back = vec![0; size];
            backend.read(MAIN, at(&block, offset as u64), &mut back).expect("in range");
            assert_eq!(back, bytes, "{heap:?} at {offset}");
        }
        assert_eq!(bytes_of(&backend, &block), expected, "{heap:?}");
        free(&backend, block);
    }
}

fn long_transfers_go_in_chunks(target: &Target) {
    let backend = (target.open)();
    let size = (33 << 20) + 12;
    let bytes = pattern(size, 5);
    for heap in [DEVICE, UPLOAD, READ_BACK] {
        let block = backend.allocate(heap, size as u64 + 8).expect("fits");
        backend.write(MAIN, at(&block, 4), &bytes).expect("in range");
        let back = bytes_of(&backend, &block);
        assert!(back[4..size + 4] == bytes[..], "{heap:?}");
        assert_eq!((&back[..4], &back[size + 4..]), (&[0; 4][..], &[0; 4][..]), "{heap:?}");
        free(&backend, block);
    }
}

fn fresh_blocks_are_zero(target: &Target) {
    let backend = (target.open)();
    for heap in HEAPS {
        let block = backend.allocate(heap, 10_000).expect("small");
        backend.fill(MAIN, at(&block, 0), 10_000, 0xFF).expect("in range");
        free(&backend, block);
        let again = backend.allocate(heap, 10_000).expect("small");
        assert_eq!(bytes_of(&backend, &again), vec![0; 10_000], "{heap:?}");
    }
}

fn fills_touch_only_their_range(target: &Target) {
    let backend = (target.open)();
    let size = 9 << 20;
    for heap in HEAPS {
        let block = backend.allocate(heap, size).expect("fits");
        backend.fill(MAIN, at(&block, 0), size, 0x11).expect("in range");
        backend.fill(MAIN, at(&block, 4), 8 << 20, 0xAB).expect("in range");
        backend.fill(MAIN, at(&block, 64), 60, 0).expect("in range");
        backend.fill(MAIN, at(&block, 0), 0, 0xCD).expect("nothing to do");
        let mut expected = vec![0x11; size as usize];
        expected[4..4 + (8 << 20)].fill(0xAB);
        expected[64..124].fill(0);
        assert!(bytes_of(&backend, &block) == expected, "{heap:?}");
        free(&backend, block);
    }
}

fn copies_work_between_all_heaps(target: &Target) {
    let backend = (target.open)();
    for source in HEAPS {
        for destination in HEAPS {
            let from = backend.allocate(source, 1024).expect("small");
            let to = backend.allocate(destination, 1024).expect("small");
            let bytes = pattern(1024, source.0 * 16 + destination.0);
            backend.write(MAIN, at(&from, 0), &bytes).expect("in range");
            let one = Move { from: at(&from, 100), to: at(&to, 500), size: 500 };
            backend.copy(MAIN, &[one]).expect("in range");
            let mut expected = vec![0; 1024];
            expected[500..1000].copy_from_slice(&bytes[100..600]);
            assert_eq!(bytes_of(&backend, &to), expected, "{source:?} to {destination:?}");
        }
    }
}

fn a_batch_copies_across_many_blocks(target: &Target) {
    let backend = (target.open)();
    let blocks: Vec<_> =
        (0..8).map(|_| backend.allocate(DEVICE, 1 << 16).expect("small")).collect();
    let targets: Vec<_> =
        (0..8).map(|_| backend.allocate(CONSTANT, 1 << 16).expect("small")).collect();
    for (seed, block) in (0u8..).zip(&blocks) {
        backend.write(MAIN, at(block, 0), &pattern(1 << 16, seed)).expect("in range");
    }
    // Piece `p` of block `b` goes to piece `255 - p` of the block `3 b + p` further on.
    let mut moves = Vec::new();
    for (b, block) in blocks.iter().enumerate() {
        for p in 0..256 {
            let to = at(&targets[(b * 3 + p) % 8], (255 - p as u64) * 256);
            moves.push(Move { from: at(block, p as u64 * 256), to, size: 256 });
        }
    }
    backend.copy(MAIN, &moves).expect("in range");
    let whole: Vec<_> = targets.iter().map(|block| bytes_of(&backend, block)).collect();
    for b in 0..8 {
        let source = pattern(1 << 16, b as u8);
        for p in 0..256 {
            let found = &whole[(b * 3 + p) % 8][(255 - p) * 256..][..256];
            assert_eq!(found, &source[p * 256..][..256], "piece {p} of block {b}");
        }
    }
}

fn bad_ranges_are_refused_before_wgpu(target: &Target) {
    let backend = (target.open)();
    let other = backend.allocate(DEVICE, 64).expect("small");
    for heap in HEAPS {
        let block = backend.allocate(heap, 64).expect("small");
        let places = [(64, 4), (60, 8), (u64::MAX - 3, 4), (u64::MAX - 3, 8), (68, 0)];
        for (offset, size) in places {
            refused(&backend, &block, &other, (offset, size), ErrorKind::OutOfRange);
        }
        for (offset, size) in [(1, 4), (2, 4), (0, 3), (4, 5), (63, 1)] {
            refused(&backend, &block, &other, (offset, size), ErrorKind::Misaligned);
        }
        let inside = Move { from: at(&block, 0), to: at(&block, 32), size: 16 };
        assert_eq!(kind(backend.copy(MAIN, &[inside])), Some(ErrorKind::Unsupported));
        let closed = TimelineId(77);
        let refusal = kind(backend.write(closed, at(&block, 0), &[0; 4]));
        assert_eq!(refusal, Some(ErrorKind::NoSuchTimeline));
        assert_eq!(bytes_of(&backend, &block), [0; 64]);
    }
    backend.copy(MAIN, &[]).expect("nothing to do");
}

fn refused(backend: &Wgpu, block: &Block, other: &Block, range: (u64, u64), expected: ErrorKind) {
    let (offset, size) = range;
    let mut bytes = vec![9; size as usize];
    let place = at(block, offset);
    let from = Move { from: place, to: at(other, 0), size };
    let to = Move { from: at(other, 0), to: place, size };
    let refusals = [
        kind(backend.write(MAIN, place, &bytes)),
        kind(backend.read(MAIN, place, &mut bytes)),
        kind(backend.fill(MAIN, place, size, 9)),
        kind(backend.copy(MAIN, &[from])),
        kind(backend.copy(MAIN, &[to])),
    ];
    assert_eq!(refusals, [Some(expected); 5], "{range:?}");
}

fn a_refused_batch_moves_nothing(target: &Target) {
    let backend = (target.open)();
    let from = backend.allocate(DEVICE, 64).expect("small");
    let to = backend.allocate(DEVICE, 64).expect("small");
    backend.fill(MAIN, at(&from, 0), 64, 1).expect("in range");
    let good = Move { from: at(&from, 0), to: at(&to, 0), size: 16 };
    let bad = Move { from: at(&from, 60), to: at(&to, 32), size: 16 };
    assert_eq!(kind(backend.copy(MAIN, &[good, bad])), Some(ErrorKind::OutOfRange));
    assert_eq!(bytes_of(&backend, &to), [0; 64]);
}

fn foreign_blocks_are_refused(target: &Target) {
    let (backend, other) = ((target.open)(), (target.open)());
    let block = other.allocate(DEVICE, 64).expect("small");
    let own = backend.allocate(DEVICE, 64).expect("small");
    let mut bytes = [0; 4];
    let across = Move { from: at(&block, 0), to: at(&own, 0), size: 4 };
    let refusals = [
        kind(backend.write(MAIN, at(&block, 0), &bytes)),
        kind(backend.read(MAIN, at(&block, 0), &mut bytes)),
        kind(backend.fill(MAIN, at(&block, 0), 4, 1)),
        kind(backend.copy(MAIN, &[across])),
    ];
    assert_eq!(refusals, [Some(ErrorKind::Foreign); 4]);
}

/// While one thread has a staging block mapped, others copy from and to it.
fn threads_share_staging_blocks(target: &Target) {
    let backend = &(target.open)();
    let upload = &backend.allocate(UPLOAD, 8 * 256).expect("small");
    let back = &backend.allocate(READ_BACK, 8 * 256).expect("small");
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                let offset = thread * 256;
                let middle = backend.allocate(DEVICE, 256).expect("small");
                for round in 0..40 {
                    let bytes = pattern(256, (thread * 40 + round) as u8);
                    backend.write(MAIN, at(upload, offset), &bytes).expect("in range");
                    let down = Move { from: at(upload, offset), to: at(&middle, 0), size: 256 };
                    backend.copy(MAIN, &[down]).expect("in range");
                    let up = Move { from: at(&middle, 0), to: at(back, offset), size: 256 };
                    backend.copy(MAIN, &[up]).expect("in range");
                    let mut found = [0; 256];
                    backend.read(MAIN, at(back, offset), &mut found).expect("in range");
                    assert_eq!(found[..], bytes[..], "thread {thread}, round {round}");
                }
            });
        }
    });
}

fn staging_is_bounded(target: &Target) {
    let backend = (target.open)();
    let block = backend.allocate(DEVICE, 32 << 20).expect("fits");
    let bytes = pattern(32 << 20, 1);
    for _ in 0..8 {
        backend.write(MAIN, at(&block, 0), &bytes).expect("in range");
        assert!(backend.staging_bytes() <= 128 << 20, "{}", backend.staging_bytes());
    }
    backend.wait_idle().expect("the device is there");
    assert!(backend.staging_bytes() <= 64 << 20, "{}", backend.staging_bytes());
}

/// Errors of this crate's calls never reach the engine's handler, and the engine keeps it.
fn an_engines_handlers_stay(target: &Target) {
    let backend = (target.open)();
    let (device, queue) = (backend.device().clone(), backend.queue().clone());
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    device.on_uncaptured_error(Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let wrapped = Wgpu::wrap(device.clone(), queue);
    let block = wrapped.allocate(DEVICE, 64).expect("small");
    wrapped.write(MAIN, at(&block, 0), &[1; 64]).expect("in range");
    assert_eq!(bytes_of(&wrapped, &block), [1; 64]);
    assert_eq!(heard.load(Ordering::SeqCst), 0);
    let bad = wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::empty(),
        mapped_at_creation: false,
    };
    drop(device.create_buffer(&bad));
    assert_eq!(heard.load(Ordering::SeqCst), 1);
}
