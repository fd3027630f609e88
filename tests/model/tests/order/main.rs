//! Order by construction: a device that runs everything as late or as early as it may, and programs that keep the rules.
mod device;
mod memory;
mod program;

use omniheap_model::seed;
use program::{Program, Stage};

/// Operations of a program on one stage.
const ROUND: u64 = 2_000;

/// Returns the number of operations of a test: `OMNIHEAP_OPERATIONS`, where it is set. Ten million take minutes, with
/// `--release`.
fn operations(usual: u64) -> u64 {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(usual)
}

fn run_alone(seed: u64) -> Result<(), String> {
    let stage = Stage::new(seed);
    Program::new(&stage, !seed, true).run(ROUND)?;
    stage.end()
}

fn run_crowded(seed: u64) -> Result<(), String> {
    let stage = Stage::crowded(seed);
    Program::new(&stage, !seed, true).run(ROUND)?;
    stage.end()
}

fn run_together(seed: u64, threads: u64) -> Result<(), String> {
    let stage = Stage::new(seed);
    let one = |n: u64| Program::new(&stage, !seed ^ (n << 40), false).run(ROUND);
    let ran: Result<Vec<()>, String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || one(n))).collect();
        let joined =
            running.into_iter().map(|thread| thread.join().expect("it says what is wrong"));
        joined.collect()
    });
    ran?;
    stage.end()
}

fn rounds(name: &str, count: u64, run: impl Fn(u64) -> Result<(), String>) {
    let first = seed(name);
    for seed in (first..).take(usize::try_from(count).expect("few")) {
        if let Err(why) = run(seed) {
            panic!("OMNIHEAP_SEED={seed}: {why}");
        }
    }
}

#[test]
fn one_program_finds_its_own_bytes() {
    let usual = if cfg!(debug_assertions) { 60_000 } else { 600_000 };
    rounds("one_program_finds_its_own_bytes", operations(usual) / ROUND, run_alone);
}

#[test]
fn many_timelines_hand_bytes_on_in_order() {
    let usual = if cfg!(debug_assertions) { 30_000 } else { 300_000 };
    rounds("many_timelines_hand_bytes_on_in_order", operations(usual) / ROUND, run_crowded);
}

#[test]
fn programs_that_share_a_manager_find_their_own_bytes() {
    let usual = if cfg!(debug_assertions) { 24_000 } else { 240_000 };
    let count = operations(usual) / ROUND / 3;
    rounds("programs_that_share_a_manager_find_their_own_bytes", count, |seed| {
        run_together(seed, 3)
    });
}
