//! Bytes in, out and across.
use crate::rig::{MAIN, Rig, at, first, normal, pattern, read, transfer, write};
use omniheap_core::{Backend, Move};

crate::cases! {
    long_writes_and_reads_pass_through_a_short_ring if |_| true;
    a_fill_touches_its_bytes_and_no_others if |_| true;
    a_batch_of_moves_arrives_whole if |_| true;
    moves_inside_a_block_arrive if |_| true;
    moves_cross_every_pair_of_heaps if |_| true;
    thousands_of_regions_are_one_batch if |_| true;
    writes_are_seen_in_order if |_| true;
    long_transfers_are_seen_in_order if |_| true;
}

fn long_writes_and_reads_pass_through_a_short_ring(rig: &Rig) {
    let vulkan = rig.open();
    let len = 3 * (256 << 10) + 12_345;
    let block = vulkan.allocate(first(&vulkan), len as u64 + 64).unwrap();
    let bytes = pattern(11, len);
    write(&vulkan, &block, 5, &bytes);
    assert!(read(&vulkan, &block, 5, len) == bytes);
    write(&vulkan, &block, 0, &[0xee; 5]);
    assert!(read(&vulkan, &block, 5, len) == bytes, "the neighbour's bytes stay");
}

fn a_fill_touches_its_bytes_and_no_others(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    for offset in 0usize..5 {
        for size in (0usize..14).chain([1000]) {
            let mut model = pattern((offset * 100 + size) as u64, 1100);
            write(&vulkan, &block, 0, &model);
            let place = at(&block, offset as u64);
            transfer(&vulkan).fill(MAIN, place, size as u64, 0xa5).unwrap();
            model[offset..offset + size].fill(0xa5);
            assert_eq!(read(&vulkan, &block, 0, 1100), model, "{offset} + {size}");
        }
    }
}

fn a_batch_of_moves_arrives_whole(rig: &Rig) {
    let vulkan = rig.open();
    let heap = first(&vulkan);
    let (count, size) = (500u64, 96u64);
    let blocks: Vec<_> = (0..3).map(|_| vulkan.allocate(heap, count * size).unwrap()).collect();
    let source = pattern(3, usize::try_from(count * size).unwrap());
    write(&vulkan, &blocks[0], 0, &source);
    let mut model = vec![vec![0u8; source.len()]; 2];
    for block in &blocks[1..] {
        transfer(&vulkan).fill(MAIN, at(block, 0), count * size, 0).unwrap();
    }
    let mut moves = Vec::new();
    for n in 0..count {
        let (to, place) = (usize::from(n % 3 == 0), (n * 7) % count);
        let bytes = size - n % 5;
        let (from, into) = (n * size, place * size);
        moves.push(Move { from: at(&blocks[0], from), to: at(&blocks[1 + to], into), size: bytes });
        let [from, into, bytes] = [from, into, bytes].map(|n| usize::try_from(n).unwrap());
        model[to][into..into + bytes].copy_from_slice(&source[from..from + bytes]);
    }
    transfer(&vulkan).copy(MAIN, &moves).unwrap();
    for (block, model) in blocks[1..].iter().zip(&model) {
        assert!(read(&vulkan, block, 0, model.len()) == *model);
    }
}

fn moves_inside_a_block_arrive(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 8192).unwrap();
    let bytes = pattern(5, 4096);
    write(&vulkan, &block, 0, &bytes);
    let moves = [
        Move { from: at(&block, 0), to: at(&block, 4096), size: 2048 },
        Move { from: at(&block, 2048), to: at(&block, 6144), size: 2048 },
    ];
    transfer(&vulkan).copy(MAIN, &moves).unwrap();
    assert!(read(&vulkan, &block, 4096, 4096) == bytes);
}

fn moves_cross_every_pair_of_heaps(rig: &Rig) {
    let vulkan = rig.open();
    let blocks: Vec<_> =
        normal(&vulkan).into_iter().map(|heap| vulkan.allocate(heap, 5000).unwrap()).collect();
    for (n, from) in blocks.iter().enumerate() {
        let bytes = pattern(n as u64, 4999);
        write(&vulkan, from, 1, &bytes);
        for to in blocks.iter().filter(|to| to.buffer() != from.buffer()) {
            let step = Move { from: at(from, 1), to: at(to, 0), size: 4999 };
            transfer(&vulkan).copy(MAIN, &[step]).unwrap();
            assert!(read(&vulkan, to, 0, 4999) == bytes);
        }
    }
}

fn thousands_of_regions_are_one_batch(rig: &Rig) {
    let vulkan = rig.open();
    let heap = first(&vulkan);
    // The layer compares every region with every other.
    let count: u64 = if vulkan.messages().is_some() { 1_000 } else { 10_000 };
    let size = count * 64;
    let (from, to) = (vulkan.allocate(heap, size).unwrap(), vulkan.allocate(heap, size).unwrap());
    let bytes = pattern(9, usize::try_from(size).unwrap());
    write(&vulkan, &from, 0, &bytes);
    let moves: Vec<_> = (0..count)
        .map(|n| Move { from: at(&from, n * 64), to: at(&to, (count - 1 - n) * 64), size: 64 })
        .collect();
    transfer(&vulkan).copy(MAIN, &moves).unwrap();
    let arrived = read(&vulkan, &to, 0, bytes.len());
    assert!(arrived.chunks(64).rev().flatten().eq(&bytes));
}

fn writes_are_seen_in_order(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 64).unwrap();
    for n in 0..200u8 {
        write(&vulkan, &block, 0, &[n; 64]);
        transfer(&vulkan).fill(MAIN, at(&block, 8), 8, !n).unwrap();
        write(&vulkan, &block, 10, &[n; 2]);
    }
    let last = read(&vulkan, &block, 0, 64);
    assert_eq!((last[0], last[8], last[10], last[12], last[63]), (199, !199, 199, !199, 199));
}

/// Long ones may go by a queue of their own.
fn long_transfers_are_seen_in_order(rig: &Rig) {
    let (vulkan, len) = (rig.open(), 9 << 20);
    let size = len as u64;
    let [from, to] = [(); 2].map(|()| vulkan.allocate(first(&vulkan), size).unwrap());
    for n in 1..9u8 {
        transfer(&vulkan).fill(MAIN, at(&from, 0), size, 0).unwrap();
        write(&vulkan, &from, 0, &vec![n; len]);
        transfer(&vulkan).fill(MAIN, at(&from, 8), 8, !n).unwrap();
        let all = Move { from: at(&from, 0), to: at(&to, 0), size };
        transfer(&vulkan).copy(MAIN, &[all]).unwrap();
        let mut seen = read(&vulkan, &to, 0, len);
        assert_eq!(seen[8..16], [!n; 8], "what came after the write");
        seen[8..16].fill(n);
        assert!(seen.iter().all(|byte| *byte == n), "the write came after the fill: {n}");
    }
}
