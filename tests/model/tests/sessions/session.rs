//! Random sessions with the manager. A failure is shrunk and kept in `tests/regressions`, which runs first ever after.
use omniheap_model::{seed, session};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestRng, TestRunner,
};

/// Sessions per run; `OMNIHEAP_CASES` sets another number.
const CASES: u32 = if cfg!(debug_assertions) { 300 } else { 2000 };

#[test]
fn any_session_keeps_every_promise() {
    let cases = std::env::var("OMNIHEAP_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions/session.txt");
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        source_file: Some(file!()),
        ..Config::default()
    };
    let seed = seed("any_session_keeps_every_promise").to_le_bytes();
    let rng = TestRng::from_seed(
        RngAlgorithm::ChaCha,
        &core::array::from_fn::<_, 32, _>(|i| seed[i % 8]),
    );
    let ran = TestRunner::new_with_rng(config, rng).run(&vec(any::<u8>(), 0..700), |bytes| {
        std::panic::catch_unwind(|| session::run(&bytes))
            .map_err(|_| TestCaseError::fail("a promise is broken"))
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}
