//! As many random operations on every strategy as one likes: `OMNIHEAP_OPERATIONS` says how many, over all cores.
//!
//! The shadow checks every grant and every free; every promise is checked now and then in each string of operations, and
//! in some strings after each of them.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{Align, Class, Layout};
use omniheap_model::{Driver, Geometry, Op, Random, Subject, decode, run, seed};

/// Bytes in a string of operations, which take one to four each.
const LENGTH: usize = 1500;
/// Strings between two that are checked in full.
const FULL: u64 = 32;
/// Operations of the other strings between two that are checked in full.
const GLANCE: usize = 64;
/// Live spans that are freed at the end with a full check after each.
const FEW: usize = 8;

fn operations() -> u64 {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(if cfg!(debug_assertions) { 20_000 } else { 5_000_000 })
}

/// Any strategy in blocks of one of five sizes.
fn world(numbers: &mut Random) -> (Subject, Geometry) {
    let size: u64 = numbers.pick(&[1000, 4096, 65_536, 1 << 20, 3 << 21]);
    let granularity = Align::of(numbers.pick(&[1, 1, 256, 1024]));
    // A block of thousands of units takes longer to look through than all else together.
    let least = size / 512 + 1;
    let subject = match numbers.below(11) {
        0..=3 => Subject::Tlsf,
        4 => Subject::Buddy { unit: Align::of(least.next_power_of_two() << numbers.below(7)) },
        5 => Subject::Slab { slot: Layout::new(least + numbers.below(900)) },
        6 => Subject::Stack,
        7 => Subject::Ring,
        8 => Subject::Bump,
        9 => Subject::Exact,
        _ => Subject::FirstFit,
    };
    let count = if subject == Subject::Ring { 1 } else { 1 + numbers.below(3) };
    let classes = vec![Class::Linear, Class::Tiled];
    let blocks = (0..count).map(|index| size + index * (size / 2)).collect();
    (subject, Geometry { granularity, blocks, classes })
}

/// Runs one string of operations; says how many.
fn string(numbers: &mut Random, is_full: bool) -> u64 {
    let (subject, geometry) = world(numbers);
    let bytes: Vec<u8> = (0..LENGTH / 8).flat_map(|_| numbers.number().to_le_bytes()).collect();
    if is_full {
        return run(subject, &geometry, &bytes).len() as u64;
    }
    let mut driver = Driver::new(subject, geometry.granularity);
    let blocks = geometry.blocks.iter().map(|&size| Op::AddBlock(size));
    let mut count = 0;
    for op in blocks.chain(decode(&geometry, &bytes)) {
        step(&mut driver, op, count);
        count += 1;
    }
    while driver.shadow().live().len() > FEW {
        step(&mut driver, Op::FreeNewest, count);
        count += 1;
    }
    driver.look();
    driver.drain();
    count as u64
}

/// Does one thing and checks, now and then, every promise.
fn step(driver: &mut Driver, op: Op, number: usize) {
    if number.is_multiple_of(GLANCE) {
        driver.look();
        driver.apply(op);
    } else {
        driver.replay(op);
    }
}

#[test]
fn every_strategy_follows_the_shadow_for_long() {
    let (seed, wanted) = (seed("long"), operations());
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        while done.load(Relaxed) < wanted {
            let number = next.fetch_add(1, Relaxed);
            let mut numbers = Random(seed ^ number.wrapping_mul(0xa076_1d64_78bd_642f));
            let count = string(&mut numbers, number.is_multiple_of(FULL));
            done.fetch_add(count, Relaxed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().for_each(|one| one.join().expect("no promise is broken"));
    });
    println!("{} operations in {} strings, none wrong", done.into_inner(), next.into_inner());
}
