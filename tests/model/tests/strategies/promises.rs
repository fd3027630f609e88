//! Single promises, said one by one.
use omniheap_core::strategy::{BlockId, Buddy, Bump, Grant, Ring, Slab, Stack, Strategy};
use omniheap_core::{Align, Class, ErrorKind, Layout};
use omniheap_model::Subject;
use std::collections::BTreeSet;

const SUBJECTS: [Subject; 8] = [
    Subject::Tlsf,
    Subject::Buddy { unit: Align::ONE },
    Subject::Slab { slot: Layout::new(64) },
    Subject::Stack,
    Subject::Ring,
    Subject::Bump,
    Subject::Exact,
    Subject::FirstFit,
];

fn take(strategy: &mut dyn Strategy, size: u64) -> Grant {
    strategy.allocate(Layout::new(size), Class::Linear).expect("there is room")
}

fn offset(strategy: &mut dyn Strategy, size: u64) -> u64 {
    take(strategy, size).span.offset
}

#[test]
fn without_a_block_nothing_can_ever_fit() {
    for subject in SUBJECTS {
        let refused = subject.make(Align::ONE).allocate(Layout::new(1), Class::Linear);
        assert_eq!(refused, Err(ErrorKind::ExceedsLimit), "{subject:?}");
    }
}

#[test]
fn the_largest_numbers_are_refused_and_not_added_up() {
    let aligns = [0, 1, 21, 32, 62, 63].map(|log| Align::of(1 << log));
    for subject in SUBJECTS {
        for granularity in [Align::ONE, Align::of(64 << 10), Align::of(1 << 63)] {
            let mut strategy = subject.make(granularity);
            strategy.add_block(1 << 16).expect("a plain block");
            take(&mut *strategy, 1);
            for size in [u64::MAX, u64::MAX - 1, (1 << 63) + 1, 1 << 63, (1 << 62) + 1] {
                for layout in aligns.map(|align| Layout::new(size).align(align)) {
                    for class in [Class::Linear, Class::Tiled] {
                        let refused = strategy.allocate(layout, class);
                        assert_eq!(refused, Err(ErrorKind::ExceedsLimit), "{subject:?} {layout:?}");
                    }
                }
            }
            for layout in aligns.map(|align| Layout::new(1).align(align)) {
                // Granted or refused: what matters is that it is said.
                let _ = strategy.allocate(layout, Class::Tiled);
            }
            assert_eq!(strategy.add_block(u64::MAX), Err(ErrorKind::ExceedsLimit), "{subject:?}");
            assert_eq!(strategy.validate(), Ok(()), "{subject:?}");
        }
    }
}

#[test]
fn a_key_stays_stale_when_its_block_is_gone_and_its_id_is_used_again() {
    for subject in SUBJECTS {
        let mut strategy = subject.make(Align::ONE);
        let first = strategy.add_block(64).expect("a plain block");
        let old = take(&mut *strategy, 64);
        assert_eq!(strategy.remove_block(first), Err(ErrorKind::Busy), "{subject:?}");
        strategy.free(old.key).expect("it is live");
        strategy.remove_block(first).expect("it is empty");
        assert_eq!(strategy.remove_block(first), Err(ErrorKind::Stale), "{subject:?}");
        let second = strategy.add_block(64).expect("a plain block");
        assert_eq!(second, first, "{subject:?} does not use ids again");
        let new = take(&mut *strategy, 64);
        assert_eq!(strategy.free(old.key), Err(ErrorKind::Stale), "{subject:?}");
        assert_eq!(strategy.grant(old.key), Err(ErrorKind::Stale), "{subject:?}");
        assert_eq!(strategy.free(new.key), Ok(new), "{subject:?}");
    }
}

#[test]
fn a_thousand_blocks_are_all_filled() {
    for subject in SUBJECTS.into_iter().filter(|subject| subject.most_blocks() > 1) {
        let mut strategy = subject.make(Align::ONE);
        for _ in 0..1000 {
            strategy.add_block(128).expect("a plain block");
        }
        let grants: Vec<_> = (0..2000).map(|_| take(&mut *strategy, 64)).collect();
        let places: BTreeSet<_> =
            grants.iter().map(|grant| (grant.block, grant.span.offset)).collect();
        assert_eq!(places.len(), 2000, "{subject:?}");
        let full = strategy.allocate(Layout::new(64), Class::Linear);
        assert_eq!(full, Err(ErrorKind::OutOfDeviceMemory), "{subject:?}");
        for grant in grants.iter().rev() {
            strategy.free(grant.key).expect("it is live");
        }
        assert_eq!((strategy.usage().free, strategy.validate()), (128_000, Ok(())), "{subject:?}");
    }
}

#[test]
fn buddy_halves_and_merges_fully() {
    let mut buddy = Buddy::new(Align::of(16), Align::ONE);
    buddy.add_block(1024).expect("a plain block");
    let grants: Vec<_> = (0..64).map(|_| take(&mut buddy, 9)).collect();
    assert!(grants.iter().all(|grant| grant.span.size == 16 && grant.span.offset % 16 == 0));
    for grant in grants.iter().step_by(2) {
        buddy.free(grant.key).expect("it is live");
    }
    assert_eq!(buddy.usage().largest_hole, 16);
    assert_eq!(buddy.allocate(Layout::new(17), Class::Linear), Err(ErrorKind::Fragmented));
    for grant in grants.iter().skip(1).step_by(2) {
        buddy.free(grant.key).expect("it is live");
    }
    assert_eq!((buddy.usage().holes, buddy.usage().largest_hole), (1, 1024));
}

