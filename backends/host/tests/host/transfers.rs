//! Byte movement: what is refused, and what arrives.
use crate::common::{HEAP, MAIN, MIB, at, free, host, kind, read};
use omniheap_core::{Align, Backend, ErrorKind, HeapKind, InsideBlock, Move, Transfer};
use omniheap_host::{Block, Host, heap};

fn step<'a>(from: &'a Block, a: u64, to: &'a Block, b: u64, size: u64) -> Move<'a, Block> {
    Move { from: at(from, a), to: at(to, b), size }
}

#[test]
fn bytes_survive_a_round_trip_and_a_batch() {
    let host = host(MIB);
    let a = host.allocate(HEAP, 4096).expect("fits");
    let b = host.allocate(HEAP, 4096).expect("fits");
    let bytes: Vec<u8> = (0..=255).collect();
    host.write(MAIN, at(&a, 100), &bytes).expect("inside");
    host.copy(MAIN, &[step(&a, 100, &b, 1, 128), step(&a, 228, &b, 2000, 128)]).expect("disjoint");
    assert_eq!(read(&host, MAIN, &b, 1, 128), bytes[..128]);
    assert_eq!(read(&host, MAIN, &b, 2000, 128), bytes[128..]);
    assert_eq!(read(&host, MAIN, &b, 129, 1), [0]);
    host.copy(MAIN, &[step(&a, 355, &b, 129, 1)]).expect("disjoint");
    assert_eq!(read(&host, MAIN, &b, 129, 1), [255], "a single byte");
    free(&host, a).expect("idle");
    free(&host, b).expect("idle");
}

#[test]
fn ranges_outside_a_block_are_refused() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    for (offset, size) in [(4096, 1), (1, 4096), (u64::MAX, 2), (0, u64::MAX)] {
        assert_eq!(kind(host.fill(MAIN, at(&block, offset), size, 1)), ErrorKind::OutOfRange);
    }
    assert_eq!(kind(host.write(MAIN, at(&block, 4095), b"ab")), ErrorKind::OutOfRange);
    assert_eq!(kind(host.read(MAIN, at(&block, 4095), &mut [0; 2])), ErrorKind::OutOfRange);
    assert_eq!(kind(host.copy(MAIN, &[step(&block, 0, &block, 4095, 2)])), ErrorKind::OutOfRange);
    host.fill(MAIN, at(&block, 0), 0, 1).expect("zero bytes");
    host.copy(MAIN, &[]).expect("no moves");
    assert_eq!(read(&host, MAIN, &block, 0, 4096), vec![0; 4096]);
    free(&host, block).expect("nothing pending");
}

#[test]
fn overlapping_moves_are_refused() {
    let host = host(MIB);
    let a = host.allocate(HEAP, 4096).expect("fits");
    let b = host.allocate(HEAP, 4096).expect("fits");
    let overlap = |moves: &[Move<'_, Block>]| host.copy(MAIN, moves).err().map(|e| e.kind());
    let refused = Some(ErrorKind::Overlap);
    assert_eq!(overlap(&[step(&a, 0, &a, 10, 20)]), refused, "onto itself");
    assert_eq!(overlap(&[step(&a, 0, &b, 0, 20), step(&a, 50, &b, 19, 20)]), refused, "twice");
    assert_eq!(overlap(&[step(&a, 0, &b, 0, 20), step(&b, 19, &a, 90, 2)]), refused, "and source");
    assert_eq!(overlap(&[step(&a, 0, &b, 0, 100), step(&b, 10, &a, 200, 1)]), refused, "inside");
    assert_eq!(
        overlap(&[step(&a, 0, &b, 0, 20), step(&a, 0, &b, 20, 20)]),
        None,
        "one source twice"
    );
    assert_eq!(overlap(&[step(&a, 0, &a, 20, 20), step(&a, 60, &a, 40, 20)]), None, "neighbours");
    host.wait_idle().expect("alive");
    free(&host, a).expect("idle");
    free(&host, b).expect("idle");
}

#[test]
fn copy_rules_of_the_device_hold() {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, MIB))
        .copy_align(Align::of(4))
        .inside_block(InsideBlock::Forbidden)
        .open()
        .expect("valid");
    let a = host.allocate(HEAP, 4096).expect("fits");
    assert_eq!(kind(host.write(MAIN, at(&a, 2), &[0; 4])), ErrorKind::Misaligned);
    assert_eq!(kind(host.write(MAIN, at(&a, 4), &[0; 3])), ErrorKind::Misaligned);
    assert_eq!(kind(host.copy(MAIN, &[step(&a, 0, &a, 8, 4)])), ErrorKind::Unsupported);
    host.write(MAIN, at(&a, 4), &[0; 4]).expect("aligned");
    host.wait_idle().expect("alive");
    free(&host, a).expect("idle");
}

#[test]
fn opposite_copies_on_two_timelines_do_not_wait_for_each_other() {
    use omniheap_core::Timelines;
    let host = host(16 * MIB);
    let (x, y) = (host.open().expect("opens"), host.open().expect("opens"));
    let a = host.allocate(HEAP, MIB).expect("fits");
    let b = host.allocate(HEAP, MIB).expect("fits");
    // Many short copies: each is a chance to take the two blocks in the wrong order.
    let there: Vec<_> = (0..1000).map(|at| step(&a, at, &b, at, 1)).collect();
    let back: Vec<_> = (0..1000).map(|at| step(&b, at, &a, at, 1)).collect();
    for _ in 0..100 {
        host.copy(x, &there).expect("disjoint");
        host.copy(y, &back).expect("disjoint");
    }
    host.wait_idle().expect("alive");
    free(&host, a).expect("idle");
    free(&host, b).expect("idle");
}
