//! A pass that publishes new places, and threads that read, write, free and allocate meanwhile.
use crate::*;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::SeqCst;
use loom::sync::atomic::AtomicU64;
use loom::thread;

/// Bytes of a span; each has one number in it.
const PIECE: u64 = 256;
/// Spans of a block.
const EACH: u64 = 4;

/// A block of numbers that the checker watches.
type Numbers = Arc<Vec<AtomicU64>>;

/// A device that copies numbers at once.
struct Copier {
    caps: Caps,
}

impl Copier {
    fn new() -> Self {
        let mut caps = super::Fake::new(&Arc::default()).caps.clone();
        caps.heaps[0].granule = Align::of(PIECE);
        Self { caps }
    }
}

// SAFETY: numbers of one block are no other's; `caps` never changes.
unsafe impl Backend for Copier {
    type Block = Numbers;
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn allocate(&self, _: HeapId, size: u64) -> Result<Numbers> {
        Ok(Arc::new((0..size / PIECE).map(|_| AtomicU64::new(0)).collect()))
    }
    unsafe fn free(&self, _: Numbers) -> Result<()> {
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Numbers>> {
        Some(self)
    }
}

// SAFETY: copies touch the numbers of the spans that they are given.
unsafe impl Transfer for Copier {
    type Block = Numbers;

    fn write(&self, _: TimelineId, _: Place<'_, Numbers>, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: TimelineId, _: Place<'_, Numbers>, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn fill(&self, _: TimelineId, _: Place<'_, Numbers>, _: u64, _: u8) -> Result<()> {
        Ok(())
    }
    fn copy(&self, _: TimelineId, moves: &[Move<'_, Numbers>]) -> Result<()> {
        for step in moves {
            let number = at(step.from.block, step.from.offset).load(SeqCst);
            at(step.to.block, step.to.offset).store(number, SeqCst);
        }
        Ok(())
    }
}

fn at(block: &Numbers, offset: u64) -> &AtomicU64 {
    &block[usize::try_from(offset / PIECE).expect("small")]
}

fn set(one: &Allocation<Copier>, number: u64) {
    let binding = one.binding();
    at(binding.block(), binding.span().offset).store(number, SeqCst);
}

fn get(one: &Allocation<Copier>) -> u64 {
    let binding = one.binding();
    at(binding.block(), binding.span().offset).load(SeqCst)
}

/// A block with one allocation, and one with two: a pass moves the one to the two.
fn scattered() -> (Manager<Copier>, Vec<Allocation<Copier>>) {
    let mut config = ManagerConfig::default().plain();
    (config.pool.lanes, config.pool.block) = (Some(1), Some(PIECE * EACH));
    let manager = Manager::with_config(Copier::new(), config);
    let all: Vec<_> =
        (0..2 * EACH).map(|_| manager.allocate(&Request::new(PIECE)).expect("fits")).collect();
    let mut live: Vec<_> =
        (0..).zip(all).filter(|(n, _)| [0, 4, 6].contains(n)).map(|(_, one)| one).collect();
    (1..).zip(&live).for_each(|(number, one)| set(one, number));
    live.swap(0, 2);
    (manager, live)
}

/// Checks a model with up to three switches where nobody waits: more take hours.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn commit(manager: &Manager<Copier>) {
    let pass = manager.begin_defragment(&Budget::new()).expect("works");
    pass.commit().expect("works");
}

#[test]
fn what_is_written_while_a_pass_copies_is_kept() {
    check(|| {
        let (manager, mut live) = scattered();
        let moved = live.pop().expect("three");
        let other = thread::spawn(move || {
            let seen = get(&moved);
            set(&moved, 9);
            (seen, moved)
        });
        commit(&manager);
        let (seen, moved) = other.join().expect("no panic");
        assert_eq!((seen, get(&moved)), (1, 9), "a place was shown half moved");
        assert!([get(&live[0]), get(&live[1])] == [3, 2]);
        assert_eq!(manager.validate(), Ok(()));
    });
}

#[test]
fn what_is_freed_while_a_pass_copies_is_free_once() {
    check(|| {
        let (manager, mut live) = scattered();
        let moved = live.pop().expect("three");
        let other = thread::spawn({
            let manager = manager.clone();
            move || {
                drop(moved);
                let next = manager.allocate(&Request::new(PIECE)).expect("fits");
                set(&next, 7);
                next
            }
        });
        commit(&manager);
        let next = other.join().expect("no panic");
        assert!([get(&live[0]), get(&live[1]), get(&next)] == [3, 2, 7]);
        assert_eq!(manager.report().totals.live, 3);
        assert_eq!(manager.validate(), Ok(()));
    });
}

#[test]
fn a_pass_that_is_dropped_leaves_every_number_in_one_place() {
    check(|| {
        let (manager, mut live) = scattered();
        let moved = live.pop().expect("three");
        let other = thread::spawn(move || (get(&moved), moved));
        let mut pass = manager.begin_defragment(&Budget::new()).expect("works");
        pass.start().expect("works");
        drop(pass);
        let (seen, moved) = other.join().expect("no panic");
        assert_eq!((seen, get(&moved)), (1, 1));
        assert_eq!(manager.totals().live, 3);
        assert_eq!(manager.validate(), Ok(()));
    });
}
