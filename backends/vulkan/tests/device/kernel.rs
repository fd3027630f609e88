//! Batches through the compaction kernel, which a software device gets only when it is asked for.
use crate::rig::{MAIN, Rig, at, first, pattern, read, transfer, write};
use omniheap_core::{Backend, Move};
use omniheap_vulkan::{Block, Copies, Feature, Vulkan};

crate::cases! {
    moves_of_every_alignment_arrive_and_touch_nothing_else if has;
    thousands_of_mixed_moves_are_one_batch if has;
    a_long_move_is_split_among_groups if has;
    more_moves_than_a_list_holds_go_as_several if has;
    groups_share_what_a_full_list_holds if has;
    a_queue_that_only_copies_still_copies if has;
    kernel_copies_are_ordered_with_writes_and_fills if has;
}

fn has(vulkan: &Vulkan) -> bool {
    vulkan.has(Feature::BufferDeviceAddress)
}

fn open(rig: &Rig) -> Vulkan {
    rig.open_with(rig.options.copies(Copies::Kernel))
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// Returns a block that holds a pattern, and the pattern.
fn filled(vulkan: &Vulkan, seed: u64, size: u64) -> (Block, Vec<u8>) {
    let block = vulkan.allocate(first(vulkan), size).unwrap();
    let bytes = pattern(seed, index(size));
    write(vulkan, &block, 0, &bytes);
    (block, bytes)
}

/// Runs a batch of `(from, to, size)` and compares every byte of the target.
fn check(vulkan: &Vulkan, size: u64, steps: &[(u64, u64, u64)]) {
    let (source, from) = filled(vulkan, 1, size);
    let (target, mut to) = filled(vulkan, 2, size);
    let moves: Vec<_> = steps
        .iter()
        .map(|(a, b, size)| Move { from: at(&source, *a), to: at(&target, *b), size: *size })
        .collect();
    transfer(vulkan).copy(MAIN, &moves).unwrap();
    for (a, b, size) in steps {
        to[index(*b)..index(b + size)].copy_from_slice(&from[index(*a)..index(a + size)]);
    }
    let seen = read(vulkan, &target, 0, to.len());
    if let Some(wrong) = (0..to.len()).find(|at| seen[*at] != to[*at]) {
        panic!("byte {wrong} of the target");
    }
    assert!(read(vulkan, &source, 0, from.len()) == from, "the source");
}

fn moves_of_every_alignment_arrive_and_touch_nothing_else(rig: &Rig) {
    let vulkan = open(rig);
    let mut steps = Vec::new();
    let mut next = 0;
    for from in [0, 1, 3, 4, 8, 15] {
        for to in [0, 1, 4, 7, 12] {
            for size in [1, 2, 4, 16, 19, 100, 4099] {
                steps.push((next + from, next + to, size));
                next += 4160;
            }
        }
    }
    check(&vulkan, next, &steps);
}

fn thousands_of_mixed_moves_are_one_batch(rig: &Rig) {
    let vulkan = open(rig);
    let sizes = [64, 1024, 16, 4096, 257, 512];
    let steps: Vec<_> =
        (0..3000u64).map(|n| (n * 4096, ((n * 7) % 3000) * 4096, sizes[index(n % 6)])).collect();
    let (source, target) = (filled(&vulkan, 1, 64).0, filled(&vulkan, 2, 64).0);
    let times = vulkan.as_timelines().expect("always");
    let before = times.mark(MAIN).unwrap();
    let one = Move { from: at(&source, 0), to: at(&target, 0), size: 64 };
    transfer(&vulkan).copy(MAIN, &[one]).unwrap();
    assert_eq!(times.mark(MAIN).unwrap().0, before.0 + 1);
    check(&vulkan, 3000 * 4096, &steps);
}

fn a_long_move_is_split_among_groups(rig: &Rig) {
    let vulkan = open(rig);
    check(&vulkan, 5 << 20, &[(4, 20, (4 << 20) + 3)]);
    check(&vulkan, 5 << 20, &[(4, 8, 3 << 20)]);
}

fn more_moves_than_a_list_holds_go_as_several(rig: &Rig) {
    let vulkan = open(rig);
    let steps: Vec<_> = (0..60_000u64).map(|n| (n * 16, (59_999 - n) * 16, 12)).collect();
    check(&vulkan, 60_000 * 16, &steps);
}

fn groups_share_what_a_full_list_holds(rig: &Rig) {
    // Half the ring holds 682 tasks, of which 160 moves may need 480: what is left is too few for tasks of one group each.
    let vulkan = rig.open_with(rig.options.copies(Copies::Kernel).staging(32 << 10));
    let each = 64 << 10;
    let sizes = [60_000, 65_440, 32 << 10, (32 << 10) + 16, 48 << 10, 65_424];
    // Both ends alike for quads, or for words only.
    let steps: Vec<_> = (0..160u64)
        .map(|n| (n * each + n % 3 * 16, (159 - n) * each + n % 5 * 4, sizes[index(n % 6)]))
        .collect();
    check(&vulkan, 160 * each, &steps);
}

fn a_queue_that_only_copies_still_copies(rig: &Rig) {
    let vulkan = open(rig);
    let (source, bytes) = filled(&vulkan, 5, 4096);
    let target = vulkan.allocate(first(&vulkan), 4096).unwrap();
    vulkan.wait_idle().unwrap();
    for family in vulkan.families().to_vec() {
        let line = vulkan.open_timeline_on(family).unwrap();
        let all = Move { from: at(&source, 0), to: at(&target, 0), size: 4096 };
        transfer(&vulkan).fill(line, at(&target, 0), 4096, 0).unwrap();
        transfer(&vulkan).copy(line, &[all]).unwrap();
        let mut seen = vec![0; 4096];
        transfer(&vulkan).read(line, at(&target, 0), &mut seen).unwrap();
        assert!(seen == bytes, "family {family}");
    }
}

fn kernel_copies_are_ordered_with_writes_and_fills(rig: &Rig) {
    let vulkan = open(rig);
    let heap = first(&vulkan);
    let (a, b) = (vulkan.allocate(heap, 1 << 16).unwrap(), vulkan.allocate(heap, 1 << 16).unwrap());
    for round in 0..50u8 {
        transfer(&vulkan).fill(MAIN, at(&a, 0), 1 << 16, round).unwrap();
        transfer(&vulkan).write(MAIN, at(&a, 100), &[!round; 100]).unwrap();
        let all = Move { from: at(&a, 0), to: at(&b, 0), size: 1 << 16 };
        transfer(&vulkan).copy(MAIN, &[all]).unwrap();
        transfer(&vulkan).fill(MAIN, at(&a, 0), 1 << 16, 0).unwrap();
        let seen = read(&vulkan, &b, 0, 1 << 16);
        let expected = |at: usize| if (100..200).contains(&at) { !round } else { round };
        assert!((0..1 << 16).all(|at| seen[at] == expected(at)), "round {round}");
    }
}
