//! Random operations in random geometries.
use omniheap_core::{Align, Class, Layout};
use omniheap_model::{Geometry, Subject, decode, run, seed};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// Bytes in an operation string; an operation takes one to four.
const LONGEST: usize = 1200;

fn granularity() -> impl Strategy<Value = Align> {
    let sizes = vec![1, 1, 1, 16, 256, 1024, 64 << 10];
    prop::sample::select(sizes).prop_map(Align::of)
}

fn classes() -> impl Strategy<Value = Vec<Class>> {
    prop::sample::select(vec![vec![Class::Linear], vec![Class::Linear, Class::Tiled]])
}

/// Sizes of all magnitudes, half of them powers of two.
fn block(logs: core::ops::Range<u32>) -> impl Strategy<Value = u64> {
    (logs, any::<u64>(), any::<bool>()).prop_map(|(log, noise, round)| {
        let power = 1 << log;
        if round { power } else { power + noise % power }
    })
}

fn geometry(blocks: impl Strategy<Value = Vec<u64>>) -> impl Strategy<Value = Geometry> {
    (granularity(), blocks, classes()).prop_map(|(granularity, blocks, classes)| Geometry {
        granularity,
        blocks,
        classes,
    })
}

/// Runs random byte strings on random subjects and geometries, each twice: the same calls must give the same spans.
fn holds(test: &str, worlds: impl Strategy<Value = (Subject, Geometry)>) {
    let default = if cfg!(debug_assertions) { 64 } else { 512 };
    let cases = match std::env::var("OMNIHEAP_CASES") {
        Ok(text) => text.parse().expect("OMNIHEAP_CASES is a number"),
        Err(_) => default,
    };
    let mut start = [0; 32];
    start[..8].copy_from_slice(&seed(test).to_le_bytes());
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &start);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let input = (worlds, vec(any::<u8>(), 0..LONGEST));
    let result = runner.run(&input, |((subject, geometry), bytes)| {
        let first = run(subject, &geometry, &bytes);
        let second = run(subject, &geometry, &bytes);
        prop_assert_eq!(first, second, "the same calls gave other spans");
        Ok(())
    });
    match result {
        Ok(()) => (),
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}"),
        Err(TestError::Fail(reason, ((subject, geometry), bytes))) => {
            let ops = decode(&geometry, &bytes);
            panic!("{reason}\n{subject:?} in {geometry:?}\nbytes {bytes:?}\nare {ops:?}");
        }
    }
}

fn plain(subject: Subject, most: usize) -> impl Strategy<Value = (Subject, Geometry)> {
    geometry(vec(block(0..23), 1..=most)).prop_map(move |geometry| (subject, geometry))
}

#[test]
fn tlsf_follows_the_shadow() {
    holds("tlsf", plain(Subject::Tlsf, 4));
}

#[test]
fn buddy_follows_the_shadow() {
    let worlds = (0_u32..9).prop_flat_map(|log| {
        let subject = Subject::Buddy { unit: Align::of(1 << log) };
        geometry(vec(block(log..23), 1..=4)).prop_map(move |geometry| (subject, geometry))
    });
    holds("buddy", worlds);
}

#[test]
fn slab_follows_the_shadow() {
    let slots = (1_u64..3000, 0_u32..13).prop_map(|(size, log)| {
        let align = Align::of(1 << log);
        Layout::new(size).align(align)
    });
    let worlds = slots.prop_flat_map(|slot| {
        let subject = Subject::Slab { slot };
        let stride = subject.stride().expect("small slots do not overflow");
        let blocks = vec((1_u64..100, 0..stride), 1..=5).prop_map(move |list| {
            list.into_iter().map(|(slots, tail)| slots * stride + tail).collect()
        });
        geometry(blocks).prop_map(move |geometry| (subject, geometry))
    });
    holds("slab", worlds);
}

#[test]
fn stack_follows_the_shadow() {
    holds("stack", plain(Subject::Stack, 4));
}

#[test]
fn ring_follows_the_shadow() {
    holds("ring", plain(Subject::Ring, 1));
}

#[test]
fn bump_follows_the_shadow() {
    holds("bump", plain(Subject::Bump, 4));
}

#[test]
fn exact_follows_the_shadow() {
    holds("exact", plain(Subject::Exact, 4));
}

#[test]
fn first_fit_follows_the_shadow() {
    holds("first fit", plain(Subject::FirstFit, 4));
}