#[test]
fn buddy_uses_every_unit_of_an_odd_block() {
    let mut buddy = Buddy::new(Align::of(16), Align::ONE);
    buddy.add_block(16 * 13 + 5).expect("a plain block");
    let sizes = [8, 4, 1].map(|units| take(&mut buddy, units * 16).span);
    assert_eq!(sizes.map(|span| span.offset), [0, 128, 192]);
    assert_eq!(buddy.usage().free, 0);
    assert_eq!(buddy.add_block(15), Err(ErrorKind::ExceedsLimit));
}

#[test]
fn slab_slots_are_exhaustive_unique_and_come_back() {
    let mut slab =
        Slab::new(Layout::new(24).align(Align::of(16)), Align::ONE).expect("a sound slot");
    slab.add_block(32 * 70 + 31).expect("a plain block");
    slab.add_block(32 * 5).expect("a plain block");
    let grants: Vec<_> = (0..75).map(|_| take(&mut slab, 24)).collect();
    let places: BTreeSet<_> = grants.iter().map(|grant| (grant.block, grant.span.offset)).collect();
    assert_eq!(places.len(), 75);
    let full = slab.allocate(Layout::new(24), Class::Linear);
    assert_eq!(full, Err(ErrorKind::OutOfDeviceMemory));
    let freed = slab.free(grants[41].key).expect("it is live");
    let again = take(&mut slab, 1);
    assert_eq!((again.block, again.span), (freed.block, freed.span));
}

#[test]
fn slab_gathers_in_the_oldest_block() {
    let mut slab = Slab::new(Layout::new(8), Align::ONE).expect("a sound slot");
    let blocks: Vec<_> = (0..3).map(|_| slab.add_block(64).expect("a plain block")).collect();
    let grants: Vec<_> = (0..17).map(|_| take(&mut slab, 8)).collect();
    assert_eq!(grants[16].block, blocks[2]);
    slab.free(grants[3].key).expect("it is live");
    slab.free(grants[16].key).expect("it is live");
    assert_eq!(take(&mut slab, 8).block, blocks[0]);
    slab.remove_block(blocks[2]).expect("the younger block is empty");
}

#[test]
fn slab_refuses_slots_that_cannot_be() {
    let slot = |size, log: u32| Slab::new(Layout::new(size).align(Align::of(1 << log)), Align::ONE);
    assert_eq!(slot(0, 0).err(), Some(ErrorKind::ZeroSize));
    assert_eq!(slot(u64::MAX, 1).err(), Some(ErrorKind::SizeOverflow));
    let mut slab = slot(32, 3).expect("a sound slot");
    assert_eq!(slab.add_block(31), Err(ErrorKind::ExceedsLimit));
    slab.add_block(64).expect("a plain block");
    let strict = slab.allocate(Layout::new(1).align(Align::of(64)), Class::Linear);
    assert_eq!(strict, Err(ErrorKind::ExceedsLimit));
}

#[test]
fn stack_has_bytes_back_when_all_above_them_are_free() {
    let mut stack = Stack::new(Align::ONE);
    stack.add_block(10).expect("a plain block");
    stack.add_block(10).expect("a plain block");
    let [a, b, c] = [8, 8, 2].map(|size| take(&mut stack, size));
    assert_eq!([a.block, b.block, c.block], [0, 1, 0].map(BlockId));
    assert_eq!((stack.free(a.key), stack.usage().free), (Ok(a), 2));
    assert_eq!(stack.free(a.key), Err(ErrorKind::Stale));
    assert_eq!((stack.free(b.key), stack.usage().free), (Ok(b), 10));
    assert_eq!((stack.free(c.key), stack.usage().free), (Ok(c), 20));
}

#[test]
fn ring_reclaims_in_order_and_wraps() {
    let mut ring = Ring::new(Align::ONE);
    ring.add_block(100).expect("a plain block");
    assert_eq!(ring.add_block(100), Err(ErrorKind::ExceedsLimit));
    let [a, b, c] = [40, 30, 20].map(|size| take(&mut ring, size));
    ring.free(b.key).expect("it is live");
    assert_eq!(ring.usage().free, 10, "b waits for a");
    ring.free(a.key).expect("it is live");
    assert_eq!(ring.usage().largest_hole, 70, "a and b came back");
    assert_eq!(offset(&mut ring, 60), 0, "the ring goes round");
    assert_eq!(ring.allocate(Layout::new(11), Class::Linear), Err(ErrorKind::OutOfDeviceMemory));
    assert_eq!(offset(&mut ring, 10), 60, "up to the oldest span exactly");
    ring.free(c.key).expect("it is live");
    assert_eq!(offset(&mut ring, 30), 70);
}

#[test]
fn bump_only_rises_until_its_block_is_empty() {
    let mut bump = Bump::new(Align::ONE);
    bump.add_block(100).expect("a plain block");
    let [a, b] = [40, 30].map(|size| take(&mut bump, size));
    bump.free(b.key).expect("it is live");
    let c = take(&mut bump, 30);
    assert_eq!(c.span.offset, 70, "b's bytes wait for the block");
    bump.free(a.key).expect("it is live");
    assert_eq!(bump.allocate(Layout::new(1), Class::Linear), Err(ErrorKind::OutOfDeviceMemory));
    bump.free(c.key).expect("it is live");
    assert_eq!(offset(&mut bump, 100), 0);
}
